"""The native half. Arrays are NumPy arrays (uint16 = the bits of bfloat16) or
``(address, dtype code, shape, strides in elements)``."""

from typing import Any, final

from numpy.typing import NDArray

__version__: str

Array = NDArray[Any] | tuple[int, int, tuple[int, ...], tuple[int, ...]]

def after_fork() -> None: ...
def fit_linear(
    x: NDArray[Any] | tuple[NDArray[Any], NDArray[Any], NDArray[Any], int],
    y: NDArray[Any],
    labels: int,
    loss: str,
    parameters: dict[str, float],
    l2: float,
    max_iter: int,
    tol: float,
    sample_weight: NDArray[Any] | None,
    fit_intercept: bool,
) -> tuple[NDArray[Any], NDArray[Any], int, float, bool]: ...

@final
class Mapping:
    name: str
    def __new__(
        cls,
        name: str,
        options: list[tuple[str, float]],
        varying: str | None = None,
        values: NDArray[Any] | None = None,
        run: int = 1,
    ) -> Mapping: ...
    def forward(
        self, z: Array, out: Array, axis: int = -1, mask: Array | None = None, threads: bool = True
    ) -> None: ...
    def forward_packed(self, z: int, out: int, rows: int, columns: int, code: int, threads: bool) -> None: ...
    def vjp(
        self,
        z: Array,
        p: Array,
        v: Array,
        out: Array,
        axis: int = -1,
        mask: Array | None = None,
        forward_mode: bool = False,
        threads: bool = True,
    ) -> None: ...
    def parameter_vjp(
        self,
        z: Array,
        p: Array,
        v: Array,
        axis: int = -1,
        mask: Array | None = None,
        threads: bool = True,
        out: Array | None = None,
    ) -> NDArray[Any]: ...
    def csr(
        self, z: Array, axis: int = -1, mask: Array | None = None, threads: bool = True
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def loss(
        self,
        z: Array,
        target: tuple[str, Any],
        gradient: Array | None = None,
        axis: int = -1,
        mask: Array | None = None,
        reduction: str = "none",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        weights: list[float] | None = None,
        threads: bool = True,
    ) -> NDArray[Any] | None: ...
    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        scale: float,
        mask: Array | None = None,
        threads: bool = True,
    ) -> bool: ...

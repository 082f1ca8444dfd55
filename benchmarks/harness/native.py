"""parsimax by ctypes: the C interface of benchmarks/native."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_size_t, c_void_p

SUFFIX = {"float32": "f32", "float64": "f64"}


class _Address(c_void_p):
    """Where a tensor lies; the tensor lives as long as this does."""

    def __init__(self, tensor):
        assert tensor.is_contiguous()
        super().__init__(tensor.data_ptr())
        self.tensor = tensor


class Native:
    """The library. Operations come as closures without arguments; calling one does the work."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.pxb_mapping_new.argtypes = [c_char_p, c_char_p]
        self.library.pxb_mapping_new.restype = c_void_p
        self.library.pxb_set_threads.argtypes = [c_size_t]
        self.library.pxb_memcpy.argtypes = [c_void_p, c_void_p, c_size_t]
        for name in ("pxb_registry", "pxb_last_error"):
            function = getattr(self.library, name)
            function.argtypes, function.restype = [c_char_p, c_size_t], c_size_t
        self.handles = {}

    def _text(self, function):
        buffer = ctypes.create_string_buffer(1 << 14)
        length = function(buffer, len(buffer))
        return buffer.raw[:length].decode()

    def _checked(self, code):
        if code != 0:
            raise RuntimeError(self._text(self.library.pxb_last_error))

    def registry(self):
        """The mappings and their cost, such as {"sparsemax": "O(d)"}."""
        lines = self._text(self.library.pxb_registry).splitlines()
        return dict(line.split("\t") for line in lines)

    def set_threads(self, threads):
        """The number of threads of all later calls."""
        self._checked(self.library.pxb_set_threads(threads))

    def mapping(self, name, options=""):
        """A handle, made once."""
        key = (name, options)
        if key not in self.handles:
            handle = self.library.pxb_mapping_new(name.encode(), options.encode())
            if not handle:
                raise RuntimeError(self._text(self.library.pxb_last_error))
            self.handles[key] = c_void_p(handle)
        return self.handles[key]

    def _call(self, name, dtype, signature, *arguments):
        """A closure without arguments, so that a timed call converts as little as possible."""
        function = getattr(self.library, f"pxb_{name}_{SUFFIX[dtype]}")
        function.argtypes, function.restype = signature, c_int32

        def run():
            if function(*arguments) != 0:
                raise RuntimeError(self._text(self.library.pxb_last_error))

        return run

    def forward(self, handle, z, p):
        """p ← Π(z)."""
        signature = [c_void_p] * 3 + [c_size_t] * 2
        return self._call("forward", _dtype(z), signature, handle, _Address(z), _Address(p), *z.shape)

    def vjp(self, handle, z, p, v, out):
        """out ← Jᵀv."""
        signature = [c_void_p] * 5 + [c_size_t] * 2
        arguments = (handle, _Address(z), _Address(p), _Address(v), _Address(out), *z.shape)
        return self._call("vjp", _dtype(z), signature, *arguments)

    def vjp_with_parameter(self, handle, z, p, v, out):
        """out ← Jᵀv, with the gradient in α, thrown away."""
        signature = [c_void_p] * 5 + [POINTER(c_double)] + [c_size_t] * 2
        arguments = (handle, _Address(z), _Address(p), _Address(v), _Address(out), byref(c_double()), *z.shape)
        return self._call("vjp_with_parameter", _dtype(z), signature, *arguments)

    def attention(self, handle, q, k, v, out):
        """out ← Π(QKᵀ/√width) V for [heads, n, width]."""
        signature = [c_void_p] * 5 + [c_size_t] * 3
        arguments = (handle, _Address(q), _Address(k), _Address(v), _Address(out), *q.shape)
        return self._call("attention", _dtype(q), signature, *arguments)

    def csr(self, handle, z):
        """The sparse result, thrown away."""
        signature = [c_void_p] * 2 + [POINTER(c_size_t)] + [c_size_t] * 2
        return self._call("csr", _dtype(z), signature, handle, _Address(z), byref(c_size_t()), *z.shape)

    def loss(self, handle, z, classes, gradient):
        """Mean Fenchel–Young loss against classes; gradient ← (p − y)/rows."""
        signature = [c_void_p] * 4 + [POINTER(c_double)] + [c_size_t] * 2
        arguments = (handle, _Address(z), _Address(classes), _Address(gradient), byref(c_double()), *z.shape)
        return self._call("loss", _dtype(z), signature, *arguments)

    def memcpy(self, to, source):
        """A copy of the bytes."""
        function = self.library.pxb_memcpy
        arguments = (_Address(to), _Address(source), source.numel() * source.element_size())
        return lambda: function(*arguments)


def _dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")

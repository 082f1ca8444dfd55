"""A large sparse multi-label fit beside SciPy: 23,149 rows, 47,236 features (0.16% of them set), 103 labels.

python benchmarks/linear.py [--iterations 100] [--threads 2] [--small]

Both sides minimise l2/2·‖W‖² + mean sparsemax loss from zero by L-BFGS with ten pairs, for the same number
of iterations. SciPy: L-BFGS-B over CSR products and a vectorised sparsemax; BLAS gets the same threads.
Needs numpy and scipy, and cargo. The data are simulated: Zipf words around the labels of a row.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--iterations", type=int, default=100)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--small", action="store_true", help="a tenth of everything")
parser.add_argument("--only", choices=["parsimax", "scipy"])
parser.add_argument("--folder", help="keep the data here")
ARGS = parser.parse_args()
os.environ.update({name: str(ARGS.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")})

import numpy as np  # noqa: E402
from scipy import optimize, sparse  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
L2 = 1e-5


def simulate(rows, columns, labels, density, seed=0):
    """Rows of tf-idf-like words: half of them typical of the row's labels, half of the language."""
    rng = np.random.default_rng(seed)
    words = max(2, round(columns * density))
    popularity = 1 / np.arange(1, columns + 1) ** 0.8
    popularity /= popularity.sum()
    typical = rng.integers(0, columns, (labels, 200))
    y_sets = [np.unique(rng.integers(0, labels, rng.integers(1, 6))) for _ in range(rows)]
    indptr, indices, data = [0], [], []
    common = rng.choice(columns, size=(rows, words), p=popularity)
    for row, on in enumerate(y_sets):
        own = typical[rng.choice(on, words), rng.integers(0, 200, words)]
        # Twice as many draws as needed, so that few rows fall short after repetitions are removed.
        found = rng.permutation(np.unique(np.concatenate([own, common[row]])))[:words]
        found.sort()
        value = rng.uniform(0.2, 1, len(found))
        indices.append(found)
        data.append(value / np.linalg.norm(value))
        indptr.append(indptr[-1] + len(found))
    x = sparse.csr_matrix((np.concatenate(data), np.concatenate(indices), np.array(indptr)), shape=(rows, columns))
    y_indptr = np.concatenate([[0], np.cumsum([len(on) for on in y_sets])])
    y = sparse.csr_matrix((np.ones(y_indptr[-1]), np.concatenate(y_sets), y_indptr), shape=(rows, labels))
    return x, y


def sparsemax_rows(z):
    """Sparsemax of every row by sorting, as NumPy does it best."""
    order = np.sort(z, axis=1)[:, ::-1]
    sums = np.cumsum(order, axis=1) - 1
    size = (order * np.arange(1, z.shape[1] + 1) > sums).sum(axis=1)
    tau = sums[np.arange(len(z)), size - 1] / size
    return np.maximum(z - tau[:, None], 0)


def with_scipy(x, y, iterations):
    (n, d), k = x.shape, y.shape[1]
    xt = x.T.tocsr()
    shares = (y.toarray() / np.asarray(y.sum(axis=1))).astype(np.float64)
    omega = 0.5 * (shares**2).sum()

    def objective(w):
        weights, bias = w[: d * k].reshape(d, k), w[d * k :]
        z = x @ weights + bias
        p = sparsemax_rows(z)
        value = omega + (p * z).sum() - 0.5 * (p * p).sum() - (z * shares).sum()
        g = (p - shares) / n
        gradient = np.empty_like(w)
        gradient[: d * k] = (xt @ g + L2 * weights).ravel()
        gradient[d * k :] = g.sum(axis=0)
        return value / n + L2 / 2 * (weights**2).sum(), gradient

    options = {"maxcor": 10, "maxiter": iterations, "maxfun": 10 * iterations, "ftol": 0, "gtol": 0}
    start = time.perf_counter()
    found = optimize.minimize(objective, np.zeros((d + 1) * k), jac=True, method="L-BFGS-B", options=options)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "value": found.fun,
        "iterations": found.nit,
        "evaluations": found.nfev,
        "peak_mb": peak,
    }


def with_parsimax(x, y, iterations, threads, folder):
    for name, part, kind in [
        ("shape", [x.shape[1], y.shape[1]], "<u8"),
        ("x-indptr", x.indptr, "<u8"),
        ("x-indices", x.indices, "<u8"),
        ("x-data", x.data, "<f8"),
        ("y-indptr", y.indptr, "<u8"),
        ("y-indices", y.indices, "<u8"),
    ]:
        np.asarray(part).astype(kind).tofile(folder / name)
    example = ["cargo", "run", "--quiet", "--release", "-p", "parsimax-linear", "--example", "large", "--"]
    command = [*example, str(folder), str(iterations), str(threads)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    scale = 10 if ARGS.small else 1
    x, y = simulate(23149 // scale, 47236 // scale, 103, 0.0016 * (scale if ARGS.small else 1))
    print(f"{x.shape[0]} x {x.shape[1]}, density {x.nnz / np.prod(x.shape):.4%}, {y.shape[1]} labels")
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(ARGS.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if ARGS.only != "scipy":
            results["parsimax"] = with_parsimax(x, y, ARGS.iterations, ARGS.threads, folder)
            print("parsimax", json.dumps(results["parsimax"]), flush=True)
        if ARGS.only != "parsimax":
            results["scipy"] = with_scipy(x, y, ARGS.iterations)
            print("scipy   ", json.dumps(results["scipy"]), flush=True)
    if len(results) == 2:
        print(f"time ratio parsimax/scipy: {results['parsimax']['seconds'] / results['scipy']['seconds']:.3f}")


if __name__ == "__main__":
    sys.exit(main())

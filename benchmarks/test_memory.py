"""Peak memory: it must not grow with the number of rows."""

from __future__ import annotations

from benchmarks._measure import keep, peak_megabytes, size

M = size(1_000, 100)

STREAMED = """
import sys
import numpy as np
from scalefair import BatchSource, FairKernelRidge
n, m = int(sys.argv[1]), int(sys.argv[2])

def batches():
    rng = np.random.default_rng(0)
    for start in range(0, n, 4_000):
        X = rng.standard_normal((min(4_000, n - start), 50))
        s = (X[:, 0] > 0).astype(int)
        yield X, X[:, 1] + s, s, None

model = FairKernelRidge(feature_map="fourier", n_components=m, length_scale=7.0, eta=1.0,
                        sensitive_kernel="categorical", random_state=0)
model.fit(BatchSource(batches), None)
assert model.n_samples_seen_ == n
"""

OURS = """
import sys
import numpy as np
from benchmarks._problems import table, fourier_map
from scalefair import FairKernelRidge
X, y, s = table(int(sys.argv[1]))
model = FairKernelRidge(feature_map=fourier_map(X, int(sys.argv[2])), eta=1.0,
                        sensitive_kernel="categorical")
model.fit(X, y, sensitive_features=s)
"""

PEER = """
import sys
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from benchmarks._problems import table
X, y, s = table(int(sys.argv[1]))
sampler = RBFSampler(gamma=0.01, n_components=int(sys.argv[2]), random_state=0)
make_pipeline(sampler, Ridge()).fit(X, y)
"""


def test_memory_does_not_grow_with_rows():
    few = peak_megabytes(STREAMED, size(200_000, 40_000), M)
    many = peak_megabytes(STREAMED, size(2_000_000, 80_000), M)
    keep("peak memory, 10x the rows / once", many / few, "within 5 %")
    keep("peak memory of 2,000,000 streamed rows, MB", many, "< 700")


def test_memory_against_scikit_learn():
    n = size(200_000, 4_000)
    nothing = peak_megabytes("import sys\nfrom benchmarks._problems import table\ntable(int(sys.argv[1]))", n)
    ours, peer = peak_megabytes(OURS, n, M), peak_megabytes(PEER, n, M)
    keep("scikit-learn memory / ours, data included", peer / ours, ">= 5")
    keep("scikit-learn memory / ours, beyond the data", (peer - nothing) / max(ours - nothing, 1), ">= 5")

"""How many digits normal equations and float32 rows keep, against QR on the rows themselves.

    python -m benchmarks.numerics

Φ has singular values from 1 down to 1/condition; y is a smooth function of it plus noise. The
reference solves the ridge problem by QR of the stacked rows [Φ; √(nα) I] in float64, which never
squares the condition number. Errors are of the predictions on the training rows, relative to the
reference; digits are those that `diagnostics_` tells of the coefficients. Writes
results/numerics.csv.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, qr, solve_triangular

from benchmarks._measure import RESULTS, save_lines
from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import Identity
from scalefair.moments import accumulate
from scalefair.solve.fit import ROUNDING, single_rounding
from scalefair.solve.ridge.direct import solve_primal
from scalefair.solve.ridge.system import System

N, M = 4000, 60


def rows(condition: float, seed: int = 0):
    """Φ with the given condition number, and y."""
    rng = np.random.default_rng(seed)
    U = qr(rng.standard_normal((N, M)), mode="economic")[0]
    U = qr(U - U.mean(axis=0), mode="economic")[0]
    V = qr(rng.standard_normal((M, M)))[0]
    Phi = np.sqrt(N) * U * np.logspace(0, -np.log10(condition), M) @ V.T
    return Phi, Phi @ rng.standard_normal(M) + 0.1 * rng.standard_normal(N)


def by_qr(Phi, y, alpha):
    """Predictions of the ridge fit with intercept, by QR of the stacked, centred rows."""
    centred = Phi - Phi.mean(axis=0)
    stacked = np.vstack([centred, np.sqrt(N * alpha) * np.eye(M)])
    Q, R = qr(stacked, mode="economic")
    right = np.concatenate([y - y.mean(), np.zeros(M)])
    return y.mean() + centred @ solve_triangular(R, Q.T @ right)


def by_moments(Phi, y, alpha, dtype):
    """The same from moments, as the library does."""
    source = ArraySource(Phi, None, y[:, None])
    (moments,) = accumulate(source, Design(Identity().fit(Phi), dtype=dtype), rows=500)
    system = System.build(moments)
    rounding = single_rounding(N) if dtype == np.float32 else ROUNDING
    coef, diagnostics = solve_primal(system, alpha, 0.0, rounding)
    intercept = system.moments.mean("y") - system.mean @ coef
    return (Phi @ coef + intercept)[:, 0], diagnostics.digits


def main() -> None:
    lines = []
    for condition in (1e2, 1e4, 1e6, 1e8, 1e10, 1e12):
        Phi, y = rows(condition)
        for alpha in (1e-4, 1e-8, 1e-12):
            reference = by_qr(Phi, y, alpha)
            line = {"condition": f"{condition:.0e}", "alpha": f"{alpha:.0e}"}
            for dtype in ("float64", "float32"):
                try:
                    found, digits = by_moments(Phi, y, alpha, np.dtype(dtype))
                    error = np.linalg.norm(found - reference) / np.linalg.norm(reference)
                    line[dtype], line[f"digits {dtype}"] = f"{error:.1e}", f"{digits:.1f}"
                except LinAlgError:
                    line[dtype], line[f"digits {dtype}"] = "singular, said so", "0"
            print(line)
            lines.append(line)
    save_lines(RESULTS / "numerics.csv", lines)


if __name__ == "__main__":
    main()

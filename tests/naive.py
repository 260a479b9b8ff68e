"""Slow, obvious references: the definitions, with explicit features, matrices and inverses.

Nothing here is clever and nothing here imports scalefair. `Phi` (n×m) and `Psi` (n×q) are the
features of inputs and sensitive attributes, `weight` (n,) row weights, n their sum. At the end,
small problems to try them on.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import minimize
from scipy.stats import multivariate_normal


def ones_if_none(weight, rows):
    return np.ones(rows) if weight is None else np.asarray(weight, dtype=float)


def columns(a):
    a = np.asarray(a, dtype=float)
    return a[:, None] if a.ndim == 1 else a


def rbf(X, Z, length_scale=1.0):
    """exp(−Σ (x_j − z_j)² / (2 θ_j²)); θ a number, or one per input (ARD)."""
    theta = np.broadcast_to(length_scale, X.shape[1])
    return np.array([[np.exp(-0.5 * np.sum(((x - z) / theta) ** 2)) for z in Z] for x in X]).reshape(len(X), len(Z))


def centring(n):
    """H = I − 11ᵀ/n."""
    return np.eye(n) - np.ones((n, n)) / n


def covariance(A, B, weight=None):
    """Centred covariance divided by n: Aᵀ(W − wwᵀ/n)B/n, which is AᵀHB/n without weights."""
    A, B = columns(A), columns(B)
    w = ones_if_none(weight, len(A))
    return A.T @ (np.diag(w) - np.outer(w, w) / w.sum()) @ B / w.sum()


def moment(A, B, weight=None):
    """Uncentred moment AᵀWB/n."""
    A, B = columns(A), columns(B)
    w = ones_if_none(weight, len(A))
    return A.T @ np.diag(w) @ B / w.sum()


def mean(A, weight=None):
    return np.average(columns(A), axis=0, weights=weight)


def power(C, exponent):
    """C^exponent of a symmetric positive semi-definite matrix, on its range."""
    values, vectors = np.linalg.eigh(C)
    keep = values > 1e-13 * values.max()
    return vectors[:, keep] @ np.diag(values[keep] ** exponent) @ vectors[:, keep].T


def factor(Phi, Psi, *, penalty="normalized", eps=1e-6, eps_phi=None, weight=None):
    """R of the table of penalties: |Rᵀβ|² is the penalty; ε of ψ a number, or one per column."""
    C_phi_psi = covariance(Phi, Psi, weight)
    if penalty == "hsic":
        return C_phi_psi
    C_psi = covariance(Psi, Psi, weight)
    R = C_phi_psi @ power(C_psi + np.diag(np.broadcast_to(eps, len(C_psi))), -0.5)
    if penalty == "normalized":
        return R
    assert penalty == "nocco"
    C_phi = covariance(Phi, Phi, weight)
    return power(C_phi + (eps_phi or eps) * np.eye(len(C_phi)), -0.5) @ R


def calibrated(Phi, Psi, *, ridge, tau, everyone=None):
    """C_φψ of all rows where some lack s: what a ridge of ψ on φ, from those that know s, tells.

    `Phi` and `Psi` are of the rows that know s, `everyone` has the features of all rows.
    """
    everyone = Phi if everyone is None else everyone
    known, cross = covariance(Phi, Phi), covariance(Phi, Psi)
    W = np.linalg.inv(known + ridge * np.eye(len(known))) @ cross
    return covariance(everyone, everyone) @ W + tau * (cross - known @ W)


def leave_one_out(Phi, Psi, ridge):
    """Squared error of that ridge, per row, by the generalised cross-validation of its trace."""
    n, Phi, Psi = len(Phi), Phi - Phi.mean(axis=0), Psi - Psi.mean(axis=0)
    hat = Phi @ np.linalg.inv(Phi.T @ Phi / n + ridge * np.eye(Phi.shape[1])) @ Phi.T / n
    return np.sum((Psi - hat @ Psi) ** 2) / n / (1 - np.trace(hat) / n) ** 2


def objective(b, coef, Phi, Psi, y, *, alpha, eta, penalty="normalized", eps=1e-6, weight=None):
    """J(b, β) = 1/n Σ w |y − b − Φβ|² + α|β|² + η|Rᵀβ|², summed over the outputs."""
    y, coef = columns(y), columns(coef)
    w = ones_if_none(weight, len(y))
    R = factor(Phi, Psi, penalty=penalty, eps=eps, weight=weight)
    loss = np.sum(w[:, None] * (y - b - Phi @ coef) ** 2) / w.sum()
    return loss + alpha * np.sum(coef**2) + eta * np.sum((R.T @ coef) ** 2)


def ridge(Phi, Psi, y, *, alpha, eta, penalty="normalized", eps=1e-6, eps_phi=None, weight=None, fit_intercept=True):
    """Minimiser (b, β) of J by its normal equations and an explicit inverse.

    coef is (m, t) and b (t,) for y of shape (n, t); (m,) and a number for y of shape (n,).
    """
    R = factor(Phi, Psi, penalty=penalty, eps=eps, eps_phi=eps_phi, weight=weight)
    cross = covariance if fit_intercept else moment
    A = cross(Phi, Phi, weight) + alpha * np.eye(Phi.shape[1]) + eta * R @ R.T
    coef = np.linalg.inv(A) @ cross(Phi, y, weight)
    b = mean(y, weight) - mean(Phi, weight) @ coef if fit_intercept else np.zeros(coef.shape[1])
    return (b[0], coef[:, 0]) if np.ndim(y) == 1 else (b, coef)


def ridge_by_optimiser(Phi, Psi, y, *, alpha, eta, penalty="normalized", eps=1e-6, weight=None, fit_intercept=True):
    """Minimiser (b, β) of J for one output, by an optimiser that knows J and its gradient only."""
    w = ones_if_none(weight, len(y))
    R = factor(Phi, Psi, penalty=penalty, eps=eps, weight=weight)
    settings = {"alpha": alpha, "eta": eta, "penalty": penalty, "eps": eps, "weight": weight}

    def value(packed):
        return objective(packed[0] * fit_intercept, packed[1:], Phi, Psi, y, **settings)

    def gradient(packed):
        b, coef = packed[0] * fit_intercept, packed[1:]
        residual = w * (b + Phi @ coef - y) / w.sum()
        slope = Phi.T @ residual + alpha * coef + eta * R @ (R.T @ coef)
        return 2 * np.concatenate([[fit_intercept * residual.sum()], slope])

    # The gradient near the minimum is rounding error before `gtol` is met, so `success` says
    # nothing; the callers compare solutions.
    best = minimize(value, np.zeros(1 + Phi.shape[1]), jac=gradient, method="BFGS", options={"gtol": 1e-12})
    return best.x[0] * fit_intercept, best.x[1:]


def linear_by_optimiser(loss, X, y, alpha):
    """[β, b] of least mean loss + α|β|², f = Xβ + b."""

    def objective_and_slope(theta):
        beta, f = theta[:-1], X @ theta[:-1] + theta[-1]
        g = loss.gradient(f, y) / len(y)
        return loss.value(f, y).mean() + alpha * beta @ beta, np.append(X.T @ g + 2 * alpha * beta, g.sum())

    return minimize(objective_and_slope, np.zeros(X.shape[1] + 1), jac=True, tol=1e-12, options={"gtol": 1e-9}).x


def ridge_without_covariance(Phi, Psi, y, *, alpha, weight=None, fit_intercept=True):
    """Minimiser (b, β) of J at η = 0 among the β with C_ψφβ = 0: the limit η → ∞."""
    cross = covariance if fit_intercept else moment
    N = null_space(covariance(Psi, Phi, weight))
    A = N.T @ cross(Phi, Phi, weight) @ N + alpha * np.eye(N.shape[1])
    coef = N @ np.linalg.inv(A) @ N.T @ cross(Phi, y, weight)
    b = mean(y, weight) - mean(Phi, weight) @ coef if fit_intercept else np.zeros(coef.shape[1])
    return (b[0], coef[:, 0]) if np.ndim(y) == 1 else (b, coef)


def rational(a):
    """Array of floats as an array of exact fractions, for arithmetic without rounding."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(a, dtype=float))


def rational_solve(A, B):
    """Exact solution of AX = B for arrays of fractions, by Gauss-Jordan elimination."""
    A, B = A.copy(), B.copy()
    for i in range(len(A)):
        pivot = next(j for j in range(i, len(A)) if A[j, i] != 0)
        A[[i, pivot]], B[[i, pivot]] = A[[pivot, i]], B[[pivot, i]]
        A[i], B[i] = A[i] / A[i, i], B[i] / A[i, i]
        for j in range(len(A)):
            if j != i:
                A[j], B[j] = A[j] - A[j, i] * A[i], B[j] - A[j, i] * B[i]
    return B


def rational_dual(K, Psi, y, *, alpha, eta, penalty="normalized", eps=1e-6):
    """c of (HK + nαI + ηMK)c = Hy without any rounding; y of shape (n, t)."""
    K, Psi, y, n = rational(K), rational(Psi), rational(y), len(K)
    eye = rational(np.eye(n))
    H = eye - Fraction(1, n)
    L = H @ Psi @ Psi.T @ H
    M = L / n if penalty == "hsic" else rational_solve(L + n * Fraction(eps) * eye, L)
    system = H @ K + n * Fraction(alpha) * eye + Fraction(eta) * M @ K
    return rational_solve(system, H @ y).astype(float)


def penalty_matrix(L, *, penalty="normalized", eps=1e-6):
    """M = L̃/n (hsic) or L̃(L̃ + nεI)⁻¹ (normalized), L̃ = HLH."""
    n = len(L)
    centred = centring(n) @ L @ centring(n)
    if penalty == "hsic":
        return centred / n
    assert penalty == "normalized"
    return centred @ np.linalg.inv(centred + n * eps * np.eye(n))


def dual_objective(b, c, K, L, y, *, alpha, eta, penalty="normalized", eps=1e-6):
    """J(b, c) of f = b + Kc: 1/n |y − f|² + α cᵀKc + η/n fᵀMf."""
    M = penalty_matrix(L, penalty=penalty, eps=eps)
    f = K @ c
    return np.mean((y - b - f) ** 2) + alpha * c @ f + eta / len(y) * f @ M @ f


def share(f, Psi, *, eps=1e-6, weight=None):
    """Explained share: tr[C_fψ (C_ψ + ε)⁻¹ C_ψf] / tr C_f; ε a number, or one per column.

    The judge has none for groups, 1e-6 for kernels with k(s, s) = 1, 1e-6·Var for numbers as given.
    """
    C_psi = covariance(Psi, Psi, weight) + np.diag(np.broadcast_to(eps, Psi.shape[1]))
    C_f_psi = covariance(f, Psi, weight)
    explained = C_f_psi @ np.linalg.pinv(C_psi, rcond=1e-12, hermitian=True) @ C_f_psi.T
    return np.trace(explained) / np.trace(covariance(f, f, weight))


def contributions(parts, Psi, *, weight=None):
    """Cov(f_l, g) / Var f of f = Σ_l f_l, g the best function in the span of Ψ, for each part."""
    f = sum(parts)
    centred = Psi - mean(Psi, weight)
    g = centred @ np.linalg.pinv(covariance(Psi, Psi, weight)) @ covariance(Psi, f, weight)
    return [np.trace(covariance(p, g, weight)) / np.trace(covariance(f, f, weight)) for p in parts]


def between_group_share(f, groups):
    """Variance of the group means over the variance: Σ_g n_g (f̄_g − f̄)² / Σ (f − f̄)²."""
    total = np.sum((f - f.mean()) ** 2)
    between = sum(np.sum(groups == g) * (f[groups == g].mean() - f.mean()) ** 2 for g in np.unique(groups))
    return between / total


def fair_prior_covariance(K, L, *, eta, noise, penalty="normalized", eps=1e-6):
    """Prior covariance of f at the training rows: (K⁻¹ + (η/σ²)M)⁻¹; hsic: (K⁻¹ + δL̃)⁻¹."""
    M = penalty_matrix(L, penalty=penalty, eps=eps)
    return np.linalg.inv(np.linalg.inv(K) + eta / noise * M)


def joint_fair_covariance(K_all, L, *, eta, noise, penalty="normalized", eps=1e-6):
    """Fair prior covariance of f at the n training rows and any further rows, in that order.

    The penalty concerns the training rows only: (K_all⁻¹ + (η/σ²) [M 0; 0 0])⁻¹.
    """
    M = np.zeros_like(K_all)
    M[: len(L), : len(L)] = penalty_matrix(L, penalty=penalty, eps=eps)
    return np.linalg.inv(np.linalg.inv(K_all) + eta / noise * M)


def gp(K_all, L, y, *, eta, noise, penalty="normalized", eps=1e-6):
    """Posterior mean and covariance of f at the further rows of K_all: conditional normal."""
    n = len(L)
    C = joint_fair_covariance(K_all, L, eta=eta, noise=noise, penalty=penalty, eps=eps)
    gain = C[n:, :n] @ np.linalg.inv(C[:n, :n] + noise * np.eye(n))
    return gain @ y, C[n:, n:] - gain @ C[:n, n:]


def log_evidence(K, L, y, *, eta, noise, penalty="normalized", eps=1e-6):
    """log N(y | 0, fair prior covariance + σ²I)."""
    C = fair_prior_covariance(K, L, eta=eta, noise=noise, penalty=penalty, eps=eps)
    return multivariate_normal.logpdf(y, np.zeros(len(y)), C + noise * np.eye(len(y)))


def weight_space_gp(Phi, Psi, y, Phi_new, *, eta, noise, penalty="normalized", eps=1e-6):
    """Mean, covariance and log evidence from A = ΦᵀΦ + σ²I + nηRRᵀ and β's prior."""
    n, m = Phi.shape
    R = factor(Phi, Psi, penalty=penalty, eps=eps)
    A = Phi.T @ Phi + noise * np.eye(m) + n * eta * R @ R.T
    inverse = np.linalg.inv(A)
    _, logdet = np.linalg.slogdet(A)
    _, logdet_prior = np.linalg.slogdet(np.eye(m) + n * eta / noise * R @ R.T)
    fit = y @ y - y @ Phi @ inverse @ Phi.T @ y
    minus_two = (n - m) * np.log(noise) + logdet - logdet_prior + fit / noise
    minus_two += n * np.log(2 * np.pi)
    mean_new = Phi_new @ inverse @ Phi.T @ y
    return mean_new, noise * Phi_new @ inverse @ Phi_new.T, -0.5 * minus_two


def moment_parts(Phi, Psi, y, weight=None):
    """Arguments of Moments of the rows [Φ, Ψ, y], by two passes in extended precision."""
    blocks = {"phi": Phi.shape[1], "psi": Psi.shape[1], "y": columns(y).shape[1]}
    Z = np.hstack([Phi, Psi, columns(y)]).astype(np.longdouble)
    w = ones_if_none(weight, len(Z)).astype(np.longdouble)
    shift = w @ Z / w.sum()
    centred = np.sqrt(w)[:, None] * (Z - shift)
    scatter = np.asarray(centred.T @ centred, dtype=float)
    return {
        "blocks": blocks,
        "n_rows": int(np.count_nonzero(w)),
        "weight": float(w.sum()),
        "shift": np.asarray(shift, dtype=float),
        "offset": np.asarray(shift - np.asarray(shift, dtype=float), dtype=float),
        "scatter": scatter,
        "squared_weight": float(w @ w),
    }


def kish(weight):
    """The number of rows of equal weight that would tell as much: (Σw)²/Σw²."""
    w = np.asarray(weight, dtype=float)
    return w.sum() ** 2 / np.sum(w**2)


def unbiased_hsic(K, L, weight):
    """Song et al. (2012), eq. 5, of rows that count w times, the w adding up to Kish's count."""
    n, rows = kish(weight), range(len(K))
    w = np.asarray(weight) * n / np.sum(weight)
    pairs = sum(w[i] * w[j] * K[i, j] * L[i, j] for i in rows for j in rows)
    pairs -= sum(w[i] * K[i, i] * L[i, i] for i in rows)
    k, l = ([sum(w[j] * M[i, j] for j in rows) - M[i, i] for i in rows] for M in (K, L))  # noqa: E741
    both = (w @ k) * (w @ l) / ((n - 1) * (n - 2))
    return (pairs + both - 2 / (n - 2) * (w @ np.multiply(k, l))) / (n * (n - 3))


def share_of_groups(f, groups, weight):
    """[Σ p_g (f̄_g² − s_g²/n_g) − (f̄² − s²/n)] / s² with Kish's n_g and n."""

    def parts(f, w):
        n, mean = kish(w), np.average(f, weights=w)
        return n, mean, np.average((f - mean) ** 2, weights=w) * n / (n - 1)

    n, mean, variance = parts(f, weight)
    explained = -(mean**2 - variance / n)
    for group in np.unique(groups):
        own = groups == group
        n_g, mean_g, variance_g = parts(f[own], weight[own])
        explained += weight[own].sum() / weight.sum() * (mean_g**2 - variance_g / n_g)
    return explained / variance


def share_distribution(f, Psi, *, eps=0.0, weight=None):
    """θ̂, its error, tr Ω, tr Ω², n Var e₁, its degrees of freedom and skewness, row by row.

    ĉ = Cov(f, z)/sd(f), z = (C + ε)^(−1/2)(ψ − mean); Ω = E[e² zzᵀ]/Var f with the residual e of
    the regression of f on ψ, each square divided by 1 − leverage; u = [2gf̃ − g² − θf̃²]/Var f.
    """
    w = ones_if_none(weight, len(f))
    p, n = w / w.sum(), kish(w)
    C = covariance(Psi, Psi, w)
    values, vectors = np.linalg.eigh(C)
    keep = values > 1e-12 * values.max()
    Z = (Psi - mean(Psi, w)) @ vectors[:, keep] / np.sqrt(values[keep] + eps)
    centred = f - p @ f
    variance = p @ centred**2
    c = (p * centred) @ Z
    g, raw = Z @ c, c @ c / variance
    Omega = np.zeros((len(c), len(c)))
    for i in range(len(f)):
        leverage = p[i] * (1 + Z[i] @ Z[i])
        Omega += p[i] * (centred[i] - g[i]) ** 2 / (1 - leverage) * np.outer(Z[i], Z[i]) / variance
    share, P = raw - np.trace(Omega) / n, values[keep] / (values[keep] + eps)

    def spread(v):
        return p @ (v - p @ v) ** 2

    u = (2 * g * centred - g**2 - share * centred**2) / variance
    x = (2 * g * centred - g**2 - raw * centred**2) / variance / (2 * np.sqrt(raw))
    skew, kurtosis = (p @ (x - p @ x) ** k / spread(x) ** (k / 2) for k in (3, 4))
    return {
        "share": share,
        "error": np.sqrt(spread(u) / n + 2 * np.sum(P**2) / n**2),
        "noise": np.trace(Omega),
        "squares": np.trace(Omega @ Omega),
        "along": spread(x),
        "freedom": max(2 * n / (kurtosis - 1), 2.0),
        "skew": skew,
    }


def close(actual, expected, tolerance):
    """Compare relative to the largest entry: single entries may well be near zero."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(), 1e-300))


def features(seed=0, n=40, m=7, q=3, outputs=None):
    """Explicit features with non-zero means, in which s matters for x and for y."""
    rng = np.random.default_rng(seed)
    Psi = rng.normal(size=(n, q)) + 0.5
    Phi = rng.normal(size=(n, m)) + 1.0
    Phi[:, :q] += Psi
    coef = rng.normal(size=(m, outputs) if outputs else m)
    noise = rng.normal(size=(n, outputs) if outputs else n)
    return Phi, Psi, 2.0 + Phi @ coef + noise


def kernels(seed=0, n=30, length_scale=(0.5, 0.8, 1.1), sensitive_length_scale=0.7):
    """ARD Gaussian Gram matrix of inputs, Gaussian Gram matrix of s, and a target."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 1))
    X = np.hstack([rng.normal(size=(n, 2)), s + 0.3 * rng.normal(size=(n, 1))])
    y = np.sin(X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=n) + 1.0
    return rbf(X, X, length_scale), rbf(s, s, sensitive_length_scale), y, X


def weights(n, seed=5):
    return np.random.default_rng(seed).integers(1, 4, size=n) * 0.7


def bound_of_share(folds, rows, limit):
    """The mean share and ¾ of its standard error, which is at least that of normal predictions."""
    error, mean = np.std(folds, ddof=1) / np.sqrt(len(folds)), max(np.mean(folds), 0.0)
    normal = np.sqrt(4 * limit * (1 - limit) ** 2 / rows)
    return mean + 0.75 * max(error, normal, np.sqrt(4 * mean * (1 - mean) ** 2 / rows))

"""Rank-k updates, positive solves and roots against dense numpy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from scalefair._linalg import factorize, inverse_root, low_rank_eigh, mirror_upper, positive_eigh, rank_k_update
from tests.naive import close

RNG = np.random.default_rng(0)


def spd(m, least=0.5, seed=0):
    """Symmetric matrix with eigenvalues from `least` to 2."""
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(m, m)))
    return Q @ np.diag(np.linspace(least, 2.0, m)) @ Q.T


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [0, 1, 5, 40])
@pytest.mark.parametrize("keep", [0.0, 1.0, 0.25])
def test_rank_k_update_is_the_gram_product(dtype, k, keep):
    rows = RNG.normal(size=(k, 6)).astype(dtype)
    before = RNG.normal(size=(6, 6)).astype(dtype)
    triangle = before.copy()
    rank_k_update(triangle, rows, keep)
    expected = keep * before.astype(float) + rows.astype(float).T @ rows.astype(float)
    upper = np.triu_indices(6)
    tolerance = 1e-14 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(triangle[upper], expected[upper], rtol=0, atol=60 * tolerance)
    lower = np.tril_indices(6, -1)
    np.testing.assert_array_equal(triangle[lower], before[lower])


def test_rank_k_update_forgets_nonsense_when_it_keeps_nothing():
    triangle = np.full((3, 3), np.nan)
    rank_k_update(triangle, np.eye(3), keep=0.0)
    np.testing.assert_array_equal(triangle[np.triu_indices(3)], np.eye(3)[np.triu_indices(3)])


def test_rank_k_update_reads_read_only_rows_and_slices_of_rows():
    rows = RNG.normal(size=(20, 4))
    rows.flags.writeable = False
    triangle = np.zeros((4, 4))
    rank_k_update(triangle, rows[3:11])
    np.testing.assert_allclose(mirror_upper(triangle), rows[3:11].T @ rows[3:11], atol=1e-13)


@pytest.mark.parametrize(
    ("triangle", "rows"),
    [
        (np.zeros((3, 3)), np.zeros((3, 5)).T),
        (np.zeros((3, 3)), np.zeros((5, 6))[:, ::2]),
        (np.zeros((6, 6))[::2, ::2], np.zeros((5, 3))),
        (np.zeros((3, 3)), np.zeros((5, 4))),
        (np.zeros((3, 4)), np.zeros((5, 3))),
        (np.zeros((3, 3)), np.zeros((5, 3), np.float32)),
    ],
)
def test_rank_k_update_refuses_what_blas_would_misread(triangle, rows):
    with pytest.raises(ValueError, match="rank_k_update"):
        rank_k_update(triangle, rows)


def test_rank_k_update_in_threads_is_the_same_to_the_bit():
    chunks = RNG.normal(size=(8, 200, 30))

    def work(rows):
        triangle = np.zeros((30, 30))
        rank_k_update(triangle, rows)
        return triangle

    alone = [work(rows) for rows in chunks]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(work, chunks))
    np.testing.assert_array_equal(alone, together)


def test_mirror_upper_ignores_the_lower_triangle():
    S = spd(5)
    spoilt = S + np.tril(np.full((5, 5), np.pi), -1)
    np.testing.assert_array_equal(mirror_upper(spoilt), mirror_upper(S))
    np.testing.assert_allclose(mirror_upper(spoilt), S, atol=1e-15)


@pytest.mark.parametrize("columns", [1, 4])
def test_a_factor_solves(columns):
    A, right = spd(8), RNG.normal(size=(8, columns))
    factor = factorize(A)
    close(factor.solve(right), np.linalg.solve(A, right), 1e-13)
    assert factor.jitter == 0


def test_a_factor_says_how_much_jitter_it_needed():
    v = np.array([[3.0, 4.0]])
    least = v.T @ v - 1e-12 * np.diag([16.0, 9.0])  # an eigenvalue of about −6e−13 · mean diagonal
    lower, jitter = factorize(least)
    assert 0 < jitter <= 1e-10
    L = np.tril(lower)
    close(L @ L.T, least + jitter * np.mean(np.diag(least)) * np.eye(2), 1e-14)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_jitter_is_relative(scale):
    """A matrix in other units needs the same jitter."""
    A = np.ones((3, 3)) - 1e-10 * np.eye(3)
    assert factorize(scale * A).jitter == factorize(A).jitter > 0


def test_an_indefinite_matrix_has_no_factor():
    with pytest.raises(LinAlgError, match="3×3"):
        factorize(np.diag([1.0, 1.0, -1e-3]))
    # Callers of estimators see a ValueError.
    assert issubclass(LinAlgError, ValueError)


def test_positive_eigh_floors_rounding_at_zero():
    rows = RNG.normal(size=(3, 6))
    values, vectors = positive_eigh(rows.T @ rows)
    assert (values >= 0).all()
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, rows.T @ rows, atol=1e-13)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-13)


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1.0])
def test_inverse_root_of_a_regular_matrix(eps):
    A = spd(6)
    T = inverse_root(A, eps)
    close(T @ T.T, np.linalg.inv(A + eps * np.eye(6)), 1e-13)


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-3])
def test_inverse_root_is_zero_off_the_range(eps):
    """One-hot covariances are singular: the constant direction must not be blown up by 1/√ε."""
    share = np.array([0.2, 0.3, 0.5])
    C = np.diag(share) - np.outer(share, share)
    T = inverse_root(C, eps)
    assert T.shape == (3, 2)
    np.testing.assert_allclose(np.ones(3) @ T, 0, atol=1e-13)
    values, vectors = np.linalg.eigh(C)
    reference = vectors[:, 1:] @ np.diag(1 / (values[1:] + eps)) @ vectors[:, 1:].T
    close(T @ T.T, reference, 1e-12)


def test_inverse_root_of_zero_is_empty():
    assert inverse_root(np.zeros((3, 3)), 1e-6).shape == (3, 0)


@pytest.mark.parametrize("rank", [1, 7, 200])
def test_a_matrix_of_low_rank_has_the_eigenvalues_of_its_range(rank):
    rows = RNG.normal(size=(200, rank)) * np.logspace(0, -3, rank)
    values, vectors = low_rank_eigh(rows @ rows.T)
    expected = positive_eigh(rows @ rows.T)[0][-rank:]
    close(values[-rank:], expected, 1e-12)
    assert np.all(np.diff(values) >= 0)
    assert len(values) == (200 if rank == 200 else pytest.approx(rank, abs=2))
    close((vectors * values) @ vectors.T, rows @ rows.T, 1e-12)
    close(vectors.T @ vectors, np.eye(len(values)), 1e-10)

"""The streamed products and the iterative solver: equal to the direct ones, without their m×m."""

import warnings
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import LinAlgError
from sklearn.exceptions import ConvergenceWarning

from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import Identity, Nystroem, OneHot, RandomFourier
from scalefair.moments import accumulate
from scalefair.moments.products import StreamedGram, stream_moments
from scalefair.solve.ridge.direct import limited, ridge_fit, solve_primal
from scalefair.solve.ridge.iterative import Sketch, StreamedSystem, block_cg, solve_iterative
from scalefair.solve.ridge.path import Spectrum
from scalefair.solve.ridge.system import System
from tests import naive
from tests.errors import refused
from tests.solve.systems import variance_of
from tests.tables import curved, repeats

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N, M = 2000, 200
ROWS = 500
ETAS = np.array([0.0, 1.0, 1e8, np.inf])


X, S, Y = curved(N)
WEIGHT = repeats(N)
FOURIER = RandomFourier(n_components=M, length_scale=4.0, random_state=0).fit(X)
NYSTROEM = Nystroem(n_components=M, length_scale=4.0, random_state=0).fit(X)
LINEAR = Identity().fit(S)
SMOOTH = Nystroem(n_components=40, length_scale=1.5, random_state=0).fit(S)


def systems(source, design, **options):
    """The streamed system and the direct one of the same rows."""
    whitened = Design(design.phi, design.psi, design.n_targets, whiten_rows=True)
    (moments,) = accumulate(source, whitened)
    streamed = StreamedSystem.stream(*stream_moments(source, design, rows=ROWS), **options)
    return streamed, System.build(moments, **options)


def positive_definite(m, condition, seed=0):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(m, m)))[0]
    return (Q * np.geomspace(1.0, 1.0 / condition, m)) @ Q.T


class TestBlockCg:
    @settings(deadline=None, max_examples=30)
    @given(m=st.integers(1, 30), k=st.integers(1, 8), seed=st.integers(0, 100))
    def test_any_shape(self, m, k, seed):
        matrix = positive_definite(m, 100.0, seed)
        right = np.random.default_rng(seed).normal(size=(m, k))
        solved = block_cg(lambda V: matrix @ V, right, 1e-11, 200)
        np.testing.assert_allclose(matrix @ solved.solution, right, atol=1e-10)

    def test_equal_and_zero_columns(self):
        matrix = positive_definite(40, 1e3)
        b = np.random.default_rng(0).normal(size=(40, 2))
        right = np.column_stack([b[:, 0], b[:, 0], np.zeros(40), b[:, 1], b.sum(axis=1)])
        found = block_cg(lambda V: matrix @ V, right, 1e-11, 200).solution
        naive.close(found, np.linalg.solve(matrix, right), 1e-8)

    def test_a_block_needs_fewer_steps_than_its_columns(self):
        matrix = positive_definite(100, 1e4)
        right = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 10)))[0]
        steps = [block_cg(lambda V: matrix @ V, B, 1e-10, 500).n_iter for B in (right, right[:, :1])]
        assert steps[0] < steps[1] / 2

    def test_identity_takes_one_step(self):
        right = np.random.default_rng(0).normal(size=(20, 3))
        solved = block_cg(lambda V: 2 * V, right, 1e-12, 10)
        assert solved.n_iter == 1
        np.testing.assert_allclose(solved.solution, right / 2)


class TestSketch:
    def test_full_rank_is_exact(self):
        matrix = positive_definite(30, 1e4)
        sketch = Sketch.from_product(np.eye(30), matrix)
        naive.close((sketch.vectors * sketch.values) @ sketch.vectors.T, matrix, 1e-12)
        T = sketch.whiten(1e-3)
        identity = T((matrix + 1e-3 * np.eye(30)) @ T(np.eye(30)))
        np.testing.assert_allclose(identity, np.eye(30), atol=1e-10)

    def test_lower_rank_is_below(self):
        """0 ≤ UΛUᵀ ≤ C: what makes it safe to divide by."""
        matrix = positive_definite(60, 1e6)
        probe = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 20)))[0]
        sketch = Sketch.from_product(probe, matrix @ probe)
        rest = matrix - (sketch.vectors * sketch.values) @ sketch.vectors.T
        assert sketch.values.min() >= 0
        assert np.linalg.eigvalsh(rest).min() > -1e-12

    def test_more_columns_than_the_rank_of_the_matrix(self):
        low = np.random.default_rng(0).normal(size=(50, 4))
        probe = np.linalg.qr(np.random.default_rng(1).normal(size=(50, 12)))[0]
        sketch = Sketch.from_product(probe, low @ (low.T @ probe))
        naive.close((sketch.vectors * sketch.values) @ sketch.vectors.T, low @ low.T, 1e-10)

    def test_zero_matrix(self):
        probe = np.eye(5)[:, :2]
        np.testing.assert_array_equal(Sketch.from_product(probe, 0 * probe).values, 0.0)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_a_product_that_is_no_number_is_refused(self, wrong):
        probe = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 5)))[0]
        product = np.diag(np.arange(20.0)) @ probe
        product[3, 2] = wrong
        with refused(wrong, error=LinAlgError):
            Sketch.from_product(probe, product)

    def test_a_product_that_is_no_gram_matrix_has_a_shift_that_does(self):
        probe = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 5)))[0]
        sketch = Sketch.from_product(probe, -np.diag(np.arange(20.0)) @ probe)
        assert np.isfinite(sketch.vectors).all()

    def test_whitening_bounds_the_condition_number(self):
        source = ArraySource(X, S, Y)
        streamed, direct = systems(source, Design(FOURIER, LINEAR, 2))
        alpha = 1e-5
        sketch = streamed.sketch(100)
        T = sketch.whiten(alpha)
        values = np.linalg.eigvalsh(T(direct.gram @ T(np.eye(M)) + alpha * T(np.eye(M))))
        assert values.max() / values.min() < 5 * (sketch.values[-1] + alpha) / alpha
        raw = np.linalg.cond(direct.gram + alpha * np.eye(M))
        assert values.max() / values.min() < raw / 100


def check_equal(streamed, direct, alpha, tolerance=1e-6, **options):
    """Coefficients, predictions and shares of every η, against eigenbasis and Cholesky."""
    fit = solve_iterative(streamed, alpha, **options)
    expected = Spectrum.of(direct).at(alpha)
    found = fit.slice.coef(ETAS)
    naive.close(found, expected.coef(ETAS), tolerance)
    np.testing.assert_allclose(fit.slice.shares(ETAS), expected.shares(ETAS), atol=tolerance)
    ridges = (path.coef(np.zeros(1))[0] for path in (fit.slice, expected))
    naive.close(*ridges, tolerance)
    naive.close(fit.slice.strength[-3:], expected.strength[-3:], tolerance)
    for coef, eta in zip(found, ETAS, strict=True):
        error = coef - solve_primal(direct, alpha, eta)[0]
        assert variance_of(direct, error) <= tolerance**2 * variance_of(direct, coef)
    return fit


class TestSolver:
    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("penalty", ["normalized", "hsic"])
    def test_equals_the_direct_solvers(self, penalty, fit_intercept, weight):
        source = ArraySource(X, S, Y, weight)
        options = {"penalty": penalty, "fit_intercept": fit_intercept}
        streamed, direct = systems(source, Design(FOURIER, LINEAR, 2), **options)
        fit = check_equal(streamed, direct, 1e-4, sketch=streamed.sketch(50))
        assert fit.residual <= 1e-9
        coef = fit.slice.coef(np.zeros(1))[0]
        naive.close(
            ridge_fit(streamed, coef, 0.1, 0.0, None).solution.intercept,
            ridge_fit(direct, coef, 0.1, 0.0, None).solution.intercept,
            1e-9,
        )
        np.testing.assert_allclose(variance_of(streamed, coef), variance_of(direct, coef), rtol=1e-9)

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_ridge_by_block(self, fit_intercept):
        ridge = np.r_[np.ones(M), np.full(3, 1e-2)]
        options = {"features": ("phi", "psi"), "ridge": ridge, "fit_intercept": fit_intercept}
        streamed, direct = systems(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2), **options)
        check_equal(streamed, direct, 1e-4, sketch=streamed.sketch(50))

    @pytest.mark.parametrize("psi", [LINEAR, SMOOTH], ids=["strong", "weak and many"])
    def test_ill_conditioned(self, psi):
        """A large condition number, and directions of R of very different strength."""
        streamed, direct = systems(ArraySource(X, S, Y), Design(NYSTROEM, psi, 2))
        assert np.linalg.cond(direct.gram + 1e-7 * np.eye(len(direct.gram))) > 1e5
        check_equal(streamed, direct, 1e-7, sketch=streamed.sketch(50))

    def test_categories(self):
        groups = (S[:, :1] > 0) + 2 * (S[:, 1:2] > 1)
        design = Design(FOURIER, OneHot().fit(groups), 2)
        streamed, direct = systems(ArraySource(X, groups, Y), design)
        check_equal(streamed, direct, 1e-4, sketch=streamed.sketch(50))

    def test_no_sensitive_attributes(self):
        streamed, direct = systems(ArraySource(X, None, Y), Design(FOURIER, None, 2))
        coef = solve_iterative(streamed, 1e-3).slice.coef(ETAS)
        naive.close(coef[0], solve_primal(direct, 1e-3, 0.0)[0], 1e-8)
        np.testing.assert_array_equal(coef[1], coef[0])

    def test_definition(self):
        Phi, Psi = FOURIER.transform(X[:300]), S[:300]
        source = ArraySource(X[:300], Psi, Y[:300])
        streamed = StreamedSystem.stream(*stream_moments(source, Design(FOURIER, LINEAR, 2)))
        coef = solve_iterative(streamed, 1e-3).slice.coef(np.array([3.0]))[0]
        intercept, expected = naive.ridge(Phi, Psi, Y[:300], alpha=1e-3, eta=3.0)
        naive.close(coef, expected, 1e-7)
        naive.close(ridge_fit(streamed, coef, 0.1, 0.0, None).solution.intercept, intercept, 1e-7)

    def test_weight_two_is_the_row_twice(self):
        twice = np.r_[np.arange(N), np.arange(500)]
        weight = np.r_[np.full(500, 2.0), np.ones(N - 500)]
        design = Design(FOURIER, LINEAR, 2)
        sources = ArraySource(X, S, Y, weight), ArraySource(X[twice], S[twice], Y[twice])
        fits = [
            solve_iterative(StreamedSystem.stream(*stream_moments(source, design, rows=ROWS)), 1e-4)
            for source in sources
        ]
        naive.close(fits[0].slice.coef(ETAS), fits[1].slice.coef(ETAS), 1e-7)

    def test_float32_rows(self):
        streamed, direct = systems(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2, np.float32))
        fit = check_equal(streamed, direct, 1e-3, 1e-4, sketch=streamed.sketch(50))
        assert fit.residual <= 1e-9

    @pytest.mark.parametrize("unfairness", [0.0, 0.05, 1.0])
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_limit(self, unfairness, fit_intercept):
        streamed, direct = systems(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2), fit_intercept=fit_intercept)
        found = limited(solve_iterative(streamed, 1e-4).slice, unfairness)
        expected = limited(Spectrum.of(direct).at(1e-4), unfairness)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)
        naive.close(found[0], expected[0], 1e-6)

    def test_constant_target(self):
        streamed, _ = systems(ArraySource(X, S, 0 * Y + 3), Design(FOURIER, LINEAR, 2))
        slice_ = solve_iterative(streamed, 1e-4).slice
        np.testing.assert_allclose(slice_.coef(ETAS), 0.0, atol=1e-10)


class TestCost:
    streamed = StreamedSystem.stream(*stream_moments(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2), rows=ROWS))

    def test_preconditioner_saves_iterations(self):
        counts = [
            solve_iterative(self.streamed, 1e-6, sketch=self.streamed.sketch(rank)).n_iter for rank in (0, 60, 100, M)
        ]
        assert counts[0] > 2 * counts[1] > 4 * counts[2]
        assert counts[3] <= 3

    def test_progress_counts_every_iteration(self):
        calls = []
        fit = solve_iterative(self.streamed, 1e-5, sketch=self.streamed.sketch(30), progress=lambda: calls.append(1))
        assert len(calls) == fit.n_iter > 1
        assert fit.residual <= 1e-9

    def test_passes(self, monkeypatch):
        """One pass an iteration, and one for the true residual."""
        widths = []
        times = StreamedGram.__matmul__

        def counted(gram, V):
            widths.append(V.shape[1])
            return times(gram, V)

        sketch = self.streamed.sketch(50)
        monkeypatch.setattr(StreamedGram, "__matmul__", counted)
        fit = solve_iterative(self.streamed, 1e-5, sketch=sketch)
        assert widths == [5] * (fit.n_iter + 1)

    def test_too_few_iterations_are_told(self):
        with pytest.warns(ConvergenceWarning, match="max_iter"):
            fit = solve_iterative(self.streamed, 1e-6, sketch=self.streamed.sketch(0), max_iter=3)
        assert fit.n_iter == 3
        assert fit.residual > 1e-9

    def test_out_of_reach_of_rounding_is_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit = solve_iterative(self.streamed, 1e-7, tol=1e-15)
        assert fit.residual < 1e-9

    def test_seed_does_not_matter(self):
        coefs = [
            solve_iterative(self.streamed, 1e-4, sketch=self.streamed.sketch(50, seed)).slice.coef(ETAS)
            for seed in (1, 2)
        ]
        naive.close(*coefs, 1e-7)


class TestErrors:
    moments = stream_moments(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2))

    def test_nocco_needs_the_whole_matrix(self):
        with refused("solver='direct'", error=ValueError):
            StreamedSystem.stream(*self.moments, penalty="nocco")

    def test_a_pass_that_returns_no_number_ends_the_solver(self):
        streamed, _ = systems(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2))
        sketch = streamed.sketch(20)

        class Broken(type(streamed.gram)):
            def __matmul__(self, V):
                return np.full_like(V, np.nan)

        gram = Broken(*(getattr(streamed.gram, field.name) for field in fields(streamed.gram)))
        with refused("nan", error=LinAlgError):
            solve_iterative(replace(streamed, gram=gram), 1e-3, sketch=sketch)

    def test_no_ridge(self):
        with refused("alpha=0.0", error=ValueError):
            solve_iterative(StreamedSystem.stream(*self.moments), 0.0)

    def test_features_without_phi(self):
        with refused("features=('psi',)", error=ValueError):
            StreamedSystem.stream(*self.moments, features=("psi",))

    def test_only_phi_is_transformed(self):
        with refused("phi", "psi", error=ValueError):
            self.moments[0].transform(psi=np.eye(3))

"""The moments without their m×m block, and products with it: equal to the explicit ones."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from scalefair.data.sources import ArraySource
from scalefair.features.design import Design
from scalefair.maps import Identity, Nystroem, RandomFourier
from scalefair.moments import accumulate
from scalefair.moments.products import CrossMoments, StreamedGram, stream_moments
from tests import naive
from tests.errors import refused
from tests.tables import curved, repeats

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N, M = 2000, 200


X, S, Y = curved(N)
WEIGHT = repeats(N)
FOURIER = RandomFourier(n_components=M, length_scale=4.0, random_state=0).fit(X)
NYSTROEM = Nystroem(n_components=M, length_scale=4.0, random_state=0).fit(X)
LINEAR = Identity().fit(S)


class TestCrossMoments:
    design = Design(NYSTROEM, LINEAR, 2)

    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    def test_blocks_are_those_of_the_whole_moments(self, weight):
        source = ArraySource(X, S, Y, weight)
        (whole,) = accumulate(source, self.design)
        cross, _ = stream_moments(source, self.design)
        assert (cross.n_rows, cross.blocks, cross.key) == (whole.n_rows, whole.blocks, whole.key)
        np.testing.assert_allclose(cross.weight, whole.weight, rtol=1e-14)
        naive.close(cross.mean("phi", "psi", "y"), whole.mean("phi", "psi", "y"), 1e-11)
        pairs = [(("phi", "psi"), "y"), ("phi", ("psi", "y")), ("psi", ("phi", "psi"))]
        for rows, columns in [*pairs, ("y", ("y", "psi"))]:
            naive.close(cross.covariance(rows, columns), whole.covariance(rows, columns), 1e-10)

    def test_parts_add_up(self):
        whole, _ = stream_moments(ArraySource(X, S, Y, WEIGHT), self.design)
        parts = [
            stream_moments(
                ArraySource(X[i : i + 300], S[i : i + 300], Y[i : i + 300], WEIGHT[i : i + 300]), self.design
            )[0]
            for i in range(0, N, 300)
        ]
        total = reduce(add, [CrossMoments.empty(whole.blocks), *parts])
        assert total.n_rows == whole.n_rows == np.count_nonzero(WEIGHT)
        naive.close(total.mean("phi"), whole.mean("phi"), 1e-11)
        naive.close(total.scatter, whole.scatter, 1e-11)

    def test_a_large_mean_costs_no_digits(self):
        far = X + 1e6
        source = ArraySource(far, S, Y)
        cross, gram = stream_moments(source, Design(Identity().fit(far), LINEAR, 2), rows=97)
        near = far - 1e6  # exact
        naive.close(cross.covariance("phi", "y"), naive.covariance(near, Y), 1e-12)
        naive.close(gram @ np.eye(4), naive.covariance(near, near), 1e-12)

    def test_the_block_that_is_not_there(self):
        cross, _ = stream_moments(ArraySource(X, S, Y), self.design)
        with refused("phi", "solver='direct'", error=ValueError):
            cross.covariance("phi", ("phi", "psi"))

    def test_other_moments_do_not_add(self):
        (whole,) = accumulate(ArraySource(X, S, Y), self.design)
        cross, _ = stream_moments(ArraySource(X, S, Y), self.design)
        with pytest.raises(TypeError):
            cross + whole

    def test_file(self, tmp_path):
        cross, _ = stream_moments(ArraySource(X, S, Y), self.design)
        cross.save(tmp_path / "cross.moments")
        loaded = CrossMoments.load(tmp_path / "cross.moments")
        np.testing.assert_array_equal(loaded.scatter, cross.scatter)
        assert loaded.blocks == cross.blocks


class TestProducts:
    V = np.random.default_rng(1).normal(size=(M, 5))

    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    @pytest.mark.parametrize("whiten", [False, True], ids=["raw", "whitened"])
    @pytest.mark.parametrize("phi", [FOURIER, NYSTROEM], ids=["fourier", "nystroem"])
    def test_explicit(self, phi, whiten, weight):
        design = Design(phi, LINEAR, 2, whiten_rows=whiten)
        _, gram = stream_moments(ArraySource(X, S, Y, weight), design)
        explicit = naive.covariance(phi.transform(X), phi.transform(X), weight)
        V = self.V[: len(explicit)]
        naive.close(gram @ V, explicit @ V, 1e-12 if phi is FOURIER or whiten else 1e-9)

    def test_around_any_centre(self):
        centre = np.linspace(0, 1, M)
        rows = FOURIER.transform(X) - centre
        total = StreamedGram(ArraySource(X), Design(FOURIER), centre, 1.0) @ self.V
        naive.close(total, rows.T @ (rows @ self.V), 1e-12)

    @pytest.mark.parametrize("rows", [17, 256, 5000])
    @pytest.mark.parametrize("n_threads", [1, 2, 3])
    def test_chunks_and_threads_do_not_matter(self, rows, n_threads):
        design = Design(FOURIER, LINEAR, 2)
        cross, gram = stream_moments(ArraySource(X, S, Y, WEIGHT, n_threads=1), design)
        source = ArraySource(X, S, Y, WEIGHT, n_threads=n_threads)
        cross2, gram2 = stream_moments(source, design, rows=rows)
        naive.close(cross2.scatter, cross.scatter, 1e-12)
        naive.close(gram2 @ self.V, gram @ self.V, 1e-12)

    def test_float32_rows_make_one_fixed_matrix(self):
        _, gram = stream_moments(ArraySource(X, S, Y), Design(FOURIER, LINEAR, 2, np.float32))
        rows = np.empty((N, M), np.float32)
        FOURIER.raw(X, out=rows)
        explicit = naive.covariance(rows.astype(float), rows.astype(float))
        naive.close(gram @ self.V, explicit @ self.V, 1e-11)

    def test_sample(self):
        _, gram = stream_moments(ArraySource(X, S, Y, WEIGHT), Design(FOURIER, LINEAR, 2))
        chunk = ArraySource(X, S, Y, WEIGHT).sample(300, 7)
        rows = FOURIER.transform(chunk.x) - gram.mean
        expected = rows.T * chunk.weight @ rows / chunk.weight.sum()
        naive.close(gram.sampled(300, 7) @ self.V, expected @ self.V, 1e-12)

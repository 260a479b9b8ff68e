"""What no measure can judge is named, with the argument and the remedy."""

import numpy as np
import pandas as pd
import pytest

from scalefair import measures, scan_parquet
from scalefair.errors import InputError
from scalefair.measures._pair import TooFineError, UndefinedError
from tests.errors import refused

rng = np.random.default_rng(0)
N = 60
X, S = rng.normal(size=N), rng.normal(size=N)
PAIRS = [
    measures.hsic,
    measures.alignment,
    measures.nocco,
    measures.explained_share,
    measures.mutual_information,
    measures.distance_correlation,
    measures.hsic_test,
]
WEIGHTED = PAIRS[:4] + PAIRS[5:6]


def name_of(measure):
    return "s" if measure is measures.explained_share else "b"


def spoilt(value):
    other = S.copy()
    other[3] = value
    return other


@pytest.mark.parametrize("measure", PAIRS)
def test_what_every_measure_refuses(measure):
    name = name_of(measure)
    with refused(f"{name} ", "59 rows", 60, error=ValueError):
        measure(X, S[:-1])
    with refused(f"{name}:", "1 missing", error=ValueError):
        measure(X, spoilt(np.nan))
    with refused("infinity", "1 rows", error=InputError) as caught:
        measure(X, spoilt(np.inf))
    assert caught.value.where == name
    with refused(f"{name}: it is 1.0 in every row", "constant", error=UndefinedError):
        measure(X, np.ones(N))
    with refused(f"{name}: column 1 is 1.0 in every row", error=UndefinedError):
        measure(X, np.column_stack([S, np.ones(N)]))
    with refused(f"{name}:", "constant", "'u'", error=UndefinedError):
        measure(X, np.full(N, "u"))
    with refused(f"{name}:", "constant", "'age'", error=UndefinedError):
        measure(X, pd.DataFrame({"x": S, "age": 4.0}))
    with refused("1 row", error=ValueError):
        measure(X[:1], S[:1])
    with refused(f"{name}='sex'", "str", error=TypeError):
        measure(X, "sex")
    with refused(f"{name}:", (N, 2, 2), error=ValueError):
        measure(X, np.ones((N, 2, 2)))


@pytest.mark.parametrize("measure", PAIRS)
def test_thousands_of_levels_are_refused(measure):
    levels = np.array([f"id{i}" for i in range(1500)])
    with refused("s0", "1,500", "1,000", error=TooFineError):
        measure(rng.normal(size=1500), levels)


@pytest.mark.parametrize("measure", PAIRS)
def test_an_identifier_is_refused(measure):
    # Each row is alone in its group: HSIC is the same for every pairing, and no share is known.
    with refused("s0", "60 rows", error=TooFineError):
        measure(X, np.array([f"id{i}" for i in range(N)]))


def test_a_share_of_rows_that_are_mostly_alone_is_refused():
    alone = np.array([f"id{max(i, 20)}" for i in range(N)])
    with refused("s:", "65%", error=TooFineError):
        measures.explained_share(X, alone)
    alone = np.array([f"id{max(i, 35)}" for i in range(N)])
    assert measures.explained_share(X, alone) < 0.5


def test_dates_are_no_predictions():
    with refused("f:", "dates", error=ValueError):
        measures.explained_share(pd.Series(pd.date_range("2020", periods=N)), S)


def test_text_is_no_prediction():
    with refused("f:", "text", error=ValueError):
        measures.explained_share(np.where(X > 0, "yes", "no"), S)


@pytest.mark.parametrize("measure", WEIGHTED)
def test_weights(measure):
    with refused("sample_weight", "59 rows", 60, error=ValueError):
        measure(X, S, sample_weight=np.ones(59))
    cases = {"negative": -1.0, "missing": np.nan, "zero": 0.0}
    for word, bad in cases.items():
        with refused("sample_weight", word, error=ValueError):
            measure(X, S, sample_weight=np.full(N, bad))
    with refused("'sample_weight'", "text", error=ValueError):
        measure(X, S, sample_weight=["heavy"] * N)


@pytest.mark.parametrize("method", ["exact", "features"])
def test_rows_of_too_few_weights_have_no_unbiased_estimate(method):
    weight = np.r_[np.ones(3), np.full(N - 3, 1e-9)]
    with refused("sample_weight", "worth 3", "biased=False", "at least 4", error=ValueError):
        measures.hsic(X, S, biased=False, sample_weight=weight, method=method)
    assert np.isfinite(measures.hsic(X[:4], S[:4], biased=False, sample_weight=np.full(4, 0.1)))


@pytest.mark.parametrize("measure", [measures.hsic, measures.alignment, measures.nocco])
def test_options(measure):
    with refused("method='fast'", error=ValueError):
        measure(X, S, method="fast")
    with refused("kernel_a='cubic'", error=ValueError):
        measure(X, S, "cubic")
    with refused("kernel_b=3", error=TypeError):
        measure(X, S, None, 3)
    with refused("kernel_b='rbf'", "b has categories", error=ValueError):
        measure(X, np.where(S > 0, "u", "v"), None, "rbf")
    with refused("n_components=0", error=ValueError):
        measure(X, S, n_components=0, method="features")


def test_more_options():
    with refused("eps=0", error=ValueError):
        measures.nocco(X, S, eps=0)
    with refused("3 row", "at least 4", error=ValueError):
        measures.hsic(X[:3], S[:3], biased=False)
    with refused("5 row", "at least 6", error=ValueError):
        measures.hsic_test(X[:5], S[:5])
    with refused("n_permutations=0", error=ValueError):
        measures.hsic_test(X, S, n_permutations=0)
    with refused("n_neighbors=0", error=ValueError):
        measures.mutual_information(X, S, 0)
    with refused("categories", error=UndefinedError):
        measures.mutual_information(np.array(list("aaabbbccc")), np.array(list("xyzxyzxyz")))
    with refused("method='exact'", "5000 rows", 5001, error=ValueError):
        measures.nocco(*rng.normal(size=(2, 5001)), method="exact")


def test_conditional():
    with refused("c has 10", 60, error=ValueError):
        measures.conditional_hsic_test(X, S, S[:10])
    with refused("method='permutation'", "c has numbers", error=ValueError):
        measures.conditional_hsic_test(X, S, X + S, method="permutation")
    with refused("c:", "constant", error=UndefinedError):
        measures.conditional_hsic_test(X, S, np.ones(N))
    with refused("9 row", "at least 20", error=ValueError):
        measures.conditional_hsic_test(X[:9], S[:9], S[:9])


def test_streams_name_the_file_and_the_argument(tmp_path):
    frame = pd.DataFrame({"p": X, "s": spoilt(np.nan), "t": spoilt(np.inf), "z": 1.0})
    frame.to_parquet(tmp_path / "rows.parquet")
    scan = scan_parquet(tmp_path / "rows.parquet")
    with refused("s:", "'s'", "1 missing", error=ValueError):
        measures.explained_share(scan["p"], scan["s"])
    with refused("b:", "'t'", "infinity", error=InputError) as caught:
        measures.hsic(scan["p"], scan["t"])
    assert caught.value.where == str(tmp_path / "rows.parquet")
    with refused("b:", "'z'", "constant", error=UndefinedError):
        measures.hsic(scan["p"], scan["z"])
    with refused("method='exact'", "memory", error=ValueError):
        measures.hsic(scan["p"], X, method="exact")
    with refused("conditional_hsic_test", "memory", error=TypeError):
        measures.conditional_hsic_test(scan["p"], X, S)


def test_mixing_scans_and_dask_is_refused(tmp_path):
    import dask.array as da

    pd.DataFrame({"p": X}).to_parquet(tmp_path / "rows.parquet")
    with refused("b is a Array", "a a Scan", error=ValueError):
        measures.hsic(scan_parquet(tmp_path / "rows.parquet"), da.from_array(S, chunks=20))

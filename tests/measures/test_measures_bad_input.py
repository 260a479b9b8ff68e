"""What no measure can judge is named, with the argument and the remedy."""

import numpy as np
import pandas as pd
import pytest

from scalefair import measures, scan_parquet

rng = np.random.default_rng(0)
N = 60
X, S = rng.normal(size=N), rng.normal(size=N)
PAIRS = [
    measures.hsic, measures.alignment, measures.nocco, measures.explained_share,
    measures.mutual_information, measures.distance_correlation, measures.hsic_test,
]  # fmt: skip
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
    with pytest.raises(ValueError, match=rf"{name} has 59 rows but . has 60"):
        measure(X, S[:-1])
    with pytest.raises(ValueError, match=rf"{name}: .*1 missing value"):
        measure(X, spoilt(np.nan))
    with pytest.raises(ValueError, match=rf"{name}: .*infinity"):
        measure(X, spoilt(np.inf))
    with pytest.raises(ValueError, match=rf"{name}: .*constant"):
        measure(X, np.ones(N))
    with pytest.raises(ValueError, match=rf"{name}: .*constant \('u'"):
        measure(X, np.full(N, "u"))
    with pytest.raises(ValueError, match=rf"{name}: column 'age' is constant"):
        measure(X, pd.DataFrame({"x": S, "age": 4.0}))
    with pytest.raises(ValueError, match="row"):
        measure(X[:1], S[:1])
    with pytest.raises(TypeError, match=f"{name}='sex' is a str"):
        measure(X, "sex")
    with pytest.raises(ValueError, match="shape"):
        measure(X, np.ones((N, 2, 2)))


@pytest.mark.parametrize("measure", PAIRS)
def test_thousands_of_levels_are_refused(measure):
    levels = np.array([f"id{i}" for i in range(1500)])
    with pytest.raises(ValueError, match=r"1,500 .*1,000"):
        measure(rng.normal(size=1500), levels)


@pytest.mark.parametrize("measure", PAIRS)
def test_an_identifier_is_refused(measure):
    # Each row is alone in its group: HSIC is the same for every pairing, and no share is known.
    with pytest.raises(ValueError, match=r"s0 .*60 rows"):
        measure(X, np.array([f"id{i}" for i in range(N)]))


def test_a_share_of_rows_that_are_mostly_alone_is_refused():
    alone = np.array([f"id{max(i, 20)}" for i in range(N)])
    with pytest.raises(ValueError, match="s: 65%"):
        measures.explained_share(X, alone)
    alone = np.array([f"id{max(i, 35)}" for i in range(N)])
    assert measures.explained_share(X, alone) < 0.5


def test_dates_are_no_predictions():
    with pytest.raises(ValueError, match=r"f: column .* is dates"):
        measures.explained_share(pd.Series(pd.date_range("2020", periods=N)), S)


def test_text_is_no_prediction():
    with pytest.raises(ValueError, match=r"f: column .* is text"):
        measures.explained_share(np.where(X > 0, "yes", "no"), S)


@pytest.mark.parametrize("measure", WEIGHTED)
def test_weights(measure):
    with pytest.raises(ValueError, match=r"sample_weight has 59 rows but . has 60"):
        measure(X, S, sample_weight=np.ones(59))
    cases = {"negative": -1.0, "missing or infinite": np.nan, "zero for every row": 0.0}
    for message, bad in cases.items():
        with pytest.raises(ValueError, match=f"sample_weight.* is {message}"):
            measure(X, S, sample_weight=np.full(N, bad))
    with pytest.raises(ValueError, match="'sample_weight' is text"):
        measure(X, S, sample_weight=["heavy"] * N)


@pytest.mark.parametrize("method", ["exact", "features"])
def test_rows_of_too_few_weights_have_no_unbiased_estimate(method):
    weight = np.r_[np.ones(3), np.full(N - 3, 1e-9)]
    with pytest.raises(ValueError, match=r"worth 3 .*biased=False .*4"):
        measures.hsic(X, S, biased=False, sample_weight=weight, method=method)
    assert np.isfinite(measures.hsic(X[:4], S[:4], biased=False, sample_weight=np.full(4, 0.1)))


@pytest.mark.parametrize("measure", [measures.hsic, measures.alignment, measures.nocco])
def test_options(measure):
    with pytest.raises(ValueError, match="method='fast'"):
        measure(X, S, method="fast")
    with pytest.raises(ValueError, match="kernel_a='cubic'"):
        measure(X, S, "cubic")
    with pytest.raises(TypeError, match="kernel_b=3"):
        measure(X, S, None, 3)
    with pytest.raises(ValueError, match=r"kernel_b='rbf' .*b has categories"):
        measure(X, np.where(S > 0, "u", "v"), None, "rbf")
    with pytest.raises(ValueError, match="n_components=0"):
        measure(X, S, n_components=0, method="features")


def test_more_options():
    with pytest.raises(ValueError, match="eps=0"):
        measures.nocco(X, S, eps=0)
    with pytest.raises(ValueError, match="at least 4"):
        measures.hsic(X[:3], S[:3], biased=False)
    with pytest.raises(ValueError, match="at least 6"):
        measures.hsic_test(X[:5], S[:5])
    with pytest.raises(ValueError, match="n_permutations=0"):
        measures.hsic_test(X, S, n_permutations=0)
    with pytest.raises(ValueError, match="n_neighbors=0"):
        measures.mutual_information(X, S, 0)
    with pytest.raises(ValueError, match="combination of categories"):
        measures.mutual_information(np.array(list("aaabbbccc")), np.array(list("xyzxyzxyz")))
    with pytest.raises(ValueError, match="at most 5000 rows"):
        measures.nocco(*rng.normal(size=(2, 5001)), method="exact")


def test_conditional():
    with pytest.raises(ValueError, match=r"c has 10 .*60"):
        measures.conditional_hsic_test(X, S, S[:10])
    with pytest.raises(ValueError, match="c has numbers"):
        measures.conditional_hsic_test(X, S, X + S, method="permutation")
    with pytest.raises(ValueError, match=r"c: .*constant"):
        measures.conditional_hsic_test(X, S, np.ones(N))
    with pytest.raises(ValueError, match="at least 20"):
        measures.conditional_hsic_test(X[:9], S[:9], S[:9])


def test_streams_name_the_file_and_the_argument(tmp_path):
    frame = pd.DataFrame({"p": X, "s": spoilt(np.nan), "t": spoilt(np.inf), "z": 1.0})
    frame.to_parquet(tmp_path / "rows.parquet")
    scan = scan_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"s: .*1 missing"):
        measures.explained_share(scan["p"], scan["s"])
    with pytest.raises(ValueError, match=r"rows\.parquet.*b: .*infinity"):
        measures.hsic(scan["p"], scan["t"])
    with pytest.raises(ValueError, match="b: column 'z' is constant"):
        measures.hsic(scan["p"], scan["z"])
    with pytest.raises(ValueError, match="must be in memory"):
        measures.hsic(scan["p"], X, method="exact")
    with pytest.raises(TypeError, match="rows in memory"):
        measures.conditional_hsic_test(scan["p"], X, S)


def test_mixing_scans_and_dask_is_refused(tmp_path):
    import dask.array as da

    pd.DataFrame({"p": X}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="b is a Array and a a Scan"):
        measures.hsic(scan_parquet(tmp_path / "rows.parquet"), da.from_array(S, chunks=20))

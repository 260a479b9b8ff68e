"""Every benchmark of this folder runs, at sizes that say nothing: none of them rots.

Modules of `paper` have tests of their own, with the claims of the paper.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks import _measure
from benchmarks._frontier_data import Split
from benchmarks._measure import read_table, stamps
from benchmarks.frontier import write
from benchmarks.peers import METHODS
from benchmarks.peers._metrics import auc_error, distance, of_decisions
from benchmarks.peers._run import Job, append, finished
from benchmarks.peers._tables import AXES, chosen, report, value_at
from benchmarks.peers._task import Task
from scalefair.datasets import make_biased_income

HERE = Path(__file__).parent
ARGUMENTS = {
    "auto_model": ["--data", "E", "--limits", "0.05", "--components", "10"],
    "certificates": ["--draws", "1", "--minutes", "0.05", "--laws", "two groups"],
    "control": ["--rows", "400"],
    "cost_model": ["--rows", "3000"],
    "decisions": ["--quick", "--data", "adult", "--only", "centring"],
    "default_alpha": ["--data", "income", "--rows", "300", "--seeds", "1", "--kinds", "linear"],
    "engines": ["--rows", "100", "--seconds", "0"],
    "explain": ["--rows", "2000", "--features", "20"],
    "external": ["--splits", "1"],
    "frontier": ["--quick", "--only", "E"],
    "gp": ["--quick"],
    "gp_exact": ["--rows", "40", "--inputs", "3", "--rounds", "1"],
    "large_m": ["--rows", "2000", "--components", "100", "--inputs", "5", "--rank", "20"],
    "losses": ["--features", "20", "--fair-features", "20", "--limits", "0.05", "--parts", "passes", "lbfgs", "adult"],
    "measures": ["--rows", "5000"],
    "numerics": [],
    "output": ["--splits", "E", "--rows", "400"],
    "promises": ["--data", "income", "--rows", "300", "--draws", "1", "--methods", "s apart"],
    "partial": ["--rows", "2000", "--seeds", "1", "--problems", "60 inputs"],
    "scaling": ["--quick"],
    "scaling_peers": ["--quick", "--only", "KernelRidge"],
    "streams": ["--rows", "3000", "--long-rows", "3000"],
    "waiting": ["--quick", "--rounds", "1", "--only", "predict_one", "small_ridge"],
}
NEEDS = {"losses": "fairlearn", "output": "equipy", "streams": "psutil", "cost_model": "psutil"}
OTHERS = {"compare": "test_compare.py", "soak": "below"}
SMALLER = {
    "cost_model": {
        "SHORT": (1000, 2000, 3000),
        "WIDTHS": (5, 10, 15),
        "on_workers": lambda *_: 1.0,
        "scheduler_costs": lambda: (1e-3, 1e8),
    },
    "external": {"ETAS": (0.3, 1.0), "FIXED_ETAS": (1.0,), "NOISE_DRAWS": 2},
    "frontier": {"LIMITS": {"E": (0.02, 0.1)}, "LOGISTIC_LIMITS": (0.02,)},
    "output": {"ETAS": {"E": [1.0]}, "HSIC_ROWS": 200},
    "partial": {"TEST_ROWS": 1000},
    "promises": {"NEW_ROWS": 2000},
    "engines": {"TABLES": (("B", "crime", 5),), "ITERATIONS": 1},
    "measures": {"TEST_ROWS": 200, "permutation_error": lambda *_: 0.0},
}


def modules():
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith(("_", "test_")))


def test_no_module_is_forgotten():
    assert set(modules()) == set(ARGUMENTS) | set(OTHERS)


def contents():
    return {path: path.read_bytes() for path in (HERE / "results").rglob("*.csv")}


def few_adults(losses):
    whole = losses.adult()
    return whole._replace(
        train=whole.train[:400], y_train=whole.y_train[:400], test=whole.test[:400], y_test=whole.y_test[:400]
    )


def once(module, monkeypatch):
    """No repeats: a code runs in one process only, a time is of one run; no tables from outside."""
    monkeypatch.delenv("SCALEFAIR_DATA", raising=False)
    if hasattr(module, "peak_megabytes"):
        run, peaks = module.peak_megabytes, {}

        def peak(code, *arguments):
            if code not in peaks:
                peaks[code] = run(code, *arguments)
            return peaks[code]

        monkeypatch.setattr(module, "peak_megabytes", peak)
    if hasattr(module, "seconds") and name_of(module) != "scaling":
        monkeypatch.setattr(module, "seconds", timed_once)


def name_of(module):
    return module.__name__.rpartition(".")[2]


def timed_once(run, rounds=1):  # noqa: ARG001
    start = perf_counter()
    run()
    return perf_counter() - start


def shorten(module, monkeypatch):
    """A few hundred rows of Adult, and trees of a few steps."""
    load, few = module.load, {"max_iter": 3, "early_stopping": False}

    def short(*arguments, **options):
        split = load(*arguments, **options)
        return replace(split, X=split.X[:400], y=split.y[:400], X_test=split.X_test[:400], y_test=split.y_test[:400])

    monkeypatch.setattr(module, "load", short)
    for name, inside in (("base_model", ""), ("boosted", "model__")):
        if hasattr(module, name):
            made, fewer = getattr(module, name), {inside + key: few[key] for key in few}
            trees = lambda *some, made=made, fewer=fewer: made(*some).set_params(**fewer)  # noqa: E731
            monkeypatch.setattr(module, name, trees)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_benchmark_runs(name, monkeypatch, tmp_path, capsys):
    if not find_spec(NEEDS.get(name, "sklearn")):
        pytest.skip(f"needs {NEEDS[name]}")
    module = import_module(f"benchmarks.{name}")
    for attribute, value in SMALLER.get(name, {}).items():
        monkeypatch.setattr(module, attribute, value)
    if name == "losses":
        few = few_adults(module)
        monkeypatch.setattr(module, "adult", lambda: few)
    once(module, monkeypatch)
    if name in {"auto_model", "frontier", "output"}:
        shorten(module, monkeypatch)
    if name == "measures":
        pair = module.pair_of
        monkeypatch.setattr(module, "pair_of", lambda rows: pair(min(rows, 500)))
    kept = contents()
    for place in (module, _measure):
        monkeypatch.setattr(place, "RESULTS", tmp_path, raising=False)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS[name]])
    module.main()
    assert capsys.readouterr().out
    assert contents() == kept, "a smoke run must not change the results that are kept"


@pytest.mark.filterwarnings("ignore")
def test_every_job_of_the_soak_gives_the_same_bits(tmp_path):
    pytest.importorskip("psutil")
    from benchmarks import soak

    for name, job in soak.jobs(tmp_path).items():
        assert np.asarray(job()).tobytes() == np.asarray(job()).tobytes(), name
    hours = np.linspace(0, 1, 64)
    assert soak.slope(hours, 300 + 5 * hours)[0] == pytest.approx(5.0)


@pytest.mark.filterwarnings("ignore")
def test_every_method_of_scaling_runs():
    from benchmarks import scaling_peers

    for name, (prepared, _) in scaling_peers.METHODS.items():
        if name.startswith("fairlearn") and not find_spec("fairlearn"):
            continue
        prepared(300, 10)()


def pay(decides: bool) -> Split:
    """A small table as the frontier's are: like A with numbers to predict, like E with rates."""
    made = make_biased_income(600, random_state=0)
    X = made.data.copy()
    for column in X.columns:
        if X[column].dtype.kind not in "biuf":
            X[column] = X[column].astype(str).astype("category")
    y = np.asarray(made.target, dtype=float)
    y = (y > np.median(y)).astype(float) if decides else (y - y.mean()) / y.std()
    X = X.fillna({c: 0.0 for c in X.columns if X[c].dtype.kind == "f"})
    name = "E" if decides else "A"
    return Split(
        name, X[:400], y[:400], X[400:].reset_index(drop=True), y[400:], ["sex"] if decides else ["sex", "age"]
    )


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_peer_predicts(name):
    method = METHODS[name]
    if not method.installed():
        pytest.skip(f"needs {method.needs}")
    decides = "number" not in method.kinds
    for hidden in (False, True) if method.hidden and not method.refits else (False,):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points = list(method.run(Task(pay(decides), hidden, quick=True)))
        assert points
        for _, *found in points:
            for values in (part for part in found if part is not None):
                assert np.shape(values) == (200,)
                assert np.isfinite(np.asarray(values, dtype=float)).all()


def test_peers_hidden_from_s_do_not_use_it():
    """The inputs of a task with s hidden are the same whatever s is."""
    split = pay(decides=False)
    other = split.X.assign(age=0.0, sex=split.X["sex"].iloc[0])
    changed = Split(split.name, other, split.y, split.X_test, split.y_test, split.sensitive)
    tasks = [Task(one, hidden=True) for one in (split, changed)]
    np.testing.assert_array_equal(tasks[0].arrays[0], tasks[1].arrays[0])
    np.testing.assert_array_equal(tasks[0].codes[0], tasks[1].codes[0])
    assert tasks[0].frames[0].equals(tasks[1].frames[0])


def test_codes_are_the_same_categories():
    """Codes of training and test rows name the same levels; what is new has none."""
    split = pay(decides=False)
    levels = split.X["sex"].cat.categories
    unseen = split.X_test["sex"].cat.add_categories("unseen").where(split.X_test.index > 3, "unseen")
    task = Task(replace(split, X_test=split.X_test.assign(sex=unseen)))
    column = list(split.X).index("sex")
    assert task.categories[column]
    known, new = (codes[:, column] for codes in task.codes)
    assert (levels[known.astype(int)] == split.X["sex"]).all()
    assert np.isnan(new[:4]).all()
    assert (levels[new[4:].astype(int)] == split.X_test["sex"].iloc[4:]).all()


def test_one_problem_of_the_frontier_leaves_the_others_alone(tmp_path):
    header, path = ["problem", "value"], tmp_path / "results" / "frontier.csv"
    write([header, ["A", 1], ["A", 2], ["E", 3]], path)
    write([header, ["E", 4], ["B", 5]], path)
    said, *lines = path.read_text().splitlines()
    assert said.startswith("# commit")
    assert lines == ["problem,value", "A,1", "A,2", "B,5", "E,4"]


def test_errors_and_distances_of_peers():
    """A standard error of an AUC is that of draws; KS of independent scores is noise."""
    random = np.random.default_rng(0)
    draws, errors = [], []
    for _ in range(200):
        y = random.random(300) < 0.4
        f = random.normal(size=300) + y
        draws.append(roc_auc_score(y, f))
        errors.append(auc_error(f, y))
    assert np.mean(errors) == pytest.approx(np.std(draws), rel=0.15)
    split = pay(decides=False)
    same = np.zeros(200)
    assert distance(split, same) == 0.0  # ties are one step
    apart = (split.X_test["sex"] == split.X_test["sex"].iloc[0]).to_numpy(float)
    assert distance(split, apart) == pytest.approx(max(apart.mean(), 1 - apart.mean()))


def test_decisions_count_by_their_expectation():
    split = replace(pay(decides=True), name="rate")
    y = split.y_test
    found = of_decisions(split, np.full(200, 0.3))
    assert found["gap"] == found["odds"] == pytest.approx(0.0)
    assert found["accuracy"] == pytest.approx(0.3 * y.mean() + 0.7 * (1 - y.mean()))
    assert of_decisions(split, split.group)["gap"] == 1.0


@pytest.mark.filterwarnings("ignore")
def test_peers_of_any_table(monkeypatch, tmp_path, capsys):
    """`--data FILE --target --sensitive`: the methods run on a table of one's own."""
    from benchmarks.peers.__main__ import main

    table = pay(decides=False).X.assign(pay=pay(decides=False).y)
    table.to_csv(tmp_path / "own.csv", index=False)
    words = ["--data", str(tmp_path / "own.csv"), "--target", "pay", "--sensitive", "sex", "age"]
    monkeypatch.setattr(sys, "argv", ["peers", *words, "--only", "Ridge", "--out", str(tmp_path)])
    main()
    assert "scikit-learn Ridge" in capsys.readouterr().out
    methods = {line["method"] for line in read_table(tmp_path / "peers_share.csv")}
    assert methods >= {"scikit-learn Ridge", "scikit-learn Nystroem + Ridge"}
    assert stamps(tmp_path / "peers_share.csv")[0].startswith("# commit")


def test_points_are_kept_and_found_again(tmp_path, capsys):
    """A job that is in the file is not run again; tables and pictures come from the file."""
    path = tmp_path / "peers.csv"
    for s in ("visible", "hidden"):
        for method, worse in (("scalefair, trees inside", 0.0), ("equipy on trees", 0.05)):
            for part in ("validation", "test")[method == "equipy on trees" :]:
                job = Job("acs", s, method, 100, part=part)
                assert not finished(job, read_table(path))
                for k in range(9):
                    append(
                        job,
                        {
                            "order": k,
                            "setting": k,
                            "share": 0.03 * k,
                            "hsic": 1e-3 * k,
                            "ks": 0.05 * k,
                            "rmse": 0.9 - 0.01 * k + worse,
                            "fitted": 100,
                            "score_error": 0.001,
                            "cpu_seconds": 1.0 + k,
                            "peak_mb": 300.0,
                        },
                        path,
                    )
                append(job, {"note": "stopped after 9 s" if worse else "done"}, path)
                assert finished(job, read_table(path))
    append(Job("acs", "hidden", "scikit-learn Ridge", 100), {"note": "exit code 1"}, path)
    report(path)
    said = capsys.readouterr().out
    assert "acs | 100 | visible | share | rmse | – | – | – | 0.01, 0.02, 0.05, 0.1, 0.2" in said
    assert (tmp_path / "peers_acs.svg").stat().st_size > 1000
    ends = [line["note"] for line in read_table(tmp_path / "peers_ends.csv")]
    assert ends == ["stopped after 9 s", "stopped after 9 s", "exit code 1"]
    speed = read_table(tmp_path / "peers_speed.csv")
    assert {line["ratio"] for line in speed} == {"1"}
    assert len(stamps(path)) == 1


def test_values_at_a_level_are_read_off_the_envelope():
    axis = AXES["number"][0]
    curve = [{"share": 0.02, "rmse": 0.9}, {"share": 0.04, "rmse": 0.8}, {"share": 0.06, "rmse": 1}]
    assert value_at(curve, axis, 0.03) == pytest.approx(0.85)
    assert value_at(curve, axis, 0.10) == pytest.approx(0.8)
    assert np.isnan(value_at(curve, axis, 0.01))
    assert np.isnan(value_at([], axis, 0.01))


def test_a_variant_is_chosen_by_all_levels():
    """Best at one level is not enough: a level that is not reached counts as the worst point."""
    axis = AXES["number"][0]
    good = [{"share": 0.005, "rmse": 0.9}, {"share": 0.3, "rmse": 0.8}]
    unfair = [{"share": 0.09, "rmse": 0.7}]
    poor = [{"share": 0.001, "rmse": 1.1}]
    assert chosen({"unfair": unfair, "good": good, "poor": poor}, axis) == "good"
    assert chosen({"unfair": unfair}, axis) == "unfair"
    assert chosen({}, axis) == ""

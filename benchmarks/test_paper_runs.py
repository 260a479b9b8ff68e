"""A run of the paper's experiments: no seed is lost, broken runs go on, files are whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks.paper import EXPERIMENTS, data, load, runs
from benchmarks.paper.__main__ import main
from benchmarks.paper.drawing import Curve, Panel
from benchmarks.paper.experiment import Experiment, verdicts


@dataclass(frozen=True)
class Setting:
    seeds: int


def experiment(trial):
    def table(values):
        return values.groupby("model", as_index=False)["x"].mean()

    return Experiment(
        name="fake",
        title="Fake",
        full=Setting(4),
        quick=Setting(2),
        trial=trial,
        table=table,
        claims=lambda values: verdicts({"x is positive": values["x"]}),
        panels=lambda found: [Panel([Curve("x", [1.0, 2.0], found["x"], [0.1, np.nan])], "", "x")],
    )


def one(seed, setting):  # noqa: ARG001
    return pd.DataFrame({"seed": seed, "model": ["a", "b"], "x": [seed + 1.0, seed + 2.0]})


def test_a_run_writes_tables_and_figures(tmp_path):
    told = []
    found = runs.run(experiment(one), tmp_path / "out", tell=lambda *pair: told.append(pair))
    assert sorted(path.name for path in found.files) == sorted(
        ["fake.csv", "fake_claims.csv", "fake_trials.csv", "fake.svg", "fake.png"]
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {p.name for p in found.files}
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert pd.read_csv(tmp_path / "out" / "fake.csv")["x"].tolist() == [2.5, 3.5]
    assert (tmp_path / "out" / "fake.svg").read_text("utf-8").startswith("<svg")
    assert (tmp_path / "out" / "fake.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_goes_on_where_the_last_one_broke_off(tmp_path):
    seen = []

    def breaks(seed, setting):
        if seed == 2:
            raise KeyboardInterrupt
        seen.append(seed)
        return one(seed, setting)

    with pytest.raises(KeyboardInterrupt):
        runs.run(experiment(breaks), tmp_path)
    assert pd.read_csv(tmp_path / "fake_trials.csv")["seed"].tolist() == [0, 0, 1, 1]

    def goes_on(seed, setting):
        seen.append(seed)
        return one(seed, setting)

    found = runs.run(experiment(goes_on), tmp_path)
    assert seen == [0, 1, 2, 3]
    assert len(found.values) == 8
    runs.run(experiment(goes_on), tmp_path, fresh=True)
    assert seen == [0, 1, 2, 3] * 2


def test_seeds_in_pieces_and_in_any_order_give_the_same_files(tmp_path):
    whole = runs.run(experiment(one), tmp_path / "whole")
    runs.run(experiment(one), tmp_path / "parts", seeds=range(2, 4))
    parts = runs.run(experiment(one), tmp_path / "parts", seeds=range(2))
    for a, b in zip(whole.files, parts.files, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


def test_two_runs_at_once_share_one_file(tmp_path):
    def meanwhile(seed, setting):
        runs.run(experiment(one), tmp_path, seeds=range(2))
        return one(seed, setting)

    found = runs.run(experiment(meanwhile), tmp_path, seeds=range(3))
    assert found.values["seed"].tolist() == [0, 0, 1, 1, 2, 2]


def test_quick_values_are_never_mixed_with_full_ones(tmp_path):
    runs.run(experiment(one), tmp_path, quick=True)
    runs.run(experiment(one), tmp_path, seeds=[9])
    assert pd.read_csv(tmp_path / "fake-quick_trials.csv")["seed"].tolist() == [0, 0, 1, 1]
    assert pd.read_csv(tmp_path / "fake_trials.csv")["seed"].tolist() == [9, 9]


def tiny(name, monkeypatch, **sizes):
    module = import_module(f"benchmarks.paper.{name}")
    small = replace(module.EXPERIMENT, quick=replace(module.EXPERIMENT.quick, **sizes))
    monkeypatch.setattr(module, "EXPERIMENT", small)


def output(*arguments, code=0):
    """Run the command; return what it prints."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_prints_the_tables_and_names_the_files(tmp_path, monkeypatch):
    tiny("toy2", monkeypatch, rows=40, etas=2, seeds=1)
    text = output("toy2", "--quick", "--out", str(tmp_path / "a"))
    assert "NFKL's curve lies below FKL's" in text
    assert str(tmp_path / "a" / "toy2-quick.svg") in text
    record = json.loads(output("toy2", "--quick", "--seeds", "1:2", "--json", "--out", str(tmp_path / "b")))
    assert set(record) == {"table", "claims", "files", "seconds"}
    assert pd.read_csv(tmp_path / "b" / "toy2-quick_trials.csv")["seed"].unique().tolist() == [1]


def test_the_experiments_are_listed():
    assert [line.split()[0] for line in output().splitlines()] == list(EXPERIMENTS)


@pytest.mark.parametrize("seeds", ["0", "3:3", "a", "-1:2", "5:2", ""])
def test_seeds_that_are_none_are_refused(seeds, tmp_path):
    error = output("toy1", f"--seeds={seeds}", "--out", str(tmp_path), code=2)
    assert "names no seeds" in error
    assert not list(tmp_path.iterdir())


def test_an_unknown_experiment_is_refused():
    with pytest.raises(ValueError, match="give one of toy1"):
        load("toy3")
    assert "'toy3' is not one of 'toy1'" in output("toy3", code=2)


def test_a_folder_that_is_a_file_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    assert "is a file" in output("toy1", "--quick", "--out", str(tmp_path / "file"), code=2)


def test_the_samples_are_those_of_the_paper():
    crime = data.crime()
    assert crime.X.shape == (1993, 100)
    np.testing.assert_allclose([crime.y.mean(), crime.y.std()], [0, 1], atol=1e-12)
    train, test = data.crime_split(crime, 1, 1594)
    assert len(train.y) == 1594
    assert not set(train.X.index) & set(test.X.index)
    people = data.adult()
    assert people.X.shape == (48_842, 123)
    for seed in (0, 3):
        train, test = data.adult_split(people, seed, 32_561)
        assert (len(train.y), len(test.y)) == (32_561, 16_281)
        assert not set(train.X.index) & set(test.X.index)
    assert data.adult_split(people, 0, 32_561)[1].X.index[0] == 32_561
    assert len(np.unique(people.s)) == 10


def test_the_kernel_on_adults_groups_is_categorical():
    """0.5 is so short, for standardised bits, that two groups are not alike at all."""
    people = data.adult()
    bits = people.X.filter(regex="^(sex|race)=").to_numpy()
    one_each = np.unique(people.s, return_index=True)[1]
    np.testing.assert_allclose(data.gram(bits[one_each]), np.eye(10), atol=1e-7)

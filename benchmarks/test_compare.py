"""The compare step fails on a regression, and on nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import compare


def written(path, speed=1.0, slower=1.0, noise=0.0, full=True, seed=0):
    """Times of a machine of some speed on which the code takes `slower` times as long."""
    rng = np.random.default_rng(seed)
    benchmarks = []
    for name, base in (("fit", 1.2), ("predict", 0.4)):
        reference = speed * rng.uniform(1, 1 + noise, 5)
        ours = base * (slower if name == "fit" else 1.0) * speed * rng.uniform(1, 1 + noise, 5)
        ratios = ours / reference
        extra = {
            "ratio": float(np.median(ratios)),
            "full": full,
            "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
        }
        benchmarks.append({"name": name, "extra_info": extra, "stats": {"median": float(np.median(ours))}})
    path.write_text(json.dumps({"benchmarks": benchmarks}))
    return str(path)


@pytest.fixture
def old(tmp_path):
    return written(tmp_path / "old.json")


def test_a_slower_machine_is_no_regression(tmp_path, old):
    assert compare.main([old, written(tmp_path / "new.json", speed=7.0)]) == 0


def test_slower_code_is_one_on_any_machine(tmp_path, old, capsys):
    for speed in (0.2, 1.0, 7.0):
        assert compare.main([old, written(tmp_path / "new.json", speed=speed, slower=1.5)]) == 1
    assert "fit: 1.8 times its reference, 1.2 before" in capsys.readouterr().err


def test_faster_code_and_little_slower_code_pass(tmp_path, old):
    for slower in (0.3, 1.0, 1.2):
        assert compare.main([old, written(tmp_path / "new.json", slower=slower)]) == 0


def test_noise_alone_does_not_fail(tmp_path):
    """Ratios vary by half and more between rounds; their quartiles overlap."""
    for seed in range(20):
        files = [written(tmp_path / f"{n}.json", noise=0.8, seed=2 * seed + n) for n in (0, 1)]
        assert compare.main(files) == 0


def test_other_sizes_are_not_compared(tmp_path, old, capsys):
    assert compare.main([old, written(tmp_path / "new.json", slower=9.0, full=False)]) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_tables_compare_in_both_directions(tmp_path):
    head = "what,value,target,seconds,reference_seconds\n"
    rows = "fit / bare,{},<= 1.15,9,8\npeer / fit,{},>= 3,1,4\npeak MB,{},< 700,,\n"
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text(head + rows.format(1.1, 4.0, 500))
    for values, code in (((1.2, 3.9, 9000), 0), ((1.6, 4.0, 500), 1), ((1.1, 2.0, 500), 1)):
        new.write_text(head + rows.format(*values))
        assert compare.main([str(old), str(new)]) == code


def test_ratios_of_a_run_are_kept_with_their_quartiles(benchmark):
    from benchmarks._measure import ratio

    ratio(benchmark, lambda: sum(range(20_000)), lambda: sum(range(20_000)))
    assert set(benchmark.extra_info) == {"ratio", "ratio_quartiles", "reference_seconds", "full"}

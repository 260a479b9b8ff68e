"""Errors about a column of the user's table carry its name, and the place and the remedy."""

import ast
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import scalefair
from scalefair import FairKernelRidge
from scalefair.data import frames, open_rows
from scalefair.data.columns import table_statistics
from scalefair.data.encoding import SensitiveEncoder
from scalefair.data.sources.files import scan_files
from scalefair.errors import InputError, check_finite
from tests.errors import refused

N = 12
GOOD = pd.DataFrame({"a": np.arange(N) / N, "b": np.arange(N) % 3, "s": list("fm") * (N // 2)})
MISSING = GOOD.assign(b=[np.nan] + [1.0] * (N - 1), s=[None] + ["f", "m"] * (N // 2 - 1) + ["f"])
TWO_TYPES = GOOD.assign(b=["x", 1] * (N // 2))


def statistics(*tables):
    first, *others = (table_statistics(table) for table in tables)
    for other in others:
        first = first + other
    return first


def fit(X, **options):
    model = FairKernelRidge(eta=1.0, n_components=5, random_state=0, **options)
    return model.fit(X, np.arange(len(X)) / 7, sensitive_features=GOOD["s"])


def fit_named(names):
    return FairKernelRidge(eta=1.0, sensitive_columns=names).fit(GOOD, np.arange(N))


CASES = {
    "text read as numbers": (lambda: frames.to_numpy(GOOD), "s", ""),
    "infinite": (lambda: statistics(GOOD.assign(a=np.inf)), "a", ""),
    "types mixed in a column": (lambda: frames.columns(TWO_TYPES), "b", ""),
    "lists": (lambda: frames.columns(pa.table({"a": [[1, 2]]})), "a", ""),
    "one kind, then another": (lambda: statistics(GOOD, GOOD.assign(a="x")), "a", ""),
    "one name, then another": (lambda: statistics(GOOD, GOOD.rename(columns={"b": "c"})), "c", ""),
    "unknown level": (lambda: SensitiveEncoder().fit(GOOD[["s"]]).transform(GOOD[["s"]].replace("f", "x")), "s", ""),
    "missing attribute": (lambda: SensitiveEncoder().fit(MISSING[["s"]]), "s", ""),
    "constant attribute": (lambda: SensitiveEncoder().fit(GOOD[["s"]].assign(s="f")), "s", ""),
    "unknown name": (lambda: frames.take_columns(GOOD, "z"), "z", ""),
    "unknown position": (lambda: frames.take_columns(GOOD, 7), "7", ""),
    "named in the constructor": (lambda: fit_named(["z"]), "z", "sensitive_columns=['z']"),
    "not finite": (lambda: check_finite("X", np.array([[0, np.nan]]), names="ab"), "b", "X"),
    "text among the targets": (lambda: open_rows(GOOD, y=GOOD[["s"]]), "s", "y"),
    "missing targets": (lambda: open_rows(GOOD, y=MISSING["b"].to_numpy()), "y", "y"),
    "negative weights": (lambda: open_rows(GOOD, weight=-GOOD["a"].to_numpy()), "sample_weight", "in memory"),
    "a missing attribute of a fit": (
        lambda: FairKernelRidge(eta=1.0).fit(GOOD[["a"]], np.arange(N), sensitive_features=MISSING["s"]),
        "s",
        "",
    ),
    "mixed types in a fit": (lambda: fit(TWO_TYPES[["a", "b"]]), "b", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_carry_the_column_and_where_it_is(name):
    call, column, where = CASES[name]
    with refused(column, error=InputError) as caught:
        call()
    assert (caught.value.column, caught.value.where) == (column, where)
    again = pickle.loads(pickle.dumps(caught.value))  # as it travels from a worker
    assert (str(again), again.column, again.where) == (str(caught.value), column, where)


FILES = {
    "a column that other files have": (GOOD[["a", "b"]], lambda scan: scan.read(), "s"),
    "another type": (GOOD.assign(s=1.0), lambda scan: scan.kinds, "s"),
}


@pytest.mark.parametrize("name", FILES)
def test_errors_of_files_carry_the_column_and_the_file(name, tmp_path):
    other, use, column = FILES[name]
    GOOD.to_parquet(tmp_path / "1.parquet")
    other.to_parquet(tmp_path / "2.parquet")
    with refused(column, "2.parquet", error=InputError) as caught:
        use(scalefair.scan_parquet(tmp_path))
    assert (caught.value.column, caught.value.where) == (column, str(tmp_path / "2.parquet"))
    assert caught.value.remedy


def test_text_of_a_scan_as_targets_and_types_of_csv(tmp_path):
    GOOD.to_csv(tmp_path / "d.csv", index=False)
    scan = scan_files(tmp_path / "d.csv")
    with refused("s", error=InputError) as caught:
        open_rows(scan[["a"]], y=scan["s"])
    assert (caught.value.column, caught.value.where) == ("s", "y")
    with refused("a", error=InputError) as caught:
        scan_files(tmp_path / "d.csv", column_types={"a": "colour"})
    assert (caught.value.column, caught.value.where) == ("a", "column_types")


def test_what_the_files_are_decides_how_they_are_opened(tmp_path):
    """Endings, in any case, or first bytes; in a folder csv beside parquet does not count."""
    for name in ("a.csv", "B.CSV"):
        GOOD.to_csv(tmp_path / name, index=False)
        assert scan_files(tmp_path / name).is_csv
    GOOD.to_parquet(tmp_path / "table")
    assert not scan_files(tmp_path / "table").is_csv
    assert scan_files(str(tmp_path / "*.csv")).is_csv
    (tmp_path / "text").write_text("a,b\n1,2\n")
    assert scan_files(tmp_path / "text").columns == ["a", "b"]
    GOOD.to_parquet(tmp_path / "a.parquet")
    assert not scan_files(tmp_path).is_csv


def names_a_column(call):
    """Whether the message of an error quotes the name of a column: "column {name!r}"."""
    parts = [n.values for n in ast.walk(call) if isinstance(n, ast.JoinedStr)]
    return any(
        isinstance(text, ast.Constant)
        and text.value.endswith("column ")
        and isinstance(value, ast.FormattedValue)
        and value.conversion == ord("r")
        for values in parts
        for text, value in pairwise(values)
    )


@pytest.mark.parametrize("room", ["data", "features"])
def test_no_error_about_a_column_forgets_which(room):
    """Nothing parses messages: whatever quotes a column in its message has it as an attribute."""
    found = []
    for path in (Path(scalefair.__file__).parent / room).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                kind, given = call.func.id, {keyword.arg for keyword in call.keywords}
                about = kind.endswith("Error") and names_a_column(call)
                if about and (kind == "ValueError" or (kind != "TypeError" and "column" not in given)):
                    found.append(f"{path.name}:{call.lineno}")
    assert not found

"""What a new user meets in the first five minutes, in the words that were promised for it."""

import re

import numpy as np
import pandas as pd
import pytest

from scalefair import FairGPClassifier, FairGPRegressor, FairKernelRidge, FairRidge
from scalefair.errors import UselessColumnError
from tests import docs_pages
from tests.cli_tools import call, refuse, succeed
from tests.errors import refused

N = 400
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "sex": RNG.choice(["f", "m"], N),
        "age": RNG.integers(18, 70, N),
        "hours": RNG.normal(38, 5, N).round(1),
        "grade": RNG.choice(["a", "b"], N),
    }
)
PAY = (20 + 3 * (TABLE["sex"] == "m") + 0.1 * TABLE["age"] + 0.2 * TABLE["hours"]).round(2)
FIT = ["--target", "pay", "--sensitive", "sex", "--model", "linear"]


def fitted(table, folder, *options):
    table.assign(pay=PAY).to_csv(folder / "t.csv", index=False)
    return call("fit", folder / "t.csv", *FIT, "--out", folder / "m.scalefair", *options)


def test_one_cell_that_is_no_number_is_said_in_so_many_words(tmp_path):
    odd = TABLE.assign(age=TABLE["age"].astype(str).where(TABLE.index != 7, "unknown"))
    done = fitted(odd, tmp_path)
    assert done.exit_code == 0
    assert "column 'age': 399 of 400 cells" in done.stderr
    assert "are numbers; read as text because of 'unknown'" in done.stderr
    assert "because of" not in fitted(TABLE, tmp_path).stderr


def test_a_wrong_name_gets_the_right_one(tmp_path):
    fitted(TABLE, tmp_path)
    said = refuse("fit", tmp_path / "t.csv", "--target", "payy", "--sensitive", "sex")
    assert "did you mean 'pay'?" in said


@pytest.mark.parametrize("mend", ["drop", "group", "numbers"])
@pytest.mark.parametrize("model", [FairRidge(unfairness=0.05), FairKernelRidge(unfairness=0.05, n_components=10)])
def test_what_the_message_about_an_identifier_advises_helps(model, mend):
    many = pd.concat([TABLE] * 2, ignore_index=True)
    ids = pd.Series([f"{i:04}" for i in range(len(many))])
    many, y, s = many.assign(id=ids), np.tile(PAY, 2), many["sex"]
    with refused("'id'", "identifier", error=UselessColumnError) as caught:
        model.fit(many, y, sensitive_features=s)
    remedies = {"drop": "drop it", "group": "group its levels", "numbers": "convert it if it holds numbers"}
    assert remedies[mend] in str(caught.value)
    assert not re.search(r"\w+=", caught.value.remedy)  # no parameter, which not every estimator has
    mended = {
        "drop": many.drop(columns="id"),
        "group": many.assign(id=ids.str[:2]),
        "numbers": many.astype({"id": int}),
    }
    assert model.fit(mended[mend], y, sensitive_features=s).explained_share_ <= 0.05 + 1e-6


def test_an_identifier_of_a_file_is_left_out_with_a_note(tmp_path):
    done = fitted(TABLE.assign(id=[f"p{i}" for i in range(N)]), tmp_path)
    assert done.exit_code == 0
    assert "column 'id' is different in every row, an identifier: left out" in done.stderr


@pytest.mark.parametrize("estimator", [FairGPRegressor, FairGPClassifier])
def test_the_first_line_about_the_optimizer_says_how_it_differs_from_scikit_learn(estimator):
    lines = [line.strip() for line in estimator.__doc__.splitlines()]
    at = next(k for k, line in enumerate(lines) if line.startswith("optimizer :"))
    assert lines[at + 1].startswith("Unlike in scikit-learn, None")


def test_the_help_lists_the_commands_for_parts_under_a_heading_of_their_own():
    listed = succeed("--help")
    common, _, parts = listed.partition("Parts of a table that may not be shared:")
    assert {"moments", "merge"} <= set(re.findall(r"^  (\w+) ", parts, re.M))
    assert not {"moments", "merge"} & set(re.findall(r"^  (\w+) ", common, re.M))
    assert "paper" not in listed


def test_the_number_of_features_is_explained_in_plain_words():
    page = (docs_pages.ROOT / "docs" / "guide" / "choosing.md").read_text("utf-8")
    said = "accuracy usually levels off at about 500"
    assert f"Cost grows with the square of `n_components`; {said}" in page
    assert said in " ".join(FairKernelRidge.__doc__.split())

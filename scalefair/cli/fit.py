"""scalefair fit: a model of a table, or of moments that were merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalefair.cli import _data
from scalefair.cli._console import Console, FitProgress, OutPath, noting_warnings
from scalefair.cli._data import ADULT_SENSITIVE, ADULT_TARGET, Data, Reading
from scalefair.cli._model import MODEL_OPTIONS, TREES, ModelOptions, kind_option, limit_options, shape_options

if TYPE_CHECKING:
    from scalefair.estimators.path import ModelChoice


ROW_OPTIONS = ("target", "sensitive", "kind", "weight", "drop")


@dataclass(frozen=True)
class Roles:
    """Which column is what: to predict, what it should not depend on, what the model sees."""

    target: str
    sensitive: list[str]
    inputs: list[str]
    weight: str | None

    @property
    def all(self) -> list[str]:
        """Every column that is read."""
        extra = [self.target, *([self.weight] if self.weight else [])]
        return list(dict.fromkeys([*self.inputs, *self.sensitive, *extra]))

    @property
    def visible(self) -> bool:
        """Whether the sensitive columns are inputs."""
        return set(self.sensitive) <= set(self.inputs)

    @property
    def stored(self) -> dict[str, Any]:
        """What a model file stores about its columns."""
        return {"target": self.target, "sensitive": self.sensitive, "weight": self.weight}

    def without(self, names: Sequence[str]) -> Roles:
        """Return the roles with some inputs left out."""
        rest = [name for name in self.inputs if name not in names]
        if not rest:
            raise ValueError(f"column {names[-1]!r} is not usable, and it is the only input; give others")
        return Roles(self.target, self.sensitive, rest, self.weight)

    def arguments(self, table: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
        """Return the arguments of `fit` and `collect`."""
        options = {} if self.visible else {"sensitive_features": table[self.sensitive]}
        if self.weight:
            options["sample_weight"] = table[self.weight]
        return (table[self.inputs], table[self.target]), options


def find_roles(data: Data, options: dict[str, Any], hide: bool, *, alone: bool = False) -> Roles:
    """Return what the options about columns mean in this table; `alone`: without sensitive ones."""
    target, sensitive = options["target"], options["sensitive"]
    if data.is_built_in:
        target, sensitive = target or ADULT_TARGET, sensitive or ADULT_SENSITIVE
    if target is None or not (sensitive or alone):
        missing = "--target" if target is None else "--sensitive"
        raise click.UsageError(f"{missing} is needed with DATA: add {missing} NAME")
    (target,) = data.find("--target", [target])
    weight = data.find_one("--weight", options["weight"])
    attributes, dropped = data.find("--sensitive", sensitive), data.find("--drop", options["drop"])
    _data.check_distinct(target=[target], weight=[weight], sensitive=attributes)
    _data.check_distinct(target=[target], weight=[weight], drop=dropped)
    gone = {target, weight, *dropped, *(attributes if hide else ())}
    inputs = [name for name in data.columns if name not in gone]
    if not inputs:
        raise ValueError("no column is left to predict from; drop or hide fewer")
    # A sensitive column that is dropped is hidden, and then all of them are.
    if not set(attributes) <= set(inputs):
        inputs = [name for name in inputs if name not in attributes]
    return Roles(target, attributes, inputs, weight)


def without_useless(
    data: Data, names: Sequence[str], work: Callable[[list[str]], Any], console: Console
) -> tuple[Any, list[str]]:
    """Return work(columns left out), repeated for each of `names` that proves useless, and notes on these."""
    from scalefair.errors import UselessColumnError

    useless = data.useless(names)
    dropped, notes = list(useless), [f"{reason}: left out" for reason in useless.values()]
    for note in notes:
        console.note(note)
    while True:
        try:
            return work(dropped), notes
        except UselessColumnError as error:
            if error.column not in names or error.column in dropped:
                raise
            dropped.append(error.column)
            notes.append(f"{error.what}: left out")
            console.note(notes[-1])


def fit_model(
    candidates: Mapping[str, Any], data: Data, roles: Roles, console: Console
) -> tuple[ModelChoice, Roles, list[str]]:
    """Fit, leaving out inputs that no model could use; return also what is left, and why."""
    from scalefair.estimators.path import choose_model

    def work(dropped: list[str]) -> tuple[ModelChoice, Roles, list[str]]:
        rest = roles.without(dropped)
        columns, own = rest.arguments(data.selection(rest.all))
        with noting_warnings(console) as warned:
            choice = choose_model(
                candidates, lambda one: one.set_callbacks(FitProgress(console)).fit(*columns, **own), console
            )
        return choice, rest, warned

    optional = [name for name in roles.inputs if name not in roles.sensitive]
    (choice, rest, warned), notes = without_useless(data, optional, work, console)
    return choice, rest, notes + warned


@click.command(short_help="Fit a model that does not depend on the sensitive columns.")
@_data.target_option
@_data.sensitive_option
@limit_options
@shape_options
@kind_option
@_data.weight_option
@_data.drop_option
@_data.model_file_option("--from-moments", help="Solve from merged moments, without DATA; needs --like.")
@_data.model_file_option(
    "--like", help="The model whose maps the moments were made with; other options default to its settings."
)
@_data.model_file_option("--cross", help="Moments of another party, which has the sensitive columns of these rows.")
@_data.model_file_option("--shares", help="What it said of --candidates, if there is a --confidence.")
@click.option("--candidates", type=OutPath(), help="Write models for it to judge, instead of --out.")
@_data.out_option(default="model.scalefair", help="The model.")
@_data.reading_options
@_data.printing_options
def fit(*, out: Path, reading: Reading, console: Console, **options: Any) -> None:
    """Fit a model whose predictions do not depend on the sensitive columns.

    All columns but the target are inputs: numbers, text, dates, with missing values. The sensitive
    columns are inputs, too, unless --hide-sensitive is given; predictions then do not need them.
    Without DATA the built-in Adult census data are used.

    \b
    scalefair fit pay.csv --target pay --sensitive sex,age --out pay.scalefair
    scalefair fit 'loans/*.parquet' --target repaid --sensitive race --unfairness 0.01 --model trees
    scalefair fit s3://bucket/pay/ --target pay --sensitive sex --scheduler tcp://10.0.0.1:8786
    scalefair fit --from-moments all.moments --like site1.scalefair --out final.scalefair
    """
    moments, like, party = (options.pop(name) for name in ("from_moments", "like", "cross"))
    files = {name: options.pop(name) for name in ("shares", "candidates")}
    settings = ModelOptions.taken_from(options)
    if (moments is None) != (like is None) or (moments and reading.data):
        raise click.UsageError("--from-moments and --like go together, and without DATA")
    if (party is None and any(files.values())) or (moments is None and party):
        raise click.UsageError("--shares and --candidates go with --cross, and that with --from-moments and --like")
    if moments is not None:
        used = {"unfairness", "eta", "alpha"} if party is None else {"target"}
        _data.refuse_given({*ROW_OPTIONS, *MODEL_OPTIONS} - used, "with --from-moments")
        files |= {"from-moments": moments, "cross": party}
        _fit_moments(files, like, out, console, target=options["target"], settings=settings)
        return
    with reading.open(console) as table:
        roles, kind = find_roles(table, options, settings.hide_sensitive), options["kind"]
        classes = table.is_classes(roles.target) if kind == "auto" else kind == "classification"
        candidates = settings.candidates(roles.sensitive if roles.visible else None, classes=classes)
        choice, roles, notes = fit_model(candidates, table, roles, console)
    model, own = choice.model, {"inputs": roles.inputs, "chosen": choice.name, "errors": choice.errors}
    model.columns_ = roles.stored
    record = write_model(model, out, table.name, notes, **own)
    compared = f"; model {choice.summary}" if len(candidates) > 1 else ""
    console.result(record, words(out, record) + compared)


def _fit_moments(files: Any, like: Any, out: Path, console: Console, *, target: Any, settings: ModelOptions) -> None:
    """Fit a model to moments of one kind of rows, or of two parties."""
    from scalefair.cli import moments, parties

    if files["cross"] is None:
        moments.solve(files["from-moments"], like, out, console, settings)
    else:
        parties.solve_parties(files, like, out, console, target)


def write_model(model: Any, out: Path, data: Any, notes: list[str], **own: Any) -> dict[str, Any]:
    """Write a fitted model whose columns are named; return its record, with what is its `own`."""
    from scalefair import save

    save(model, out)
    columns = model.columns_
    named = {"target": columns.get("target", "y"), "sensitive": columns.get("sensitive", ["the sensitive columns"])}
    return {"model": out, "data": data, **named, **own, **describe(model), "notes": notes}


def describe(model: Any) -> dict[str, Any]:
    """Return a fitted model's description, as numbers."""
    from sklearn.base import is_classifier

    from scalefair.estimators.path import held_out_error

    record: dict[str, Any] = {
        "kind": "classification" if is_classifier(model) else "regression",
        "estimator": type(model).__name__,
        "rows": model.n_samples_seen_,
        "components": int(model.moments_.blocks["phi"]),
        "limit": model.unfairness,
        "alpha": vars(model).get("alpha_"),
        "eta": model.eta_,
        "explained_share": model.explained_share_,
    }
    if "explained_share_cv_" in vars(model):
        record |= {
            "explained_share_cv": model.explained_share_cv_,
            "explained_share_cv_error": model.explained_share_cv_error_,
        }
        error = held_out_error(model)
        record |= {"loss_cv": error} if is_classifier(model) else {"r2_cv": 1.0 - error}
    if "n_base_samples_" in vars(model):
        record["rows_of_trees"] = model.n_base_samples_
    if "certificate_" in vars(model):
        record["certificate"] = asdict(model.certificate_)
    if is_classifier(model):
        record["classes"] = model.classes_.tolist()
    return record


def words(out: Path, record: dict[str, Any]) -> str:
    """Return the record as a sentence."""
    from scalefair.auditing.result import listed, percent

    held_out = "explained_share_cv" in record
    share = record["explained_share_cv" if held_out else "explained_share"]
    what = "scores" if record["kind"] == "classification" else "predictions"
    verb = "explain" if len(record["sensitive"]) > 1 else "explains"
    explained = f"{listed(record['sensitive'])} {verb} {percent(share)} of the variance of the {what}" + (
        " on held-out folds" if held_out else " on these rows"
    )
    if isnan(share):
        explained = f"the {what} are constant, so they have no explained share"
    limit = "" if record["limit"] is None else f" (limit {percent(record['limit'])})"
    parts = [f"{record['kind']} of {record['target']}, {record['rows']:,} rows", explained + limit]
    if "certificate" in record:
        certificate = record["certificate"]
        parts.append(
            f"certified with confidence {certificate['confidence']:g}, upper bound "
            f"{percent(certificate['upper_bound'])}"
        )
    if "r2_cv" in record:
        parts.append(f"held-out R² {record['r2_cv']:.3f}")
    if record.get("rows_of_trees", record["rows"]) < record["rows"]:
        parts.append(f"{TREES} fitted on {record['rows_of_trees']:,} rows")
    return f"{out}: {'; '.join(parts)}"

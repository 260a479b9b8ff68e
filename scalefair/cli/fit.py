"""scalefair fit: a model of a table, or of moments that were merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from scalefair.cli import _options
from scalefair.cli._data import ADULT_SENSITIVE, ADULT_TARGET, Data, Reading
from scalefair.cli._output import Console, FitProgress, check_file, noting_warnings

LIMIT = 0.05


@dataclass(frozen=True)
class Roles:
    """Which column is what.

    Parameters
    ----------
    target : str
        To predict.
    sensitive : list of str
        What predictions should not depend on.
    inputs : list of str
        What the model sees.
    weight : str or None
        Of the rows.
    """

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
    def seen(self) -> bool:
        """Whether the sensitive columns are inputs."""
        return set(self.sensitive) <= set(self.inputs)

    @property
    def stored(self) -> dict[str, Any]:
        """What a model file says of its columns."""
        return {"target": self.target, "sensitive": self.sensitive, "weight": self.weight}

    def without(self, name: str) -> Roles:
        """Return the roles with an input left out."""
        rest = [other for other in self.inputs if other != name]
        if not rest:
            raise ValueError(f"column {name!r} is of no use, and the only input; give others")
        return replace(self, inputs=rest)

    def arguments(self, table: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
        """Return the arguments of `fit` and `collect`."""
        options = {} if self.seen else {"sensitive_features": table[self.sensitive]}
        if self.weight:
            options["sample_weight"] = table[self.weight]
        return (table[self.inputs], table[self.target]), options


@dataclass(frozen=True)
class ModelOptions:
    """What the options about the model say."""

    unfairness: float | None
    eta: float | None
    alpha: float | None
    feature_map: str
    components: int
    hide_sensitive: bool
    seed: int

    def limits(self) -> dict[str, Any]:
        """Return the limit or the weight as parameters."""
        if self.unfairness is not None and self.eta is not None:
            raise ValueError(
                "--unfairness and --eta are both given; give a limit or a weight, not both"
            )
        if self.eta is not None:
            return {"eta": self.eta}
        return {"unfairness": LIMIT if self.unfairness is None else self.unfairness}

    def estimator(self, roles: Roles, *, classes: bool, cross_validated: bool = True) -> Any:
        """Return the estimator, not fitted."""
        from scalefair import FairKernelRidge, FairKernelRidgeCV

        common: dict[str, Any] = {
            "feature_map": self.feature_map,
            "n_components": self.components,
            "sensitive_columns": roles.sensitive if roles.seen else None,
            "random_state": self.seed,
        }
        alpha: dict[str, Any] = {} if self.alpha is None else {"alpha": self.alpha}
        if classes:
            from scalefair import FairKernelClassifier

            return FairKernelClassifier(**common, **alpha, **self.limits())
        if alpha or not cross_validated:
            return FairKernelRidge(**common, **alpha, **self.limits())
        if self.eta is not None:
            return FairKernelRidgeCV(**common, etas=[self.eta])
        return FairKernelRidgeCV(**common, **self.limits())


def find_roles(  # noqa: PLR0917
    data: Data, target: str | None, sensitive: Sequence[str], drop: Sequence[str],
    weight: str | None, hide: bool,
) -> Roles:  # fmt: skip
    """Return what the options about columns mean in this table."""
    if data.in_memory:
        target, sensitive = target or ADULT_TARGET, sensitive or ADULT_SENSITIVE
    if target is None or not sensitive:
        missing = "--target" if target is None else "--sensitive"
        raise ValueError(f"{missing} is needed with DATA: add {missing} NAME")
    (target,) = data.find("--target", [target])
    (weight,) = [None] if weight is None else data.find("--weight", [weight])
    attributes, dropped = data.find("--sensitive", sensitive), data.find("--drop", drop)
    for argument, names in (("--sensitive", attributes), ("--drop", dropped)):
        taken = {target, weight} & set(names)
        if taken:
            raise ValueError(f"{argument}: column {taken.pop()!r} is the target or the weight")
    gone = {target, weight, *dropped, *(attributes if hide else ())}
    inputs = [name for name in data.columns if name not in gone]
    if not inputs:
        raise ValueError("no column is left to predict from; drop or hide fewer")
    # A sensitive column that is dropped is hidden, and then all of them are.
    if not set(attributes) <= set(inputs):
        inputs = [name for name in inputs if name not in attributes]
    return Roles(target, attributes, inputs, weight)


def fit_model(
    estimator: Any, data: Data, roles: Roles, console: Console
) -> tuple[Any, Roles, list[str]]:
    """Fit, leaving out inputs that no model could use; return also what is left, and why."""
    from scalefair.errors import UselessColumnError

    notes = []
    for name in data.identifiers([name for name in roles.inputs if name not in roles.sensitive]):
        notes.append(f"column {name!r} is different in every row: an identifier, left out")
        console.note(notes[-1])
        roles = roles.without(name)
    while True:
        table = data.selection(roles.all)
        columns, options = roles.arguments(table)
        try:
            with noting_warnings(console) as warned:
                estimator.set_callbacks(FitProgress(console)).fit(*columns, **options)
        except UselessColumnError as error:
            if error.column not in roles.inputs or error.column in roles.sensitive:
                raise
            notes.append(f"{error.what}: left out")
            console.note(notes[-1])
            roles = roles.without(error.column)
            continue
        return estimator, roles, notes + warned


@click.command(short_help="Fit a model that does not depend on the sensitive columns.")
@_options.target
@_options.sensitive
@_options.modelling
@click.option(
    "--kind",
    type=click.Choice(["auto", "regression", "classification"]),
    default="auto",
    show_default=True,
    help="auto: classes are text, booleans or two numbers.",
)
@_options.weight
@_options.drop
@click.option(
    "--from-moments",
    type=click.Path(path_type=Path),
    help="Solve from merged moments, without DATA; needs --like.",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    help="The model whose maps made the moments; its settings hold where none are given.",
)
@_options.out_file("The model.", default="model.scalefair", show_default=True)
@_options.reading
@_options.printing
def fit(*, out: Path, reading: Reading, console: Console, **options: Any) -> None:
    """Fit a model whose predictions do not depend on the sensitive columns.

    All columns but the target are inputs: numbers, text, dates, with missing values. The sensitive
    columns are inputs, too, unless --hide-sensitive is given; predictions then do not need them.
    Without DATA the built-in Adult census data are used.

    \b
    scalefair fit pay.csv --target pay --sensitive sex,age --out pay.scalefair
    scalefair fit 'loans/*.parquet' --target repaid --sensitive race --unfairness 0.01
    scalefair fit s3://bucket/pay/ --target pay --sensitive sex --scheduler tcp://10.0.0.1:8786
    scalefair fit --from-moments all.moments --like site1.scalefair --out final.scalefair
    """
    check_file(out)
    moments, like = options.pop("from_moments"), options.pop("like")
    if (moments is None) != (like is None) or (moments and reading.data):
        raise ValueError("--from-moments and --like go together, and without DATA")
    if moments is not None:
        from scalefair.cli.moments import solve

        solve(moments, like, out, console, options)
        return
    kind, names = options.pop("kind"), pop_names(options)
    settings = ModelOptions(**options)
    settings.limits()
    with reading.open(console) as table:
        _fit(table, settings, names, kind, out, console)


def pop_names(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options that name columns out of all options."""
    return {name: options.pop(name) for name in ("target", "sensitive", "drop", "weight")}


def _fit(  # noqa: PLR0917
    table: Data, settings: ModelOptions, names: dict[str, Any], kind: str, out: Path,
    console: Console,
) -> None:  # fmt: skip
    from scalefair import save

    roles = find_roles(table, **names, hide=settings.hide_sensitive)
    classes = table.is_classes(roles.target) if kind == "auto" else kind == "classification"
    console("fitting")
    model, roles, notes = fit_model(
        settings.estimator(roles, classes=classes), table, roles, console
    )
    model.columns_ = roles.stored
    save(model, out)
    record = {
        "model": out,
        "data": table.name,
        "kind": "classification" if classes else "regression",
        "target": roles.target,
        "sensitive": roles.sensitive,
        "inputs": roles.inputs,
        **describe(model),
        "notes": notes,
        "seconds": console.seconds,
    }
    console.result(record, words(out, record))


def describe(model: Any) -> dict[str, Any]:
    """Return what a fitted model says of itself, as numbers."""
    from sklearn.base import is_classifier

    from scalefair import FairKernelRidgeCV

    cross_validated = isinstance(model, FairKernelRidgeCV)
    record: dict[str, Any] = {
        "estimator": type(model).__name__,
        "rows": model.n_samples_seen_,
        "components": int(model.moments_.blocks["phi"]),
        "limit": model.unfairness,
        "alpha": model.alpha_ if cross_validated else model.alpha,
        "eta": model.eta_,
        "explained_share": model.explained_share_,
    }
    if cross_validated:
        record |= {
            "explained_share_cv": model.explained_share_cv_,
            "explained_share_cv_error": model.explained_share_cv_error_,
            "r2_cv": _held_out_r2(model),
        }
    if is_classifier(model):
        record["classes"] = model.classes_.tolist()
    return record


def _held_out_r2(model: Any) -> float:
    import numpy as np

    scores = model.cv_results_
    i = np.argmin(np.abs(scores["alphas"] - model.alpha_))
    j = np.flatnonzero(np.isclose(scores["etas"], model.eta_, rtol=1e-9, atol=0.0))
    variance = float(model.moments_.covariance("y", "y")[0, 0])
    if len(j) == 0 or variance == 0:
        return float("nan")
    return 1.0 - float(scores["mse"][:, i, j[0]].mean()) / variance


def words(out: Path, record: dict[str, Any]) -> str:
    """Return the record as a sentence."""
    from scalefair.auditing.words import listed, percent

    held_out = "explained_share_cv" in record
    share = record["explained_share_cv" if held_out else "explained_share"]
    what = "scores" if record["kind"] == "classification" else "predictions"
    verb = "explain" if len(record["sensitive"]) > 1 else "explains"
    parts = [
        f"{record['kind']} of {record['target']}, {record['rows']:,} rows",
        f"{listed(record['sensitive'])} {verb} {percent(share)} of the variance of the {what}"
        + (" on held-out folds" if held_out else " on these rows")
        + ("" if record["limit"] is None else f" (limit {percent(record['limit'])})"),
    ]
    if "r2_cv" in record:
        parts.append(f"held-out R² {record['r2_cv']:.3f}")
    return f"{out}: {'; '.join(parts)}"

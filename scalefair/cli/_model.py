"""Options about the model that commands share, and the estimators that they mean."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import click

from scalefair.cli import _data

LIMIT = 0.05
MODELS = ("auto", "kernel", "trees", "linear", "gp")
TREES = "boosted trees"
KERNELS: dict[str, Any] = {"Gaussian kernel": {}, "Laplace kernel": {"kernel": "laplace"}}

kind_option = _data.choice_option(
    "--kind", ("auto", "regression", "classification"), "auto: classes are text, booleans or two numbers."
)
limit_options = _data.in_help_order(
    _data.unfairness_option(help=f"{_data.UNFAIRNESS}  [default: 0.05, unless --eta is given]"),
    click.option("--eta", type=click.FloatRange(0), help="Weight of the penalty, instead of a limit."),
    click.option(
        "--alpha",
        type=click.FloatRange(0),
        help="Ridge per row of a kernel or linear model, which is then not cross-validated.",
    ),
)
shape_options = _data.in_help_order(
    _data.confidence_option(help="Certify the limit, such as 0.95; four of ten rows are used only for that."),
    _data.choice_option(
        "--model",
        MODELS,
        "kernel: Gaussian; trees: boosted trees inside; gp: a Gaussian process with one "
        "length scale per input. auto: Gaussian kernel, Laplace kernel or trees, whichever has "
        "the least held-out error under the limit; trees with --confidence.",
    ),
    _data.choice_option(
        "--map, feature_map",
        ("nystroem", "fourier", "linear"),
        "Features of the inputs. With fourier or linear the model holds no row of DATA.",
    ),
    _data.components_option,
    click.option("--hide-sensitive", is_flag=True, help="Do not let the model see the sensitive columns."),
    _data.seed_option,
)
"""Which model is fitted."""


@dataclass(frozen=True)
class ModelOptions:
    """The options about the model."""

    unfairness: float | None
    eta: float | None
    confidence: float | None
    alpha: float | None
    model: str
    feature_map: str
    components: int
    hide_sensitive: bool
    seed: int

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> ModelOptions:
        """Take them out of all options; a frontier has no weight and no ridge."""
        taken = cls(**{name: options.pop(name, None) for name in MODEL_OPTIONS})
        if taken.unfairness is not None and taken.eta is not None:
            raise click.UsageError("--unfairness and --eta are both given; give a limit or a weight, not both")
        if taken.alpha is not None and taken.model in ("trees", "gp"):
            raise click.UsageError(f"--alpha is not for --model {taken.model}; leave it out")
        return taken

    @property
    def limit(self) -> dict[str, Any]:
        """The limit, or the weight."""
        if self.eta is not None:
            return {"eta": self.eta}
        return {"unfairness": LIMIT if self.unfairness is None else self.unfairness}

    def options(self, columns: list[str] | None) -> dict[str, Any]:
        """Parameters of every estimator; `columns` are sensitive ones that the model sees."""
        linear = self.model == "linear"
        return {
            "feature_map": "linear" if linear else self.feature_map,
            "n_components": self.components,
            "sensitive_columns": columns,
            "random_state": self.seed,
        }

    def plain(self, columns: list[str] | None, *, classes: bool = False) -> Any:
        """Return the kernel or linear estimator that is not cross-validated, not fitted."""
        from scalefair import FairKernelClassifier, FairKernelRidge

        if self.model in ("trees", "gp"):
            raise click.UsageError(f"--model {self.model} has no moments; use kernel or linear")
        ridge = {} if self.alpha is None else {"alpha": self.alpha}
        kind = FairKernelClassifier if classes else FairKernelRidge
        return kind(**self.options(columns) | self.limit | ridge)

    def candidates(self, columns: list[str] | None, *, classes: bool) -> dict[str, Any]:
        """Return the estimators to choose from by name, not fitted."""
        plain = self.alpha is not None or self.eta is not None or self.model == "gp"
        if self.confidence is not None and plain:
            raise click.UsageError("--confidence certifies a limit: leave out --eta, --alpha and --model gp")
        if self.model == "gp":
            return {"Gaussian process": self._process(columns, classes=classes)}
        if self.alpha is not None:
            return {"kernel": self.plain(columns, classes=classes)}
        from scalefair import FairKernelClassifierCV, FairKernelRidgeCV

        limit = self.limit if self.eta is None else {"etas": [self.eta]}
        certified = {} if self.confidence is None else {"confidence": self.confidence}
        options = self.options(columns) | limit | certified
        made = FairKernelClassifierCV if classes else FairKernelRidgeCV
        return {name: made(**options | own) for name, own in self._variants().items()}

    def _variants(self) -> dict[str, Any]:
        """Parameters of the models that are tried, by name."""
        linear = "linear" in (self.model, self.feature_map)
        kernels = {"linear": {}} if linear else KERNELS
        trees = {TREES: {"base_estimator": "trees"}}
        if self.model == "auto":  # a choice would look at the rows that certify
            return kernels | trees if self.confidence is None else trees
        return trees if self.model == "trees" else dict([*kernels.items()][:1])

    def _process(self, columns: list[str] | None, *, classes: bool) -> Any:
        from scalefair import FairGPClassifier, FairGPRegressor

        options = self.options(columns) | self.limit | {"length_scale": "standardized"}
        return (FairGPClassifier if classes else FairGPRegressor)(**options)


MODEL_OPTIONS = tuple(field.name for field in fields(ModelOptions))

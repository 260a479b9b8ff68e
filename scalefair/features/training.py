"""Training rows after the first pass over them, and the maps that are learnt from it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from scalefair._typing import LARGEST, Array, Chunk, FeatureMap
from scalefair.data import Look, Survey, frames, is_stream, open_rows, survey_rows
from scalefair.data.columns import sensitive_statistics
from scalefair.data.encoding import ControlEncoder, SensitiveEncoder, TableEncoder, numbers_or_codes
from scalefair.data.preparation import Preparation
from scalefair.data.sources import ArraySource, ChunkSource, Sample, StackedSource
from scalefair.data.sources.base import Change
from scalefair.errors import InputError, located, resolve_columns
from scalefair.features.base import BaseMap, is_fitted_map, seed_of
from scalefair.features.base_model import BaseModel
from scalefair.features.blocks import Curve, learn_control
from scalefair.features.design import Block, Design
from scalefair.features.exact import ExpectedGroups, Identity, OneHot
from scalefair.features.fourier import RandomFourier
from scalefair.features.landmarks import fitted_kernel
from scalefair.features.mixed import SAMPLE_ROWS, mixed_map
from scalefair.features.nystroem import Nystroem
from scalefair.features.partial import KNOWN_SAMPLE_ROWS, PartialEncoder, Propensity, Unknown, lacks
from scalefair.features.product import ConcatMap, ProductMap
from scalefair.features.rows import FitRows
from scalefair.kernels import Kernel
from scalefair.kernels.stationary import plain_name

EXACT_PIVOT = 1e-12  # of k(z, z): fits are nearer the dual ones than with eigenvalues down to 1e-13 of the largest


@dataclass(frozen=True, eq=False)
class MapSpec:
    """The maps to learn; fields have the names of the parameters of estimators."""

    feature_map: Any = "linear"
    kernel: Any = "rbf"
    length_scale: Any = 1.0
    n_components: int = 1
    sensitive_kernel: Any = "auto"
    sensitive_length_scale: Any = "median"
    n_sensitive_components: int = 100
    sensitive_columns: Any = None
    hide_sensitive: bool = False
    random_state: Any = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> MapSpec:
        """Take the parameters of an estimator; one without `feature_map` is linear."""
        own = {name: parameters[name] for name in cls.__dataclass_fields__ if name in parameters}
        return cls(**own | {"sensitive_kernel": plain_name(own.get("sensitive_kernel", "auto"))})

    @property
    def is_exact(self) -> bool:
        """Whether every row is a landmark."""
        return isinstance(self.feature_map, str) and self.feature_map == "exact"

    @property
    def sample_size(self) -> int | None:
        """Rows that maps are learnt from, None for all: enough that duplicates leave no landmark out."""
        most = 4 * int(max(self.n_components, self.n_sensitive_components))
        return None if self.is_exact else max(SAMPLE_ROWS, most)


@dataclass(frozen=True, eq=False)
class Training:
    """Training rows, and the results of the first pass over them."""

    spec: MapSpec
    given: ChunkSource  # rows as the user gave them
    preparation: Preparation
    source: ChunkSource  # of numeric chunks
    n_targets: int
    one_target: bool  # y has one dimension
    survey: Survey
    seed: int  # of the sample
    sample: Chunk  # numeric rows that landmarks are learnt from
    sample_rows: NDArray[np.int64]  # their numbers
    scale_at: NDArray[np.int64]  # those for length scales, however large the sample
    base: BaseModel | None = None  # its prediction joins the features
    n_base_samples: int | None = None  # rows that it was fitted on
    calibrating: ChunkSource | None = None  # rows as given, held out for a certificate
    partial: bool = False  # rows may lack s or y, which are NaN there

    @cached_property
    def split_sample(self) -> Chunk:
        """The sample before it was encoded."""
        return self.survey.sample.chunk

    def groups(self, part: str) -> Array | None:
        """One numeric row for each combination of categories in "s" or "c"; None without any."""
        encoders = {"s": self.preparation.sensitive_encoder, "c": self.preparation.control_encoder}
        if part not in self.survey.parts or self.survey.parts[part].groups is None:
            return None
        groups = np.asarray(encoders[part].encode(self.survey.parts[part].groups))  # type: ignore[union-attr]
        return groups[~lacks(groups)] if self.partial else groups


def survey_training(rows: FitRows, spec: MapSpec, *, single: bool = False) -> Training:
    """Make the first pass over the rows; with `single`, inputs are to be float32."""
    preparation, source, seed = Preparation(), rows.source, seed_of(spec.random_state)
    if (table := rows.probable) is not None:
        psi = ExpectedGroups(table.groups, table.n_known).fit(table)
        spec = replace(spec, sensitive_kernel=psi)
    if spec.sensitive_columns is not None:
        preparation = _sensitive_columns(rows, spec)
        source = source.then(preparation.split)
    finite = [*["x"] * (not rows.is_table), *["y"] * (not rows.partial), "weight"]
    options: dict[str, Any] = {"size": spec.sample_size, "seed": seed, "all_rows": True, "finite": finite}
    looks = _looks(rows, spec.sensitive_kernel)
    survey = survey_rows(source, looks, **options)
    samples = [survey.sample]
    if rows.second is not None:
        source = StackedSource(source, rows.second)
        other = survey_rows(source.second, looks, **options)
        samples, survey = [survey.sample, other.sample], _both_surveys(survey, other)
    _check_survey(survey)
    attributes = survey.parts["s"].columns.columns if "s" in survey.parts else ()
    if spec.sensitive_kernel == "auto" and any(c.kind == "numeric" for c in attributes):
        _warn_of_codes(rows, survey, preparation.sensitive_columns)
    lacking = rows.partial and bool(attributes)
    preparation = replace(_with_encoders(preparation, survey, lacking), single=single)
    unknown = [Unknown(preparation.sensitive_encoder, len(survey.parts["y"].columns.columns))] if lacking else []
    source, sample = _numeric_rows(source, samples, [preparation.encode, *unknown], survey.n_rows)
    targets = 0 if sample.chunk.y is None else sample.chunk.y.shape[1]
    return Training(
        spec, rows.source, preparation, source, targets, rows.one_target, survey, seed,
        sample.chunk, sample.rows, np.sort(np.argsort(sample.hashes)[:SAMPLE_ROWS]), partial=lacking,
    )  # fmt: skip


def _numeric_rows(
    source: ChunkSource, samples: list[Sample], changes: list[Change], n_rows: int
) -> tuple[ChunkSource, Sample]:
    """Return numeric chunks and a sample of them, from samples of each table."""
    for change in changes:
        samples = [replace(sample, chunk=change(sample.chunk)) for sample in samples]
    sample = reduce(add, samples)
    if isinstance(source, ArraySource) and sample.chunk.n_rows == n_rows:  # all are numbers already
        parts = {name: part for name, part in sample.chunk.parts.items() if name != "h"}
        return ArraySource(**parts, n_threads=source.n_threads), sample
    return reduce(lambda rows, change: rows.then(change), changes, source), sample


def _looks(rows: FitRows, kernel: Any) -> dict[str, Look]:
    """Return what to collect of each part of the rows."""
    check = None if rows.partial else SensitiveEncoder.check_present
    looks = {
        "y": Look("y", prefix="y"),
        "s": Look("", groups=True, every=kernel == "categorical", check=check),
        "c": Look("", groups=True, check=ControlEncoder.check_present),
    }
    return {"x": Look("", prefix="x"), **looks} if rows.is_table else looks


def _both_surveys(first: Survey, second: Survey) -> Survey:
    """Return what is known of the rows of two tables; the sample is that of the first."""
    with located("sensitive_data"):
        both = replace(first, sample=Sample(0)) + replace(second, sample=Sample(0))
    return replace(both, sample=first.sample)


def open_inputs(given: Chunk, names: Mapping[str, str]) -> Training:
    """Survey rows that are not fitted, for linear maps; `names` are what users call the parts."""
    parts = (given.x, given.s, given.y, given.weight, given.c)
    source = open_rows(*parts, names=names).source
    first = next(source.chunks(1))
    if first.s is None:
        raise ValueError("sensitive_features are missing; give one row for each row of X")
    rows = FitRows(source, given.x, None, 0, True, True, True, first.c is not None)
    return survey_training(rows, MapSpec())


def _sensitive_columns(rows: FitRows, spec: MapSpec) -> Preparation:
    """Find the sensitive attributes among the columns of X."""
    columns = spec.sensitive_columns
    if rows.has_sensitive or rows.second is not None:
        raise ValueError(
            f"sensitive_columns={columns!r} and sensitive_features are both given; name columns of "
            "X or pass the attributes separately, not both"
        )
    try:
        at = resolve_columns(columns, rows.names, rows.width)
    except InputError as error:
        raise error.at(f"sensitive_columns={columns!r}") from None
    except TypeError as error:
        raise TypeError(f"sensitive_columns={columns!r}: {error}") from None
    if not at or len(set(at)) < len(at):
        raise ValueError(
            f"sensitive_columns={columns!r} must name at least one column of X, and none twice; "
            "for an ordinary fit use sensitive_columns=None and eta=0"
        )
    if spec.hide_sensitive and len(at) == rows.width:
        raise ValueError("hide_sensitive=True leaves no input: every column of X is in sensitive_columns")
    return Preparation(sensitive_columns=at, hide_sensitive=spec.hide_sensitive)


def _check_survey(survey: Survey) -> None:
    """Raise ValueError if rows are too few, or none counts, or y cannot be squared."""
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} sample(s), at least 2 are needed to fit")
    if not survey.n_present:
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    if "c" in survey.parts and "s" not in survey.parts:
        raise ValueError(
            "control_features are given without sensitive attributes, so there is nothing to "
            "control; pass sensitive_features to fit as well, or leave control_features out"
        )
    for part, name in (("y", "y"), ("s", "the sensitive attributes")):
        columns = survey.parts[part].columns.columns if part in survey.parts else ()
        for j, column in enumerate(columns):
            size = column.spread.high - column.spread.low or abs(column.spread.high)
            # Too large numbers are refused chunk by chunk.
            if 0 < size < 1 / LARGEST:
                raise InputError(
                    f"column {j} of {name} has a spread of {size:.3g}, too small to square",
                    f"rescale it, to at least {1 / LARGEST:g}",
                    column=column.name,
                    where=part,
                )


def _warn_of_codes(rows: FitRows, survey: Survey, columns: list[int] | None) -> None:
    """Warn of attributes that are whole numbers with few levels, like codes of groups."""
    statistics = survey.parts["s"].columns
    if columns is not None and not (rows.is_table or is_stream(rows.x)):
        # scikit-learn's checks have converted whole numbers to floats.
        x = rows.x if isinstance(rows.x, frames.Sparse) else frames.as_table(rows.x)
        statistics = sensitive_statistics(frames.take_columns(x, columns))
    if message := numbers_or_codes(statistics.columns, statistics.n_rows):
        warnings.warn(message, UserWarning, stacklevel=2)


def _with_encoders(preparation: Preparation, survey: Survey, partial: bool) -> Preparation:
    columns = {part: survey.parts[part].columns for part in "xsc" if part in survey.parts}
    encoders: dict[str, Any] = {}
    numeric = "x" not in columns or all(
        column.kind in ("numeric", "boolean") and not column.n_missing for column in columns["x"].columns
    )
    if not numeric:
        # Rare groups of people are never pooled. By position: not every frame has names.
        keep = () if preparation.hide_sensitive else tuple(preparation.sensitive_columns or ())
        encoders["encoder"] = TableEncoder(keep=keep).finish(columns["x"])
    if "s" in columns:
        encoder = PartialEncoder() if partial else SensitiveEncoder()
        encoders["sensitive_encoder"] = encoder.finish(columns["s"])
    if "c" in columns:
        encoders["control_encoder"] = ControlEncoder().finish(columns["c"])
    return replace(preparation, **encoders)


def input_kernel(training: Training) -> Kernel:
    """Return the kernel on the inputs, its length scale from the same rows for every map."""
    at, sample, spec = training.scale_at, training.sample, training.spec
    weight = sample.weights[at]
    return fitted_kernel(spec.kernel, spec.length_scale, sample.x[at], weight, training.seed)


def input_map(training: Training, nystroem: type[Nystroem] = Nystroem, **options: Any) -> FeatureMap:
    """Return φ, fitted on the sample by the class `nystroem`; a fitted one is used as it is."""
    kind, seed, size = training.spec.feature_map, training.seed, training.spec.n_components
    if not isinstance(kind, str) and is_fitted_map(kind):
        return kind  # type: ignore[no-any-return]
    phi: BaseMap
    if kind == "linear":
        phi = Identity()
    elif kind == "fourier":
        kernel = input_kernel(training)
        phi = RandomFourier(kernel, n_components=size, pairs=size % 2 == 0, random_state=seed)
    elif isinstance(kind, str):
        size = training.sample.n_rows if kind == "exact" else size
        phi = nystroem(input_kernel(training), n_components=size, random_state=seed, **options)
    else:
        sample = training.sample
        return clone(kind).fit(sample.x, sample_weight=sample.weight)  # type: ignore[no-any-return]
    return phi.fit_rows(training.sample.x, training.sample.weight)


def sensitive_map(training: Training, known: Chunk | None = None) -> FeatureMap | None:
    """Return ψ, fitted on the sample and one row of each group; None without attributes."""
    sample, scale_at = training.sample, training.scale_at
    if known is not None:
        sample, scale_at = known, np.arange(min(known.n_rows, SAMPLE_ROWS))
    encoder, spec, groups = training.preparation.sensitive_encoder, training.spec, None
    if encoder is None:
        return None
    kernel, categorical, groups = spec.sensitive_kernel, encoder.categorical_, training.groups("s")
    if groups is not None and len(groups) >= training.survey.n_present:
        coded = np.flatnonzero(categorical | (kernel == "categorical"))
        raise ValueError(
            f"every row is its own group: the categories in columns {coded} of the sensitive "
            f"attributes have {len(groups)} combinations in {training.survey.n_present} rows, so "
            "that no prediction could be fair; leave identifiers out, merge rare levels, or pass "
            "numbers as numbers"
        )
    return mixed_map(
        kernel, spec.sensitive_length_scale, spec.n_sensitive_components,
        rows=sample.s, weight=sample.weight, categorical=categorical,
        groups=groups, seed=training.seed, scale_at=scale_at, exact=spec.is_exact,
    )  # fmt: skip


def learn_design(training: Training, *, dtype: str, sees_sensitive: bool, curved: bool = False) -> Design:
    """Return the design: φ and ψ, the control, the base model, and curves of it if `curved`."""
    # Whitening amplifies rounding error by one over the root of the cut-off.
    whitening: dict[str, Any] = {"cutoff": {"float64": 1e-8, "float32": 1e-5}[dtype]}
    if training.spec.is_exact:  # As many landmarks as rows: eigenvectors of all would take as long as the fit
        whitening = {"whitening": "pivoted", "cutoff": EXACT_PIVOT}
    known, propensity = _known_rows(training) if training.partial else (None, None)
    phi, psi = input_map(training, **whitening), sensitive_map(training, known)
    control, sample = training.preparation.control_encoder, training.sample
    blocks: tuple[Block, ...] = ()
    if control is not None and psi is not None:
        blocks = learn_control(
            psi,
            sample,
            training.spec.n_sensitive_components,
            seed=training.seed,
            categorical=control.categorical_,
            groups=training.groups("c"),
            scale_at=training.scale_at,
        )
    if training.base is not None:
        blocks = (*blocks, training.base)
        if curved:
            h = np.asarray(training.base.join(training.split_sample).h)
            seen = psi if sees_sensitive else None
            blocks = (*blocks, Curve.learn(h, sample, seen, training.seed))
    return Design(
        phi, psi, training.n_targets, dtype, beside=blocks, preparation=training.preparation,
        sees_sensitive=sees_sensitive, partial=training.partial, propensity=propensity,
    )  # fmt: skip


def _known_rows(training: Training) -> tuple[Chunk | None, Propensity | None]:
    """Return a sample of rows that have s, and P(known | x); None where all rows have it."""
    columns = training.survey.parts["s"].columns
    if columns.n_rows == training.survey.n_rows and not any(c.n_missing for c in columns.columns):
        return None, None
    sample = training.source.sample(KNOWN_SAMPLE_ROWS, training.seed)
    return sample.take(np.flatnonzero(~lacks(sample.s))), Propensity.learn(sample)


def group_names(design: Design) -> list[str]:
    """Return the names of the groups of categories that ψ distinguishes, in its order."""
    psi: Any = design.psi
    if isinstance(psi, ExpectedGroups):
        return list(psi.groups)
    encoder = None if design.preparation is None else design.preparation.sensitive_encoder
    if encoder is None:
        return []
    parts = psi.parts_ if isinstance(psi, ProductMap | ConcatMap) else [(psi, None)]
    names: list[str] = []
    for part, columns in parts:
        if isinstance(part, OneHot):
            at = range(len(part.categories_)) if columns is None else columns
            names += encoder.group_names(part.combinations_, at)
    return names

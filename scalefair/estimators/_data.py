"""From what users pass to `fit` and `predict` to a source of numeric chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalefair._checks import MISSING_SENSITIVE
from scalefair._digest import digest
from scalefair._linalg import check_finite
from scalefair._typing import LARGEST, LARGEST_SINGLE, Array, Chunk
from scalefair.data import Look, Survey, frames, is_stream, survey_rows
from scalefair.data.columns import TableStatistics, sensitive_statistics
from scalefair.data.encoding import ControlEncoder, SensitiveEncoder, TableEncoder, warn_of_codes
from scalefair.data.sources import ChunkSource
from scalefair.errors import located
from scalefair.estimators._base_model import BaseModel, whole_change
from scalefair.estimators._validate import open_fit_rows, open_predict_rows, positions
from scalefair.features._base import seed_of
from scalefair.features.mixed import SAMPLE_ROWS
from scalefair.kernels.named import plain_name

ONLY_CONTROL = (
    "control_features are given without sensitive attributes, so there is nothing to control; pass "
    "sensitive_features to fit as well, or leave control_features out"
)


@dataclass(frozen=True)
class Preparation:
    """How a chunk as given becomes numbers: which columns are sensitive, and the encoders.

    Parameters
    ----------
    encoder : TableEncoder or None
        None where X is numeric and used as given.
    sensitive_encoder : SensitiveEncoder or None
        None where there are no sensitive attributes.
    sensitive_columns : list of int or None
        Columns of X that are the sensitive attributes.
    hide_sensitive : bool
        Whether those columns are taken out of the inputs.
    control_encoder : ControlEncoder or None
        None where there are no control features.
    base : BaseModel or None
        Another model, whose prediction joins the features.
    """

    encoder: TableEncoder | None = None
    sensitive_encoder: SensitiveEncoder | None = None
    sensitive_columns: list[int] | None = None
    hide_sensitive: bool = False
    control_encoder: ControlEncoder | None = None
    base: BaseModel | None = None

    @property
    def key(self) -> str:
        """Fingerprints of the encodings and of the columns they are applied to."""
        columns = f"{self.sensitive_columns} hidden={self.hide_sensitive}"
        encoder, sensitive = (
            "none" if part is None else digest(part)
            for part in (self.encoder, self.sensitive_encoder)
        )
        control = "" if self.control_encoder is None else f";control={digest(self.control_encoder)}"
        return f"encoding={encoder};sensitive={sensitive};columns={columns}{control}"

    def split(self, chunk: Chunk) -> Chunk:
        """Take the sensitive attributes from the columns of x, and hide them if so asked."""
        if self.sensitive_columns is None:
            return chunk
        s = frames.take_columns(chunk.x, self.sensitive_columns)
        x = chunk.x
        if self.hide_sensitive:
            x = frames.drop_columns(x, self.sensitive_columns)
        return replace(chunk, x=x, s=s)

    def encode(self, chunk: Chunk) -> Chunk:
        """Turn x, s and c of a split chunk into numbers; an error says where they come from."""
        with located(chunk.where):
            return self._encoded(chunk)

    def _encoded(self, chunk: Chunk) -> Chunk:
        x, s, c = chunk.x, chunk.s, chunk.c
        if self.encoder is not None:
            x = np.asarray(self.encoder.transform(x))
        else:
            names = frames.column_names(x)
            x = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else frames.to_numpy(x)
            # Rows of a stream, or next to hidden columns, nobody has looked at yet.
            check_finite("X", x, names=names)
        if s is not None:
            s = None if self.sensitive_encoder is None else self.sensitive_encoder.transform(s)
        if c is not None:
            c = None if self.control_encoder is None else self.control_encoder.transform(c)
        return replace(chunk, x=x, s=s, c=c)

    def applied_to(
        self, source: ChunkSource, join: Callable[[Chunk], Chunk] | None = None
    ) -> ChunkSource:
        """Return the source of split and encoded chunks.

        The base model sees them in between, as the user gave them; `join` replaces it for rows
        that it was fitted on.
        """
        split = source.then(self.split)
        if self.base is not None:
            split = split.then(join or whole_change(split, self.base))
        return split.then(self.encode)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training rows, and the results of the first pass over them.

    Parameters
    ----------
    source : ChunkSource
        Of numeric chunks.
    preparation : Preparation
        How they are made.
    n_targets : int
        Columns of y.
    one_target : bool
        Whether y has one dimension.
    n_rows, n_present : int
        Number of rows, and of those that weigh anything.
    seed : int
        Of the sample.
    sample : Chunk
        Numeric rows that length scales and landmarks are learnt from.
    groups : array of shape (g, p) or None
        Numeric s of one row for each combination of categories.
    control_groups : array of shape (g, r) or None
        The same for c.
    given : ChunkSource
        The rows as the user gave them.
    split_sample : Chunk
        The sample before it was encoded.
    scale_at : array of int
        The rows of the sample that length scales are learnt from, the same ones however large a
        sample the feature maps ask for.
    n_base_samples : int or None
        Rows that the base model was fitted on; None where there is none.
    """

    source: ChunkSource
    preparation: Preparation
    n_targets: int
    one_target: bool
    n_rows: int
    n_present: int
    seed: int
    sample: Chunk
    groups: Array | None
    given: ChunkSource
    split_sample: Chunk
    scale_at: NDArray[np.int64]
    control_groups: Array | None = None
    n_base_samples: int | None = None


def open_training(  # noqa: PLR0917
    estimator: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any,
    size: int | None,
    control_features: Any = None,
) -> TrainingData:
    """Validate the arguments of `fit` and make the first pass over the rows.

    Parameters
    ----------
    estimator : estimator
        Its parameters about the sensitive attributes are read; `n_features_in_` and
        `feature_names_in_` are set.
    X, y, sensitive_features, sample_weight, control_features
        As in `fit`.
    size : int or None
        Rows to sample; None: all.
    """
    rows = open_fit_rows(
        estimator, X, y, sensitive_features, sample_weight, control_features, reset=True
    )
    preparation = _sensitive_columns(estimator, given=rows.has_sensitive)
    seed = seed_of(estimator.random_state)
    split = rows.source.then(preparation.split)
    every = plain_name(estimator.sensitive_kernel) == "categorical"
    survey = _survey(split, size, seed, table=rows.is_table, every=every)
    preparation = _with_encoders(preparation, survey)
    if plain_name(estimator.sensitive_kernel) == "auto" and "s" in survey.parts:
        _warn_of_codes(X, preparation, survey.parts["s"].columns, table=rows.is_table)
    split_sample = survey.sample.chunk()
    sample = preparation.encode(split_sample)
    source = _narrowed(estimator, preparation.applied_to(rows.source))
    return TrainingData(
        source, preparation, sample.y.shape[1], rows.one_target,
        survey.n_rows, survey.n_present, seed, sample,
        _groups(survey, "s", preparation.sensitive_encoder), rows.source, split_sample,
        survey.sample.smallest(SAMPLE_ROWS), _groups(survey, "c", preparation.control_encoder),
    )  # fmt: skip


def _warn_of_codes(
    X: Any, preparation: Preparation, statistics: TableStatistics, *, table: bool
) -> None:
    columns = preparation.sensitive_columns
    if columns is not None and not (table or is_stream(X)):
        # scikit-learn's checks have made floats of them.
        statistics = sensitive_statistics(frames.take_columns(frames.as_table(X), columns))
    warn_of_codes(statistics)


def _survey(split: ChunkSource, size: int | None, seed: int, *, table: bool, every: bool) -> Survey:
    """Make the first pass; arrays of inputs are checked, the columns of frames surveyed.

    `every` says whether numeric sensitive attributes are categories, too.
    """
    looks = {
        "y": Look("y", prefix="y"),
        "s": Look("", groups=True, every=every, check=SensitiveEncoder.check_present),
        "c": Look("", groups=True, check=ControlEncoder.check_present),
    }
    if table:
        looks = {"x": Look("", prefix="x"), **looks}
    finite = ("y", "weight") if table else ("x", "y", "weight")
    survey = survey_rows(split, looks, size=size, seed=seed, all_rows=True, finite=finite)
    _check_survey(survey)
    return survey


def _check_survey(survey: Survey) -> None:
    """Raise ValueError if rows are too few, or none counts, or y cannot be squared."""
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} sample(s), at least 2 are needed to fit")
    if not survey.n_present:
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    if "c" in survey.parts and "s" not in survey.parts:
        raise ValueError(ONLY_CONTROL)
    for j, (spread, _) in enumerate(survey.parts["y"].numbers):
        size = spread.high - spread.low or abs(spread.high)
        # Too large numbers are refused chunk by chunk.
        if 0 < size < 1 / LARGEST:
            raise ValueError(
                f"column {j} of y spreads over {size:.3g}, too little to compute with squares of "
                f"it; rescale y, to at least {1 / LARGEST:g}"
            )


def _groups(survey: Survey, part: str, encoder: SensitiveEncoder | None) -> Array | None:
    """Return the combinations of categories in s or c as numbers."""
    if encoder is None or (groups := survey.parts[part].groups) is None:
        return None
    return np.asarray(encoder.transform(groups))


def open_batch(  # noqa: PLR0917
    estimator: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any,
    control_features: Any = None,
) -> ChunkSource:
    """Return the numeric chunks of a later `partial_fit`, prepared as the first batch was."""
    preparation: Preparation = estimator._preparation
    apart = preparation.sensitive_encoder is not None and preparation.sensitive_columns is None
    controlled = preparation.control_encoder is not None
    rows = open_fit_rows(
        estimator, X, y, sensitive_features, sample_weight, control_features, reset=False
    )
    _check_as_before("sensitive_features", apart, now=rows.has_sensitive)
    _check_as_before("control_features", controlled, now=rows.has_control)
    source = _narrowed(estimator, preparation.applied_to(rows.source))
    n_targets = next(rows.source.chunks(1)).y.shape[1]
    if n_targets != estimator._n_targets:
        raise ValueError(
            f"y has {n_targets} columns but the first batch had {estimator._n_targets}; give every "
            "batch the same targets"
        )
    return source


def _check_as_before(name: str, before: bool, *, now: bool) -> None:
    if before != now:
        raise ValueError(
            f"{name} must be given to every partial_fit or to none; the first batch "
            f"came {'with' if before else 'without'} them"
        )


def open_inputs(estimator: Any, X: Any) -> ChunkSource:
    """Validate the argument of `predict`; return the source of its numeric chunks."""
    preparation: Preparation = estimator._preparation
    if not estimator._joins_sensitive:
        # Then s is not needed, and may be missing or of a level never seen.
        preparation = replace(preparation, sensitive_encoder=None)
    return _narrowed(estimator, preparation.applied_to(open_predict_rows(estimator, X)))


def _narrowed(estimator: Any, source: ChunkSource) -> ChunkSource:
    """Refuse numbers whose squares overflow in float32, where feature rows are float32."""
    single = getattr(estimator, "dtype", "float64") == "float32"
    return source.then(_checked_single) if single else source


def _checked_single(chunk: Chunk) -> Chunk:
    check_finite("dtype='float32': X", np.asarray(chunk.x), LARGEST_SINGLE)
    return chunk


def _sensitive_columns(estimator: Any, *, given: bool) -> Preparation:
    """Find the sensitive attributes: columns of X, given apart, or none in an ordinary fit."""
    columns, hide = estimator.sensitive_columns, estimator.hide_sensitive
    if columns is None:
        if not given and not estimator._is_ordinary():
            raise ValueError(MISSING_SENSITIVE)
        return Preparation()
    if given:
        raise ValueError(
            f"sensitive_columns={columns!r} and sensitive_features are both given; name columns of "
            "X or pass the attributes apart, not both"
        )
    width = estimator.n_features_in_
    at = positions(columns, getattr(estimator, "feature_names_in_", None), width)
    if hide and len(at) == width:
        raise ValueError(
            "hide_sensitive=True leaves no input: every column of X is in sensitive_columns"
        )
    return Preparation(None, None, at, hide)


def _with_encoders(preparation: Preparation, survey: Survey) -> Preparation:
    statistics = {part: survey.parts[part].columns for part in "xsc" if part in survey.parts}
    if "x" in statistics and not _all_numeric(statistics["x"]):
        # Rare groups of people are never pooled. By position: not every frame has names.
        keep = () if preparation.hide_sensitive else tuple(preparation.sensitive_columns or ())
        encoder = TableEncoder(keep=keep).finish(statistics["x"])
        preparation = replace(preparation, encoder=encoder)
    if "s" in statistics:
        encoder = SensitiveEncoder().finish(statistics["s"])
        preparation = replace(preparation, sensitive_encoder=encoder)
    if "c" in statistics:
        control = ControlEncoder().finish(statistics["c"])
        preparation = replace(preparation, control_encoder=control)
    return preparation


def _all_numeric(statistics: TableStatistics) -> bool:
    return all(
        column.kind in ("numeric", "boolean") and not column.n_missing
        for column in statistics.columns
    )

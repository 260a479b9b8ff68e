"""From what users pass to `fit` and `predict` to a source of numeric chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from narwhals.dependencies import is_into_dataframe
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from scalefair import _frames
from scalefair._checks import MISSING_SENSITIVE
from scalefair._typing import Array, Chunk
from scalefair.encoding import SensitiveEncoder, TableEncoder
from scalefair.stream import ArraySource


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
    """

    encoder: TableEncoder | None = None
    sensitive_encoder: SensitiveEncoder | None = None
    sensitive_columns: list[int] | None = None
    hide_sensitive: bool = False

    def visible(self, X: Any) -> Any:
        """Return the columns that the model may see."""
        if self.hide_sensitive and self.sensitive_columns is not None:
            return _frames.drop_columns(X, self.sensitive_columns)
        return X

    def inputs(self, X: Any) -> Array:
        """Return the numeric inputs of the model."""
        X = self.visible(X)
        if self.encoder is not None:
            return np.asarray(self.encoder.transform(X))
        return np.ascontiguousarray(X)

    def sensitive(self, X: Any, s: Any = None) -> Array | None:
        """Return the numeric sensitive attributes, from the columns of X or given apart."""
        if self.sensitive_encoder is None:
            return None
        if self.sensitive_columns is not None:
            s = _frames.take_columns(X, self.sensitive_columns)
        return None if s is None else np.asarray(self.sensitive_encoder.transform(s))

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with numeric x and s."""
        return replace(chunk, x=self.inputs(chunk.x), s=self.sensitive(chunk.x, chunk.s))


@dataclass(frozen=True)
class TrainingData:
    """Validated training rows: the source of numeric chunks and how they are made."""

    source: ArraySource
    preparation: Preparation
    n_targets: int
    one_target: bool


def open_training(
    estimator: Any, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, *, fair: bool
) -> TrainingData:
    """Validate the arguments of `fit`; set `n_features_in_` and `feature_names_in_`.

    Parameters
    ----------
    estimator : estimator
        Its `sensitive_columns` and `hide_sensitive` are read.
    X, y, sensitive_features, sample_weight
        As in `fit`.
    fair : bool
        Whether the fit needs sensitive attributes.
    """
    table = is_into_dataframe(X) and not _frames.is_all_numeric(X)
    X, y = _validated(estimator, X, y, table=table, reset=True)
    weight = None if sample_weight is None else _weights(sample_weight, X)
    preparation = _sensitive_preparation(estimator, X, sensitive_features, weight, fair=fair)
    if table:
        # Rare groups of people are never pooled.
        names, columns = estimator.feature_names_in_, preparation.sensitive_columns or []
        keep = () if preparation.hide_sensitive else tuple(names[columns])
        encoder = TableEncoder(keep=keep).fit(preparation.visible(X), sample_weight=weight)
        preparation = replace(preparation, encoder=encoder)
    return _training_data(estimator, preparation, X, y, sensitive_features, weight)


def open_batch(
    estimator: Any, X: Any, y: Any, sensitive_features: Any, sample_weight: Any
) -> TrainingData:
    """Validate the arguments of a later `partial_fit`, prepared as the first batch was."""
    preparation: Preparation = estimator._preparation
    table = preparation.encoder is not None
    X, y = _validated(estimator, X, y, table=table, reset=False)
    weight = None if sample_weight is None else _weights(sample_weight, X)
    apart = preparation.sensitive_encoder is not None and preparation.sensitive_columns is None
    if apart != (sensitive_features is not None):
        raise ValueError(
            "sensitive_features must be given to every partial_fit or to none; the first batch "
            f"came {'with' if apart else 'without'} them"
        )
    if apart:
        _check_lengths(X, sensitive_features)
    data = _training_data(estimator, preparation, X, y, sensitive_features, weight)
    if (data.n_targets, data.one_target) != (estimator._n_targets, estimator._one_target):
        raise ValueError(
            f"y has {data.n_targets} columns but the first batch had {estimator._n_targets}; give "
            "every batch the same targets"
        )
    return data


def _training_data(  # noqa: PLR0917
    estimator: Any,
    preparation: Preparation,
    X: Any,
    y: Array,
    sensitive_features: Any,
    weight: Array | None,
) -> TrainingData:
    s = sensitive_features if preparation.sensitive_columns is None else None
    targets = y.reshape(len(y), -1)
    source = ArraySource(X, s, targets, weight, n_threads=estimator.n_jobs).then(preparation)
    return TrainingData(source, preparation, targets.shape[1], y.ndim == 1)


def open_inputs(estimator: Any, X: Any) -> ArraySource:
    """Validate the argument of `predict`; return the source of its numeric chunks."""
    preparation: Preparation = estimator._preparation
    if not estimator._joins_sensitive:
        # Then s is not needed, and may be missing or of a level never seen.
        preparation = replace(preparation, sensitive_encoder=None)
    if preparation.encoder is not None:
        validate_data(estimator, X, skip_check_array=True, reset=False)
        X = X if hasattr(X, "shape") else np.array(X, dtype=object)
    else:
        X = validate_data(estimator, X, dtype=[np.float64, np.float32], order="C", reset=False)
    return ArraySource(X, n_threads=estimator.n_jobs).then(preparation)


def _validated(estimator: Any, X: Any, y: Any, *, table: bool, reset: bool) -> tuple[Any, Array]:
    """Return X and y, checked; a table that will be encoded keeps its container."""
    if table:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
        check_consistent_length(X, y)
        if len(y) < 2:
            raise ValueError(f"X has {len(y)} sample(s), at least 2 are needed to fit")
        return X, _target(y)
    X, y = validate_data(
        estimator, X, y, dtype=[np.float64, np.float32], order="C", multi_output=True,
        y_numeric=True, reset=reset, ensure_min_samples=2 if reset else 1,
    )  # fmt: skip
    return X, _target(y)


def _target(y: Any) -> Array:
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y has values that are not numbers (dtype {y.dtype}); give numbers, such as 0 and 1 "
            "for two classes"
        ) from None


def _weights(sample_weight: Any, X: Any) -> Array:
    weight = _check_sample_weight(
        sample_weight, np.empty((_frames.n_rows(X), 1)), dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    return np.asarray(weight)


def _sensitive_preparation(
    estimator: Any, X: Any, sensitive_features: Any, weight: Array | None, *, fair: bool
) -> Preparation:
    columns, hide = estimator.sensitive_columns, estimator.hide_sensitive
    if columns is None:
        if sensitive_features is None:
            if fair:
                raise ValueError(MISSING_SENSITIVE)
            return Preparation()
        _check_lengths(X, sensitive_features)
        encoder = SensitiveEncoder().fit(sensitive_features, sample_weight=weight)
        return Preparation(sensitive_encoder=encoder)
    if sensitive_features is not None:
        raise ValueError(
            f"sensitive_columns={columns!r} and sensitive_features are both given; name columns of "
            "X or pass the attributes apart, not both"
        )
    positions = _positions(columns, getattr(estimator, "feature_names_in_", None), X)
    if hide and len(positions) == _frames.n_columns(X):
        raise ValueError(
            "hide_sensitive=True leaves no input: every column of X is in sensitive_columns"
        )
    encoder = SensitiveEncoder().fit(_frames.take_columns(X, positions), sample_weight=weight)
    return Preparation(None, encoder, positions, hide)


def _positions(columns: Any, names: Any, X: Any) -> list[int]:
    """Return the positions of `sensitive_columns`, in errors called by that name."""
    names = None if names is None else list(names)
    try:
        found = _frames.resolve_columns(columns, names, _frames.n_columns(X))
    except (TypeError, ValueError) as error:
        raise type(error)(f"sensitive_columns={columns!r}: {error}") from None
    if not found or len(set(found)) < len(found):
        raise ValueError(
            f"sensitive_columns={columns!r} must name at least one column of X, and none twice; "
            "for an ordinary fit use sensitive_columns=None and eta=0"
        )
    return found


def _check_lengths(X: Any, s: Any) -> None:
    if isinstance(s, str) or not hasattr(s, "__len__") or getattr(s, "shape", None) == ():
        raise TypeError(
            f"sensitive_features={s!r} is a {type(s).__name__}; give an array, Series or frame "
            "with one row for each row of X, or name columns of X in sensitive_columns"
        )
    if 0 in getattr(s, "shape", ())[1:]:
        raise ValueError("sensitive_features has no columns; give at least one attribute")
    if _frames.n_rows(X) != _frames.n_rows(s):
        raise ValueError(
            f"sensitive_features has {_frames.n_rows(s)} rows but X has {_frames.n_rows(X)}; give "
            "one row of sensitive attributes for each row of X, in the same order"
        )

"""Class labels of any kind, in memory or streamed, as codes from 0 on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y

from scalefair._typing import Array, Chunk
from scalefair.data import SURVEY_ROWS, ChunkSum, frames, in_memory, is_stream, open_rows
from scalefair.data.sources import ChunkSource, Scan, is_dask
from scalefair.errors import InputError


class Coded(NamedTuple):
    """Labels as numbers."""

    classes: NDArray[Any]  # the labels, sorted
    numbers: Array  # of each label, in y
    y: Any  # of shape (n,); None where the numbers come with the batches of X
    n_rows: int  # that count


# A column with more labels, or with more than half as many as rows, is not one of classes
MAX_CLASSES, MIN_DISTINCT = 1000, 10


@dataclass(frozen=True)
class LabelSet:
    """The labels that occur in `n_rows` rows; `+` joins two sets."""

    values: frozenset[Any] = frozenset()
    n_rows: int = 0

    def __add__(self, other: LabelSet) -> LabelSet:
        joined = LabelSet(self.values | other.values, self.n_rows + other.n_rows)
        if len(joined.values) > MAX_CLASSES:  # which would fill the memory of a long pass
            raise too_many_classes(f"more than {MAX_CLASSES:,} classes")
        return joined

    def classes(self) -> NDArray[Any]:
        """Return them sorted: whole numbers as integers, text as text."""
        if len({isinstance(value, str) for value in self.values}) > 1:
            raise ValueError("y has text labels in some rows and numbers in others; use one kind")
        labels = np.array(sorted(self.values))
        whole = labels.dtype.kind == "f" and (labels == np.round(labels)).all()
        return labels.astype(np.int64) if whole else labels


def _all_labels(source: ChunkSource, part: str) -> LabelSet:
    """Return the labels of the rows that count, from the only column of x or y."""
    labels: LabelSet = source.fold(partial(ChunkSum, partial(_labels_of, part), LabelSet), SURVEY_ROWS)
    return labels


def _labels_of(part: str, chunk: Chunk) -> LabelSet:
    codes, levels = label_codes(chunk.parts[part])
    codes = codes[chunk.weights > 0]
    return LabelSet(frozenset(levels[code] for code in np.unique(codes)), len(codes))


def label_codes(table: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return (codes, labels) of a table of one column: row i holds labels[codes[i]]."""
    columns = frames.columns(frames.as_table(table, one_column=True), "y")
    if len(columns) != 1:
        raise ValueError(f"y has {len(columns)} columns; give one column of class labels")
    column = columns[0]
    if column.kind == "categorical":
        codes, levels = column.codes()
        bad, labels = codes < 0, list[Any](levels)
    else:
        values = column.floats()
        bad = ~np.isfinite(values)
        distinct, codes = np.unique(values, return_inverse=True)
        labels = distinct.tolist()
    if bad.any():
        remedy = "give every row a class, or leave it out"
        raise InputError(f"y is missing or infinite in {bad.sum()} row(s)", remedy, where="y")
    return codes.astype(np.int64, copy=False), labels


def code_labels(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Coded | None:
    """Return the labels of the rows that count as numbers, lazily in dask; None for None."""
    if isinstance(X, ChunkSource):  # whose chunks bring the labels
        labels = _all_labels(X, "y")
        classes = labels.classes()
        return Coded(classes, classes.astype(np.float64), None, labels.n_rows)
    if y is None:
        return None
    if is_stream(X) and (is_dask(y) or isinstance(y, Scan)):
        return _streamed(y, sample_weight, estimator.n_jobs)
    return _in_memory(estimator, y, sample_weight)


def _in_memory(estimator: Any, y: Any, sample_weight: Any) -> Coded:
    y = _check_y(y, multi_output=False, y_numeric=False, estimator=estimator)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    weight = None if sample_weight is None else np.asarray(sample_weight)
    counted, n_rows = np.arange(len(classes)), len(codes)
    # Bad weights are refused later.
    if weight is not None and weight.shape == codes.shape and (weight > 0).any():
        counted, n_rows = np.unique(codes[weight > 0]), int((weight > 0).sum())
    if len(counted) < len(classes):
        classes = classes[counted]
        codes = np.minimum(np.searchsorted(counted, codes), len(counted) - 1)
    numbers = np.arange(len(classes), dtype=np.float64)
    return Coded(classes, numbers, codes.astype(np.float64), n_rows)


def _streamed(y: Any, sample_weight: Any, n_threads: int | None) -> Coded:
    weight = in_memory(sample_weight, scans=False) if isinstance(y, Scan) else sample_weight
    source = open_rows(y, weight=weight, names={"x": "y"}, n_threads=n_threads).source
    labels = _all_labels(source, "x")
    classes = labels.classes()
    if isinstance(y, Scan) and classes.dtype.kind != "U":
        return Coded(classes, classes.astype(np.float64), y, labels.n_rows)
    codes = source.map(partial(partial, _positions, classes), SURVEY_ROWS)
    if isinstance(y, Scan):
        codes = codes.astype(np.int16)
    return Coded(classes, np.arange(len(classes), dtype=np.float64), codes, labels.n_rows)


def known_labels(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Array]:
    """Return labels as numbers, and the number of each class of a fitted estimator."""
    coded = code_labels(estimator, X, y, sample_weight)
    if coded is None:
        raise ValueError("y is None; give the class labels of the rows")
    known = estimator.classes_.tolist()
    unknown = [label for label in coded.classes.tolist() if label not in known]
    if unknown:
        raise ValueError(f"y has the class {unknown[0]!r}, which was not seen in fit; the classes are {known}")
    numbers = np.full(len(known), np.nan)
    numbers[[known.index(label) for label in coded.classes.tolist()]] = coded.numbers
    return coded.y, numbers


def _positions(classes: NDArray[Any], chunk: Chunk) -> Array:
    codes, levels = label_codes(chunk.x)
    if not levels:
        return np.empty(0)
    # Labels that no row of positive weight has get a number, too: it does not count.
    number = np.minimum(np.searchsorted(classes, np.array(levels)), len(classes) - 1)
    return number.astype(np.float64)[codes]


@dataclass(frozen=True, eq=False)
class OneHotLabels:
    """Turns the numbers of the classes into 0 and 1, or for more than two classes into one-hots."""

    numbers: Array
    one_hot: bool

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with y as the loss expects it."""
        y = np.asarray(chunk.y)[:, 0]
        # Labels that do not count, for lack of weight, need not be among the numbers.
        present = np.flatnonzero(~np.isnan(self.numbers))
        at = np.searchsorted(self.numbers[present], y)
        codes = present[np.minimum(at, len(present) - 1)]
        if self.one_hot:
            return replace(chunk, y=np.eye(len(self.numbers))[codes])
        return replace(chunk, y=codes.astype(np.float64)[:, None])


def decoded(codes: Any, classes: NDArray[Any]) -> Any:
    """Return the labels of positions in `classes`: an array, or dask's."""
    if isinstance(codes, np.ndarray):
        return np.asarray(classes[codes.astype(np.intp)])
    return codes.map_blocks(decoded, classes, dtype=classes.dtype)


def check_classes(coded: Coded) -> None:
    """Raise ValueError if there is only one class, or if the labels look like numbers or identifiers."""
    classes = coded.classes
    if len(classes) < 2:
        only = f"one class only ({classes.tolist()[0]!r})" if len(classes) else "no class"
        raise ValueError(f"y has {only} in rows of positive weight; give rows of at least two classes")
    names = [label for label in classes.tolist() if isinstance(label, str)]
    text = [name for name in names if not _is_number(name)]
    if len(text) < len(names) / 2 > MIN_DISTINCT:
        stray = f", but also {text[0]!r}" if text else ", as text"
        raise too_many_classes(f"{len(classes):,} classes that are numbers{stray}")
    if len(classes) > MAX_CLASSES or len(classes) > max(coded.n_rows / 2, MIN_DISTINCT - 1):
        raise too_many_classes(f"{len(classes):,} classes in {coded.n_rows:,} rows")


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def too_many_classes(what: str) -> InputError:
    """Return the error for targets with too many classes."""
    remedy = "for a regression convert y to numbers (clear other text) and use FairKernelRidge or another regressor"
    return InputError(f"y has {what}", remedy, where="y")


def class_weights(class_weight: Any, classes: NDArray[Any], share: Array) -> Array:
    """Return one weight for each class; `share` are the weighted frequencies."""
    if isinstance(class_weight, str):  # "balanced"
        return np.asarray(1.0 / (len(classes) * share))
    unknown = [label for label in class_weight if label not in classes.tolist()]
    # A split may lack a class; but where another one is left out, a name is likely misspelt.
    if unknown and not set(classes.tolist()) <= set(class_weight):
        raise ValueError(
            f"class_weight names the class {unknown[0]!r}, but the classes are {classes.tolist()}; remove it"
        )
    weights = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not ((weights > 0) & np.isfinite(weights)).all():
        raise ValueError(f"class_weight={class_weight!r} must have positive, finite weights")
    return weights

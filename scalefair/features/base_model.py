"""Another model's prediction ĥ(x) as columns of Φ: what it says, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_into_dataframe, is_pandas_dataframe, is_polars_dataframe
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from scalefair._typing import Array, Chunk, Fittable, Rows
from scalefair.data.sources import ArraySource, ChunkSource
from scalefair.features.design import Block

# How far probabilities are kept from 0 and 1, whose log-odds are infinite: forests say both
LEAST_PROBABILITY = 1e-4
TREES = "trees"  # the word for boosted trees with settings for most tables
METHODS = ("predict", "predict_proba", "decision_function")


@dataclass(frozen=True, eq=False)
class BaseModel(Block):
    """A fitted model whose prediction ĥ(x) joins the features."""

    model: Any
    scale: str  # of ĥ: "probability", "log_odds" or "log"
    columns: int = 0  # of ĥ and ê
    digest: str = ""  # of its predictions
    sensitive: Any = None  # models of s, where s is hidden; ê(x) stands beside ĥ(x)
    name: ClassVar[str] = "base"
    is_feature: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Columns of ĥ."""
        return self.columns

    @property
    def key(self) -> str:
        """Fingerprint of the predictions."""
        return self.digest

    def rows(self, chunk: Chunk) -> Rows:
        """Return ĥ(x), which the chunk carries."""
        return np.asarray(chunk.h)

    def join(self, chunk: Chunk) -> Chunk:
        """Return the chunk with ĥ(x) beside x."""
        if chunk.n_rows == 0:
            return replace(chunk, h=np.empty((0, self.columns)))
        return replace(chunk, h=self.predict(chunk.x))

    def predict(self, x: Any) -> Array:
        """Return [ĥ(x), ê(x)] of inputs as the user gave them."""
        h = predictions(self.model, x, self.scale)
        return h if self.sensitive is None else np.hstack([h, self.sensitive.columns(x)])

    def attach(self, source: ChunkSource) -> ChunkSource:
        """Let chunks carry ĥ(x): of all rows at once where they are in memory."""
        if not isinstance(source, ArraySource):
            return source.then(self.join)
        (chunk,) = source.chunks(max(source.n_rows, 1))
        return source.then(FromArray(np.asarray(self.join(chunk).h)))


@dataclass(frozen=True, eq=False)
class FromArray:
    """Joins predictions that are in memory."""

    h: Array

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the chunk with its rows of ĥ."""
        return replace(chunk, h=self.h[chunk.row : chunk.row + chunk.n_rows])


def check_base(model: Any) -> None:
    """Raise TypeError unless an object can predict, or is the word for trees."""
    if isinstance(model, str) and model == TREES:
        return
    can = any(callable(getattr(model, name, None)) for name in METHODS)
    if isinstance(model, type) or not can:
        raise TypeError(
            f"base_estimator={model!r} cannot predict; give a scikit-learn regressor, classifier "
            "or pipeline, fitted or not (an object, not its class), 'trees' or None"
        )
    scores = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    if _is_classifier(model) and not scores:
        raise TypeError(
            f"base_estimator={model!r} is a classifier without probabilities, and classes are no "
            "numbers to learn from; give one with predict_proba or decision_function, or wrap it "
            "in scikit-learn's CalibratedClassifierCV"
        )


def is_fitted(model: Any) -> bool:
    """Return True if a model is used as it is: it is fitted, or cannot be copied and fitted."""
    if not isinstance(model, Fittable):
        return not isinstance(model, str)
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        return False
    return True


def name_of(model: Any) -> str:
    """Return the name of its class, for messages."""
    return model if isinstance(model, str) else type(model).__name__


def predictions(model: Any, x: Any, scale: str) -> Array:
    """Return ĥ(x), finite, of shape (k, l), of inputs as the user gave them.

    Of a classifier of C classes C − 1 columns p_c or log(p_c / p_0), or its `decision_function`.
    """
    try:
        h = np.asarray(_outputs(model, container(x), scale))
    except Exception as error:
        raise ValueError(
            f"base_estimator ({name_of(model)}) cannot predict the rows of X: {error}; give a "
            "model that was fitted on the same columns, or one that is not fitted yet"
        ) from error
    if h.dtype.kind in "OUS":
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts text or objects such as {h.flat[0]!r}, "
            "not numbers; give a regressor, or a classifier with predict_proba"
        )
    h = h.astype(np.float64, copy=False).reshape(len(h), -1)
    if len(h) != x.shape[0]:
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts {len(h)} values for {x.shape[0]} rows; "
            "give a model with one prediction, or one row of them, for each row of X"
        )
    bad = ~np.isfinite(h).all(axis=1)
    if bad.any():
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts NaN or infinity in {int(bad.sum())} of "
            f"{len(h)} rows (first in row {int(np.argmax(bad))}); fill in missing values in a "
            "pipeline before it, or use a model that takes them"
        )
    return h


def _outputs(model: Any, x: Any, scale: str) -> Any:
    if hasattr(model, "predict") and not _is_classifier(model):
        h = model.predict(x)
        return np.log1p(np.maximum(h, 0.0)) if scale == "log" else h
    if not hasattr(model, "predict_proba"):
        return model.decision_function(x)
    p = np.asarray(model.predict_proba(x))
    if scale != "log_odds":
        return p[:, 1:]
    log = np.log(np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))
    return log[:, 1:] - log[:, :1]


def _is_classifier(model: Any) -> bool:
    # Models that are not scikit-learn's have no tags to ask.
    tagged = hasattr(model, "__sklearn_tags__")
    return bool(is_classifier(model)) if tagged else hasattr(model, "predict_proba")


def container(x: Any) -> Any:
    """Return rows in a container that scikit-learn knows: arrays, pandas and polars stay."""
    if not is_into_dataframe(x) or is_pandas_dataframe(x) or is_polars_dataframe(x):
        return x
    return nw.from_native(x, eager_only=True).to_pandas()


def check_varies(model: Any, folds: list[Array]) -> None:
    """Raise ValueError if a model predicts the same number for every row it has not seen."""
    compared = [h for h in folds if len(h) > 1]
    if compared and all(np.ptp(h, axis=0).max() == 0 for h in compared):
        raise ValueError(
            f"base_estimator ({name_of(model)}) predicts the same value ({compared[0][0]}) for "
            "every row, which adds nothing; give a model that learns from X, or base_estimator=None"
        )


def weight_name(model: Any) -> str | None:
    """By which name `fit` takes the weights of rows; None where it does not."""
    if has_fit_parameter(model, "sample_weight"):
        return "sample_weight"
    last = getattr(model, "steps", [("", None)])[-1]
    routed = get_config()["enable_metadata_routing"]
    if last[1] is not None and not routed and has_fit_parameter(last[1], "sample_weight"):
        return f"{last[0]}__sample_weight"
    return None

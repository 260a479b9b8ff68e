"""Boosted trees as a base model: scikit-learn grows them, arrays hold them.

Only these arrays are stored of a fit, so that files hold no code and predictions do not depend
on the version of scikit-learn that reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_is_fitted

from scalefair._jit.trees import add_leaves
from scalefair._typing import Array
from scalefair.data import frames
from scalefair.errors import check_choice

MAX_LEVELS = 255  # levels of a category that trees distinguish; all others count as missing
LOSSES = ("squared_error", "poisson", "log_loss")
# What trees learn by the scale that their prediction is turned into
OF_SCALE = {"probability": "squared_error", "log": "poisson", "log_odds": "log_loss"}
LOG_LINKS = ("poisson", "gamma")
SETTINGS: dict[str, Any] = {
    "learning_rate": 0.05,
    "max_iter": 500,
    "max_leaf_nodes": 16,
    "l2_regularization": 1.0,
    "early_stopping": True,
    "n_iter_no_change": 15,
}


MIN_CLASS_ROWS = 20  # of each class, for early stopping on a tenth of the rows


@dataclass(frozen=True, eq=False)
class Forest:
    """b + Σ_t of the leaf of tree t that a row falls into, k sums at once; N nodes in all."""

    roots: NDArray[np.int32]  # (t, k)
    feature: NDArray[np.int32]  # (N,): −1 in a leaf
    threshold: Array  # (N,)
    child: NDArray[np.int32]  # (N, 3): left, right, and where a missing value goes
    levels: NDArray[np.int32]  # (N,): which set of levels goes left; −1: numbers are compared
    sets: NDArray[np.uint32]  # (number of sets, 8): bit j is level j
    value: Array  # (N,): of a leaf
    baseline: Array  # (k,)

    @classmethod
    def of(cls, model: Any, places: NDArray[np.intp]) -> Forest:
        """Take the arrays out of fitted boosted trees whose column j is column places[j] of X."""
        trees = [tree for iteration in model._predictors for tree in iteration]
        sizes = [len(tree.nodes) for tree in trees]
        first = np.cumsum([0, *sizes])[:-1]
        start = np.repeat(first, sizes)
        nodes = np.concatenate([tree.nodes for tree in trees])
        leaf, split = (nodes["is_leaf"] != 0, (nodes["is_leaf"] == 0) & (nodes["is_categorical"] != 0))
        child = np.stack([nodes["left"], nodes["right"], nodes["right"]], axis=1) + start[:, None]
        child[:, 2] = np.where(nodes["missing_go_to_left"] != 0, child[:, 0], child[:, 1])
        sets = np.zeros((0, 8), dtype=np.uint32)
        if split.any():
            owner = np.repeat(np.arange(len(trees)), sizes)[split]
            pairs = zip(owner, nodes["bitset_idx"][split], strict=True)
            sets = np.array([trees[t].raw_left_cat_bitsets[j] for t, j in pairs], dtype=np.uint32)
        levels = np.full(len(nodes), -1)
        levels[split] = np.arange(len(sets))
        k = model.n_trees_per_iteration_
        return cls(
            first.reshape(-1, k).astype(np.int32),
            np.where(leaf, -1, places[nodes["feature_idx"]]).astype(np.int32),
            np.where(leaf | split, 0.0, nodes["num_threshold"]),
            np.where(leaf[:, None], 0, child).astype(np.int32),
            levels.astype(np.int32),
            sets,
            nodes["value"].astype(np.float64),
            np.ravel(model._baseline_prediction).astype(float),
        )

    def __call__(self, X: Array) -> Array:
        """Return the sums, of shape (n, k)."""
        out = np.zeros((len(X), len(self.baseline)), order="F")
        out += self.baseline
        add_leaves(X, self.roots, self.feature, self.threshold, self.child, self.levels, self.sets, self.value, out)
        return out

    def check(self, width: int) -> None:
        """Raise ValueError unless every way through a tree ends, within the arrays."""
        n, split = len(self.feature), self.feature >= 0
        shapes = (self.threshold.shape, self.child.shape, self.levels.shape, self.value.shape)
        fits = (
            self._has_types()
            and shapes == ((n,), (n, 3), (n,), (n,))
            and self.roots.shape[1:] == self.baseline.shape
            and self.sets.shape[1:] == (8,)
            and _in_range(self.roots, 0, n)
            and _in_range(self.feature, -1, width)
            and _in_range(self.levels, -1, len(self.sets))
            and _in_range(self.child, 0, n)
            and bool((self.child[split] > np.flatnonzero(split)[:, None]).all())
        )
        if not fits:
            raise ValueError("the arrays of trees do not match each other")

    def _has_types(self) -> bool:
        whole = (self.roots, self.feature, self.child, self.levels)
        real = (self.threshold, self.value, self.baseline)
        return (
            all(array.dtype == np.int32 for array in whole)
            and all(array.dtype == np.float64 for array in real)
            and self.sets.dtype == np.uint32
        )


def _in_range(array: NDArray[Any], low: int, high: int) -> bool:
    return array.size == 0 or bool(array.min() >= low and array.max() < high)


class Trees(BaseEstimator):
    """Boosted trees of scikit-learn with settings for most tables: ``base_estimator="trees"``.

    Columns of text and categories are split by sets of their levels; missing values are levels.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "log_loss"}, default="squared_error"
        "log_loss" makes it a classifier.
    random_state : int or None, default=None
        Seed of the rows that early stopping is judged on.
    """

    def __init__(self, loss: str = "squared_error", random_state: Any = None) -> None:
        self.loss = loss
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the trees."""
        from sklearn import ensemble  # a fifth of a second, for who has trees

        check_choice("loss", self.loss, LOSSES)
        table = frames.columns(frames.as_table(X))
        levels = [_levels(column) for column in table]
        y = np.asarray(y)
        chosen: dict[str, Any] = SETTINGS | {"random_state": self.random_state}
        chosen["categorical_features"] = [known is not None for known in levels]
        chosen["min_samples_leaf"] = max(1, min(20, len(y) // 20))
        if self.loss == "squared_error":  # the least gain that goes on is in the units of y²
            chosen["tol"] = 1e-7 * (np.var(y) or 1.0)
        if sample_weight is not None:  # `l2_regularization` counts rows
            sample_weight = sample_weight / np.mean(sample_weight[sample_weight > 0])
        if self.loss == "log_loss" and np.unique(y, return_counts=True)[1].min() < MIN_CLASS_ROWS:
            chosen |= {"early_stopping": False, "max_iter": 100}
        if self.loss == "log_loss":
            model = ensemble.HistGradientBoostingClassifier(**chosen)
        else:
            model = ensemble.HistGradientBoostingRegressor(loss=self.loss, **chosen)
        model.fit(_as_numbers(table, levels), y, sample_weight=sample_weight)
        return self._take(model, lambda j, code: (levels[j] or ())[int(code)])

    @classmethod
    def of(cls, model: Any) -> Trees:
        """Return fitted boosted trees of scikit-learn as arrays; their predictions are the same."""
        loss = model.loss if model.loss in (*LOSSES, *LOG_LINKS) else "squared_error"

        def name(_: int, level: Any) -> str:
            column = frames.Column("", "categorical", np.array([level], dtype=object))
            return column.codes()[1][0]

        return cls(loss)._take(model, name)

    def _take(self, model: Any, name: Callable[[int, Any], str]) -> Self:
        """Keep the arrays of fitted trees; `name` gives the levels of column j."""
        levels: list[Any] = [None] * model.n_features_in_
        coded = np.zeros(len(levels), dtype=bool)
        if model._preprocessor is not None:
            coded = np.asarray(model.is_categorical_)
            lists = model._preprocessor.named_transformers_["encoder"].categories_
            for j, values in zip(np.flatnonzero(coded), lists, strict=True):
                known = [value for value in values if value is not None]
                levels[j] = tuple(name(int(j), v) for v in known if v == v)  # noqa: PLR0124
        # Their columns of categories come first.
        self.forest_ = Forest.of(model, np.argsort(~coded, kind="stable"))
        self.levels_, self.n_features_in_ = levels, len(levels)
        if "classes_" in vars(model):
            self.classes_ = model.classes_
        return self

    def _sums(self, X: Any) -> Array:
        check_is_fitted(self)
        table = frames.columns(frames.as_table(X))
        if len(table) != self.n_features_in_:
            raise ValueError(f"X has {len(table)} columns; expected {self.n_features_in_}")
        return self.forest_(_as_numbers(table, self.levels_))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the mean of y, or the most likely class."""
        if self.loss == "log_loss":
            return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])
        f = self._sums(X)[:, 0]
        return np.exp(f) if self.loss in LOG_LINKS else f

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class."""
        f = self._sums(X)
        if f.shape[1] > 1:
            return np.asarray(softmax(f, copy=False))
        p = expit(f[:, 0])
        return np.column_stack([1 - p, p])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        classes = self.loss == "log_loss"
        tags.estimator_type = "classifier" if classes else "regressor"
        tags.classifier_tags = ClassifierTags() if classes else None
        tags.regressor_tags = None if classes else RegressorTags()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def _levels(column: frames.Column) -> tuple[str, ...] | None:
    """Return the levels of a category in alphabetic order, the most frequent of too many."""
    if column.kind != "categorical":
        return None
    codes, present = column.codes()
    count = np.bincount(codes[codes >= 0], minlength=len(present))
    often = np.argsort(-count, kind="stable")[:MAX_LEVELS]
    return tuple(sorted({present[j] for j in often if count[j]}))


def _as_numbers(table: list[frames.Column], levels: list[Any]) -> Array:
    """Return numbers as they are and levels by their position; NaN: missing or not known."""
    out = np.empty((len(table[0].values), len(table)))
    for j, (column, known) in enumerate(zip(table, levels, strict=True)):
        if known is None:
            out[:, j] = column.floats()
        else:
            codes, present = column.codes()
            position = {level: float(i) for i, level in enumerate(known)}
            out[:, j] = np.array([*(position.get(level, np.nan) for level in present), np.nan])[codes]
    return out

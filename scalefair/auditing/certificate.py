"""Certificates: a limit that holds in the population with a stated probability."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from scalefair import __version__
from scalefair._hash import digest
from scalefair.data import is_stream
from scalefair.errors import InputError, NotCertifiedError, check_choice, check_number
from scalefair.measures.bounds import ShareDistribution
from scalefair.moments import Moments
from scalefair.penalties import group_counts

LIMITS = {
    "scores": "explained share",
    "output": "explained share of the distribution of the predictions",
    "means": "largest difference between groups in mean prediction",
    "decisions": "largest difference between groups in the rate of positive decisions",
    "odds": "largest difference between groups in the rate of positive decisions at equal targets",
}
"""The quantities that can be limited, in words."""

LEAST_ROWS = 50  # With fewer rows no limit is certified: the distributions are those of large samples
ASSUMPTIONS = (
    "the rows that calibrated are drawn independently from the population that the limit is about,"
    " which does not drift",
    "they took no part in fitting the model, nor in choosing it, its attributes or its limit",
    "there are enough of them for the distributions of large samples (asymptotic, checked by "
    "simulation; not distribution-free)",
)
CROSS_ASSUMPTIONS = (
    ASSUMPTIONS[0],
    "statistics are cross-fitted and the model is refitted on all rows: calibrated by simulation, not by a theorem",
)


@dataclass(frozen=True)
class Certificate:
    """A limit that a model keeps in the population, with a stated probability.

    Attributes
    ----------
    limit, confidence : float
        The limit, and the probability that a model beyond it would not have been certified.
    limit_on, method : str
        As in :func:`certify`; "new rows" (by it), "split" or "cross" (by an estimator).
    rows : int
        Number of calibration rows.
    estimate, upper_bound : float
        Unbiased estimate on those rows, and its upper confidence bound: the smallest limit that
        would have been certified.
    functions, assumptions : str, tuple of str
        Functions of the sensitive attributes that it covers, and assumptions in words.
    model, moments : str
        Fingerprints of the model, and of the statistics of the calibration rows.
    version, date : str
        Of scalefair, and when it was made (UTC).
    """

    limit: float
    confidence: float
    limit_on: str
    method: str
    rows: int
    estimate: float
    upper_bound: float
    functions: str
    assumptions: tuple[str, ...]
    model: str
    moments: str
    version: str
    date: str

    def to_json(self) -> str:
        """Return the certificate as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Return the certificate that `to_json` wrote, or raise ValueError."""
        try:
            values = json.loads(text)
            values["assumptions"] = tuple(map(str, values["assumptions"]))
            made = cls(**values)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this JSON holds no certificate ({error!r})") from error
        for name, kind in cls.__annotations__.items():
            types = {"float": (float, int), "int": (int,), "str": (str,)}.get(str(kind), (tuple,))
            if not isinstance(value := values[name], types):
                raise ValueError(f"certificate: {name} is {value!r:.50}, expected {kind}")
        return made

    def __str__(self) -> str:
        """Return what is certified, in one sentence."""
        return (
            f"{LIMITS[self.limit_on]} at most {self.limit:g} with confidence {self.confidence:g}: "
            f"estimate {self.estimate:.3g}, upper bound {self.upper_bound:.3g} from {self.rows:,} "
            f"rows ({self.method})"
        )


@dataclass(frozen=True, eq=False)
class Claim:
    """A limit to certify, its confidence, and the quantity that it limits."""

    limit: float
    confidence: float
    limit_on: str = "scores"

    @classmethod
    def of(cls, unfairness: Any, confidence: Any, limit_on: str = "scores") -> Claim:
        """Return the claim of checked parameters."""
        check_choice("limit_on", limit_on, tuple(LIMITS))
        high = np.inf if limit_on == "means" else 1.0
        limit = check_number("unfairness", unfairness, 0.0, high)
        level = check_number("confidence", confidence, 0.0, 1.0)
        if limit == 0:
            raise ValueError(
                "unfairness=0 cannot be certified: no number of rows proves that a share is "
                "exactly 0; give a small limit such as 0.01"
            )
        if level in (0.0, 1.0):
            raise ValueError(f"confidence={confidence!r} must be between 0 and 1, such as 0.95")
        return cls(limit, level, limit_on)

    def error(self, distributions: Sequence[ShareDistribution]) -> NotCertifiedError:
        """Return the error for predictors, the first of which is not within the limit."""
        rows = max(one.rows_for(self.limit, self.confidence) for one in distributions)
        least = self.numbers(distributions)[1]
        return NotCertifiedError(LIMITS[self.limit_on], self.limit, self.confidence, least, rows)

    def numbers(self, distributions: Sequence[ShareDistribution]) -> tuple[float, float]:
        """Return the largest share of the first predictor over all ε, and its largest upper bound."""
        uppers = (one.upper(self.confidence) for one in distributions)
        return max(float(one.share[0]) for one in distributions), max(float(upper[0]) for upper in uppers)

    def check_gap(self, rows: int, estimate: float, upper: float) -> None:
        """Raise NotCertifiedError unless the upper bound of a gap is within the limit."""
        if upper <= self.limit:
            return
        # Half of what the bound adds needs four times the rows.
        left = self.limit - estimate
        needed = rows * ((upper - estimate) / left) ** 2 if left > 0 else np.inf
        raise NotCertifiedError(LIMITS[self.limit_on], self.limit, self.confidence, upper, needed)

    def certificate(  # noqa: PLR0917
        self, method: str, rows: int, estimate: float, bound: float, functions: str, model: str, moments: str
    ) -> Certificate:
        """Return the certificate of today."""
        return Certificate(
            self.limit, self.confidence, self.limit_on, method, rows, estimate, bound, functions,
            CROSS_ASSUMPTIONS if method == "cross" else ASSUMPTIONS, model, moments, __version__,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip


def check_calibration(moments: Moments) -> None:
    """Raise ValueError if rows are too few to certify anything."""
    rows, counts = moments.effective_rows, group_counts(moments)
    if moments.is_expected:
        raise InputError("probabilities of groups cannot certify a limit", "certify on rows whose group is known")
    if rows < LEAST_ROWS:
        raise InputError(
            f"{rows:.0f} rows are too few to certify anything, at least {LEAST_ROWS} are needed", "give more rows"
        )
    alone = int(np.sum(counts < 1.5))
    if alone:
        raise InputError(
            f"{alone} of {len(counts)} groups of the sensitive attributes have fewer than two rows "
            "to calibrate with, too few to certify anything",
            "merge rare groups, or give more rows",
        )


def functions_of(moments: Moments) -> str:
    """Return in words which functions of the attributes a certificate is about."""
    groups = len(group_counts(moments))
    kinds = {kind for units in moments.units.values() for kind, _ in units}
    given = " at each level of the control" if "upsilon" in moments.blocks else ""
    if kinds == {"groups"}:
        return f"every function of the {groups} groups of the sensitive attributes{given}"
    width = moments.blocks["psi"]
    return f"functions of the sensitive attributes in the span of {width} features, ridges 1e-6, 1e-4 and 1e-2{given}"


def fingerprint(model: Any) -> str:
    """Return a fingerprint of the coefficients of a model, or of predictions."""
    if not predicts(model):
        return "" if is_stream(model) else digest(np.asarray(model, dtype=np.float64))
    own = {name: value for name, value in vars(model).items() if name in ("coef_", "intercept_")}
    return digest([np.asarray(own[name]) for name in sorted(own)]) if own else type(model).__name__


def predicts(model: Any) -> bool:
    """Return True if an object is a model, not predictions."""
    return any(callable(getattr(model, name, None)) for name in ("predict", "decision_function"))

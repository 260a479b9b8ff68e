"""Newton's method for any loss, one pass over the rows an iteration; a weight η or a limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from sklearn.exceptions import ConvergenceWarning

from scalefair._typing import Array
from scalefair.data.sources.threads import blas_threads_for
from scalefair.features.design import PREDICT_ROWS
from scalefair.moments.accumulate import Rows
from scalefair.solve import limit
from scalefair.solve.fit import LossFit, Spec
from scalefair.solve.newton.model import Local, Problem, Slice, Weight
from scalefair.solve.output.fit import fit_loss_with_output

# Shorter steps whose J a pass sums beside that of the full one; 0 is where it came from
STEPS = (0.5, 0.2, 0.05, 0.01, 0.0)
ROUNDING = 1e-13  # relative rounding error of a value of J
# Relative decrement that rounding error may hide, in sums over single-precision rows too
FLAT = 1e-6
CUT_SHORT = "; raise max_iter or use a larger alpha"
STALLED = (
    ": no step lowers the objective; use a larger alpha, and check the gradient of a loss of "
    "your own"
)
# Columns × scores from which on a light pass, without ΦᵀWΦ, is much cheaper than a full one
WIDE = 200
# Light passes that cost as much as a full one and the few light ones that it leaves to do. More
# where features are stored: then a light pass reads them and little else
PATIENCE = {False: 5.0, True: 10.0}
CIRCLES = 12  # steps without progress after which η is no longer taken from every model anew
SETTLED = 1.0  # decrement, in units of J, of a fit that is near enough its optimum to start from
# Passes after which all are full, but for a last one: where reading the rows is what costs, many
# light ones cost
ENOUGH = 6


class Goal(NamedTuple):
    """What to fit: a ridge α, and either a weight η or a limit on the explained share."""

    alpha: float
    eta: float = 0.0
    unfairness: float | None = None
    # Whether the limit must be met by some η: a Gaussian process has no prior beyond them
    on_path: bool = False

    def step(self, slice_: Slice) -> tuple[Array, Weight]:
        """Return the minimiser of a model, and the weight there: the least η that meets a limit."""
        if self.unfairness is None:
            return slice_.theta(self.eta), Weight(self.eta)
        if self.unfairness <= limit.ROUNDED_SHARE and not self.on_path:
            return self.optimum(slice_)
        eta = limit.least_eta(slice_, self.unfairness, on_path=self.on_path)
        if eta is not None:
            return slice_.theta(eta), Weight(eta)
        if self.on_path:
            raise limit.not_on_path(slice_, self.unfairness)
        return self.optimum(slice_)

    def optimum(self, slice_: Slice) -> tuple[Array, Weight]:
        """Return the minimiser of a model over all θ within the limit."""
        u, model = self.unfairness or 0.0, slice_.quadratic()
        if u <= limit.ROUNDED_SHARE:
            return slice_.unflat(limit.optimum_without(model)[:, 0]), Weight(np.inf, u)
        best = limit.optimum_within(model, u)
        # The model is ½θᵀAθ − cᵀθ, and a penalty of weight η adds η|Rᵀβ|²: half its Hessian.
        return slice_.unflat(best.coef[:, 0]), Weight(best.multiplier / 2, u)


class NewtonFit(NamedTuple):
    """The optimum θ = [β, b] of centred features, its η, and what it took."""

    theta: Array
    eta: float
    objective: float  # J at the last point that a pass has seen
    n_iter: int
    n_passes: int
    n_full: int  # passes that summed ΦᵀWΦ
    converged: bool
    local: Local  # the last model of the data term, from which the next fit can start


def newton(
    problem: Problem, goal: Goal, *, warm: Local | None = None, tol: float = 1e-10,
    max_iter: int = 50, progress: Callable[[], None] = lambda: None,
) -> NewtonFit:  # fmt: skip
    """Minimise 1/n ΣV + α βᵀDβ + η|Rᵀβ|².

    A pass evaluates the full Newton step and shorter ones, and yields the next quadratic model;
    where that costs much, one serves for several passes, corrected by their gradients (BFGS). Under
    a limit every model is solved for the η that meets it. A step that promises to lower J by less
    than `tol`, in its natural size, is the last, taken unseen. `warm` is a model to start from.
    """
    fit = _Descent(problem, goal, tol, progress).run(warm, max_iter)
    if goal.unfairness is not None and fit.eta > 0 and np.isnan(problem.share(fit.theta)):
        limit.check_attainable(Slice(problem, fit.local, goal.alpha).quadratic(), goal.unfairness)
        raise limit.only_a_constant(goal.unfairness, goal.alpha)
    if not fit.converged:
        warnings.warn(
            f"Newton's method stopped after {fit.n_iter} iterations before it converged to "
            f"tol={tol:g}{CUT_SHORT if fit.n_iter == max_iter else STALLED}",
            ConvergenceWarning,
            stacklevel=2,
        )
    return fit


class _Descent:
    """The state of one minimisation."""

    def __init__(
        self, problem: Problem, goal: Goal, tol: float, progress: Callable[[], None]
    ) -> None:
        self.problem, self.goal, self.tol = problem, goal, tol
        self._progress = progress
        self.n_passes, self.n_full = 0, 0
        self._wide = len(problem.metric) * problem.loss.n_scores >= WIDE
        self._light, self._last = False, np.inf
        self.damping, self._unit, self._size = 0.0, 1.0, 1.0
        self.objective = float("nan")
        self._leaves_path, self._settled, self._weight = False, False, Weight(goal.eta)
        self._least_decrement, self._rounds = np.inf, 0

    def run(self, warm: Local | None, max_iter: int) -> NewtonFit:
        local, seen = self._first(warm)
        self._unit, self._size = self.problem.units(local)
        self.tol *= self._size
        theta, weight, converged = local.theta, Weight(self.goal.eta), False
        for n_iter in range(1, max_iter + 1):  # noqa: B007
            try:
                theta, weight, decrement = self._solved(local)
            except LinAlgError:
                # Scores so certain that no curvature is left: separated classes without a ridge.
                if not seen:
                    raise
                break
            if seen and self._is_near(decrement) and self.damping == 0:
                converged = True
                break
            if self.goal.unfairness is not None:
                self._count_rounds(decrement)
            if self._wide:
                self._choose_light(local, seen, decrement)
            moved, seen = self._step(local, theta, weight, decrement), True
            local = local if moved is None else moved
            theta = local.theta
            if moved is None and decrement <= 1e4 * ROUNDING * max(self._size, abs(self.objective)):
                converged = self._is_flat(local)
                break
        eta = weight.eta if weight.limit is None else np.inf  # ∞: no η of the path meets the limit
        passes = self.n_passes, self.n_full
        return NewtonFit(theta, eta, self.objective, n_iter, *passes, converged, local)

    def _solved(self, local: Local) -> tuple[Array, Weight, float]:
        """The minimiser of a model, the weight of the penalty, and its decrement."""
        with blas_threads_for(local.theta.size):
            slice_ = Slice(self.problem, local, self.goal.alpha, self.damping)
            solve = self.goal.step if self.goal.unfairness is None else self._limited
            theta, self._weight = solve(slice_)
            return theta, self._weight, slice_.decrement(theta, self._weight)

    def _limited(self, slice_: Slice) -> tuple[Array, Weight]:
        """Return the minimiser under a limit and its weight; the optimum within if η circles."""
        if not self._leaves_path:
            theta, weight = self.goal.step(slice_)
            self._leaves_path = not self.goal.on_path and np.isfinite(weight.eta) and (
                weight.limit is not None or self._rounds >= CIRCLES
            )  # fmt: skip
            if not self._leaves_path:
                return theta, weight
        if not self._settled:
            theta = slice_.theta(0.0)
            self._settled = slice_.decrement(theta, Weight(0.0)) <= SETTLED * self._size
            return self.goal.optimum(slice_) if self._settled else (theta, Weight(0.0))
        return slice_.along_limit(self._weight)

    def _count_rounds(self, decrement: float) -> None:
        """Count the steps since the decrement last fell, under a limit that η follows."""
        if decrement < self._least_decrement / 2:
            self._least_decrement, self._rounds = decrement, 0
        else:
            self._rounds += 1

    def _is_flat(self, local: Local) -> bool:
        """Return True if rounding error hides what J could fall; damping may hide more."""
        self.damping = 0.0
        try:
            return self._solved(local)[2] <= FLAT * max(self._size, abs(self.objective))
        except LinAlgError:
            return False

    def _first(self, warm: Local | None) -> tuple[Local, bool]:
        """The first model, and whether a pass has seen it."""
        if warm is not None:
            return warm, True
        start = self.problem.start()
        if start is not None:
            return start, False
        zero = np.zeros((len(self.problem.metric), self.problem.loss.n_scores))
        return self._pass(zero, Local(zero, zero, np.empty((0, 0))))[0], True

    def _is_near(self, decrement: float) -> bool:
        """Return True if the next step is good enough to be taken unseen."""
        return (
            self._is_small(decrement, self._last) if self._light else decrement / 2 <= self._least
        )

    def _is_small(self, decrement: float, before: float) -> bool:
        return decrement <= self._least and decrement**2 <= 2e-3 * self._least * before

    @property
    def _least(self) -> float:
        """Decrease of J that is not worth a pass: no pass can see less than its rounding error."""
        return float(np.fmax(self.tol, ROUNDING * abs(self.objective)))  # J may be NaN: not known

    def _choose_light(self, local: Local, seen: bool, decrement: float) -> None:
        """Go on without a new second derivative while the one at hand serves well."""
        before, self._last = self._last, decrement
        patience = PATIENCE[self.problem.cache is not None]
        # Passes until the decrement is within `tol`, if each lowers it as the last one did.
        left = np.inf
        if 0 < decrement < before:
            left = np.log(decrement / max(self.tol, 1e-300)) / np.log(before / decrement)
        slow = seen and left > patience
        after = decrement * (decrement / before) if before > 0 else 0.0
        many = self.n_passes >= ENOUGH and not self._is_small(after, decrement)
        again = (self._light and slow) or many or not local.exact
        self._light = not again and self.damping == 0

    def _pass(
        self, theta: Array, before: Local, steps: tuple[float, ...] = ()
    ) -> tuple[Local, Array]:
        self.n_passes += 1
        self.n_full += not self._light
        result = self.problem.evaluate(theta, before, steps, light=self._light)
        self._progress()
        return result

    def _step(self, local: Local, theta: Array, weight: Weight, decrement: float) -> Local | None:
        """Move to θ, or as far as J falls; None where it does not: the next step is damped."""
        before = local.theta
        there, data = self._pass(theta, local, STEPS)
        lengths = np.array([1.0, *STEPS])
        values = np.array([there.value, *data])
        J = values + [
            self.problem.penalty(before + t * (theta - before), self.goal.alpha, weight)
            for t in lengths
        ]
        # Once a limit of 0 is met, every step meets it: until then there is nothing to compare.
        within = np.isfinite(weight.eta) or self.problem.is_within(before, weight)
        now = J[-1] if within else np.inf
        slack = ROUNDING * max(self._size, abs(now))
        if J[0] <= now - 1e-4 * decrement + slack:
            self.damping = self.damping / 10 if self.damping > 1e-6 * self._unit else 0.0
            self.objective = float(J[0])
            return there
        falls = np.where(np.isfinite(J[:-1]), J[:-1], np.inf)
        best = int(np.argmin(falls))
        self.objective = float(now)
        if not falls[best] < now - slack:
            self.damping = max(10 * self.damping, 1e-3 * self._unit)
            return None
        self.objective, self._light = float(falls[best]), False
        return self._pass(before + lengths[best] * (theta - before), local)[0]


def fit_loss(  # noqa: PLR0917
    rows: Rows, problem: Problem, spec: Spec, output_kernel: Any, tol: float, max_iter: int,
    warm: Local | None = None,
) -> LossFit:  # fmt: skip
    """Return the fit at a weight or under a limit; `output_kernel` sees the distribution of f."""
    nonlinear = output_kernel is not None or (
        spec.penalty == "nocco_output" and spec.unfairness != 0  # the limit 0 is the linear one's
    )
    with (
        rows.progress.watched(rows.source, problem.rows or PREDICT_ROWS) as source,
        rows.progress.steps("iterations") as step,
    ):
        # A copy would factorise the linear part of φ again.
        watched = problem if source is problem.source else replace(problem, source=source)
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "progress": step}
        if nonlinear and rows.design.psi is not None:
            return fit_loss_with_output(
                rows, watched, spec, output_kernel, progress=step,
                newton=lambda eta: newton(watched, Goal(spec.alpha, eta), **options),
            )  # fmt: skip
        goal = Goal(spec.alpha, spec.eta, spec.unfairness)
        return watched.fit(newton(watched, goal, warm=warm, **options), spec)


def loss_path(
    problem: Problem, spec: Spec, etas: Array, tol: float, max_iter: int
) -> list[LossFit]:
    """Return the fits at increasing weights, each starting where the one before ended."""
    fits, warm = [], None
    for eta in etas:
        # The limit of η → ∞ starts anew: until Rᵀβ is 0, no step can be compared with another.
        warm = None if eta == float("inf") else warm
        result = newton(problem, Goal(spec.alpha, float(eta)), warm=warm, tol=tol,
                        max_iter=max_iter)  # fmt: skip
        fits.append(problem.fit(result, spec))
        warm = result.local
    return fits

"""Newton's method for any loss, one pass over the rows an iteration; a weight η or a limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from sklearn.exceptions import ConvergenceWarning

from scalefair._typing import Array
from scalefair.data.sources.threads import one_blas_thread
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
STALLED = ": no step lowers the objective; use a larger alpha, and check the gradient of a loss of your own"
# Columns × scores from which on a light pass, without ΦᵀWΦ, is much cheaper than a full one
WIDE = 200
# Light passes that cost as much as a full one and the few light ones after it; more where features
# are stored, since a light pass then reads them and little else
PATIENCE = {False: 5.0, True: 10.0}
# Passes after which all are full, except a last one: where reading the rows is the main cost, many
# light passes are expensive
MAX_LIGHT_PASSES = 6
CIRCLES = 12  # steps without progress after which η is no longer taken from every model again
SETTLED = 1.0  # decrement, in units of J, of a fit that is near enough its optimum to start from


class Goal(NamedTuple):
    """What to fit: a ridge α, and either a weight η or a limit on the explained share."""

    alpha: float
    eta: float = 0.0
    unfairness: float | None = None
    # Whether the limit must be met by some η: a Gaussian process has no prior beyond them
    on_path: bool = False

    def step(self, slice_: Slice) -> tuple[Array, Weight]:
        """Return the minimiser of a model at the least η that meets the limit, and its weight."""
        u = self.unfairness or 0.0
        if u <= limit.ROUNDED_SHARE and not self.on_path:
            return self.optimum(slice_)
        eta = limit.least_eta(slice_, u, on_path=self.on_path)
        if eta is not None:
            return slice_.thetas(eta)[0], Weight(eta)
        if self.on_path:
            raise limit.not_on_path(slice_, u)
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
    objective: float  # J at the last point that a pass has evaluated
    n_iter: int
    n_passes: int
    converged: bool
    local: Local  # the last model of the data term, from which the next fit can start


def newton(
    problem: Problem, goal: Goal, *, warm: Local | None = None, tol: float = 1e-10,
    max_iter: int = 50, progress: Callable[[], None] | None = None,
) -> NewtonFit:  # fmt: skip
    """Minimise 1/n ΣV + α βᵀDβ + η|Rᵀβ|².

    A pass evaluates the full Newton step and shorter ones, and yields the next quadratic model; with many features one
    second derivative serves several passes, corrected by their gradients (BFGS). Under a limit every model is solved
    for the η that meets it. A step that promises to lower J by less than `tol`, in its natural size, is the last, taken
    without a pass. `warm` is a model to start from.
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


@dataclass(eq=False)
class _Descent:
    """The state of one minimisation."""

    problem: Problem
    goal: Goal
    tol: float
    progress: Callable[[], None] | None
    n_passes: int = 0
    damping: float = 0.0
    unit: float = 1.0  # mean curvature of the first model
    size: float = 1.0  # natural size of J
    objective: float = np.nan
    leaves_path: bool = False  # under a limit that no η meets
    settled: bool = False
    weight: Weight = field(init=False)
    least_decrement: float = np.inf
    rounds: int = 0  # steps since the decrement last fell, under a limit that η follows
    light: bool = False  # whether the next pass leaves out ΦᵀWΦ
    last: float = np.inf  # decrement of the step before

    def run(self, warm: Local | None, max_iter: int) -> NewtonFit:
        local = warm or self.problem.start()
        seen = not np.isnan(local.value)
        self.n_passes = int(seen and warm is None)
        self.unit, self.size = self.problem.units(local)
        self.tol *= self.size
        theta, self.weight, converged = local.theta, Weight(self.goal.eta), False
        for n_iter in range(1, max_iter + 1):  # noqa: B007
            try:
                theta, decrement = self._solved(local)
            except LinAlgError:
                # Scores so certain that no curvature is left: separated classes without a ridge.
                if not seen:
                    raise
                break
            # No pass can see a decrease of J below its rounding error; J is NaN before the first.
            least = float(np.fmax(self.tol, ROUNDING * abs(self.objective)))
            near = self._is_small(decrement, self.last, least) if self.light else decrement / 2 <= least
            if seen and near and self.damping == 0:
                converged = True
                break
            self._choose_light(local, seen, decrement, least)
            moved, seen = self._step(local, theta, decrement), True
            local = moved or local
            theta = local.theta
            if moved is None and decrement <= 1e4 * ROUNDING * max(self.size, abs(self.objective)):
                converged = self._is_flat(local)
                break
        # ∞: no η of the path meets the limit
        eta = self.weight.eta if self.weight.limit is None else np.inf
        return NewtonFit(theta, eta, self.objective, n_iter, self.n_passes, converged, local)

    def _solved(self, local: Local) -> tuple[Array, float]:
        """Return the minimiser of a model and its decrement; set the weight of the penalty."""
        with one_blas_thread(local.theta.size):
            slice_ = Slice(self.problem, local, self.goal.alpha, self.damping)
            if self.goal.unfairness is None:
                theta, self.weight = slice_.thetas(self.goal.eta)[0], Weight(self.goal.eta)
                return theta, slice_.decrement(theta, self.weight)
            theta, self.weight = self._limited(slice_)
            decrement = slice_.decrement(theta, self.weight)
        if decrement < self.least_decrement / 2:
            self.least_decrement, self.rounds = decrement, 0
        else:
            self.rounds += 1
        return theta, decrement

    def _limited(self, slice_: Slice) -> tuple[Array, Weight]:
        """Return the minimiser under a limit and its weight; the optimum within if η circles."""
        if not self.leaves_path:
            theta, weight = self.goal.step(slice_)
            circles = weight.limit is not None or self.rounds >= CIRCLES
            self.leaves_path = circles and not self.goal.on_path and bool(np.isfinite(weight.eta))
            if not self.leaves_path:
                return theta, weight
        if not self.settled:
            theta = slice_.thetas(0.0)[0]
            self.settled = slice_.decrement(theta, Weight(0.0)) <= SETTLED * self.size
            return self.goal.optimum(slice_) if self.settled else (theta, Weight(0.0))
        return slice_.along_limit(self.weight)

    def _choose_light(self, local: Local, seen: bool, decrement: float, least: float) -> None:
        """Leave out a new second derivative while the current one serves well."""
        if local.theta.size < WIDE:
            return
        before, self.last = self.last, decrement
        # Passes until the decrement is within `tol`, if each lowers it as the last one did.
        left = np.inf
        if 0 < decrement < before:
            left = np.log(decrement / max(self.tol, 1e-300)) / np.log(before / decrement)
        slow = seen and left > PATIENCE[self.problem.cache is not None]
        after = decrement * (decrement / before) if before > 0 else 0.0
        many = self.n_passes >= MAX_LIGHT_PASSES and not self._is_small(after, decrement, least)
        again = (self.light and slow) or many or not local.exact
        self.light = not again and self.damping == 0

    @staticmethod
    def _is_small(decrement: float, before: float, least: float) -> bool:
        """Return True if a step of a corrected model is accurate enough without another pass."""
        return decrement <= least and decrement**2 <= 2e-3 * least * before

    def _is_flat(self, local: Local) -> bool:
        """Return True if rounding error hides what J could fall; damping may hide more."""
        self.damping = 0.0
        try:
            return self._solved(local)[1] <= FLAT * max(self.size, abs(self.objective))
        except LinAlgError:
            return False

    def _step(self, local: Local, theta: Array, decrement: float) -> Local | None:
        """Move to θ, or as far as J falls; None where it does not: the next step is damped."""
        problem, weight, before = self.problem, self.weight, local.theta
        there, data = problem.evaluate(theta, local, STEPS, light=self.light)
        self.n_passes += 1
        if self.progress:
            self.progress()
        lengths, way = np.array([1.0, *STEPS]), theta - before
        J = np.array([there.value, *data]) + [
            problem.penalty(before + t * way, self.goal.alpha, weight) for t in lengths
        ]
        # Once a limit of 0 is met, every step meets it: until then there is nothing to compare.
        now = J[-1] if np.isfinite(weight.eta) or problem.is_within(before, weight) else np.inf
        slack = ROUNDING * max(self.size, abs(now))
        if J[0] <= now - 1e-4 * decrement + slack:
            self.damping = self.damping / 10 if self.damping > 1e-6 * self.unit else 0.0
            self.objective = float(J[0])
            return there
        falls = np.where(np.isfinite(J[:-1]), J[:-1], np.inf)
        best = int(np.argmin(falls))
        if not falls[best] < now - slack:
            self.objective = float(now)
            self.damping = max(10 * self.damping, 1e-3 * self.unit)
            return None
        self.objective, self.light = float(falls[best]), False
        self.n_passes += 1
        return problem.evaluate(before + lengths[best] * way)[0]


def fit_loss(  # noqa: PLR0917
    rows: Rows, problem: Problem, spec: Spec, output_kernel: Any, tol: float, max_iter: int, warm: Local | None = None
) -> LossFit:
    """Return the fit at a weight or under a limit; `output_kernel` sees the distribution of f."""
    nonlinear = output_kernel is not None or (
        spec.penalty == "nocco_output" and spec.unfairness != 0  # the limit 0 is the linear one's
    )
    with ExitStack() as stack:
        step = None
        if rows.progress:
            watched = rows.progress.watched(rows.source, problem.rows or PREDICT_ROWS)
            problem = replace(problem, source=stack.enter_context(watched))
            step = stack.enter_context(rows.progress.steps("iterations"))
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "progress": step}
        if nonlinear and rows.design.psi is not None:
            return fit_loss_with_output(
                rows,
                problem,
                spec,
                output_kernel,
                progress=step,
                newton=lambda eta: newton(problem, Goal(spec.alpha, eta), **options),
            )
        goal = Goal(spec.alpha, spec.eta, spec.unfairness)
        result = newton(problem, goal, warm=warm, **options)
        with one_blas_thread(result.theta.size):
            return problem.fit(result, spec)


def loss_path(problem: Problem, spec: Spec, etas: Array, tol: float, max_iter: int) -> list[LossFit]:
    """Return the fits at increasing weights, each starting where the one before ended."""
    fits, warm = [], None
    for eta in etas:
        # The limit of η → ∞ starts over: until Rᵀβ is 0, no step can be compared with another.
        warm = None if eta == float("inf") else warm
        result = newton(problem, Goal(spec.alpha, float(eta)), warm=warm, tol=tol, max_iter=max_iter)
        fits.append(problem.fit(result, spec))
        warm = result.local
    return fits

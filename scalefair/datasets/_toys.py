"""The two synthetic problems of the paper, with the target they would have without bias."""

from __future__ import annotations

from inspect import getdoc
from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state

from scalefair.errors import FINITE, TINY, check_count, check_number


def check_seed(random_state: object) -> np.random.RandomState:
    """Return a RandomState: its streams are frozen, so a seed means one table for ever."""
    try:
        return check_random_state(random_state)  # type: ignore[no-any-return]
    except ValueError as error:
        raise ValueError(
            f"random_state={random_state!r} is not a seed; give None, a whole number from 0 to "
            "2**32 - 1 or a numpy.random.RandomState"
        ) from error


def make_toy1(n_rows: int = 500, *, bias: float = 0.5, noise: float = 0.3, random_state: Any = None) -> Bunch:
    """Make the first toy problem: a fair function, observed with a bias for x3 > 0.

    x1, x2, z ~ N(0, 1), z unobserved; x3 = (x1 + z) / √2 is sensitive;

        f = sign((x1 - z) x3) |x2|,    y = f + 2 bias 1[x3 > 0] - bias + noise N(0, 1).

    As z = √2 x3 - x1, f is a function of the inputs; it is independent of x3. x1 is a proxy for x3,
    and x1 made independent of x3 by a regression tells nothing about f.

    Parameters
    ----------
    n_rows : int, default=500
        Number of rows.
    bias : float, default=0.5
        The amount by which the target is too high for x3 > 0 and too low otherwise.
    noise : float, default=0.3
        Standard deviation of the noise. The paper states neither size, bias nor noise.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    Bunch
        ``data`` float64 (n, 3), the columns x1, x2, x3; ``target`` (n,), y; ``sensitive_features``
        (n, 1), x3; ``fair_target`` (n,), f; ``feature_names``, ``target_names``, ``DESCR``.

    References
    ----------
    Z. Li, A. Pérez-Suay, G. Camps-Valls and D. Sejdinovic. Kernel dependence regularizers and
    Gaussian processes with applications to algorithmic fairness. Toy dataset 1.

    Examples
    --------
    >>> from scalefair.datasets import make_toy1
    >>> toy = make_toy1(4, noise=0, random_state=0)
    >>> toy.data.shape, toy.sensitive_features.shape
    ((4, 3), (4, 1))
    >>> (toy.target - toy.fair_target).round(6).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    n_rows = check_count("n_rows", n_rows)
    bias = check_number("bias", bias, -FINITE, FINITE)
    noise = check_number("noise", noise, 0, FINITE)
    rng = check_seed(random_state)
    x1, x2, z, error = rng.standard_normal((4, n_rows))
    x3 = (x1 + z) / np.sqrt(2)
    fair = np.sign((x1 - z) * x3) * np.abs(x2)
    return Bunch(
        data=np.column_stack([x1, x2, x3]),
        target=fair + 2 * bias * (x3 > 0) - bias + noise * error,
        sensitive_features=x3[:, None],
        fair_target=fair,
        feature_names=["x1", "x2", "x3"],
        target_names=["y"],
        DESCR=getdoc(make_toy1),
    )


def make_toy2(
    n_rows: int = 700,
    *,
    sensitive_scale: float = 1.0,
    input_scale: float = 0.5,
    noise: float = 0.5,
    random_state: Any = None,
) -> Bunch:
    """Make the second toy problem: a sensitive input that acts directly and through a proxy.

    With σs = `sensitive_scale`, σx = `input_scale` and σy = `noise`,

        s ~ N(0, σs²),    x | s ~ N(log|s|, σx²),    y = x² + s² + ε,    ε ~ N(0, σy²).

    No part of y is "the unbiased one", as x itself depends on s. `fair_target` is the function of
    (s, x) closest in mean square to E[y | s, x] = x² + s² among those whose mean given s does not
    depend on s, which is what the normalized penalty tends to for η → ∞:

        f = x² + s² - E[x² + s² | s] + E[x² + s²] = x² - log²|s| + E[log²|s|] + σs²,

    where E[log²|s|] = (log σs - (γ + log 2) / 2)² + π²/8 with Euler's γ. Its mean given s is
    constant; its spread is not, so it is uncorrelated with every function of s, not independent.

    Parameters
    ----------
    n_rows : int, default=700
        Number of rows.
    sensitive_scale : float, default=1.0
        σs, above 0.
    input_scale : float, default=0.5
        σx, at least 0.
    noise : float, default=0.5
        σy, at least 0. The three scales are those of the authors' script, not of the paper.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    Bunch
        ``data`` float64 (n, 2), the columns s, x, as drawn (the paper standardises inputs and target); ``target`` (n,),
        y; ``sensitive_features`` (n, 1), s; ``fair_target`` (n,), f; ``feature_names``, ``target_names``, ``DESCR``.

    References
    ----------
    Z. Li, A. Pérez-Suay, G. Camps-Valls and D. Sejdinovic. Kernel dependence regularizers and
    Gaussian processes with applications to algorithmic fairness. Toy dataset 2.

    A. Pérez-Suay et al. (2017). Fair kernel learning. ECML PKDD.

    Examples
    --------
    >>> from scalefair.datasets import make_toy2
    >>> toy = make_toy2(5, noise=0, random_state=0)
    >>> toy.data.shape, toy.feature_names
    ((5, 2), ['s', 'x'])
    >>> bool(abs(toy.target - (toy.data**2).sum(axis=1)).max() < 1e-12)
    True
    """
    n_rows = check_count("n_rows", n_rows)
    sensitive_scale = check_number("sensitive_scale", sensitive_scale, TINY, FINITE)
    input_scale = check_number("input_scale", input_scale, 0, FINITE)
    noise = check_number("noise", noise, 0, FINITE)
    rng = check_seed(random_state)
    unit_s, unit_x, error = rng.standard_normal((3, n_rows))
    s = sensitive_scale * unit_s
    log_s = np.log(np.abs(s))
    x = log_s + input_scale * unit_x
    mean_log = np.log(sensitive_scale) - (np.euler_gamma + np.log(2)) / 2
    mean = mean_log**2 + np.pi**2 / 8 + sensitive_scale**2
    return Bunch(
        data=np.column_stack([s, x]),
        target=x**2 + s**2 + noise * error,
        sensitive_features=s[:, None],
        fair_target=x**2 - log_s**2 + mean,
        feature_names=["s", "x"],
        target_names=["y"],
        DESCR=getdoc(make_toy2),
    )

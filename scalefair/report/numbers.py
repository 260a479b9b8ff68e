"""Numbers as the page writes them."""

from __future__ import annotations

import math

ABSENT = "–"


def number(x: float) -> str:
    """Write a number with three significant digits."""
    if math.isnan(x):
        return ABSENT
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x != 0 and not 1e-4 <= abs(x) < 1e9:
        return f"{x:.2e}".replace("-", "−")
    return fixed(x, max(2 - math.floor(math.log10(abs(x))), 0) if x else 0)


def fixed(x: float, decimals: int) -> str:
    """Write a number with so many decimals and thousands separators."""
    if math.isnan(x):
        return ABSENT
    text = f"{x:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def table_percent(x: float) -> str:
    """Write a share of 1 as a percentage of one decimal, for tables."""
    return ABSENT if math.isnan(x) else f"{fixed(100 * x, 1)} %"


def as_percent(x: float) -> str:
    """Write a share of 1 as a percentage, for sentences."""
    return table_percent(x).replace(".0 %", " %")


def pvalue(p: float, sign: str = "= ") -> str:
    """Write a p-value."""
    return "< 0.001" if p < 0.001 else f"{sign}{fixed(p, 3)}"

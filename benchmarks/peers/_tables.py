"""Error at each level of dependence, who is ahead where, and the times, from the points' csv."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np

from benchmarks._measure import read_table, save_table, stamps
from benchmarks.peers._run import ended, key_of

OURS = "scalefair"
Curve = list[dict[str, float]]


class Axis(NamedTuple):
    """A kind of dependence, the levels that tables show, and the error that belongs to it."""

    name: str
    metric: str
    levels: tuple[float, ...]
    error: str

    @property
    def middle(self) -> float:
        """The level at which speeds are compared."""
        return self.levels[len(self.levels) // 2]


SHARES, KS, HSICS = ((0.01, 0.02, 0.05, 0.1, 0.2), (0.05, 0.1, 0.15, 0.2, 0.3), (1e-4, 3e-4, 1e-3, 3e-3))
AXES = {
    "number": (
        Axis("share", "rmse", SHARES, "score_error"),
        Axis("ks", "rmse", KS, "score_error"),
        Axis("hsic", "rmse", HSICS, "score_error"),
    ),
    "rate": (
        Axis("share", "auc", SHARES, "score_error"),
        Axis("ks", "auc", KS, "score_error"),
        Axis("gap", "accuracy", (0.01, 0.02, 0.05, 0.1), "accuracy_error"),
    ),
}


class Place(NamedTuple):
    """One problem: its curves are compared with each other."""

    data: str
    rows: int
    s: str


Curves = dict[Place, dict[str, Curve]]


def curves(path: Path, part: str = "test") -> Curves:
    """Points of every method, averaged over the seeds that have them all.

    Who was stopped counts with the points that it had; who failed, or still runs, does not.
    """
    points: dict[Any, dict[str, dict[str, str]]] = defaultdict(dict)
    lines = [line for line in read_table(path) if line["part"] == part]
    done = {key_of(line) for line in lines if ended(line)}
    for line in lines:
        if line["setting"] and key_of(line) in done:
            place = Place(line["data"], int(line["rows"]), line["s"])
            # The last one counts: a run that was stopped leaves points behind.
            points[place, line["method"], line["setting"]][line["seed"]] = line
    seeds: dict[Any, set[str]] = defaultdict(set)
    for (place, method, _), by_seed in points.items():
        seeds[place, method] |= set(by_seed)
    found: Curves = defaultdict(lambda: defaultdict(list))
    for (place, method, _), by_seed in points.items():
        if set(by_seed) == seeds[place, method]:
            found[place][method].append(_mean(list(by_seed.values())))
    return found


def _mean(lines: list[dict[str, str]]) -> dict[str, float]:
    """Means of the columns that are numbers, and of how many seeds."""
    names = [name for name in lines[0] if all(_is_number(line[name]) for line in lines)]
    return {name: mean(float(line[name]) for line in lines) for name in names} | {"seeds": len(lines)}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def axes(methods: dict[str, Curve]) -> tuple[Axis, ...]:
    rate = any("accuracy" in point for curve in methods.values() for point in curve)
    return AXES["rate" if rate else "number"]


def value_at(curve: Curve, axis: Axis, level: float) -> float:
    """Best value with at most this much dependence; between points of the envelope, on a line.

    A mixture of two neighbours would reach what lies between them. NaN below the least one.
    """
    sign = 1.0 if axis.metric == "rmse" else -1.0
    points = sorted(
        (point[axis.name], sign * point[axis.metric]) for point in curve if axis.name in point and axis.metric in point
    )
    if not points or level < points[0][0]:
        return float("nan")
    places, errors = np.array(points).T
    return sign * float(np.interp(level, places, np.minimum.accumulate(errors)))


def better(value: float, other: float, axis: Axis) -> float:
    """By how much: positive is less error, or more of what is good."""
    return other - value if axis.metric == "rmse" else value - other


def least(curve: Curve, axis: Axis) -> float:
    return min((point[axis.name] for point in curve if axis.name in point), default=float("nan"))


def chosen(validated: dict[str, Curve], axis: Axis) -> str:
    """The one variant of ours with the best value on validation rows."""
    values = {name: validation_value(validated, name, axis) for name in validated}
    values = {name: value for name, value in values.items() if not np.isnan(value)}
    if not values:
        return ""
    return (min if axis.metric == "rmse" else max)(values, key=lambda name: values[name])


def validation_value(validated: dict[str, Curve], name: str, axis: Axis) -> float:
    """Mean over the levels; one that is not reached counts as the worst point of all variants."""
    points = [p[axis.metric] for curve in validated.values() for p in curve if axis.metric in p]
    values = np.array([value_at(validated[name], axis, level) for level in axis.levels])
    if np.isnan(values).all():
        return float("nan")
    worst = (max if axis.metric == "rmse" else min)(points)
    return float(np.where(np.isnan(values), worst, values).mean())


def cost(curve: Curve, refits: bool) -> float:
    """CPU seconds of one model: the median over all bounds; of a shared fit, its first point."""
    times = [point["cpu_seconds"] for point in curve]
    return median(times) if refits else times[0]


def rows_of(curve: Curve) -> int:
    return int(max(point["fitted"] for point in curve))


Line = list[Any]


def by_axis(found: Curves, name: str, refits: dict[str, bool]) -> Iterator[Line]:
    """One line a method: its value at the levels of one kind of dependence."""
    levels = next(axis.levels for some in AXES.values() for axis in some if axis.name == name)
    yield [
        "data",
        "rows",
        "s",
        "metric",
        "method",
        *(f"{name} {level:g}" for level in levels),
        f"least {name}",
        "CPU s a model",
        "peak MB",
        "seeds",
    ]
    for place, methods in sorted(found.items()):
        for axis in (axis for axis in axes(methods) if axis.name == name):
            for method, curve in methods.items():
                if not np.isnan(least(curve, axis)):
                    values = [_text(value_at(curve, axis, level)) for level in levels]
                    yield [
                        place.data,
                        rows_of(curve),
                        place.s,
                        axis.metric,
                        method,
                        *values,
                        f"{least(curve, axis):.3g}",
                        f"{cost(curve, refits[method]):.3g}",
                        f"{curve[0]['peak_mb']:.0f}",
                        int(curve[0]["seeds"]),
                    ]


def _text(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def variants(found: Curves, validated: Curves) -> Iterator[Line]:
    """Which of ours is chosen, on validation rows alone."""
    yield ["data", "rows", "s", "dependence", "metric", "variant", "validation", "chosen"]
    for place in sorted(found):
        for axis in axes(found[place]):
            mine = chosen(validated.get(place, {}), axis)
            for name in validated.get(place, {}):
                value = _text(validation_value(validated[place], name, axis))
                yield [*place, axis.name, axis.metric, name, value, "yes" if name == mine else ""]


def compared(found: Curves, validated: Curves) -> Iterator[Line]:
    """Ours, the best of the others, and who is ahead, level by level."""
    yield [
        "data",
        "rows",
        "s",
        "dependence",
        "at",
        "metric",
        "ours",
        "variant",
        "best rival",
        "whose",
        "ours is better by",
        "standard error",
        "ahead",
    ]
    for place, methods in sorted(found.items()):
        for axis in axes(methods):
            mine = chosen(validated.get(place, {}), axis)
            for level in axis.levels:
                ours = value_at(methods.get(mine, []), axis, level)
                rivals = {
                    name: value_at(curve, axis, level) for name, curve in methods.items() if not name.startswith(OURS)
                }
                yield [*place, axis.name, level, axis.metric, *_duel(ours, mine, rivals, axis, methods)]


def _duel(ours: float, mine: str, rivals: dict[str, float], axis: Axis, methods: Any) -> Line:
    known = {name: value for name, value in rivals.items() if not np.isnan(value)}
    best = (min if axis.metric == "rmse" else max)(known, key=lambda name: known[name], default="")
    other = known.get(best, float("nan"))
    errors = [point[axis.error] for point in methods.get(mine, []) if axis.error in point]
    gain = better(ours, other, axis)
    if np.isnan(ours) or np.isnan(other):
        ahead = "a rival" if best else "nobody" if np.isnan(ours) else "ours alone"
    else:
        ahead = "ours" if gain > 0 else "a rival" if gain < 0 else "equal"
    by = "" if np.isnan(gain) else f"{gain:+.4f}"
    error = f"{median(errors):.4f}" if errors else ""
    return [_text(ours), mine or "–", _text(other), best or "–", by, error, ahead]


def findings(lines: list[Line]) -> Iterator[Line]:
    """A line for each problem and kind of dependence, where a rival wins first."""
    yield [
        "data",
        "rows",
        "s",
        "dependence",
        "metric",
        "a rival is ahead at",
        "which",
        "by at most",
        "ours is ahead at",
        "by up to",
        "only ours is so fair at",
        "standard error",
    ]
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[(*line[:4], line[5])].append(line)
    made = []
    for key, some in groups.items():
        lost, won, alone = ([line for line in some if line[-1] == who] for who in ("a rival", "ours", "ours alone"))
        names = list(dict.fromkeys(line[9] for line in lost))
        rivals = [_levels(lost), "; ".join(names) or "–", _most(lost)]
        ours = [_levels(won), _most(won), _levels(alone), some[0][-2]]
        made.append((len(lost), [*key, *rivals, *ours]))
    yield from (line for _, line in sorted(made, key=lambda pair: -pair[0]))


def _levels(lines: list[Line]) -> str:
    return ", ".join(f"{line[4]:g}" for line in lines) or "–"


def _most(lines: list[Line]) -> str:
    gains = [abs(float(line[10])) for line in lines if line[10]]
    return f"{max(gains):.4f}" if gains else "–"


def speeds(found: Curves, validated: Curves, refits: dict[str, bool]) -> Iterator[Line]:
    """CPU seconds of one model over ours on as many rows, and who is then more accurate."""
    yield [
        "data",
        "rows",
        "s",
        "method",
        "CPU s a model",
        "ours",
        "ratio",
        "metric",
        "at share",
        "its value",
        "value of ours",
        "variant",
    ]
    for place, methods in sorted(found.items()):
        axis = axes(methods)[0]
        mine = chosen(validated.get(place, {}), axis)
        own = methods.get(mine)
        for name, curve in methods.items() if own else ():
            if not name.startswith(OURS) and rows_of(curve) == rows_of(own or []):
                theirs, time = cost(curve, refits[name]), cost(own or [], refits[mine])
                values = [_text(value_at(c, axis, axis.middle)) for c in (curve, own or [])]
                yield [
                    *place,
                    name,
                    f"{theirs:.3g}",
                    f"{time:.3g}",
                    f"{theirs / time:.3g}",
                    axis.metric,
                    axis.middle,
                    *values,
                    mine,
                ]


def ends(path: Path) -> Iterator[Line]:
    """Who was stopped, and who failed with what."""
    yield ["data", "rows", "s", "method", "seed", "note"]
    last = {key_of(line): line for line in read_table(path) if line["note"]}
    for line in last.values():
        if line["note"] != "done":
            yield [line[name] for name in ("data", "rows", "s", "method", "seed", "note")]


def report(path: Path) -> None:
    """Write the tables beside the points, draw, and print what was found."""
    from benchmarks.peers import METHODS
    from benchmarks.peers._draw import draw

    refits = {name: method.refits for name, method in METHODS.items()}
    found, validated = curves(path), curves(path, "validation")
    for place, some in validated.items():  # who was not run on test rows cannot be chosen
        validated[place] = {name: c for name, c in some.items() if name in found.get(place, {})}
    duels = list(compared(found, validated))
    names = sorted({axis.name for methods in found.values() for axis in axes(methods)})
    tables: dict[str, list[Line]] = {
        **{name: list(by_axis(found, name, refits)) for name in names},
        "findings": list(findings(duels[1:])),
        "levels": duels,
        "variants": list(variants(found, validated)),
        "speed": list(speeds(found, validated, refits)),
        "ends": list(ends(path)),
    }
    for name, lines in tables.items():
        save_table(path.parent / f"peers_{name}.csv", lines, *stamps(path))
    for line in tables["findings"]:
        print(*line, sep=" | ", flush=True)
    for data in {place.data for place in found}:
        draw(data, found, validated, path.parent / f"peers_{Path(data).stem}.svg")

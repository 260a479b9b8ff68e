"""Repeat an experiment over seeds; keep what is done, so that a run may be broken off and go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.paper.drawing import draw_panels, to_files
from benchmarks.paper.experiment import Experiment
from scalefair._files import write_atomically


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run gives.

    Parameters
    ----------
    values, table, claims : data frames
        All seeds, what is set beside the print, and what came of the claims.
    files : list of Path
        What was written.
    """

    values: pd.DataFrame
    table: pd.DataFrame
    claims: pd.DataFrame
    files: list[Path]


def run(
    experiment: Experiment,
    folder: Path,
    *,
    quick: bool = False,
    seeds: Iterable[int] | None = None,
    fresh: bool = False,
    tell: Callable[[int, int], object] = lambda *_: None,
) -> Outcome:
    """Compute the seeds that are not there yet, and write tables and figures of all that are.

    Parameters
    ----------
    experiment : Experiment
    folder : Path
        Made if need be. Gets NAME_trials.csv, which is written after every seed, NAME.csv,
        NAME_claims.csv, NAME.svg and NAME.png, NAME being ``toy1`` or ``toy1-quick``.
    quick : bool
        The small setting.
    seeds : iterable of int, optional
        By default as many as the setting has, from 0.
    fresh : bool
        Forget earlier seeds.
    tell : callable (done, total)
        Called before every seed, and at the end.
    """
    setting = experiment.quick if quick else experiment.full
    wanted = list(range(setting.seeds) if seeds is None else seeds)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{experiment.name}-quick" if quick else experiment.name
    path = folder / f"{stem}_trials.csv"
    if fresh:
        path.unlink(missing_ok=True)
    for done, seed in enumerate(wanted):
        tell(done, len(wanted))
        if seed not in set(earlier(path)["seed"]):
            _keep(path, experiment.trial(seed, setting), seed)
    tell(len(wanted), len(wanted))
    return written(experiment, earlier(path), folder, stem)


def written(experiment: Experiment, values: pd.DataFrame, folder: Path, stem: str) -> Outcome:
    """Write tables and figures of the values of all seeds."""
    table, claims = experiment.table(values), experiment.claims(values)
    tables = [folder / f"{stem}{end}.csv" for end in ("", "_claims", "_trials")]
    write_csv(tables[0], table)
    write_csv(tables[1], claims)
    # From the table as it was written: what is drawn can be read there.
    panels = experiment.panels(pd.read_csv(tables[0]))
    pictures = to_files(draw_panels(panels), folder / stem)
    return Outcome(values, table, claims, [*tables, *pictures])


def earlier(path: Path) -> pd.DataFrame:
    """Return the values of the seeds that are done; none where there is no file."""
    if not path.exists():
        return pd.DataFrame({"seed": pd.Series(dtype="int64")})
    return pd.read_csv(path)


def _keep(path: Path, trial: pd.DataFrame, seed: int) -> None:
    """Add a seed to those that are there now: another run may have added some, even this one."""
    others = earlier(path)
    others = others[others["seed"] != seed]
    values = pd.concat([others, trial], ignore_index=True) if len(others) else trial
    write_csv(path, values.sort_values("seed", kind="stable"))


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table with five digits, whole or not at all."""
    write_atomically(path, table.to_csv(index=False, float_format="%.5g").encode())

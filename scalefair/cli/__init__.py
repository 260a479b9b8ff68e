"""The command line. It loads the rest of the package only when a command needs it."""

from scalefair.cli import audit, fit, frontier, moments, predict
from scalefair.cli._group import main

for _command in (
    frontier.frontier,
    fit.fit,
    predict.predict,
    audit.audit,
    moments.moments,
    moments.merge,
):
    main.add_command(_command)

__all__ = ["main"]

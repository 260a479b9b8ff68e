"""The guide to the command line runs as it is printed; digits may differ between machines."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli_tools import call

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "command_line.md"
NUMBER = re.compile(r"\d[\d,.]*(?<![,.])")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL)


def sessions():
    """Each command and the lines printed below it."""
    for block in blocks("console"):
        for part in block.split("$ scalefair ")[1:]:
            command, _, printed = part.partition("\n")
            yield shlex.split(command), printed


def without_numbers(text):
    return NUMBER.sub("#", text)


def test_the_guide_names_every_option_it_uses():
    found = [command for command, _ in sessions()]
    assert len(found) == 9
    for command in found:
        shown = call(command[0], "--help").output
        assert all(word in shown for word in command if word.startswith("--"))


@pytest.mark.slow
def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(block, {})
    for command, printed in sessions():
        assert without_numbers(call(*command).output) == without_numbers(printed), command

"""The guide to audits runs as it is printed."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "auditing.md"


@pytest.mark.slow
def test_the_guide_to_audits_runs(capsys):
    text = GUIDE.read_text("utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, names)
    printed = capsys.readouterr().out
    for line in ("Audit of 16,281 rows", "- age explains 20.5 %", "sex         0.0758  0.0036"):
        assert line in printed
        assert line in text

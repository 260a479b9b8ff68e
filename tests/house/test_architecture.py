"""The rules of the house that import-linter, ruff and mypy do not check themselves."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import scalefair

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400
LIGHT = ("dask", "distributed", "pandas", "matplotlib")

# A word before the slash makes it a piece of an address, not a path of somebody's machine.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|Users|work|opt|mnt)/")
NOT_OURS = {"auto_examples", "__pycache__", "build", "dist", "htmlcov", "_build", "scalefair-report"}


def _walked(folder: Path) -> Iterator[Path]:
    """The files of the checkout, without those that tools have left there."""
    for path in sorted(folder.iterdir()):
        ours = path.name not in NOT_OURS and (path.name == ".ci" or path.name[0] != ".")
        if path.is_file() and path.name not in ("pyvenv.cfg", ".git"):
            yield path
        elif path.is_dir() and ours and not (path / "pyvenv.cfg").exists():
            yield from _walked(path)


def fresh(code: str, cwd: Path) -> str:
    """Output of `code` in a new interpreter that finds the same scalefair as this one."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


def test_no_file_is_long():
    folders = ("scalefair", "tests", "benchmarks", "docs")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert files
    lines = {file.name: len(file.read_text("utf-8").splitlines()) for file in files}
    assert {name: n for name, n in lines.items() if n > MAX_LINES} == {}


def test_no_text_names_a_machine():
    texts = ((path, path.read_bytes()) for path in _walked(ROOT))
    names = [path for path, text in texts if MACHINE_PATH.search(text.decode(errors="replace"))]
    assert names == []


@pytest.mark.processes
def test_importing_scalefair_is_light(tmp_path):
    code = f"import sys\nimport scalefair\nprint(*(m for m in {LIGHT} if m in sys.modules))"
    assert fresh(code, tmp_path).split() == []


@pytest.mark.processes
def test_every_public_name_exists(tmp_path):
    assert len(set(scalefair.__all__)) == len(scalefair.__all__) > 0
    code = "import scalefair as m\nprint(*(n for n in m.__all__ if not hasattr(m, n)))"
    assert fresh(code, tmp_path).split() == []


@pytest.mark.processes
def test_every_public_name_exists_without_matplotlib(tmp_path):
    """It is an extra, and a report that lacks it says so before the fit, not after."""
    code = "import sys\nsys.modules['matplotlib'] = None\nimport scalefair as m\n[getattr(m, n) for n in m.__all__]\n"
    report = "try:\n    import scalefair.report\nexcept ImportError as error:\n    print(error.name)"
    assert fresh(code + report, tmp_path).split() == ["matplotlib"]


@pytest.mark.processes
def test_matplotlib_is_not_loaded_beside_a_fit(tmp_path):
    code = "import sys\nimport scalefair.report\nprint('matplotlib' in sys.modules)"
    assert fresh(code, tmp_path).split() == ["False"]


def test_ci_tests_the_installed_package():
    in_checkout = Path(scalefair.__file__).resolve().is_relative_to(ROOT)
    assert not (in_checkout and os.environ.get("SCALEFAIR_CI"))

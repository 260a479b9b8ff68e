"""The rules of the house, read from the source by `ast`, so that import-linter has a witness."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import scalefair

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "scalefair"
MAX_LINES = 400

LAYERS = [  # top to bottom; rooms on one line do not import each other
    {"cli"},
    {"any_model"},
    {"report"},
    {"persistence", "exporting", "datasets"},
    {"estimators"},
    {"auditing"},
    {"plots"},
    {"_checks"},
    {"solve"},
    {"measures"},
    {"penalties", "losses"},
    {"statistics"},
    {"data"},
    {"maps", "stream", "encoding"},
    {"kernels"},
    {"_linalg", "_jit", "_files", "_frames", "_hash", "_digest", "_distinct"},
    {"_typing", "errors"},
]
DEPTH = {room: depth for depth, layer in enumerate(LAYERS) for room in layer}

HOMES = {
    "numba": ("_jit/",),
    "dask": ("stream/",),
    "distributed": ("stream/",),
    "matplotlib": ("plots/",),
    "pandas": ("_frames.py", "datasets/"),
    "pyarrow": ("stream/files/", "_frames.py"),
    "benchmarks": (),  # they stand outside the package and are not installed
}
LIGHT = ("dask", "distributed", "pandas", "matplotlib")

# A word before the slash makes it a piece of an address, not a path of somebody's machine.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|Users|work|opt|mnt)/")
NOT_OURS = {"__pycache__", "build", "dist", "htmlcov", "_build", "scalefair-report"}


class Import(NamedTuple):
    """One imported name: `from a.b import c` is `a.b.c`."""

    name: str
    line: int
    typing_only: bool


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING"


def _names(node: ast.AST, path: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    package = ["scalefair", *Path(path).parent.parts]
    base = package[: len(package) + 1 - node.level] if node.level else []
    prefix = ".".join([*base, *([node.module] if node.module else [])])
    return [f"{prefix}.{alias.name}" for alias in node.names]


def imports(node: ast.AST, path: str, typing_only: bool = False) -> Iterator[Import]:
    """Every import below `node`, in `path` relative to the package."""
    for child in ast.iter_child_nodes(node):
        annotation = typing_only or (_is_type_checking(node) and child in node.body)
        for name in _names(child, path):
            yield Import(name, child.lineno, annotation)
        yield from imports(child, path, annotation)


def _layer_error(room: str, target: str) -> str | None:
    if target == room or (target == "__version__" and room != "_jit") or room == "cli":
        return None
    if target not in DEPTH:
        return f"{target!r} is no room with a layer: import from the room that defines it"
    if room == "_jit":
        return f"_jit imports nothing of scalefair, but this is {target}"
    if DEPTH[target] <= DEPTH[room]:
        return f"{room} may not import {target}: imports point down"
    return None


def layer_errors(source: str, path: str) -> list[str]:
    """Imports of `path` that do not point down; the facade `__init__.py` may import any room."""
    room = Path(path).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):
        return []
    if room not in DEPTH:
        return [f"{path}: the room {room!r} has no layer"]
    found = (i for i in imports(ast.parse(source), path) if i.name.split(".")[0] == "scalefair")
    errors = ((i.line, _layer_error(room, [*i.name.split("."), ""][1])) for i in found)
    return [f"{path}:{line}: {error}" for line, error in errors if error]


def home_errors(source: str, path: str) -> list[str]:
    """Heavy dependencies imported away from home. Imports for annotations cost nothing."""
    errors = []
    for i in imports(ast.parse(source), path):
        library = i.name.split(".")[0]
        homes = HOMES.get(library, ("",))
        if not i.typing_only and not path.startswith(homes):
            errors.append(f"{path}:{i.line}: {library} is imported only in {', '.join(homes)}")
    return errors


def docstring_errors(source: str, path: str) -> list[str]:
    return [] if ast.get_docstring(ast.parse(source)) else [f"{path}: no module docstring"]


def length_errors(source: str, path: str) -> list[str]:
    n_lines = len(source.splitlines())
    return [f"{path}: {n_lines} lines, at most {MAX_LINES}"] if n_lines > MAX_LINES else []


def machine_path_errors(source: str, path: str) -> list[str]:
    lines = enumerate(source.splitlines(), 1)
    return [f"{path}:{n}: {line.strip()}" for n, line in lines if MACHINE_PATH.search(line)]


def _tracked() -> list[Path]:
    git = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        names = subprocess.run(git, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = []
    return [path for name in names if name and (path := ROOT / name).is_file()]


def _walked(folder: Path) -> Iterator[Path]:
    """Files of a checkout without git: what .gitignore names is left out by hand."""
    for path in sorted(folder.iterdir()):
        ours = path.name not in NOT_OURS and (path.name == ".ci" or path.name[0] != ".")
        if path.is_file() and path.name != "pyvenv.cfg":
            yield path
        elif path.is_dir() and ours and not (path / "pyvenv.cfg").exists():
            yield from _walked(path)


def texts() -> Iterator[tuple[str, str]]:
    for path in _tracked() or _walked(ROOT):
        content = path.read_bytes()
        if b"\0" not in content:
            yield content.decode(errors="replace"), path.relative_to(ROOT).as_posix()


def modules() -> list[tuple[str, str]]:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no modules in {PACKAGE}"
    return [(file.read_text("utf-8"), file.relative_to(PACKAGE).as_posix()) for file in files]


def fresh(code: str, cwd: Path) -> str:
    """Output of `code` in a new interpreter that finds the same scalefair as this one."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


def loaded_by(statement: str, cwd: Path) -> list[str]:
    code = f"import sys\n{statement}\nprint(*(m for m in {LIGHT} if m in sys.modules))"
    return fresh(code, cwd).split()


def missing_names(module: str, cwd: Path) -> list[str]:
    code = f"import {module} as m\nprint(*(n for n in m.__all__ if not hasattr(m, n)))"
    return fresh(code, cwd).split()


def lint_imports(folder: Path) -> str:
    # In its own interpreter: it configures logging and puts the folder first on sys.path.
    code = "from importlinter.cli import lint_imports\nprint(lint_imports(no_cache=True))"
    return fresh(code, folder)


RULES = [layer_errors, home_errors, docstring_errors, length_errors]


@pytest.mark.parametrize("rule", RULES)
def test_every_module_keeps_the_rule(rule):
    assert [error for source, path in modules() for error in rule(source, path)] == []


def test_no_long_file_outside_the_package():
    files = [f for folder in ("tests", "benchmarks", "docs") for f in (ROOT / folder).rglob("*.py")]
    assert files
    assert [error for f in files for error in length_errors(f.read_text("utf-8"), f.name)] == []


def test_no_text_names_a_machine():
    assert [error for source, path in texts() for error in machine_path_errors(source, path)] == []


def test_import_linter_has_the_same_layers():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers")
    lines = [line.replace("scalefair.", "").split("|") for line in layers]
    assert [{room.strip() for room in line} for line in lines] == LAYERS


def test_contributing_has_the_same_layers():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Rooms")[1]
    lines = text.split("```")[1].split("\n")[1:-1]
    assert [set(line.split(" | ")) for line in lines] == LAYERS


def test_import_linter_agrees():
    output = lint_imports(ROOT)
    assert output.splitlines()[-1] == "0", output


def test_importing_scalefair_is_light(tmp_path):
    assert loaded_by("import scalefair", tmp_path) == []


def test_every_public_name_exists(tmp_path):
    assert len(set(scalefair.__all__)) == len(scalefair.__all__) > 0
    assert missing_names("scalefair", tmp_path) == []


def test_ci_tests_the_installed_package():
    in_checkout = Path(scalefair.__file__).resolve().is_relative_to(ROOT)
    assert not (in_checkout and os.environ.get("SCALEFAIR_CI"))


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (layer_errors, "kernels.py", "from scalefair.cli import main"),
        (layer_errors, "kernels.py", "import scalefair.solve.ridge.primal"),
        (layer_errors, "kernels.py", "from scalefair import statistics"),
        (layer_errors, "kernels.py", "def f():\n    from scalefair import Moments"),
        (layer_errors, "kernels.py", "import scalefair"),
        (layer_errors, "maps/fourier.py", "from ..stream import arrays"),
        (layer_errors, "maps/fourier.py", "from .. import encoding"),
        (layer_errors, "maps/__init__.py", "from ..solve.primal import solve"),
        (layer_errors, "_jit/distances.py", "from scalefair._typing import Array"),
        (layer_errors, "attic.py", ""),
        (home_errors, "kernels.py", "import numba"),
        (home_errors, "stream_utils.py", "import dask.array as da"),
        (home_errors, "solve/primal.py", "from distributed import Client"),
        (home_errors, "datasets/toy.py", "def f():\n    import dask.array as da"),
        (home_errors, "report/html.py", "def f():\n    import matplotlib.pyplot as plt"),
        (home_errors, "estimators/ridge.py", "def f():\n    import pandas as pd"),
        (home_errors, "stream/arrays.py", "import pyarrow as pa"),
        (home_errors, "cli/fit.py", "def f():\n    from benchmarks.paper import load"),
        (home_errors, "__init__.py", "if True:\n    import pandas"),
        (home_errors, "__init__.py", "if not TYPE_CHECKING:\n    import pandas"),
        (home_errors, "__init__.py", "if TYPE_CHECKING:\n    x = 1\nelse:\n    import pandas"),
        (docstring_errors, "kernels.py", "# a comment\nx = 'not a docstring'"),
        (length_errors, "kernels.py", "x = 0\n" * (MAX_LINES + 1)),
        (machine_path_errors, "a.md", "see /" + "home/me/data"),
        (machine_path_errors, "a.md", "'/" + "root/.cache'"),
    ],
)
def test_a_broken_rule_is_found(rule, path, source):
    assert len(rule(source, path)) == 1


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (layer_errors, "cli.py", "from scalefair import FairRidge, load"),
        (layer_errors, "_files.py", "from scalefair import __version__"),
        (layer_errors, "maps/fourier.py", "from ..kernels import RBF\nfrom . import base"),
        (layer_errors, "__init__.py", "from .estimators import FairRidge"),
        (layer_errors, "kernels.py", "import scalefairer, numpy"),
        (home_errors, "_jit/distances.py", "import numba"),
        (home_errors, "report/html.py", "if t.TYPE_CHECKING:\n    import pandas as pd"),
        (length_errors, "kernels.py", "x = 0\n" * MAX_LINES),
        (machine_path_errors, "a.md", "https://example.org/" + "home/me and ~/" + "work/x"),
    ],
)
def test_a_kept_rule_is_not_reported(rule, path, source):
    assert rule(source, path) == []


def test_heavy_imports_and_missing_names_are_found(tmp_path):
    (tmp_path / "hollow.py").write_text("__all__ = ['there', 'absent']\nthere = 1\n")
    assert loaded_by("import pandas", tmp_path) == ["pandas"]
    assert missing_names("hollow", tmp_path) == ["absent"]


def _tables(folder, _):
    return ["data"] if Path(folder).name == "datasets" else []


def test_import_linter_finds_an_import_that_points_up(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(PACKAGE, tmp_path / "scalefair", ignore=_tables)
    with (tmp_path / "scalefair/_typing.py").open("a") as lowest:
        lowest.write("\nimport scalefair.cli\n")
    output = lint_imports(tmp_path)
    assert output.splitlines()[-1] == "1"
    assert "scalefair._typing -> scalefair.cli" in output

"""Check what is inside a wheel and an sdist; the checkout is the current folder.

Every file of the package is there and nothing else; licences, of the data too; hashes of RECORD;
no path of somebody's machine, no secret, nothing compiled or hidden; times that say nothing.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(?:home|root|Users|work|opt|mnt|tmp/[\w.]+)/")
SECRETS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_\w{36}|xox[baprs]-[\w-]{10}"
    rb"|pypi-[\w-]{50}|(?i:password|passwd|secret|api_?key)\s*[=:]\s*['\"][^'\"]{6,}['\"]"
)
LARGEST = 5_000_000
SDIST_MUST = ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "PKG-INFO")
DATA_LICENCE = "scalefair/datasets/data/LICENSE-DATA.md"


def tracked(folder: str) -> set[str]:
    """The files of a folder of the checkout that belong there."""
    found = subprocess.run(["git", "ls-files", folder], capture_output=True, text=True, check=False)
    if found.stdout:
        return set(found.stdout.split("\n")) - {""}
    paths = (p for p in Path(folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.as_posix() for p in paths}


def problems_of_file(name: str, content: bytes) -> list[str]:
    """What no file of an artefact may have."""
    text = gzip.decompress(content) if name.endswith(".gz") else content
    found = []
    parts = Path(name).parts
    if any(part.startswith(".") and part != ".gitignore" for part in parts):
        found.append("hidden")
    if name.endswith((".pyc", ".so", ".nbi", ".nbc")) or "__pycache__" in parts:
        found.append("compiled")
    if len(content) > LARGEST:
        found.append(f"{len(content)} bytes")
    if not name.startswith("tests/") and (match := MACHINE_PATH.search(text)):
        found.append(f"the path of a machine: {match.group().decode()}")
    if match := SECRETS.search(text):
        found.append(f"a secret: {match.group()[:20].decode()}…")
    return [f"{name}: {problem}" for problem in found]


def check_wheel(path: Path, epoch: int) -> tuple[list[str], int]:
    """Problems of a wheel, and how many files it has."""
    with zipfile.ZipFile(path) as wheel:
        files = {info.filename: wheel.read(info) for info in wheel.infolist()}
        dates = {info.date_time for info in wheel.infolist()}
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    ours, expected = {n for n in files if not n.startswith(info)}, tracked("scalefair")
    problems = [f"{name}: missing in the wheel" for name in sorted(expected - ours)]
    problems += [f"{name}: does not belong in the wheel" for name in sorted(ours - expected)]
    for licence in ("LICENSE", DATA_LICENCE):
        if f"{info}/licenses/{licence}" not in files:
            problems.append(f"{licence}: missing in {info}/licenses")
    if "scalefair/py.typed" not in files:
        problems.append("py.typed: missing")
    year, month, day, hour, minute, second = time.gmtime(epoch)[:6]
    if dates != {(year, month, day, hour, minute, second // 2 * 2)}:
        problems.append(f"times {dates} are not SOURCE_DATE_EPOCH")
    problems += wrong_records(files, f"{info}/RECORD")
    return problems + [p for n, c in files.items() for p in problems_of_file(n, c)], len(files)


def wrong_records(files: dict[str, bytes], record: str) -> list[str]:
    """Files that RECORD does not list with the right hash."""
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(files[record].decode()))}
    wrong = [name for name in files if name not in rows]
    for name, stated in rows.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=")
        if name != record and stated != f"sha256={digest.decode()}":
            wrong.append(name)
    return [f"{name}: wrong in RECORD" for name in wrong]


def check_sdist(path: Path, epoch: int) -> tuple[list[str], int]:
    """Problems of an sdist, and how many files it has."""
    files, problems = {}, []
    with tarfile.open(path) as sdist:
        for member in sdist.getmembers():
            name = member.name.partition("/")[2]
            if not member.isfile() or member.name.startswith("/") or ".." in Path(name).parts:
                problems.append(f"{member.name}: no plain file inside")
                continue
            if (member.mtime, member.uid, member.uname) != (epoch, 0, ""):
                problems.append(f"{name}: tells when or by whom it was packed")
            files[name] = sdist.extractfile(member).read()
    wanted = set(SDIST_MUST) | tracked("scalefair") | tracked("tests")
    problems += [f"{name}: missing in the sdist" for name in sorted(wanted - set(files))]
    return problems + [p for n, c in files.items() for p in problems_of_file(n, c)], len(files)


def main(paths: list[str]) -> int:
    """Print what is wrong; return 1 if anything is."""
    epoch, bad = int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 0
    for path in map(Path, paths):
        check = check_wheel if path.suffix == ".whl" else check_sdist
        problems, count = check(path, epoch)
        print(*problems, sep="\n", end="\n" if problems else "")
        print(f"{path.name}: {count} files, {path.stat().st_size} bytes, {len(problems)} problems")
        bad += len(problems)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

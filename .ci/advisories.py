"""Known weaknesses of pinned packages, from a copy of github.com/pypa/advisory-database.

python .ci/advisories.py FOLDER REQUIREMENTS

For machines that pypi.org does not answer. It knows what its copy knows: its newest entry is
printed. Exit 1 if something is found.
"""

import sys
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CANARY = "pillow", Version("9.0.0")
"""Known to be weak: a folder that does not know so is not the database."""


def main(folder: Path, requirements: Path) -> None:
    """Look up every pin."""
    known = {canonicalize_name(path.name): path for path in (folder / "vulns").iterdir()}
    if not list(weaknesses(known, *CANARY)):
        raise SystemExit(f"{folder} knows nothing about {CANARY[0]} {CANARY[1]}")
    pins = [Requirement(line) for line in requirements.read_text().splitlines() if "==" in line]
    found = [
        f"{pin}: {weakness}"
        for pin in pins
        for weakness in weaknesses(known, pin.name, Version(next(iter(pin.specifier)).version))
    ]
    print("\n".join(found), end="\n" if found else "")
    newest = max(str(read(path)["modified"]) for path in folder.glob("vulns/*/PYSEC-20*.yaml"))
    print(f"advisories up to {newest[:10]}: {len(found)} for {len(pins)} packages")
    sys.exit(bool(found))


def weaknesses(known, name, version):
    """Yield the advisories that have this version among the affected ones."""
    for path in sorted(known.get(canonicalize_name(name), Path("none")).glob("*.yaml")):
        advisory = read(path)
        affected = advisory.get("affected", [])
        if not advisory.get("withdrawn") and any(is_affected(version, part) for part in affected):
            yield f"{advisory['id']} {' '.join(advisory.get('aliases', []))}"


def read(path):
    """Return an advisory."""
    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def is_affected(version, part):
    """Say whether a version is listed, or in a range."""
    ranges = [found["events"] for found in part.get("ranges", []) if found["type"] == "ECOSYSTEM"]
    return str(version) in map(str, part.get("versions", [])) or any(is_inside(version, events) for events in ranges)


def is_inside(version, events):
    """Go through introductions and fixes, which stand in order."""
    inside = False
    for event in events:
        for kind, at in event.items():
            limit = Version(str(at))
            if kind == "introduced" and version >= limit:
                inside = True
            elif (kind == "fixed" and version >= limit) or (kind == "last_affected" and version > limit):
                inside = False
    return inside


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""The files of a path in order, and the columns that the names of their folders give."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath, stat
from typing import Any
from urllib.parse import unquote

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

PathOrPaths = str | PathLike[str] | Iterable[str | PathLike[str]]

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_HIDDEN = ("_", ".")


@dataclass(frozen=True)
class Listing:
    """Files in the order of their rows; `keys` are columns by folder: {"a": "1"} for ``a=1/part.parquet``."""

    filesystem: Any
    paths: tuple[str, ...]
    keys: tuple[dict[str, str | None], ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names for people: local paths as they are, others with their protocol."""
        return tuple(_name(self.filesystem, path) for path in self.paths)


def find_files(path: PathOrPaths, filesystem: Any, endings: tuple[str, ...]) -> Listing:
    """Return the files that `path` means: files, folders, patterns of ``*``, ``?``, ``[]`` or URLs.

    Of folders all files below with one of the `endings` count, except those whose name or folder
    begins with "_" or ".". Folders and patterns come in natural order, part.2 before part.10, which
    is the order they were written in; a list in the order given.
    """
    locations = [_location(item, filesystem) for item in _as_list(path)]
    fs = locations[0][0]
    if any((type(o), o.protocol) != (type(fs), fs.protocol) for o, _ in locations):
        raise ValueError(f"path={path!r} is on several filesystems; give files of one of them")
    pairs = [pair for _, where in locations for pair in _expand(fs, where, endings)]
    paths = tuple(file for file, _ in pairs)
    twice = first_repeated(paths)
    if twice is not None:
        raise ValueError(f"{_name(fs, twice)}: listed twice, so its rows would count twice")
    return Listing(fs, paths, tuple(_keys(file, base) for file, base in pairs))


def first_repeated(items: Iterable[str]) -> str | None:
    """Return the first item that occurs twice, if any does."""
    return next((item for item, count in Counter(items).items() if count > 1), None)


def _as_list(path: PathOrPaths) -> list[str]:
    items = [path] if isinstance(path, str | PathLike) else path
    if not isinstance(items, Iterable) or isinstance(items, bytes):
        raise TypeError(f"path={path!r} is a {type(path).__name__}; give a path or a list of paths")
    listed = [fspath(item) for item in items]
    if not listed:
        raise ValueError(f"path={path!r} names no file; give at least one")
    return listed


def _location(path: str, filesystem: Any) -> tuple[Any, str]:
    if filesystem is None:
        fs, where = fsspec.core.url_to_fs(path)
        return fs, str(where)
    if not isinstance(filesystem, fsspec.AbstractFileSystem):
        filesystem = ArrowFSWrapper(filesystem)
    return filesystem, str(filesystem._strip_protocol(path))


def _expand(fs: Any, path: str, endings: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (file, folder below which names like a=1 count) for each file, in order."""
    if fs.isfile(path):
        return [(path, path)]
    if fs.isdir(path):
        files = [file for file in _visible(fs.find(path), path) if file.endswith(endings)]
        if not files:
            raise ValueError(f"{_name(fs, path)}: the folder holds no {endings[0]} file; give a file, or its folder")
        return [(file, path) for file in files]
    first = re.search(r"[*?\[]", path)
    if first is None:
        if isinstance(fs, LocalFileSystem):
            with suppress(FileNotFoundError, NotADirectoryError):
                stat(path)  # PermissionError where a folder on the way is closed
        raise FileNotFoundError(f"{_name(fs, path)}: no such file or folder; check the path")
    base = path[: first.start()].rpartition("/")[0]
    matches = _visible(fs.glob(path), base)
    if not matches:
        raise FileNotFoundError(f"{_name(fs, path)}: the pattern matches no file; check the path")
    return [(file, base) for match in matches for file, _ in _expand(fs, match, endings)]


def _visible(files: Iterable[str], base: str) -> list[str]:
    def shown(file: str) -> bool:
        names = file.removeprefix(base).split("/")
        return not any(name.startswith(_HIDDEN) for name in names)

    return sorted(filter(shown, files), key=_natural)


def _natural(path: str) -> tuple[list[str | int], str]:
    parts = re.split(r"(\d+)", path)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], path


def _keys(file: str, base: str) -> dict[str, str | None]:
    folders = [folder.partition("=") for folder in file.removeprefix(base).split("/")[:-1]]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, equals, value in folders if equals}


def _name(fs: Any, path: str) -> str:
    own = isinstance(fs, LocalFileSystem | ArrowFSWrapper)
    return path if own else str(fs.unstrip_protocol(path))

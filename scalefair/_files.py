"""One-file container of arrays and plain values: safetensors and JSON, written atomically.

Reading runs no code: arrays come from safetensors, everything else from JSON. A checksum over both
detects damaged files. A model of scikit-learn is an array of bytes by skops.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sklearn.base import BaseEstimator

from scalefair.errors import InputError, UnsavableError

SCHEMA = 2  # Version of the container. Files of a later version are refused
OLDEST = {"model": 2}  # The first version that is still read, by kind; 1 for all others
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # Errors of writing, which do not say where
LARGEST_HEADER = 2**25  # Bytes of JSON at most, in writing and reading: parsed, they take some twenty times as much
MOST_LISTS = 10**6  # Lists and objects in the JSON at most; an empty one is two bytes of text and 60 of memory


MARK = b'"sha256":"'
NO_SUM = b"0" * 64

Arrays = Mapping[str, NDArray[Any]]


def write(path: str | os.PathLike[str], kind: str, arrays: Arrays, values: Any) -> None:
    """Write arrays and plain values of a `kind`, such as "moments", to a file, all or nothing."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = {
        "format": "scalefair",
        "schema": str(SCHEMA),
        "kind": kind,
        "values": json.dumps(values, sort_keys=True, allow_nan=True),
        "sha256": NO_SUM.decode(),
    }
    content = save(arrays, metadata=metadata)
    text = content[8 : 8 + int.from_bytes(content[:8], "little")].decode()
    if len(text) > LARGEST_HEADER or _lists(text) > MOST_LISTS:
        raise ValueError(
            f"{path} would hold {len(text)} bytes of text and {_lists(text)} lists, "
            f"{LARGEST_HEADER} and {MOST_LISTS} are the most that is read; pool rare levels of the "
            "categories, or drop identifiers"
        )
    # The sum is over the whole file with zeros in its own place.
    digest = hashlib.sha256(content).hexdigest().encode()
    at = content.index(MARK) + len(MARK)
    with replacing(path) as file:
        file.write(content[:at])
        file.write(digest)
        file.write(memoryview(content)[at + len(digest) :])


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary file beside `path`, then move it there in one step."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a file that takes the place of `path`, even a link; on an error it is removed."""
    target = Path(path)
    # Not by mkstemp: its files are private, and making them as readable as others takes a change
    # of the umask, which all threads share.
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            with suppress(OSError):  # there is none, or the file system has no permissions
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        with suppress(OSError):  # not every system lets a folder be opened, to sync its names
            handle = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            error.filename = os.fspath(target)
        raise


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, NDArray[Any]], Any]:
    """Return the arrays and values of a file that `write` made; ValueError if it is another, later or damaged."""
    # Opened once and not mapped into memory: others may replace or cut it in the meantime.
    with Path(path).open("rb") as file:
        text = _header(path, file)
        metadata = _metadata(path, _parsed(path, text.decode(errors="replace")), kind)
        file.seek(0)
        content = file.read()
    at = 8 + text.find(MARK) + len(MARK)
    digest = hashlib.sha256(content[:at] + NO_SUM)
    digest.update(memoryview(content)[at + len(NO_SUM) :])
    if metadata.get("sha256") != digest.hexdigest():
        raise ValueError(f"{path} is damaged: its checksum does not match; write it again")
    try:
        arrays = load(content)
        if any(array.dtype.kind not in "biuf" for array in arrays.values()):
            raise TypeError("no real numbers")
    except (SafetensorError, ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path} is damaged: its arrays are not those ({error!r:.200})") from None
    return arrays, _parsed(path, str(metadata.get("values")))


def _header(path: Any, file: BinaryIO) -> bytes:
    """Return the text at the beginning, after the eight bytes of its length."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(LARGEST_HEADER, os.fstat(file.fileno()).st_size - 8):
        raise InputError(f"{path} is damaged or not a scalefair file", "give one that scalefair wrote", where=str(path))
    return file.read(length)


def _lists(text: str) -> int:
    return text.count("[") + text.count("{")


def _parsed(path: Any, text: str) -> Any:
    if _lists(text) > MOST_LISTS:
        raise ValueError(f"{path} holds more than {MOST_LISTS} lists; no scalefair file does")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or not a scalefair file ({error})") from None


def _metadata(path: Any, header: Any, kind: str) -> dict[str, Any]:
    """Return the metadata in the header of a file, if it is of that kind."""
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != "scalefair":
        raise ValueError(f"{path} is not a scalefair file; expected one that holds {kind}")
    schema = str(metadata.get("schema", ""))
    if not (schema.isascii() and schema.isdecimal() and len(schema) < 9 and int(schema) <= SCHEMA):
        raise ValueError(f"{path} has schema {schema[:9]!r}, this version reads up to {SCHEMA}; update scalefair")
    if int(schema) < OLDEST.get(kind, 1):
        raise ValueError(
            f"{path} is a {kind} of schema {schema}, written before version 0.1.0; this version "
            f"reads those of schema {OLDEST[kind]} on: fit the model again"
        )
    if metadata.get("kind") != kind:
        raise ValueError(f"{path} holds {metadata.get('kind')!r:.50}, expected {kind!r}")
    return metadata


def by_skops(value: Any, where: str) -> bytes:
    """Return a scikit-learn model as written by skops, if skops trusts all its types."""
    try:
        from skops.io import dumps, get_untrusted_types  # type: ignore[import-untyped]

        content: bytes = dumps(value) if isinstance(value, BaseEstimator) else b""
        if content and not get_untrusted_types(data=content):
            return content
    except Exception:  # noqa: S110  # nosec B110 (not installed, or a type it does not know)
        pass
    raise unsavable(value, where)


def unsavable(value: Any, where: str) -> UnsavableError:
    """Return the error for an object, at `where`, that only pickle could store."""
    return UnsavableError(
        f"{where} is a {type(value).__name__}, which cannot be saved without pickle",
        "set it to a plain value (an int as random_state, a number of folds as cv, 'trees' or a "
        "model of scalefair as base_estimator), or use joblib or skops",
        where=where,
    )


def from_skops(content: bytes) -> Any:
    """Return a model of types that skops trusts; nothing in it is larger than it is written."""
    try:
        from skops.io import loads

        with ZipFile(BytesIO(content)) as parts:
            if sum(part.file_size for part in parts.infolist()) > len(content):
                raise ValueError("packed parts")
        return loads(content, trusted=[])
    except ImportError as error:
        raise ValueError("it holds a model of scikit-learn: pip install skops") from error
    except Exception as error:
        raise ValueError(f"a model of scikit-learn inside it is damaged ({error!r:.200})") from error


def plain(value: Any) -> Any:
    """Return the value as JSON knows it: no numpy, NaN as null, infinity as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return str(value) if isinstance(value, Path) else value

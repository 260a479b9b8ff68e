"""One-file container of arrays and plain values: safetensors and JSON, written atomically.

Reading runs no code: arrays come from safetensors, everything else from JSON. A checksum over both
tells a damaged file from a whole one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

SCHEMA = 1
"""Version of the container. Files of a later version are refused."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing, which do not say where."""

LARGEST_HEADER = 2**25
"""Bytes of JSON at most, in writing and reading: parsed, they take some twenty times as much."""

MOST_LISTS = 10**6
"""Lists and objects in the JSON at most; an empty one is two bytes of text and 60 of memory."""

DTYPES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8,
          "F16": 2, "F32": 4, "F64": 8}  # fmt: skip
"""Bytes of the numbers that a file may hold."""

MARK = b'"sha256":"'
NO_SUM = "0" * 64

Arrays = Mapping[str, NDArray[Any]]


def write(path: str | os.PathLike[str], kind: str, arrays: Arrays, values: Any) -> None:
    """Write arrays and JSON-able values to one file, all or nothing.

    Parameters
    ----------
    path : path
        Where to write; a file that is there is replaced only once the new one is complete.
    kind : str
        What the file holds, such as "moments"; checked when it is read.
    arrays : mapping from str to array
        Numeric arrays.
    values : JSON-able
        Everything else.
    """
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = {
        "format": "scalefair",
        "schema": str(SCHEMA),
        "kind": kind,
        "values": json.dumps(values, sort_keys=True, allow_nan=True),
        "sha256": NO_SUM,
    }
    content = save(arrays, metadata=metadata)
    length = int.from_bytes(content[:8], "little")
    if length > LARGEST_HEADER or metadata["values"].count("[") > MOST_LISTS // 2:
        raise ValueError(
            f"{path} would hold {length} bytes of text, {LARGEST_HEADER} are the most that is "
            "read; pool rare levels of the categories, or drop identifiers"
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
    """Give a file to write that takes the place of `path` at the end, or vanishes on an error.

    Whoever looks finds the old file or the new one, never a part.
    """
    target = Path(path)
    # Not by mkstemp: its files are private, and making them as readable as others takes a change
    # of the umask, which all threads share.
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            error.filename = os.fspath(target)
        raise


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, NDArray[Any]], Any]:
    """Return the arrays and values of a file that `write` made.

    Nothing is allocated that the file does not hold: shapes and sizes are compared with its length
    first, and text has a limit.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no such file, of another kind, of a later schema, or damaged.
    """
    found = _checksum(path)
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata = file.metadata() or {}
            _check_kind(path, metadata, kind)
            if metadata.get("sha256") != found:
                raise ValueError(f"{path} is damaged: its checksum does not match; write it again")
            _check_sizes(path, file)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no scalefair file ({error})") from error
    return arrays, _values(path, metadata.get("values", ""))


def _checksum(path: Any) -> str:
    """Sum of the file with zeros in the place of its own; "" where it has none."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(LARGEST_HEADER, size - 8):
            raise ValueError(
                f"{path} is damaged or no scalefair file: its header has {length} bytes, the file "
                f"{size} (a header has {LARGEST_HEADER} at most)"
            )
        header = file.read(length)
        before, mark, rest = header.partition(MARK)
        if not mark or MARK in rest:
            return ""
        zeros = NO_SUM.encode()
        digest = hashlib.sha256(start + before + mark + zeros + rest[len(zeros) :])
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _check_kind(path: Any, metadata: Mapping[str, str], kind: str) -> None:
    if metadata.get("format") != "scalefair":
        raise ValueError(f"{path} is no scalefair file; expected one that holds {kind}")
    schema = metadata.get("schema", "")
    if not (schema.isascii() and schema.isdecimal() and len(schema) < 9 and int(schema) <= SCHEMA):
        raise ValueError(
            f"{path} has schema {schema[:9]!r}, this version reads up to {SCHEMA}; update scalefair"
        )
    if metadata.get("kind") != kind:
        raise ValueError(f"{path} holds {metadata.get('kind')!r}, expected {kind!r}")


def _check_sizes(path: Any, file: Any) -> None:
    """Compare what the header promises with what is there, before anything is allocated."""
    size, total = os.stat(path).st_size, 0
    for name in file.keys():  # noqa: SIM118
        part = file.get_slice(name)
        if part.get_dtype() not in DTYPES:
            raise ValueError(f"{path} holds numbers of type {part.get_dtype()}, which none has")
        total += DTYPES[part.get_dtype()] * math.prod(part.get_shape())
        if total > size:
            raise ValueError(f"{path} is damaged: its arrays are larger than the file")


def _values(path: Any, text: str) -> Any:
    if text.count("[") + text.count("{") > MOST_LISTS:
        raise ValueError(f"{path} holds more than {MOST_LISTS} lists; no scalefair file does")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no valid JSON ({error})") from None

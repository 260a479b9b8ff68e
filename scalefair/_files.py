"""One-file container of arrays and plain values: safetensors and JSON, written atomically.

Reading runs no code: arrays come from safetensors, everything else from JSON. A checksum over both
tells a damaged file from a whole one.
"""

from __future__ import annotations

import errno
import hashlib
import json
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
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(values, sort_keys=True, allow_nan=True)
    metadata = {
        "format": "scalefair",
        "schema": str(SCHEMA),
        "kind": kind,
        "values": text,
        "sha256": _checksum(arrays, kind, text),
    }
    write_atomically(path, save(arrays, metadata=metadata))


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

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no such file, of another kind, of a later schema, or damaged.
    """
    with Path(path).open("rb"):  # an OSError of the operating system, not of safetensors
        pass
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata = file.metadata() or {}
            _check_kind(path, metadata, kind)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no scalefair file ({error})") from error
    text = metadata.get("values", "")
    if metadata.get("sha256") != _checksum(arrays, kind, text):
        raise ValueError(f"{path} is damaged: its checksum does not match; write it again")
    return arrays, json.loads(text)


def _check_kind(path: Any, metadata: Mapping[str, str], kind: str) -> None:
    if metadata.get("format") != "scalefair":
        raise ValueError(f"{path} is no scalefair file; expected one that holds {kind}")
    schema = metadata.get("schema", "")
    if not schema.isdecimal() or int(schema) > SCHEMA:
        raise ValueError(
            f"{path} has schema {schema!r}, this version reads up to {SCHEMA}; update scalefair"
        )
    if metadata.get("kind") != kind:
        raise ValueError(f"{path} holds {metadata.get('kind')!r}, expected {kind!r}")


def _checksum(arrays: Arrays, kind: str, text: str) -> str:
    digest = hashlib.sha256(f"{kind}\n{text}\n".encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

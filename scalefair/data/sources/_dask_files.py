"""Files that the workers of a dask cluster read, and work on them in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scalefair.data.sources._dask_tasks import explained

if TYPE_CHECKING:
    from scalefair.data.sources.files import Piece, Scan

IN_FLIGHT = 2
"""Pieces per thread of the cluster that are read ahead of the one that is waited for."""


def dask_frame(scan: Scan) -> Any:
    """Return the rows of a scan as a dask data frame, one partition for each piece of the files.

    Workers read the files themselves, so they must see them under the same path.
    """
    import dask.dataframe as dd

    from scalefair.data.sources.files import pieces_of, to_pandas

    no_rows = to_pandas(scan.files.schema(scan.columns).empty_table())
    return dd.from_map(  # type: ignore[no-untyped-call]
        _Reader(scan), pieces_of(scan), meta=no_rows, enforce_metadata=False, label="scan"
    )


class _Reader:
    """Reads a piece on a worker; no parameter is called columns, or dask would read thrice."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def __call__(self, piece: Piece) -> Any:
        from scalefair.data.sources.files import read_piece, to_pandas

        return to_pandas(read_piece(self._scan, piece))


def in_order(
    client: Any, function: Callable[[Any, Any], Any], items: Sequence[Any], shared: Any
) -> Iterator[Any]:
    """Yield function(item, shared) of every item, computed by workers, a bounded number ahead."""
    with explained(client):
        everywhere = client.scatter(shared, broadcast=True)
        ahead = IN_FLIGHT * max(1, sum(client.nthreads().values()))
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(client.submit(function, item, everywhere, pure=False))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

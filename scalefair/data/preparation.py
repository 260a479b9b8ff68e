"""How a chunk of rows becomes numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scalefair._typing import LARGEST_SINGLE, Chunk
from scalefair.data import frames
from scalefair.data.encoding import ControlEncoder, SensitiveEncoder, TableEncoder
from scalefair.errors import check_finite, located


@dataclass(frozen=True)
class Preparation:
    """What happens to a chunk before the maps see it; X without `encoder` is numeric, as given."""

    encoder: TableEncoder | None = None
    sensitive_encoder: SensitiveEncoder | None = None
    sensitive_columns: list[int] | None = None  # columns of X that are the attributes
    hide_sensitive: bool = False  # from the inputs
    control_encoder: ControlEncoder | None = None
    single: bool = False  # feature rows are float32, in which squares overflow

    def split(self, chunk: Chunk) -> Chunk:
        """Take the sensitive attributes from the columns of x, and hide them on request."""
        if self.sensitive_columns is None:
            return chunk
        s = frames.take_columns(chunk.x, self.sensitive_columns)
        x = chunk.x
        if self.hide_sensitive:
            x = frames.drop_columns(x, self.sensitive_columns)
        return replace(chunk, x=x, s=s)

    def encode(self, chunk: Chunk) -> Chunk:
        """Turn x, s and c of a split chunk into numbers; an error names the file or batch."""
        x, s, c = chunk.x, chunk.s, chunk.c
        with located(chunk.where):
            if self.encoder is not None:
                x = self.encoder.encode(x)
            else:
                names = frames.column_names(x)
                is_array = isinstance(x, np.ndarray) and x.dtype.kind not in "mM"
                x = np.ascontiguousarray(x) if is_array else frames.to_numpy(frames.expect_numbers(x))
                # Rows of a stream, or beside hidden columns, have not been checked before.
                check_finite("X", x, names=names)
            if self.single:
                check_finite("dtype='float32': X", x, LARGEST_SINGLE)
            if s is not None:
                s = None if self.sensitive_encoder is None else self.sensitive_encoder.encode(s)
            if c is not None:
                c = None if self.control_encoder is None else self.control_encoder.encode(c)
        return replace(chunk, x=x, s=s, c=c)

    def input_names(self, names: list[str]) -> list[str]:
        """Return the names of the inputs as the maps see them: encoded, none that is hidden."""
        if self.encoder is not None:
            return [str(name) for name in self.encoder.get_feature_names_out()]
        hidden = set(self.sensitive_columns or []) if self.hide_sensitive else set()
        return [name for i, name in enumerate(names) if i not in hidden]

    def input_columns(self, names: list[str]) -> list[tuple[str, slice]]:
        """Return the columns of X that the maps see, and which inputs each was encoded to."""
        shown = self.input_names(names)
        widths = [1] * len(shown)
        if self.encoder is not None:
            shown = [code.name for code in self.encoder.columns_]
            widths = [len(code.outputs("")) for code in self.encoder.columns_]
        stops = np.cumsum(widths)
        return [(n, slice(b - w, b)) for n, w, b in zip(shown, widths, stops, strict=True)]

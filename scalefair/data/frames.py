"""Tables in and out: one interface to numpy, pandas, polars and pyarrow.

A *table* is a numeric 2-D array or a narwhals data frame; `as_table` converts what users pass. Text
in lists or object arrays becomes a frame without column names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.stable.v2.dependencies import is_pandas_like_series
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import sparray, spmatrix, vstack

from scalefair._typing import Array, DataFrame, Shaped
from scalefair.errors import InputError, resolve_columns

Kind = Literal["numeric", "boolean", "datetime", "categorical", "empty"]
"""What a column holds: "datetime" dates or durations, "empty" no value at all."""

Sparse: Any = sparray | spmatrix

_NUMBERS = "biuf"
_MICROSECONDS_PER_DAY = 86_400e6
_OBJECT_KINDS: dict[str, Kind] = {
    "string": "categorical",
    "empty": "empty",
    "boolean": "boolean",
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal"), "numeric"),
    **dict.fromkeys(("date", "datetime", "datetime64"), "datetime"),
}
"""By what pandas infers of the objects in a column."""

_KINDS: dict[tuple[Any, ...], Kind] = {
    (nw.Boolean,): "boolean",
    (nw.Datetime, nw.Date, nw.Duration): "datetime",
    (nw.String, nw.Categorical, nw.Enum): "categorical",
}
"""By the types of narwhals."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One column of a table, read as numbers or as levels; without a name, prefix and position."""

    name: str
    kind: Kind
    values: Any  # as stored: an array or a narwhals Series

    def floats(self, *, largest: float = np.inf) -> Array:
        """Return float64, NaN where missing; dates as days since 1970 (UTC), durations as days."""
        if self.kind == "categorical":
            what = f"column {self.name!r} is categorical and cannot be read as numbers"
            raise InputError(what, "encode or drop it", column=self.name)
        if isinstance(self.values, np.ndarray):
            x = self.values.astype(np.float64, copy=False)
        elif self.kind == "empty":
            x = np.full(len(self.values), np.nan)
        else:
            x = _series_floats(self.values, self.kind)
        if largest < np.inf and (count := int(np.sum(np.abs(x) > largest))) > 0:
            raise InputError(
                f"column {self.name!r} contains infinity or numbers beyond {largest:g} ({count} rows)",
                "rescale or clip them, or set them to missing",
                column=self.name,
            )
        return x

    def missing(self) -> NDArray[np.bool_]:
        """Return which rows have no value."""
        return self.codes()[0] < 0 if self.kind == "categorical" else np.isnan(self.floats())

    def expect(self, kind: Kind) -> Column:
        """Return the column if it holds `kind`, as in fit, or is empty; ValueError otherwise."""
        if self.kind == kind or "empty" in (kind, self.kind):
            return self
        if self.missing().all():
            return Column(self.name, "empty", self.values)
        what = f"column {self.name!r} is {self.kind}, but was {kind} in fit"
        raise InputError(what, f"convert it, or fit where it is {self.kind}", column=self.name)

    def codes(self) -> tuple[NDArray[np.int64], list[str]]:
        """Return (codes, levels): row i holds the text levels[codes[i]]; 1.0 is "1", -1 missing."""
        if self.kind == "empty":
            return np.full(len(self.values), -1), []
        stored = self.values if isinstance(self.values, np.ndarray) else self.values.to_native()
        if isinstance(stored, np.ndarray):  # pandas takes the byte order of this machine only
            stored = stored.astype(stored.dtype.newbyteorder("="), copy=False)
        if isinstance(stored, np.ndarray) or is_pandas_like_series(stored):
            import pandas as pd

            codes, levels = pd.factorize(stored)
        else:
            from pyarrow.types import is_dictionary

            array = self.values.to_arrow()
            # A stored dictionary may hold nulls, duplicates and levels that no row has.
            coded = is_dictionary(array.type)
            encoded = (array.cast(array.type.value_type) if coded else array).dictionary_encode()
            codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            levels = encoded.dictionary.to_pylist()
        names = [str(int(v) if isinstance(v, float) and v.is_integer() else v) for v in levels]
        if len(set(names)) < len(names):
            same = next(name for name in names if names.count(name) > 1)
            what = f"column {self.name!r} has {same} as a number and as text, which read alike"
            raise InputError(what, "convert it, as by .astype(str)", column=self.name)
        return codes.astype(np.int64, copy=False), names


def as_table(X: Any, *, one_column: bool = False) -> Any:
    """Return `X` as a numeric (n, d) array or narwhals frame; with `one_column` also shape (n,)."""
    table = from_native(X)
    if isinstance(table, nw.LazyFrame):
        raise TypeError(
            f"{type(X).__name__} is lazy; expected rows in memory: collect or compute it first, "
            "or read it as a source (scalefair.scan_parquet)"
        )
    if isinstance(table, nw.Series) and one_column:
        return table.to_frame()
    if isinstance(table, nw.DataFrame):
        return table
    return _from_array(as_array(table), one_column)


def columns(X: Any, prefix: str = "x") -> list[Column]:
    """Return the columns of `X`; without names they are called prefix0, prefix1, ..."""
    table = as_table(X)
    names = column_names(table) or [f"{prefix}{j}" for j in range(table.shape[1])]
    if isinstance(table, np.ndarray):
        kind: Kind = "boolean" if table.dtype.kind == "b" else "numeric"
        return [Column(name, kind, table[:, j]) for j, name in enumerate(names)]
    return [_column(n, s) for n, s in zip(names, table.iter_columns(), strict=True)]


def _column(name: str, series: nw.Series[Any]) -> Column:
    native: Any = series.to_native()
    stored = native.dtype if is_pandas_like_series(native) else None
    if isinstance(stored, np.dtype) and stored.kind in "iuf":  # ten times as fast as by narwhals
        return Column(name, "numeric", native.to_numpy())
    if stored == np.dtype(object):
        import pandas as pd

        inferred = pd.api.types.infer_dtype(native, skipna=True)
        if inferred not in _OBJECT_KINDS:
            raise unknown_type(name, f"object ({inferred})", "convert it, as by .astype(str)")
        return Column(name, _OBJECT_KINDS[inferred], series)
    if series.dtype == nw.Unknown and stored is not None:
        series = _in_known_type(native)
    kinds: list[Kind] = [kind for dtypes, kind in _KINDS.items() if series.dtype in dtypes]
    if series.dtype.is_numeric():
        kinds = ["numeric"]
    if not kinds and series.null_count() < len(series):
        raise unknown_type(name, stored or series.dtype)
    return Column(name, kinds[0] if kinds else "empty", series)


def column_names(X: Any) -> list[str] | None:
    """Return the names of the columns, None where they are not all text."""
    frame = from_native(X)
    names = list(frame.columns) if isinstance(frame, nw.DataFrame) else []
    return names if any(names) and all(isinstance(name, str) for name in names) else None


def column_kinds(X: Any, prefix: str = "x") -> dict[str, Kind]:
    """Return what each column holds, by name."""
    return {column.name: column.kind for column in columns(X, prefix)}


def is_all_numeric(X: Any) -> bool:
    """Return True if every column is numeric or boolean, without missing values."""
    return all(c.kind in ("numeric", "boolean") and not c.missing().any() for c in columns(X))


def n_rows(X: Any) -> int:
    """Return the number of rows."""
    return int(X.shape[0]) if isinstance(X, Shaped) else len(X)


def slice_rows(X: Any, start: int, stop: int) -> Any:
    """Return rows start..stop-1, in the container they came in."""
    frame = from_native(X)
    if isinstance(frame, nw.DataFrame | nw.Series):
        # numpy's integers are not slice bounds everywhere: polars would return all rows.
        return nw.to_native(frame[int(start) : int(stop)])
    return X[start:stop]


def take_rows(X: Any, rows: NDArray[np.integer[Any]]) -> Any:
    """Return the rows with the given numbers, in the container they came in."""
    frame = from_native(X)
    if isinstance(frame, np.ndarray):
        return frame[rows]
    if isinstance(frame, nw.DataFrame | nw.Series):
        return nw.to_native(frame[rows])
    return (X.tocsr() if isinstance(X, Sparse) else as_array(X))[rows]


def stack_rows(tables: Sequence[Any]) -> Any:
    """Return the tables one below the other."""
    frames = [f.to_frame() if isinstance(f, nw.Series) else f for f in map(from_native, tables)]
    if isinstance(frames[0], nw.DataFrame):
        return nw.to_native(nw.concat(_with_same_levels(frames), how="vertical"))
    if isinstance(tables[0], Sparse):
        return vstack(tables, format="csr")
    return np.concatenate([as_array(table) for table in tables])


def _with_same_levels(frames: list[Any]) -> list[Any]:
    """Give categories of pandas the levels of all frames: they would become objects otherwise."""
    if not frames[0].implementation.is_pandas_like():
        return frames
    import pandas as pd

    dtypes = [dict(frame.to_native().dtypes) for frame in frames]
    merged = {
        name: type(dtype)(list(dict.fromkeys(v for d in dtypes for v in d[name].categories)))
        for name, dtype in dtypes[0].items()
        if all(isinstance(d.get(name), pd.CategoricalDtype) for d in dtypes)
    }
    return [nw.from_native(f.to_native().astype(merged)) for f in frames] if merged else frames


def column_positions(X: Any, chosen: str | int | Iterable[str | int]) -> list[int]:
    """Return the positions, from 0, of columns given by name or position, in the order given."""
    return resolve_columns(chosen, column_names(X), n_columns(X))


def take_columns(X: Any, chosen: str | int | Iterable[str | int]) -> Any:
    """Return some columns, by name or position, in the container they came in."""
    return _at(X, column_positions(X, chosen))


def drop_columns(X: Any, chosen: str | int | Iterable[str | int]) -> Any:
    """Return all columns but some, named or counted, in the container they came in."""
    gone = set(column_positions(X, chosen))
    return _at(X, [j for j in range(n_columns(X)) if j not in gone])


def n_columns(X: Any) -> int:
    """Return the number of columns."""
    return int(X.shape[1]) if isinstance(X, Shaped) else len(X[0])


def to_numpy(X: Any, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return a C-ordered (n, d) array; missing values are NaN, text is a ValueError."""
    table = as_table(X)
    if isinstance(table, np.ndarray):
        return np.ascontiguousarray(table, dtype=dtype)
    out = np.empty(table.shape, dtype=dtype)
    for j, column in enumerate(columns(table)):
        out[:, j] = column.floats()
    return out


def expect_numbers(X: Any, known: Iterable[str] | None = None) -> Any:
    """Return `X`; InputError if a column, of those `known`, has dates or text, which numpy would make numbers of."""
    if {getattr(dtype, "kind", "") for dtype in getattr(X, "dtypes", [""])} <= set(_NUMBERS):
        return X  # pandas: for one row the rest takes a third of a prediction
    frame = from_native(X)
    if isinstance(frame, nw.DataFrame) and not all(d.is_numeric() for d in frame.schema.values()):
        for column in columns(frame):
            if column.kind != "boolean" and (known is None or column.name in known):
                column.expect("numeric")
    return X


def make_frame(data: Mapping[str, Sequence[Any] | NDArray[Any]]) -> DataFrame:
    """Return a pandas data frame, the form of every result table."""
    # Imported late, here and below: `import scalefair` must not wait for pandas.
    import pandas as pd

    return pd.DataFrame(dict(data))


def pandas_dtype(name: str) -> Any:
    """Return a type of columns of pandas, such as "boolean"."""
    import pandas as pd

    return pd.api.types.pandas_dtype(name)


def from_native(X: Any) -> Any:
    """Return a frame or series of narwhals, also for rows of dates; anything else is returned unchanged."""
    if isinstance(X, np.ndarray):  # to ask narwhals takes longer than a small array
        return _from_array(X, one_column=False) if X.ndim == 2 and X.dtype.kind in "mM" else X
    try:
        found = nw.from_native(X, pass_through=True, allow_series=True)
    except nw.exceptions.DuplicateError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"column names are not unique: {reason}", "rename the columns") from error
    if isinstance(found, nw.DataFrame | nw.Series) and found.implementation.is_pyarrow():
        return nw.from_native(_without_views(found.to_native()), allow_series=True)
    return found


def _without_views(native: Any) -> Any:
    """Return data of pyarrow with string_view as string; few functions of pyarrow support views."""
    import pyarrow as pa

    if isinstance(native, pa.Table):
        return pa.table({name: _without_views(native[name]) for name in native.column_names})
    return native.cast(pa.string()) if native.type == pa.string_view() else native


def as_array(X: Any) -> NDArray[Any]:
    """Return lists, arrow arrays and the like as an array: text and numbers in one as objects."""
    if isinstance(X, Sparse):
        return X.toarray()  # type: ignore[no-any-return]
    array = np.asarray(X)
    # numpy turns [["a", 1.0]] into text; the number must stay a number.
    return np.array(X, dtype=object) if array.dtype.kind in "US" and array is not X else array


def _from_array(array: NDArray[Any], one_column: bool) -> Any:
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: pass real and imaginary parts as two columns")
    if array.ndim == 1 and one_column:
        array = array.reshape(-1, 1)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead (shape {array.shape}). Reshape "
            "your data with X.reshape(-1, 1) for one feature or X.reshape(1, -1) for one row"
        )
    if array.dtype.kind in _NUMBERS:
        return array
    import pandas as pd

    if array.dtype.kind == "S":
        array = array.astype(str)
    content = array if array.dtype.kind in "mM" else array.astype(object)
    return nw.from_native(pd.DataFrame(content, copy=False))


def _in_known_type(native: Any) -> nw.Series[Any]:
    """Return a column of pandas in a type of narwhals: periods as first days, sparse ones dense."""
    if str(native.dtype).startswith("Sparse"):
        native = native.sparse.to_dense()
    elif str(native.dtype).startswith("period"):
        native = native.dt.to_timestamp()
    return nw.from_native(native, series_only=True)


def unknown_type(name: str, dtype: Any, remedy: str = "convert or drop it") -> InputError:
    """Return the error for a column of structs, lists and the like."""
    what = f"column {name!r} has values of type {dtype}; expected only numbers, only booleans, only"
    return InputError(f"{what} dates or only text", remedy, column=name)


def _series_floats(series: nw.Series[Any], kind: Kind) -> Array:
    """Return numbers, days since 1970 (UTC) of dates, or days of durations."""
    native, units = series.to_native(), 1.0
    is_objects = is_pandas_like_series(native) and native.dtype == np.dtype(object)
    if series.dtype == nw.Duration:
        series, units = series.dt.total_microseconds(), _MICROSECONDS_PER_DAY
    elif kind == "datetime":
        if is_objects:
            import pandas as pd

            series = nw.from_native(pd.to_datetime(native, utc=True), series_only=True)
        series, units = series.dt.timestamp("us"), _MICROSECONDS_PER_DAY
    elif is_objects:
        numbers = native.where(native.notna(), np.nan).astype("float64")
        series = nw.from_native(numbers, series_only=True)
    x = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return x if units == 1.0 else x / units


def _at(X: Any, positions: list[int]) -> Any:
    frame = from_native(X)
    if isinstance(frame, nw.DataFrame):
        return nw.to_native(frame[:, positions])
    return (X.tocsr() if isinstance(X, Sparse) else as_array(X))[:, positions]

"""csv files, read block by block, in types that the first rows decide."""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from scalefair.data.sources.files.base import (
    Files,
    Piece,
    arrow_filesystem,
    changed,
    check_unique,
    content_errors,
    missing_column,
    no_rows,
)
from scalefair.data.sources.files.paths import Listing
from scalefair.errors import CellError, CsvOptionError, InputError, resolve_columns

# Types of some columns, or a function of the header that returns them
ColumnTypes = Mapping[str, Any] | Callable[[list[str]], Mapping[str, Any]]

_PACKED = (".gz", ".bz2", ".zst")
CSV_ENDINGS = tuple(kind + packed for kind in (".csv", ".tsv") for packed in ("", *_PACKED))

_BLOCK = 2**20  # bytes read at once; pyarrow reads about 32 blocks ahead
_DELIMITERS = (",", ";", "\t", "|")  # what tables are written with
# How files of spreadsheet programs begin, new and old
_SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")

_NUMBER, _WITH_COMMA = (rf"^\s*[-+]?\d+({mark}\d+)?([eE][-+]?\d+)?\s*$" for mark in (r"\.", ","))
_THOUSANDS = r"^\s*[-+]?\d{1,3}([,.]\d{3})+\s*$"
# With marks between thousands, a currency or a percent sign
_DRESSED = r"^\s*[-+]?\s*[$€£¥]?\s*\d+([,.' \x{A0}\x{202F}]\d{3})*([,.]\d+)?\s*[%$€£¥]?\s*$"


class CsvFiles(Files):
    """csv files with the same columns, some of them of given types."""

    expected = "a csv file with a header and the same cells in every line"

    def __init__(
        self,
        listing: Listing,
        column_types: ColumnTypes,
        delimiter: str | None,
        decimal: str = ".",
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(listing)
        tab = ".tsv" in listing.paths[0].lower().rpartition("/")[2]
        self.delimiter = delimiter or ("\t" if tab else ",")
        self.decimal, self.encoding = decimal, encoding
        self._counted: int | None = None
        self._headers: dict[int, list[str]] = {}
        for option, value in (("delimiter", self.delimiter), ("decimal", decimal)):
            if len(value) != 1:
                raise ValueError(f"{option}={value!r}; expected one character, for instance ';'")
        try:
            codecs.lookup(encoding)
        except LookupError:
            remedy = "give 'utf-8', 'latin-1', 'cp1252' or 'utf-16'"
            raise InputError(f"encoding={encoding!r} is unknown", remedy) from None
        header = self._header(0)
        types = column_types(header) if callable(column_types) else column_types
        resolve_columns(types, header, len(header))
        self._given = {name: _data_type(name, given) for name, given in types.items()}

    @property
    def key(self) -> tuple[Any, ...]:
        """What two of them have in common if they read the same rows."""
        return *super().key, tuple(self._given.items()), self.delimiter, self.decimal

    @property
    def names(self) -> list[str]:
        """Names of the columns in the first file."""
        return [name for name in self._types if not _is_row_number(name)]

    @property
    def n_rows(self) -> int | None:
        """Rows of all files, None until a pass has counted them."""
        return self._counted

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        """Types of the first block of the first file that has rows, which hold for all others."""
        first: list[str] | None = None
        for number, where in enumerate(self.listing.names):
            first = first or self._header(number)
            with content_errors(where, self.expected), self._open(number, True) as reader:
                batch = next((batch for batch in reader if batch.num_rows), None)
            if batch is not None:
                fields = [f for f in batch.schema if f.name not in self._given]
                types = {f.name: self._lasting_type(where, f, batch) for f in fields}
                return {name: (types | self._given).get(name, pa.null()) for name in first}
        raise ValueError(no_rows(self.listing.names))

    def _check_head(self, number: int) -> None:
        """Raise InputError if the first bytes are not text, or need other options."""
        path, fs = self.listing.paths[number], arrow_filesystem(self.listing.filesystem)
        where = self.listing.names[number]
        with content_errors(where, self.expected), fs.open_input_stream(path) as file:
            head = file.read(_BLOCK)
        if not head.strip():
            raise InputError(f"{where}: the file is empty", "give one with a header", where=where)
        if head.startswith(_SPREADSHEETS):
            remedy = "save it as csv, or read it in Python with pandas.read_excel"
            raise InputError(f"{where}: a spreadsheet, not csv or parquet", remedy, where=where)
        header = head.decode(self.encoding, errors="replace").partition("\n")[0]
        if "\0" in header:
            if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise CsvOptionError(f"{where}: it is UTF-16", "encoding", "utf-16", where=where)
            remedy = "give a parquet file, a folder of them or a csv file"
            raise InputError(f"{where}: neither parquet nor text", remedy, where=where)
        others = [mark for mark in _DELIMITERS if mark in header]
        if others and self.delimiter not in header:
            what = f"{where}: the header is separated by {others[0]!r}, not {self.delimiter!r}"
            raise CsvOptionError(what, "delimiter", others[0], where=where)

    def _lasting_type(self, where: str, field: pa.Field, batch: pa.RecordBatch) -> pa.DataType:
        """Return the type for all rows: whole numbers at first may be followed by others."""
        if _is_row_number(field.name):
            what = f"{where}: column {field.name!r} has no name and is left out, as an index of rows"
            warnings.warn(what, stacklevel=2)
        elif pa.types.is_binary(field.type):  # which pyarrow reads without a word
            what = f"{where}: column {field.name!r} is not {self.encoding.upper()}"
            raise CsvOptionError(what, "encoding", "latin-1", column=field.name, where=where)
        elif pa.types.is_string(field.type):
            self._check_text(where, field.name, batch[field.name].drop_null())
        return pa.float64() if pa.types.is_integer(field.type) else field.type

    def _check_text(self, where: str, name: str, cells: pa.Array) -> None:
        """Refuse text that is numbers with another decimal mark; warn where most is numbers."""
        own, other = (_NUMBER, _WITH_COMMA) if self.decimal == "." else (_WITH_COMMA, _NUMBER)
        numbers, others = (pc.match_substring_regex(cells, p) for p in (own, other))
        known, most = pc.sum(numbers).as_py() or 0, 0.9 * len(cells)
        marked = cells.filter(pc.and_not(others, numbers))
        if len(marked) and pc.sum(pc.or_(numbers, others)).as_py() >= most:
            mark = "," if self.decimal == "." else "."
            cell = f"{marked[0].as_py()!r}, where {mark!r} looks like a decimal mark"
            what, thousands = f"{where}: column {name!r} has {cell}", ""
            if pc.all(pc.match_substring_regex(marked, _THOUSANDS)).as_py():
                thousands = f", or write {marked[0].as_py().replace(mark, '')} if it separates thousands"
            raise CsvOptionError(what, "decimal", mark, thousands, column=name, where=where)
        dressed = cells.filter(pc.and_not(pc.match_substring_regex(cells, _DRESSED), numbers))
        if len(cells) / 2 < known < len(cells):
            odd = cells.filter(pc.invert(numbers))[0].as_py()
            warnings.warn(
                f"{where}: column {name!r}: {known:,} of {len(cells):,} cells in the first rows "
                f"are numbers; read as text because of {odd!r}; correct or clear such cells",
                stacklevel=2,
            )
        elif len(dressed) and len(dressed) + known >= most:
            what = f"{where}: column {name!r}: cells such as {dressed[0].as_py()!r} are read as text"
            warnings.warn(f"{what}; write plain numbers, as 1234{self.decimal}5", stacklevel=2)

    def _type(self, column: str) -> pa.DataType:
        return self._types[column]

    @property
    def _parse_options(self) -> pa.csv.ParseOptions:
        return pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def _convert_options(self, **options: Any) -> pa.csv.ConvertOptions:
        """Return how cells are read: without quotes an empty one, NA, NaN or null is missing."""
        return pa.csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, decimal_point=self.decimal, **options
        )

    def _open(self, number: int, parallel: bool, **options: Any) -> pa.csv.CSVStreamingReader:
        path, fs = self.listing.paths[number], arrow_filesystem(self.listing.filesystem)
        return pa.csv.open_csv(
            fs.open_input_stream(path),
            read_options=pa.csv.ReadOptions(block_size=_BLOCK, use_threads=parallel, encoding=self.encoding),
            parse_options=self._parse_options,
            convert_options=self._convert_options(**options),
        )

    def tables(self, *args: Any, **options: Any) -> Iterator[tuple[str, pa.Table]]:
        """Yield (file, rows) as parquet files do, and remember how many there were."""
        count = 0
        for where, table in super().tables(*args, **options):
            count += table.num_rows
            yield where, table
        if self._counted not in (None, count):
            raise changed(self.listing.names[0])
        self._counted = count

    def _batches(self, number: int, columns: list[str], rows: int, parallel: bool) -> Iterator[pa.RecordBatch]:
        del rows  # pyarrow reads blocks of bytes
        types = {name: self._types[name] for name in columns}
        self._header(number)  # of a name that is there twice pyarrow would read the first
        try:
            with self._open(number, parallel, column_types=types, include_columns=columns) as file:
                yield from file
        except (pa.ArrowKeyError, pa.ArrowInvalid) as error:
            named = self._named_error(number, columns, str(error))
            if named is None:
                raise
            raise named from error

    def _cuts(self, number: int, rows: int, size: int) -> list[int]:  # noqa: ARG002
        """Return the bytes at which pieces begin, and the end; a compressed file is one piece."""
        path = self.listing.paths[number]
        total = int(self.listing.filesystem.size(path))
        count = max(1, total // size) if self._has_plain_lines(path) else 1
        return [total * k // count for k in range(count + 1)]

    def _has_plain_lines(self, path: str) -> bool:
        """Return True if lines end at bytes: neither compressed nor of wide characters."""
        wide = self.encoding.lower().startswith(("utf-16", "utf16", "utf-32", "utf32"))
        return not wide and not path.lower().endswith(_PACKED)

    def _read_piece(self, piece: Piece, columns: list[str]) -> pa.Table:
        path, fs = self.listing.paths[piece.file], self.listing.filesystem
        header = self._header(piece.file)
        with fs.open(path, "rb", compression="infer") as file:
            plain = self._has_plain_lines(path)
            content = _lines_between(file, piece.first, piece.stop) if plain else file.read()
        types = {name: self._types[name] for name in columns}
        if not content:
            return pa.table({name: pa.array([], dtype) for name, dtype in types.items()})
        return pa.csv.read_csv(
            BytesIO(content),
            read_options=pa.csv.ReadOptions(
                column_names=header, skip_rows=int(piece.first == 0), use_threads=False, encoding=self.encoding
            ),
            parse_options=self._parse_options,
            convert_options=self._convert_options(column_types=types, include_columns=columns),
        )

    def _named_error(self, number: int, columns: list[str], error: str) -> InputError | None:
        """Return the error with the name of the column, for which pyarrow has only a number."""
        where, header = self.listing.names[number], self._header(number)
        absent = [name for name in columns if name not in header]
        if absent:
            return missing_column(where, absent[0])
        position = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", error, re.DOTALL)
        if position is None:
            return None
        name, reason = header[int(position[1])], " ".join(position[2].split())[:300]
        return CellError(
            f"{where}: column {name!r}: {reason}; its type was guessed from the first rows",
            f"repair the cell, or name the type as column_types={{{name!r}: 'string'}}",
            column=name,
            where=where,
        )

    def _header(self, number: int) -> list[str]:
        """Return the names of the columns of a file, each of them once."""
        if number not in self._headers:
            self._check_head(number)
            where = self.listing.names[number]
            with content_errors(where, self.expected), self._open(number, False) as reader:
                self._headers[number] = check_unique(where, reader.schema.names)
        return self._headers[number]


def _is_row_number(name: str) -> bool:
    """Return True if a column is the index that pandas writes without a name, or reads back."""
    return name in ("", "Unnamed: 0")


def _data_type(name: str, given: Any) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    try:
        return pa.type_for_alias(given)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"column_types={{{name!r}: {given!r}}}: unknown type",
            "give 'string', 'float64', 'bool', 'date32', 'timestamp[s]' or a pyarrow type",
            column=name,
            where="column_types",
        ) from error


def _lines_between(file: Any, first: int, stop: int) -> bytes:
    """Return the lines that begin in bytes first..stop−1."""
    if first:
        file.seek(first - 1)
        first += len(file.readline()) - 1
    if first >= stop:
        return b""
    content: bytes = file.read(stop - first)
    return content if content.endswith(b"\n") else content + file.readline()

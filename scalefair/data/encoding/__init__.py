"""Mixed columns to numbers, learnt by a fold, so that any chunking of the rows gives the same.

`table_statistics` of the chunks add up; `TableEncoder.finish` and `SensitiveEncoder.finish` turn
the sum into a fitted encoder. `fit` does the same with a single chunk.
"""

from scalefair.data.encoding._codes import LevelCode, NumberCode
from scalefair.data.encoding._statistics import (
    ColumnStatistics,
    Spread,
    TableStatistics,
    sensitive_statistics,
    table_statistics,
)
from scalefair.data.encoding.groups import Groups
from scalefair.data.encoding.sensitive import (
    ControlEncoder,
    SensitiveEncoder,
    asked_before,
    numbers_or_codes,
    warn_of_codes,
)
from scalefair.data.encoding.table import TableEncoder
from scalefair.errors import UselessColumnError

__all__ = [
    "ColumnStatistics",
    "ControlEncoder",
    "Groups",
    "LevelCode",
    "NumberCode",
    "SensitiveEncoder",
    "Spread",
    "TableEncoder",
    "TableStatistics",
    "UselessColumnError",
    "asked_before",
    "numbers_or_codes",
    "sensitive_statistics",
    "table_statistics",
    "warn_of_codes",
]

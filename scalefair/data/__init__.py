"""What users pass: opened once, surveyed once, read as chunks of rows.

`open_rows` makes one source of chunks of whatever container; a `Surveyor` makes the first pass.
"""

from scalefair.data.open import OpenedRows, in_memory_parts, is_stream, open_rows, table_of
from scalefair.data.survey import (
    MAX_LEVELS_OF_NUMBERS,
    SURVEY_ROWS,
    Look,
    Numbers,
    PartSurvey,
    Survey,
    Surveyor,
    survey_rows,
)
from scalefair.data.together import Sums, Together

__all__ = [
    "MAX_LEVELS_OF_NUMBERS",
    "SURVEY_ROWS",
    "Look",
    "Numbers",
    "OpenedRows",
    "PartSurvey",
    "Sums",
    "Survey",
    "Surveyor",
    "Together",
    "in_memory_parts",
    "is_stream",
    "open_rows",
    "survey_rows",
    "table_of",
]

"""What users pass: opened once, surveyed once, read as chunks of rows.

`open_rows` makes one source of chunks of whatever container; `survey_rows` makes the first pass.
"""

from scalefair.data.columns import MAX_LEVELS_OF_NUMBERS
from scalefair.data.open import OpenedRows, in_memory, is_stream, open_rows, table_of
from scalefair.data.survey import SURVEY_ROWS, ChunkSum, Look, Numbers, PartSurvey, Sums, Survey, Together, survey_rows

__all__ = [
    "MAX_LEVELS_OF_NUMBERS", "SURVEY_ROWS", "ChunkSum", "Look", "Numbers", "OpenedRows", "PartSurvey", "Sums",
    "Survey", "Together", "in_memory", "is_stream", "open_rows", "survey_rows", "table_of",
]  # fmt: skip

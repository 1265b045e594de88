"""The reading side: find the input, cut it, decide its columns, read records, take their states."""

from __future__ import annotations

from pipelines.sources.columns import InputColumns, columns_of_schema
from pipelines.sources.fragments import Fragment
from pipelines.sources.input_files import InputFile
from pipelines.sources.inputs import check_unchanged, find_inputs
from pipelines.sources.records import Record, read, records_of
from pipelines.sources.state_columns import check_state_columns, default_state_columns, state_of
from pipelines.sources.surveying import Survey, survey

__all__ = [
    "Fragment",
    "InputColumns",
    "InputFile",
    "Record",
    "Survey",
    "check_state_columns",
    "check_unchanged",
    "columns_of_schema",
    "default_state_columns",
    "find_inputs",
    "read",
    "records_of",
    "state_of",
    "survey",
]

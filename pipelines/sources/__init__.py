"""The reading side: find the input, cut it, decide its columns, read records, take their states."""

from __future__ import annotations

from pipelines.sources.columns import InputColumns, Kinds, columns_of_schema, merge_kinds, read_columns, scan_fragment
from pipelines.sources.fragments import Fragment, cut
from pipelines.sources.inputs import InputFile, find_inputs
from pipelines.sources.records import Record, read, records_of
from pipelines.sources.state_columns import check_state_columns, default_state_columns, state_of

__all__ = [
    "Fragment",
    "InputColumns",
    "InputFile",
    "Kinds",
    "Record",
    "check_state_columns",
    "columns_of_schema",
    "cut",
    "default_state_columns",
    "find_inputs",
    "merge_kinds",
    "read",
    "read_columns",
    "records_of",
    "scan_fragment",
    "state_of",
]

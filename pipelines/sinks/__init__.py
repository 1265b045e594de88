"""The writing side: the schema of the output, its rows, its part files and its manifest."""

from __future__ import annotations

from pipelines.sinks.folder import locked, remove_unfinished
from pipelines.sinks.manifest import (
    HASHED,
    Manifest,
    check_output_folder,
    fingerprint,
    input_facts,
    read_manifest,
    read_runs,
    run_location,
    write_manifest,
)
from pipelines.sinks.output_table import Outcome, output_rows, output_schema, settled
from pipelines.sinks.parts import Aside, abstaining, committed_notes, committed_parts, part_name, part_notes, write_part

__all__ = [
    "HASHED",
    "Aside",
    "Manifest",
    "Outcome",
    "abstaining",
    "check_output_folder",
    "committed_notes",
    "committed_parts",
    "fingerprint",
    "input_facts",
    "locked",
    "output_rows",
    "output_schema",
    "part_name",
    "part_notes",
    "read_manifest",
    "read_runs",
    "remove_unfinished",
    "run_location",
    "settled",
    "write_manifest",
    "write_part",
]

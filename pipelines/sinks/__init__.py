"""The writing side: the schema of the output, its rows, its part files and its manifest."""

from __future__ import annotations

from pipelines.sinks.manifest import Manifest, check_output_folder, fingerprint, locked, read_manifest, write_manifest
from pipelines.sinks.output_table import Outcome, output_rows, output_schema
from pipelines.sinks.parts import committed_parts, part_name, part_notes, remove_unfinished, write_part

__all__ = [
    "Manifest",
    "Outcome",
    "check_output_folder",
    "committed_parts",
    "fingerprint",
    "locked",
    "output_rows",
    "output_schema",
    "part_name",
    "part_notes",
    "read_manifest",
    "remove_unfinished",
    "write_manifest",
    "write_part",
]

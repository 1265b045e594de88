"""Columns that stand in the names of folders, as Hive, Spark and Arrow write them: ``year=2026/month=01/part.parquet``."""

from __future__ import annotations

from urllib.parse import unquote

from pipelines.errors import InputError
from pipelines.sources.input_files import Found, Partitions

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null."""


def partitions_of(found: Found) -> Partitions:
    """The columns in the names of a file's folders, in their order.

    Raises:
        InputError: Two of them have one name, or one is not UTF-8.
    """
    values: dict[str, str | None] = {}
    for folder in found.name.split("/")[:-1]:
        key, sign, value = folder.partition("=")
        if not (key and sign):
            continue
        try:
            key, value = unquote(key, errors="strict"), unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise InputError(f"{found.path}: the folder name {folder} is not UTF-8; rename it") from None
        if key in values:
            raise InputError(f"{found.path}: two of its folders give the column `{key}`; rename one of them")
        values[key] = None if value == NULL else value
    return tuple(values.items())

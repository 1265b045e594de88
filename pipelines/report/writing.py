"""Where the report of a job lies, and how it is put there."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.errors import InputError
from pipelines.report.facts import read_job
from pipelines.sinks.folder import corner
from pipelines.storage import is_remote, write_bytes

_SUFFIX = ".report.html"


def report_location(folder: str) -> str:
    """Where the report of an output folder lies: beside it, because readers of data sets take every file in it for one of theirs.

    A bucket that is an output folder as a whole has nothing beside it; its report lies in its ``_laya/``.
    """
    if not is_remote(folder):
        path = Path(folder)
        return str(path if path.name not in ("", "..") else Path(os.path.abspath(folder))) + _SUFFIX  # noqa: PTH100 resolve() follows links
    bare, mark, options = folder.partition("?")
    bare = bare.rstrip("/")
    if "/" not in bare.partition("://")[2]:
        return corner(folder, _SUFFIX.removeprefix("."))
    return f"{bare}{_SUFFIX}{mark}{options}"


def write_report(folder: str) -> str:
    """Writes the report of a job, from the notes in its output folder; the job may still be running.

    Args:
        folder: The output folder: a path of this machine, or a location in an object store.

    Returns:
        The location of the page.

    Raises:
        InputError: The folder holds no output, or the page cannot be written.
    """
    job = read_job(folder)
    from pipelines.report.page import render  # brings matplotlib and jinja2

    target = report_location(folder)
    try:
        write_bytes(target, render(job).encode(errors="replace"))
    except OSError as error:
        raise InputError(f"{target}: the report cannot be written: {error.strerror or error}") from error
    return target

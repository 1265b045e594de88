"""What can be wrong with what a job is given."""

from __future__ import annotations


class InputError(ValueError):
    """The job cannot start, or cannot go on, with what it was given; the message is one line that names it and the mend."""


class RecordError(ValueError):
    """One record cannot be read or asked about; the message names its file and line, and the reason."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]

"""What can be wrong with what a job is given."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


class InputError(ValueError):
    """The job cannot start, or cannot go on, with what it was given; the message is one line that names it and the mend."""


class RecordError(ValueError):
    """One record cannot be read or asked about; the message names its file and line, and the reason."""


def suggestion(name: str, known: Sequence[str], what: str) -> str:
    """What to say after a name that there is not: the one that may have been meant, or all that there are."""
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the {what} are {', '.join(known)}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]

"""The output folder: its own corner, where everything but the part files lies, and the lock that keeps a second run out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from pipelines.errors import InputError
from pipelines.storage import UNFINISHED, delete, is_remote, join, list_folder, make_folder

CORNER = "_laya"
"""Readers of data sets skip names that start with "_"."""
_LOCK = "lock"


def corner(folder: str, *names: str) -> str:
    """The location of something in a folder's own corner."""
    return join(folder, CORNER, *names)


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other runs out of an output folder for a block; the lock goes with the process, however that ends.

    The folder is made if it is not there. An object store has no locks: there two runs of one job write equal parts over each other, which
    is wasted work and nothing worse.

    Raises:
        InputError: Another run holds it, or it cannot be written to.
    """
    if is_remote(folder):
        yield
        return
    try:
        make_folder(corner(folder))
        file = Path(corner(folder, _LOCK)).open("ab")  # noqa: SIM115 closed below, once it is known to be there
    except OSError as error:
        raise not_writable(folder, error) from error
    with file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another run writes to it now; wait for that, or choose another --output") from None
        yield


def remove_unfinished(folder: str) -> int:
    """Removes what killed writers left; only for a folder that nobody else writes to now. Returns how many files there were."""
    left = [name for name in list_folder(corner(folder)) if name.startswith(UNFINISHED)]
    for name in left:
        delete(corner(folder, name))
    return len(left)


def not_writable(folder: str, error: OSError) -> InputError:
    """What to tell of a folder that cannot be written to."""
    return InputError(f"{folder}: cannot be written to: {error.strerror or error}; choose another --output")

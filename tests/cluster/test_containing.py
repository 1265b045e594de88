"""What an agent's code raises reaches its caller, whatever it is."""

from __future__ import annotations

import sys
import threading

import pytest

import laya
from cluster.containing import contained


class NeedsTwoError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def raising(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [ValueError("as it is"), laya.CheckpointError("of ours")])
def test_what_can_travel_stays_as_it_is(error):
    with pytest.raises(type(error)) as raised:
        contained(lambda: raising(error))
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StopIteration("no more"), "StopIteration: no more"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (NeedsTwoError("a", "b"), "NeedsTwoError: a and b"),
        (ValueError(threading.Lock()), "ValueError: <unlocked"),
    ],
)
def test_what_cannot_travel_is_told(error, told):
    with pytest.raises(RuntimeError, match=told) as raised:
        contained(lambda: raising(error))
    assert raised.value.__cause__ is error


def test_an_exit_ends_nothing():
    with pytest.raises(RuntimeError, match="SystemExit: 1"):
        contained(lambda: sys.exit(1))


def test_what_is_returned_is_returned():
    assert contained(lambda: 7) == 7

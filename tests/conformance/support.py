"""What the conformance tests share: questions, hooks that keep a diary, and threads that cannot hang a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pytest

from laya.hooks import HOOK_EVENTS, PredictContext
from tests.patience import LONG, start

T = TypeVar("T")
Act = Callable[[PredictContext], Any]

# The fields of the specification; others come after them.
FIELDS = (
    *("states", "questions", "run_id", "results", "decision", "model", "agent", "router", "max_len", "head_max_len", "usage"),
    *("started_at", "elapsed_ms", "error"),
)

TEAM: dict[str, Any] = {
    "type": "choice",
    "instructions": "Which desk should take this message?",
    "criteria": {"billing": "money, invoices, refunds", "technical": "faults and outages", "other": "anything else"},
}
URGENCY: dict[str, Any] = {"type": "score", "instructions": "How pressing is it?", "criteria": ["can wait", "this week", "right now"]}
REFUND: dict[str, Any] = {"type": "noul", "instructions": "Does the writer want money back?"}
QUESTIONS: dict[str, Any] = {"team": TEAM, "urgency": URGENCY, "refund": REFUND}
ONE: dict[str, Any] = {"refund": REFUND}

ENGLISH = "What was the total on the invoice that you sent me?"
GERMAN = "ich habe die rechnung doppelt bezahlt und will das geld wieder haben"
DOCUMENT = " ".join(f"{word} {index} which late the payment" for index, word in enumerate(["refund", "invoice", "server", "quote"] * 12))

MIXED: list[Any] = [
    "The courier left my parcel at the wrong house and I would like my money back.",
    "",
    "invoice " * 300,
    {"subject": "late", "n": 12},
    [{"role": "user", "content": "where is it"}, {"role": "agent", "content": "on its way"}],
    "退款什么时候到账",
    "short",
    "",
]


# Every wish names another checkpoint than the next one does; each row leaves the first wish of the row before out.
PRECEDENCE: tuple[tuple[str, dict[str, str], str], ...] = (
    ("model", {"model": "one"}, "one"),
    ("task", {"task": "two"}, "two"),
    ("workflow", {}, "typed-decisions"),
    ("lang", {"lang": "en"}, "english"),
    ("lang_guess", {"lang_guess": "de"}, "multilingual"),
    ("router's lang_guess", {}, "english"),
    ("detection", {}, "multilingual"),
    ("default", {}, "three"),
)


def supplied() -> dict[str, Any]:
    """A result that no model made."""
    return {
        "model": "a cache",
        "answers": {"refund": {"type": "noul", "noul": 0.25}},
        "usage": {"input_tokens": 3, "output_tokens": 0},
    }


@dataclass(frozen=True)
class Note:
    """One event as a hook was given it.

    Attributes:
        event: Its name.
        ctx: The context itself, which changes afterwards.
        fields: The context's fields as they were then.
    """

    event: str
    ctx: PredictContext
    fields: dict[str, Any]

    @property
    def populated(self) -> set[str]:
        """Names of the specification's fields that held something."""
        return {name for name in FIELDS if self.fields[name] is not None and self.fields[name] not in ([], {})}


class Diary:
    """Implements all six events: notes each, then does what was asked for that event."""

    def __init__(self, **acts: Act) -> None:
        self.notes: list[Note] = []
        for event in HOOK_EVENTS:
            setattr(self, event, partial(self._note, event, acts.get(event)))

    def _note(self, event: str, act: Act | None, ctx: PredictContext) -> Any:
        self.notes.append(Note(event, ctx, {name: list(value) if isinstance(value, list) else value for name, value in vars(ctx).items()}))
        return None if act is None else act(ctx)

    @property
    def events(self) -> list[str]:
        """Names of the events, in order."""
        return [note.event for note in self.notes]

    @property
    def predict_events(self) -> list[str]:
        """The same without those that only Routers have."""
        return [event for event in self.events if event in ("on_predict_start", "on_error", "on_predict_end")]

    @property
    def models(self) -> list[tuple[str, str | None]]:
        """Each event with the model it was about."""
        return [(note.event, note.fields["model"]) for note in self.notes]

    def of(self, event: str) -> list[Note]:
        """The notes of one event."""
        return [note for note in self.notes if note.event == event]

    def the(self, event: str) -> Note:
        """The note of an event that came once."""
        (note,) = self.of(event)
        return note

    def clear(self) -> None:
        """Starts afresh."""
        self.notes.clear()


def hook_on(event: str, act: Act) -> Any:
    """A hook with one event."""
    return type("Hook", (), {event: staticmethod(act)})()


def failing(error: BaseException) -> Act:
    """Raises the error whatever the context."""

    def act(ctx: PredictContext) -> None:
        raise error

    return act


def all_at_once(works: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """Runs works on threads that set out together."""
    barrier = threading.Barrier(len(works), timeout=LONG)

    def after_the_others(work: Callable[[], T]) -> T:
        barrier.wait()
        return work()

    return [start(partial(after_the_others, work)) for work in works]


def error_of(outcome: Future[Any], timeout: float = LONG) -> BaseException | None:
    """What a work raised, or None."""
    return outcome.exception(timeout)


@contextmanager
def loop_in_another_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """A running event loop that is not the test's own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(LONG)
    loop.close()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a result with its path."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from leaves(part, f"{path}/{key!r}")
    else:
        yield path, value


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-3) -> None:
    """The same keys in the same order, fractions within the tolerance, everything else equal."""
    mine, theirs = dict(leaves(found)), dict(leaves(wanted))
    assert list(mine) == list(theirs)
    for path, value in theirs.items():
        if isinstance(value, float):
            assert mine[path] == pytest.approx(value, abs=tolerance), path
        else:
            assert mine[path] == value, path

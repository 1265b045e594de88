"""What a running job shows."""

from __future__ import annotations

import io
import threading

import pytest
import ray
from rich.console import Console

from pipelines import progress
from pipelines.progress import ProgressCounter, shown


class Listener(io.StringIO):
    """Tells when a text has been written."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self.awaited = awaited
        self.heard = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.awaited in self.getvalue():
            self.heard.set()
        return written


@pytest.fixture
def counter(ray_session):
    made = ray.remote(ProgressCounter).options(num_cpus=0).remote()
    yield made
    ray.kill(made)


def heard(counter, awaited, monkeypatch, **console):
    monkeypatch.setattr(progress, "_PLAIN_LINE_S", 0.01)
    monkeypatch.setattr(progress, "_REFRESH_S", 0.05)
    listener = Listener(awaited)
    with shown(counter, 10, 50, Console(file=listener, width=120, **console)):
        assert listener.heard.wait(30), listener.getvalue()


def test_a_line_counts_what_earlier_runs_have_done(counter, monkeypatch):
    heard(counter, "scoring: 10 of 50 rows, the first answers are on their way\n", monkeypatch)
    ray.get(counter.add.remote(7, 2, 700))
    heard(counter, "scoring: 17 of 50 rows, ", monkeypatch)
    heard(counter, ", 2 errors\n", monkeypatch)


def test_rows_that_are_scored_again_never_make_more_than_there_are(counter, monkeypatch):
    ray.get(counter.add.remote(70, 0, 700))
    heard(counter, "scoring: 50 of 50 rows, ", monkeypatch)


def test_so_does_a_bar(counter, monkeypatch):
    ray.get(counter.add.remote(7, 0, 700))
    heard(counter, "17/50", monkeypatch, force_terminal=True)

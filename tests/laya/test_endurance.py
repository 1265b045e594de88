"""What must hold under many threads and over many calls."""

from __future__ import annotations

import gc
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import laya
from tests.conformance.support import assert_close

TEAM = {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "money", "technical": "faults", "other": "else"}}
URGENCY = {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "this week", "today"]}
REFUND = {"type": "noul", "instructions": "The writer wants money back"}
MANY = {"type": "choice", "instructions": "Which desk?", "criteria": [f"desk number {index} with a long name " * 5 for index in range(12)]}
STATES: list[Any] = [
    "I was charged twice, I want my money back.",
    "the parcel was late again " * 200,
    "",
    {"subject": "invoice", "body": "two lines are wrong"},
    [{"role": "user", "content": "hello " * 300}, {"role": "user", "content": "where is it?"}],
]
Call = Callable[[], Any]


def agent_calls(agent: Any) -> list[Call]:
    """Calls of every kind, with different budgets, so that no two share what a shared object could remember."""
    calls: list[Call] = []
    for state in STATES:
        calls += [
            partial(agent.system_one, state, {"team": TEAM, "refund": REFUND}),
            partial(agent.system_one, state, {"many": MANY}, max_len=128, head_max_len=64),
            partial(agent.predict_batch, [state, "short"], {"urgency": URGENCY}, batch_size=1),
            partial(agent.predict_long, state, {"refund": REFUND}, window=64),
        ]
    return calls


def router_calls(router: Any) -> list[Call]:
    calls: list[Call] = []
    for state in STATES:
        calls += [
            partial(router.predict, state, {"team": TEAM, "refund": REFUND}, lang="en"),
            partial(router.predict, state, {"many": MANY}, model="multilingual", max_len=128, head_max_len=64),
            partial(router.predict_long, state, {"refund": REFUND}, lang="de", window=64),
            partial(
                router.predict_batch, [{"state": state, "questions": {"urgency": URGENCY}, "lang": lang} for lang in ("en", "de", "en")]
            ),
        ]
    return calls


def by_place(found: Any) -> Any:
    """A batch's results as a dict, so that their numbers can be compared one by one."""
    return dict(enumerate(found)) if isinstance(found, list) else found


def check_threads(calls: list[Call], threads: int, each: int) -> None:
    """Runs calls in random order on many threads; every answer must be the serial one.

    Calls that meet share forward passes, so numbers may differ by what another padding rounds otherwise.
    """
    expected = [call() for call in calls]
    wrong: list[tuple[int, Any]] = []
    start = threading.Barrier(threads)

    def work(seed: int) -> None:
        order = Random(seed)
        start.wait()
        for _ in range(each):
            index = order.randrange(len(calls))
            try:
                assert_close(by_place(calls[index]()), by_place(expected[index]), tolerance=2e-4)
            except Exception as error:
                wrong.append((index, error))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, f"{len(wrong)} of {threads * each} calls, the first: call {wrong[0][0]} gave {wrong[0][1]!r}"


@pytest.fixture(scope="module")
def router(quiet_folder: Path) -> laya.Router:
    return laya.Router(models=dict.fromkeys(("english", "multilingual"), str(quiet_folder)), device="cpu")


class TestThreads:
    def test_an_agent_answers_as_it_does_alone(self, tiny: laya.Agent) -> None:
        check_threads(agent_calls(tiny), threads=8, each=20)

    def test_a_router_answers_as_it_does_alone(self, router: laya.Router) -> None:
        check_threads(router_calls(router), threads=8, each=20)

    @pytest.mark.slow
    def test_an_agent_answers_32_threads(self, tiny: laya.Agent) -> None:
        check_threads(agent_calls(tiny), threads=32, each=200)

    @pytest.mark.slow
    def test_a_router_answers_32_threads(self, router: laya.Router) -> None:
        check_threads(router_calls(router), threads=32, each=200)


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_memory_is_flat_over_20000_calls(tiny: laya.Agent, router: laya.Router) -> None:
    hook = laya.BaseHook()
    calls = [
        lambda n: tiny.system_one(f"message {n}", {"refund": REFUND}, hooks=hook),
        lambda n: tiny.predict_batch([f"message {n}"], {f"question {n}": REFUND}, on_predict_start=lambda ctx: ctx.skip([{"answers": {}}])),
        lambda n: router.predict(
            f"message {n}", {"refund": {**REFUND, "instructions": f"The writer has {n} wishes"}}, lang="en", hooks=hook
        ),
        lambda n: router.route(f"Nachricht {n}", hooks=hook),
    ]

    def run(first: int, count: int) -> int:
        for n in range(first, first + count):
            calls[n % len(calls)](n)
        gc.collect()
        return resident_kib()

    before = run(0, 5000)  # caches fill and the allocator settles
    after = run(5000, 20000)
    assert after - before < 10 * 1024, f"resident memory went from {before} to {after} KiB"


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer takes its own time for every line")
def test_five_hooks_that_do_nothing_cost_little(tiny: laya.Agent) -> None:
    hooks = [laya.BaseHook() for _ in range(5)]
    answer = [{"model": "m", "answers": {}, "usage": {"input_tokens": 0, "output_tokens": 0}}]

    def skip(ctx: laya.PredictContext) -> None:
        ctx.skip(answer)

    def seconds(**arguments: Any) -> float:
        begin = time.perf_counter()
        for _ in range(200):
            tiny.system_one("hello", {}, on_predict_start=skip, **arguments)
        return (time.perf_counter() - begin) / 200

    # By turns, so that whatever else the machine does meets both.
    extra = statistics.median(seconds(hooks=hooks) - seconds() for _ in range(15))
    assert extra < 25e-6, f"{extra * 1e6:.1f} microseconds"

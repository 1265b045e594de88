"""One long document, read by all replicas of a checkpoint: its owner hands out windows slice by slice and merges what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from laya.answers import Result
from laya.hooks.call import Results
from laya.scanning import SharedScan
from laya.windows import WindowMerger

SHARED_WINDOWS = 64
"""A document of fewer windows stays with the agent that has it."""
SLICE_WINDOWS = 32
"""Windows that go to an agent in one call. What others ask meanwhile is answered between two of them."""
_CALLS_PER_REPLICA = 2


def read_together(scan: SharedScan, replicas: int, score: Callable[[Sequence[Any]], Results]) -> Result:
    """Has the windows of a document scored and merges them, in their order.

    No more slices are under way than the replicas are kept busy with, and of those that are done only the best answers are kept, so what is
    held in memory does not grow with the document.

    Args:
        scan: The document, cut.
        replicas: How many agents there are for it.
        score: Scores one slice, on whichever agent is free.

    Returns:
        What `laya.Agent.predict_long` returns for the document.
    """
    merger = WindowMerger()
    waiting: deque[Future[Results]] = deque()
    limit = _CALLS_PER_REPLICA * max(1, replicas)

    def merge_next() -> None:
        for result in waiting.popleft().result():
            merger.add(result)

    with ThreadPoolExecutor(limit, "laya-windows") as pool:
        try:
            for windows in scan.slices(SLICE_WINDOWS):
                if len(waiting) == limit:
                    merge_next()
                waiting.append(pool.submit(copy_context().run, score, windows))  # with the deadline and the request of the call
            while waiting:
                merge_next()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return merger.result(len(scan.spans), scan.windows())

"""Send records of calls somewhere slow, without any call waiting for it.

The hook's event is a coroutine that puts a record into an asyncio queue; a consumer on the same loop takes records off in batches and sends
each batch in one go. `AsyncHook` brings the coroutine to that loop, which runs on a thread of its own: a call waits until its record is in
the queue, and never for the network.

The queue is bounded. When the receiver is down or too slow, records are dropped and counted; calls go on. A batch that cannot be sent after
some attempts is dropped and counted too. `close` sends what is left.

The record is made inside the event. The context belongs to the call: it must not be kept for later, when other hooks may have changed it.

Run it: ``python examples/hooks/async_shipping.py``
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import laya
from laya import AsyncHook, PredictContext

Record = dict[str, Any]
Send = Callable[[list[Record]], Awaitable[None]]

log = logging.getLogger(__name__)


class Shipper:
    """Collects a record of each call and sends them in batches. Install it as ``shipper.hook``; close it at the end.

    Args:
        send: Sends one batch; may raise.
        batch_size: Most records of a batch.
        max_wait_s: Longest time that a record waits for its batch to fill.
        capacity: Most records that wait; those that come on top are dropped.
        attempts: How often a batch is tried.

    Attributes:
        hook: What goes into ``hooks=``.
        sent: Records that were sent.
        dropped: Records that found the queue full, or whose batch could not be sent.
    """

    def __init__(self, send: Send, batch_size: int = 100, max_wait_s: float = 1.0, capacity: int = 10_000, attempts: int = 3) -> None:
        self._send = send
        self._batch_size = batch_size
        self._max_wait_s = max_wait_s
        self._attempts = attempts
        self.sent = 0  # these two are changed on the loop's thread alone
        self.dropped = 0
        self._loop = asyncio.new_event_loop()
        self._queue: asyncio.Queue[Record | None] = asyncio.Queue(capacity)
        self._thread = threading.Thread(target=self._loop.run_forever, name="shipper", daemon=True)
        self._thread.start()
        self._consumer = asyncio.run_coroutine_threadsafe(self._consume(), self._loop)
        running = threading.Event()  # a hook is refused on a loop that does not run yet
        self._loop.call_soon_threadsafe(running.set)
        running.wait()
        self.hook = AsyncHook(self, loop=self._loop)

    async def on_predict_end(self, ctx: PredictContext) -> None:
        """Queues the record of a call."""
        record = {
            "run_id": ctx.run_id,
            "model": ctx.model,
            "answers": [result.get("answers") for result in ctx.results or []],
            "usage": ctx.usage,
            "elapsed_ms": ctx.elapsed_ms,
            "error": None if ctx.error is None else type(ctx.error).__name__,
        }
        try:
            self._queue.put_nowait(record)
        except asyncio.QueueFull:
            self.dropped += 1

    def close(self, timeout_s: float = 30.0) -> None:
        """Sends what is left and stops. Take the hook off its agents first: it cannot be used afterwards.

        Raises:
            TimeoutError: It took longer than ``timeout_s`` seconds.
        """
        asyncio.run_coroutine_threadsafe(self._queue.put(None), self._loop).result(timeout_s)
        self._consumer.result(timeout_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)
        self._loop.close()

    async def _consume(self) -> None:
        open_ = True
        while open_:
            batch, open_ = await self._next_batch()
            if batch:
                await self._ship(batch)

    async def _next_batch(self) -> tuple[list[Record], bool]:
        """Waits for a record, then for more until the batch is full or its time is up; False once the end was read."""
        first = await self._queue.get()
        if first is None:
            return [], False
        batch = [first]
        try:
            async with asyncio.timeout(self._max_wait_s):
                while len(batch) < self._batch_size:
                    record = await self._queue.get()
                    if record is None:
                        return batch, False
                    batch.append(record)
        except TimeoutError:
            pass
        return batch, True

    async def _ship(self, batch: list[Record]) -> None:
        for attempt in range(1, self._attempts + 1):
            try:
                await self._send(batch)
            except Exception as error:
                log.warning("%d records were not sent at attempt %d of %d: %r", len(batch), attempt, self._attempts, error)
                if attempt < self._attempts:
                    await asyncio.sleep(0.05 * 2**attempt)
            else:
                self.sent += len(batch)
                return
        self.dropped += len(batch)


def main() -> None:
    """Ships the records of five calls to a receiver that fails at first."""
    batches: list[list[Record]] = []
    failures = [ConnectionError("the receiver is not up yet")]

    async def send(batch: list[Record]) -> None:
        await asyncio.sleep(0.01)  # a network
        if failures:
            raise failures.pop()
        batches.append(batch)

    shipper = Shipper(send, batch_size=3, max_wait_s=5.0)
    agent = laya.load("mini", hooks=[shipper.hook])
    for text in ("Where is my parcel?", "I was charged twice.", "Thank you!", "I am leaving you.", "It broke again."):
        agent.predict(text, {"leaving": {"type": "noul", "instructions": "The customer wants to cancel"}})
    agent.remove_hook(shipper.hook)
    shipper.close()
    print(f"sent {shipper.sent} records in batches of {[len(batch) for batch in batches]}, dropped {shipper.dropped}")


if __name__ == "__main__":
    main()

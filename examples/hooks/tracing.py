"""One OpenTelemetry span a call.

The span opens in `on_predict_start` and closes in `on_predict_end`, which also runs when the call failed, so no span is left open.
`on_error` records the exception before that.

Spans wait in a dict by ``ctx.run_id`` between the two events, because one hook object serves many calls at once. An end without a start is
possible: when an earlier hook vetoes the call, the start hooks behind it never run, but all end hooks do.

Passes of an agent that serve requests of a Router name these in ``ctx.request_ids``. Installed on both, the hook makes such a pass a child
of its request where it serves one, and links it to all of them where it serves several. One at the process-wide defaults sees each request
once, which is enough for most.

It needs the package opentelemetry-sdk. In production, give it your application's tracer provider; ``main`` keeps the spans in memory and
prints them.

Run it: ``python examples/hooks/tracing.py``
"""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import laya
from laya import BaseHook, PredictContext


class Tracing(BaseHook):
    """Opens and closes a span round each call.

    Args:
        tracer: Makes the spans; None takes the process's own tracer provider.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("laya")
        self._open: dict[str, trace.Span] = {}
        self._lock = threading.Lock()

    def on_predict_start(self, ctx: PredictContext) -> None:
        """Opens the call's span, below whatever span the caller is in."""
        with self._lock:
            requests = [self._open[run_id] for run_id in ctx.request_ids or () if run_id in self._open]
        span = self._tracer.start_span(
            "laya.predict",
            context=trace.set_span_in_context(requests[0]) if len(requests) == 1 else None,
            links=[trace.Link(request.get_span_context()) for request in requests] if len(requests) > 1 else None,
            attributes={"laya.run_id": ctx.run_id, "laya.states": len(ctx.states), "laya.questions": len(ctx.questions)},
        )
        if ctx.decision is not None:
            span.set_attribute("laya.routing.reason", str(ctx.decision.get("reason")))
        with self._lock:
            self._open[ctx.run_id] = span

    def on_error(self, ctx: PredictContext) -> None:
        """Notes the failure on the span."""
        with self._lock:
            span = self._open.get(ctx.run_id)
        if span is not None and ctx.error is not None:
            span.record_exception(ctx.error)
            span.set_status(trace.StatusCode.ERROR, type(ctx.error).__name__)

    def on_predict_end(self, ctx: PredictContext) -> None:
        """Closes the span."""
        with self._lock:
            span = self._open.pop(ctx.run_id, None)
        if span is None:
            return
        span.set_attribute("laya.model", ctx.model or "")
        for name, count in (ctx.usage or {}).items():
            span.set_attribute(f"laya.usage.{name}", count)
        span.end()

    @property
    def open_spans(self) -> int:
        """Calls that have started and not ended."""
        return len(self._open)


def main() -> None:
    """Traces a call inside a request's span, and one that fails."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("laya")

    agent = laya.load("mini", hooks=[Tracing(tracer)])
    questions = {"leaving": {"type": "noul", "instructions": "The customer wants to cancel"}}
    with tracer.start_as_current_span("handle request"):
        agent.predict("I am cancelling my account.", questions)
        try:
            agent.predict(None, questions)
        except TypeError as error:
            print(f"refused: {error}")
    for span in exporter.get_finished_spans():
        below = "" if span.parent is None else f" below {span.parent.span_id:016x}"
        tokens = (span.attributes or {}).get("laya.usage.input_tokens")
        print(f"{span.name}{below}: {span.status.status_code.name}, tokens {tokens}, events {[event.name for event in span.events]}")
    provider.shutdown()


if __name__ == "__main__":
    main()

"""Keep a line about every call, whether it succeeded or failed.

`on_predict_end` runs once for each call that started and finds everything there: results or error, tokens, time. So an audit needs that
one event. `ctx.run_id` names the call; put it into your own logs to find the two together.

What a text says is often not for a log. The lines hold a digest of each state, which tells whether two calls read the same text and
nothing else, and of an error its class, since messages may quote their input. The answers are kept as decided: label, level, probability.

Each line is one write to a file that was opened for appending, so threads, and processes on one machine, do not cut each other's lines.

Run it: ``python examples/hooks/audit.py``
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import laya
from laya import BaseHook, PredictContext


def digest(state: Any) -> str:
    """Tells states apart without telling what they say."""
    return hashlib.sha256(json.dumps(state, ensure_ascii=False, default=str).encode(errors="surrogatepass")).hexdigest()[:16]


def decisions(result: dict[str, Any]) -> dict[str, Any]:
    """Question id to what was decided: a label, an expected level, or the probability of yes."""
    return {str(qid): answer[answer["type"]] for qid, answer in result.get("answers", {}).items() if "type" in answer}


class AuditLog(BaseHook):
    """Appends one line of JSON a call to a file.

    Args:
        path: The file; it is created if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 open until close()
        self._lock = threading.Lock()

    def on_predict_end(self, ctx: PredictContext) -> None:
        """Writes the line."""
        record = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run_id": ctx.run_id,
            "request_ids": ctx.request_ids,
            "model": ctx.model,
            "routed": None if ctx.decision is None else ctx.decision.get("reason"),
            "states": [digest(state) for state in ctx.states],
            "decisions": [decisions(result) for result in ctx.results or []],
            "usage": ctx.usage,
            "elapsed_ms": None if ctx.elapsed_ms is None else round(ctx.elapsed_ms, 1),
            "error": None if ctx.error is None else type(ctx.error).__name__,
        }
        line = json.dumps(record, ensure_ascii=False, default=str) + "\n"
        with self._lock:
            self._file.write(line.encode(errors="replace"))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def main() -> None:
    """Writes a call that succeeds and one that fails, and prints the lines."""
    questions = {"leaving": {"type": "noul", "instructions": "The customer wants to cancel"}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        audit = AuditLog(path)
        agent = laya.load("mini", hooks=[audit])
        agent.predict_batch(["Where is my parcel?", "I am cancelling my account."], questions)
        try:
            agent.predict(None, questions)
        except TypeError as error:
            print(f"refused: {error}")
        audit.close()
        print(path.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()

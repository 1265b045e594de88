"""A few rows from the whole input, to learn what a job will meet before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pipelines.errors import RecordError
from pipelines.plan import ScorePlan
from pipelines.sources import read

SAMPLE_ROWS = 100
_FRAGMENTS = 10


def sample_requests(plan: ScorePlan) -> Iterator[dict[str, Any]]:
    """Up to `SAMPLE_ROWS` requests, from fragments spread over what is still to be scored; rows that cannot be asked about are left out."""
    pending = plan.pending
    chosen = pending[:: max(1, -(-len(pending) // _FRAGMENTS))]
    for fragment in chosen:
        for record in islice(read(fragment, wanted=plan.rows.columns, kept=()), SAMPLE_ROWS // len(chosen)):
            try:
                yield plan.rows.request(record)
            except RecordError:
                continue

"""The core of a scoring job for people who have a Ray Data pipeline already: batches in, answered batches out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pydantic import ValidationError

from cluster import ClusterRouter
from laya.questions import Question
from pipelines.asking import Asker
from pipelines.config import AskConfig, told
from pipelines.errors import InputError
from pipelines.gating import check_thresholds
from pipelines.hook_paths import hooks_of
from pipelines.question_files import load_questions
from pipelines.row_requests import RowRequests
from pipelines.sinks import output_rows, output_schema
from pipelines.sources import Record, check_state_columns, columns_of_schema, default_state_columns, records_of


class Scorer:
    """Answers the rows of Arrow tables, for ``ds.map_batches``.

    Rows go out as they came in, one for one and in order, with the columns that `laya score` adds: typed answers for each question, and the
    struct ``laya`` that says how a row was answered or why not. Any source and any sink of Ray Data will do, with the guarantees that they
    give.

        >>> router = ClusterRouter()
        >>> ds.map_batches(
        ...     pipelines.Scorer,
        ...     fn_constructor_kwargs={"router": router, "questions": "tickets", "model": "english"},
        ...     batch_format="pyarrow", batch_size=512, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=0.25,
        ... )

    Args:
        router: Answers requests. It can be made in the driver: it finds its router actor again wherever it is unpickled.
        in_flight: Chunks of up to 256 rows that are being answered at a time; two for each agent keep them busy.
        **asked: What is asked of each row: the fields of `pipelines.config.AskConfig`.

    Raises:
        InputError: A field is wrong, or the questions are.
    """

    def __init__(self, router: ClusterRouter, *, in_flight: int = 4, **asked: Any) -> None:
        try:
            self._config = AskConfig.model_validate(asked)
        except ValidationError as error:
            raise InputError(told(error)) from None
        config = self._config
        self._questions: Mapping[Any, Any] | None = None
        self._parsed: tuple[Question, ...] | None = None
        if config.questions is not None:
            self._questions, self._parsed = load_questions(config.questions)
        check_thresholds(config.min_confidence, self._parsed)
        self._hooks = hooks_of(config.hooks)
        self._router = router
        self._in_flight = in_flight

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Answers a batch.

        Args:
            batch: A table with the state column.

        Returns:
            Its rows, answered; a row that cannot be carries its error.

        Raises:
            InputError: The columns are not as asked for.
            laya.CheckpointError: A checkpoint cannot be had.
        """
        columns = columns_of_schema(batch.schema)
        state = self._config.state or default_state_columns(columns.names)
        check_state_columns(state, columns.names, self._config.state_json)
        rows = RowRequests(self._config, state, self._questions)
        asker = Asker(self._router, rows, self._hooks, alike=True, in_flight=self._in_flight)
        answered = asker.answer(_records(batch, rows), lambda _: uuid4().hex)
        tables = [output_schema(columns, self._parsed).empty_table()]
        for part in answered:
            records, run_ids, outcomes = zip(*part, strict=True)
            tables.append(output_rows(records, outcomes, run_ids, columns, self._parsed, self._config.min_confidence))
        return pa.concat_tables(tables)


def _records(table: pa.Table, rows: RowRequests) -> Iterator[Record]:
    number = count(1)
    for batch in table.to_batches():
        for record in records_of(batch, wanted=rows.columns):
            record.number = next(number)
            yield record

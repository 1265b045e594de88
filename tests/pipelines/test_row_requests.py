"""What a row asks: the columns that say how to answer it."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.config import ScoreConfig
from pipelines.errors import RecordError
from pipelines.row_requests import RowRequests
from pipelines.sources import Record


def asked(max_len: Any) -> Any:
    config = ScoreConfig(inputs=("in.jsonl",), output="out", questions="tickets", max_len_column="tokens")
    return RowRequests(config, ("text",), {}).request(Record("in.jsonl", 1, {"text": "hello", "tokens": max_len}))["max_len"]


@pytest.mark.parametrize(("given", "max_len"), [(64, 64), ("64", 64), (64.0, 64), (None, None), ("", None), (float("nan"), None)])
def test_a_column_of_whole_numbers_with_gaps_is_often_one_of_floats(given, max_len):
    assert asked(given) == max_len


@pytest.mark.parametrize("given", [0, -1, 64.5, "64.0", True, float("inf"), "many"])
def test_what_is_no_number_of_tokens_is_an_error_of_the_row(given):
    with pytest.raises(RecordError, match="tokens"):
        asked(given)

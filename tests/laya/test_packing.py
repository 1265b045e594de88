"""Micro-batches under a token budget."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laya.engine.packing import pack


@given(
    lengths=st.lists(st.integers(1, 600), max_size=80),
    token_budget=st.integers(1, 4096),
    max_rows=st.none() | st.integers(1, 10),
    sort=st.booleans(),
)
def test_each_row_once_within_the_budget(lengths: list[int], token_budget: int, max_rows: int | None, sort: bool) -> None:
    batches = pack(lengths, token_budget, max_rows, sort)
    rows = [row for batch in batches for row in batch]
    assert sorted(rows) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) == 1 or max(lengths[row] for row in batch) * len(batch) <= token_budget
        assert max_rows is None or len(batch) <= max_rows
    if sort:
        assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    else:
        assert rows == list(range(len(lengths)))


@given(lengths=st.lists(st.integers(1, 600), min_size=1, max_size=80), token_budget=st.integers(1, 4096), sort=st.booleans())
def test_no_batch_ends_while_the_next_row_would_fit(lengths: list[int], token_budget: int, sort: bool) -> None:
    batches = pack(lengths, token_budget, sort=sort)
    for batch, following in pairwise(batches):
        wider = [*batch, following[0]]
        assert max(lengths[row] for row in wider) * len(wider) > token_budget


@pytest.mark.parametrize(
    ("lengths", "token_budget", "max_rows", "sort", "batches"),
    [
        pytest.param([], 100, None, True, [], id="nothing"),
        pytest.param([500], 100, None, True, [[0]], id="a row wider than the budget goes alone"),
        pytest.param([10, 500, 10], 100, None, False, [[0], [1], [2]], id="and takes no neighbour with it"),
        pytest.param([10, 40, 20, 40], 80, None, True, [[1, 3], [2, 0]], id="longest first"),
        pytest.param([10, 40, 20, 40], 80, None, False, [[0, 1], [2, 3]], id="as they come"),
        pytest.param([10, 10, 10, 10, 10], 1000, 2, False, [[0, 1], [2, 3], [4]], id="rows limited"),
        pytest.param([30, 10, 10, 10], 60, None, False, [[0, 1], [2, 3]], id="padding counts"),
        pytest.param([20, 20, 20], 60, None, True, [[0, 1, 2]], id="the budget itself is allowed"),
        pytest.param([20, 20, 20], 59, None, True, [[0, 1], [2]], id="one token past it is not"),
    ],
)
def test_by_hand(lengths: list[int], token_budget: int, max_rows: int | None, sort: bool, batches: list[list[int]]) -> None:
    assert pack(lengths, token_budget, max_rows, sort) == batches

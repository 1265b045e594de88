"""The page about the cluster, executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_has_blocks():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["cluster", "deadline"])
def test_each_block_runs(block, ray_session, monkeypatch):
    monkeypatch.setattr(ray_session, "init", lambda: None)  # the session's Ray is there already
    exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})

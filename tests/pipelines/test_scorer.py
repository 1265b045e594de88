"""The core of a job in a Ray Data pipeline of one's own."""

from __future__ import annotations

import pyarrow as pa
import pytest
import ray

import pipelines
from cluster import ClusterRouter
from pipelines import InputError

ANGRY = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def router(ray_session):
    router = ClusterRouter(models={"m": "mini"}, default="m", max_loaded=1, name="scorer", num_cpus=1)
    yield router
    router.close()


def test_it_answers_batches_of_any_data_set_row_for_row(router, mini):
    texts = [f"Parcel {index} is late, {'I am furious' if index % 3 else 'no hurry'}." for index in range(50)]
    texts[7] = ""
    items = [{"id": index, "text": text} for index, text in enumerate(texts)]
    asked = {"router": router, "questions": ANGRY, "model": "m", "min_confidence": 0.9}
    answered = ray.data.from_items(items).map_batches(
        pipelines.Scorer,
        fn_constructor_kwargs=asked,
        batch_format="pyarrow",
        batch_size=16,
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=0.25,
    )
    rows = sorted(answered.take_all(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(50))
    expected = mini.predict_batch(texts, ANGRY)
    for row, text, result in zip(rows, texts, expected, strict=True):
        if not text:
            assert row["laya"]["error"]["message"].endswith("`text` is empty")
            continue
        assert row["text"] == text
        assert row["angry"] == pytest.approx(result["answers"]["angry"]["noul"], abs=TOLERANCE)
        assert row["angry_abstain"] == (row["angry_confidence"] < 0.9)
    assert len({row["laya"]["run_id"] for row in rows}) == 50


def test_a_batch_without_rows_has_the_schema(router):
    scorer = pipelines.Scorer(router, questions=ANGRY, model="m")
    empty, full = pa.table({"text": pa.array([], pa.string())}), pa.table({"text": ["hello"]})
    assert scorer(empty).schema == scorer(full).schema
    assert scorer(empty).num_rows == 0


def test_rows_of_several_chunks_and_types_keep_their_place(router):
    scorer = pipelines.Scorer(router, questions=ANGRY, model="m", state=("a", "b"))
    table = pa.table({"a": pa.chunked_array([["x"], ["y", "z"]]), "b": pa.array([1, 2, 3]), "keep": pa.array([b"1", b"2", None])})
    answered = scorer(table)
    assert answered.select(["a", "b", "keep"]).equals(table)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"question": ANGRY}, "question: no such field"),
        ({}, "give either questions"),
        ({"questions": "nonesuch.yaml"}, "nonesuch.yaml was not found"),
        ({"questions": {"q": {"type": "choice"}}}, "question 'q'"),
        ({"questions": ANGRY, "min_confidence": {"calm": 0.5}}, "there is no question 'calm'"),
    ],
)
def test_what_is_wrong_is_told_when_it_is_made(router, asked, told):
    with pytest.raises(InputError, match=told):
        pipelines.Scorer(router, **asked)


def test_a_table_without_the_state_is_refused(router):
    with pytest.raises(InputError, match="no column is named `body`"):
        pipelines.Scorer(router, questions=ANGRY, model="m", state="body")(pa.table({"text": ["x"]}))

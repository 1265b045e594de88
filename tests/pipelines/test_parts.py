"""Part files and output folders, here and in an object store: whole or absent, never mixed, and what is left tells what is done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from laya.questions import parse_questions
from pipelines import storage
from pipelines.errors import InputError
from pipelines.plan import make_plan
from pipelines.sinks import (
    Aside,
    Manifest,
    check_output_folder,
    committed_notes,
    committed_parts,
    fingerprint,
    locked,
    part_name,
    part_notes,
    read_manifest,
    read_runs,
    remove_unfinished,
    run_location,
    write_manifest,
    write_part,
)
from pipelines.sinks.json_rows import json_lines
from tests.conftest import GOLDENS

_numbers = count()


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


SCHEMA = table().schema


ASKED = parse_questions({"a": {"type": "noul", "instructions": "?"}})


def gated(*rows: tuple[int, bool | None]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array([number for number, _ in rows], pa.int64()),
            "a_confidence": pa.array([0.5] * len(rows), pa.float64()),
            "a_abstain": pa.array([unsure for _, unsure in rows], pa.bool_()),
        }
    )


@pytest.fixture(params=["here", "s3"])
def folder(request, tmp_path):
    """An output folder that is not there yet."""
    if request.param == "here":
        return str(tmp_path / "out")
    return f"{request.getfixturevalue('s3')}/parts-{next(_numbers)}/out"


def read_part(folder: str, index: int) -> list[Any]:
    content = storage.read_bytes(storage.join(folder, part_name(index)))
    rows: list[Any] = pq.read_table(pa.BufferReader(content)).to_pylist()
    return rows


class TestParts:
    def test_a_part_is_written_under_its_number_with_its_notes(self, folder):
        parts = [table(1), table(), table(2, 3)]
        assert write_part(folder, 42, parts, SCHEMA, "parquet", lambda: {"told": "ü"}) == 3
        assert set(storage.list_folder(folder)) == {"_laya", "part-00042.parquet"}
        assert [row["n"] for row in read_part(folder, 42)] == [1, 2, 3]
        size = len(storage.read_bytes(storage.join(folder, part_name(42))))
        assert part_notes(folder, [41, 42]) == {42: {"told": "ü", "index": 42, "rows": 3, "size": size}}
        assert committed_parts(folder, "parquet") == {42}

    def test_notes_are_asked_for_after_the_last_row(self, folder):
        seen: list[int] = []

        def tables() -> Iterator[pa.Table]:
            yield table(1)
            seen.append(1)

        write_part(folder, 0, tables(), SCHEMA, "parquet", lambda: {"seen": len(seen)})
        assert part_notes(folder, [0])[0]["seen"] == 1

    def test_no_rows_still_have_the_schema(self, folder):
        assert write_part(folder, 0, [], SCHEMA, "parquet") == 0
        content = storage.read_bytes(storage.join(folder, part_name(0)))
        assert pq.read_table(pa.BufferReader(content)).equals(table())

    def test_a_part_is_replaced_as_a_whole(self, folder):
        for number in (1, 2):
            write_part(folder, 0, [table(number)], SCHEMA, "parquet")
        assert read_part(folder, 0) == [{"n": 2}]

    def test_failing_tables_leave_nothing_behind_and_keep_the_old_part(self, folder):
        def tables() -> Iterator[pa.Table]:
            yield table(5)
            raise KeyError("no more")

        for old in (set(), {1}):
            with pytest.raises(KeyError, match="no more"):
                write_part(folder, 1, tables(), SCHEMA, "parquet")
            assert committed_parts(folder, "parquet") == old
            assert not [name for name in storage.list_folder(storage.join(folder, "_laya")) if name.startswith("unfinished")]
            write_part(folder, 1, [table(4)], SCHEMA, "parquet")
        assert read_part(folder, 1) == [{"n": 4}]

    def test_a_part_of_another_size_than_was_noted_is_not_there(self, folder):
        write_part(folder, 0, [table(1)], SCHEMA, "parquet")
        write_part(folder, 1, [table(2)], SCHEMA, "parquet")
        whole = storage.read_bytes(storage.join(folder, part_name(1)))
        storage.write_bytes(storage.join(folder, part_name(1)), whole[:-1])
        assert committed_parts(folder, "parquet") == {0}

    @pytest.mark.parametrize("notes", [None, b"", b"{", b"[]", b'{"size": "?"}'])
    def test_a_part_without_notes_that_can_be_read_is_not_there(self, folder, notes):
        write_part(folder, 0, [table(1)], SCHEMA, "parquet")
        where = storage.join(folder, "_laya", "part-00000.json")
        storage.delete(where) if notes is None else storage.write_bytes(where, notes)
        assert committed_parts(folder, "parquet") == set()

    def test_an_upload_that_was_cut_short_does_not_count(self, s3, monkeypatch):
        """An object store completes an upload when its stream is closed, also when it was cut short by an error."""
        folder = f"{s3}/parts-{next(_numbers)}"

        def cut_short(source, target, _length):
            target.write(source.read(10))
            raise KeyboardInterrupt

        monkeypatch.setattr("pipelines.storage.shutil.copyfileobj", cut_short)
        with pytest.raises(KeyboardInterrupt):
            write_part(folder, 0, [table(1)], SCHEMA, "parquet")
        assert storage.list_folder(folder)[part_name(0)] == 10, "the store shows nothing, so the test shows nothing"
        assert committed_parts(folder, "parquet") == set()
        monkeypatch.undo()
        write_part(folder, 0, [table(1)], SCHEMA, "parquet")
        assert committed_parts(folder, "parquet") == {0}

    def test_rows_that_are_unsure_are_copied_aside(self, folder):
        aside = f"{folder}-review"
        rows = gated((1, True), (2, False), (3, None), (4, True))
        write_part(folder, 0, [rows], rows.schema, "parquet", aside=Aside(aside, ASKED))
        write_part(folder, 1, [gated((5, False))], rows.schema, "parquet", aside=Aside(aside, ASKED))
        assert [row["n"] for row in read_part(aside, 0)] == [1, 4]
        assert set(storage.list_folder(aside)) - {"_laya"} == {part_name(0)}
        assert committed_parts(folder, "parquet") == {0, 1}

    def test_columns_of_the_input_that_are_called_alike_put_nothing_aside(self, tmp_path):
        """The output of an earlier job may be the input of this one."""
        rows = gated((1, False)).append_column("b_confidence", pa.array([0.1])).append_column("b_abstain", pa.array([True]))
        write_part(str(tmp_path / "out"), 0, [rows], rows.schema, "parquet", aside=Aside(str(tmp_path / "review"), ASKED))
        assert not list((tmp_path / "review").glob("part*"))

    @pytest.mark.parametrize("broken", ["aside", "notes", "part"])
    def test_wherever_it_stops_the_fragment_is_done_again(self, folder, monkeypatch, broken):
        """As if it was killed there: each thing that is put in its place may be the last."""
        steps = {"aside": 0, "notes": 1, "part": 2}
        done = count()
        for name in ("put_file", "write_bytes"):
            whole = getattr(storage, name)

            def step(*arguments, whole=whole):
                if next(done) == steps[broken]:
                    raise SystemExit("killed")
                whole(*arguments)

            monkeypatch.setattr(f"pipelines.sinks.parts.{name}", step)
        rows = gated((1, True), (2, False))
        with pytest.raises(SystemExit):
            write_part(folder, 0, [rows], rows.schema, "parquet", aside=Aside(f"{folder}-review", ASKED))
        monkeypatch.undo()
        assert committed_parts(folder, "parquet") == set()
        write_part(folder, 0, [rows], rows.schema, "parquet", aside=Aside(f"{folder}-review", ASKED))
        assert committed_parts(folder, "parquet") == {0}
        assert [row["n"] for row in read_part(f"{folder}-review", 0)] == [1]

    def test_rows_are_written_as_they_come(self, tmp_path, monkeypatch):
        monkeypatch.setattr("pipelines.sinks.parts._GROUP_ROWS", 2)
        write_part(str(tmp_path), 0, (table(n) for n in range(5)), SCHEMA, "parquet")
        assert pq.ParquetFile(tmp_path / part_name(0)).metadata.num_row_groups == 3

    def test_a_failing_disk_leaves_no_part(self, tmp_path, monkeypatch):
        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_part(str(tmp_path), 1, [table(1)], SCHEMA, "parquet")
        assert [path.name for path in tmp_path.rglob("*")] == ["_laya"]

    def test_readers_of_data_sets_see_the_parts_only(self, tmp_path):
        for index in range(2):
            write_part(str(tmp_path), index, [table(index)], SCHEMA, "parquet")
        with locked(str(tmp_path)):
            write_manifest(str(tmp_path), manifest())
            assert pq.read_table(tmp_path)["n"].to_pylist() == [0, 1]

    def test_leavings_can_be_removed_and_nothing_else(self, tmp_path):
        write_part(str(tmp_path), 3, [], SCHEMA, "parquet")
        for name in ("_laya/unfinished-x", "part-5.parquet", "part-00006.parquet.tmp", "other.parquet"):
            (tmp_path / name).write_bytes(b"")
        assert committed_parts(str(tmp_path), "parquet") == {3}
        assert remove_unfinished(str(tmp_path)) == 1
        assert sorted(path.name for path in tmp_path.rglob("*")) == [
            *["_laya", "other.parquet", "part-00003.json", "part-00003.parquet", "part-00006.parquet.tmp", "part-5.parquet"]
        ]


class TestJsonLines:
    def test_text_that_is_not_utf8_names_its_column(self):
        broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xe9")])
        with pytest.raises(InputError, match=r"column `note` .*; write Parquet, or leave it out with --columns"):
            json_lines(pa.table({"id": [1], "note": broken}))

    def test_every_value_is_json_that_any_reader_reads(self):
        rows = pa.table(
            {
                "big": pa.array([2**63 - 1, None]),
                "text": ["a\u2028b \u00e9", None],
                "nan": [float("nan"), 0.5],
                "bytes": pa.array([b"\xff\x00", b"plain"], pa.binary()),
                "when": pa.array([datetime(2026, 1, 5, 10, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
                "day": pa.array([date(2026, 1, 5), None]),
                "exact": pa.array([Decimal("1.50"), None]),
                "nested": pa.array([{"x": [float("inf"), 1.0]}, None]),
                "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
            }
        )
        lines = json_lines(rows).decode().split("\n")
        assert lines.pop() == ""
        first, second = (json.loads(line, parse_constant=pytest.fail) for line in lines)
        assert first == {
            "big": 2**63 - 1,
            "text": "a\u2028b \u00e9",
            "nan": None,
            "bytes": "/wA=",
            "when": "2026-01-05T10:00:00+00:00",
            "day": "2026-01-05",
            "exact": "1.50",
            "nested": {"x": [None, 1.0]},
            "map": {"k": 1},
        }
        assert second == {**dict.fromkeys(first), "nan": 0.5, "bytes": "plain"}

    def test_parts_of_json_lines_are_parts(self, folder):
        assert write_part(folder, 0, [table(1, 2)], SCHEMA, "jsonl") == 2
        assert storage.read_bytes(storage.join(folder, "part-00000.jsonl")) == b'{"n": 1}\n{"n": 2}\n'
        assert committed_parts(folder, "jsonl") == {0}
        assert committed_parts(folder, "parquet") == set()
        assert write_part(folder, 1, [], SCHEMA, "jsonl") == 0
        assert committed_parts(folder, "jsonl") == {0, 1}


def manifest(**facts: str) -> Manifest:
    return Manifest(facts=facts, config={"model": "mini"}, questions={"a": {"type": "noul"}}, fragments=3, rows=5001, inputs=[])


class TestManifest:
    def test_it_is_read_as_it_was_first_written(self, folder):
        first = manifest(model="m")
        write_manifest(folder, first)
        write_manifest(folder, manifest(model="m"))
        assert read_manifest(folder) == first
        assert set(storage.list_folder(folder)) == {"_laya"}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "not a manifest that can be read"),
            ("[]", "not a manifest that can be read"),
            ('{"version": 3}', "not a manifest that can be read"),
            ('{"version": 99}', "format version 99, not 3"),
            (None, "holds no output of `laya score`"),
        ],
    )
    def test_one_that_cannot_be_used_is_refused(self, tmp_path, content, message):
        (tmp_path / "_laya").mkdir()
        if content is not None:
            (tmp_path / "_laya" / "manifest.json").write_text(content)
        with pytest.raises(InputError, match=message):
            read_manifest(str(tmp_path))

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match=r"file: cannot be written to: .*; choose another --output"):
            write_manifest(str(tmp_path / "file"), manifest())

    def test_new_and_empty_folders_are_fresh_and_the_same_job_goes_on(self, folder):
        assert check_output_folder(folder, {"model": "a"}) == "fresh"
        with locked(folder):
            assert check_output_folder(folder, {"model": "a"}) == "fresh"
        write_manifest(folder, manifest(model="a"))
        write_part(folder, 0, [], SCHEMA, "parquet")
        assert check_output_folder(folder, {"model": "a"}) == "resume"

    def test_another_job_is_refused_with_what_differs(self, folder):
        write_manifest(folder, manifest(model="a", questions="b", input="c"))
        for facts, told in (
            ({"model": "a", "questions": "x", "input": "c"}, "of another job: questions: b there, x now; choose a new --output, or delete"),
            ({"model": "x", "questions": "x", "input": "c"}, "of another job: model: a there, x now; questions: b there, x now; "),
            ({"model": "a", "questions": "b"}, "of another job: input: c there, nothing now; "),
            ({"model": "a", "questions": "b", "input": "c", "new": "d"}, "of another job: new: nothing there, d now; "),
        ):
            with pytest.raises(InputError, match=told):
                check_output_folder(folder, facts)

    def test_folders_of_others_are_refused_with_the_mend(self, tmp_path):
        (tmp_path / "other").write_text("")
        with pytest.raises(InputError, match=r"holds something that is no output of this program \(other\)"):
            check_output_folder(str(tmp_path), {})
        with pytest.raises(InputError, match="other: cannot be an output folder"):
            check_output_folder(str(tmp_path / "other"), {})

    def test_runs_are_told_in_order(self, folder):
        write_manifest(folder, manifest())
        for started in (1000.5, 999.25):
            storage.write_bytes(run_location(folder, started), json.dumps({"started_at": started}).encode())
        assert [run["started_at"] for run in read_runs(folder)] == [999.25, 1000.5]


class TestCopies:
    def test_a_part_whose_copies_are_lost_does_not_count_and_one_without_any_does(self, folder, tmp_path):
        review = str(tmp_path / "review")
        for index, tables in enumerate(([gated((1, True), (2, False))], [gated((3, False))])):
            write_part(folder, index, tables, tables[0].schema, "parquet", aside=Aside(review, ASKED))
        assert list(committed_notes(folder, "parquet", review)) == [0, 1]
        storage.delete(storage.join(review, "part-00000.parquet"))
        assert list(committed_notes(folder, "parquet", review)) == [1]
        assert list(committed_notes(folder, "parquet")) == [0, 1]


class TestFacts:
    """What makes a job another one: see `pipelines.plan`."""

    def facts(self, tmp_path, **changes: Any) -> dict[str, str]:
        from pipelines import ScoreConfig

        source = tmp_path / "in.jsonl"
        if not source.exists():
            source.write_text('{"text": "a", "subject": "b"}\n')
        question = {"type": "choice", "instructions": "?", "criteria": {"a": "x", "b": "y"}}
        given = {"inputs": str(source), "output": str(tmp_path / "out"), "questions": {"q": question, "r": question}, **changes}
        return dict(make_plan(ScoreConfig(**given)).facts)

    def test_it_is_the_same_for_the_same_job(self, tmp_path):
        facts = self.facts(tmp_path)
        assert facts == self.facts(tmp_path, agents=4, report=False, on_error="raise")
        assert len(fingerprint(facts)) == 64

    def test_each_thing_that_decides_the_output_has_a_name(self, tmp_path):
        question = {"type": "choice", "instructions": "?", "criteria": {"a": "x", "b": "y"}}
        swapped = {**question, "criteria": {"b": "y", "a": "x"}}
        (tmp_path / "t.json").write_text('{"temperatures": {}}')
        before = self.facts(tmp_path)
        for name, changes in (
            ("questions", {"questions": {"r": question, "q": question}}),
            ("questions", {"questions": {"q": swapped, "r": question}}),
            ("state", {"state": ("text", "subject")}),
            ("lang", {"lang": "de"}),
            ("max_len", {"max_len": 100}),
            ("long", {"long": "scan"}),
            ("calibration", {"calibration": str(tmp_path / "t.json")}),
            ("min_confidence", {"min_confidence": 0.5}),
            ("labels", {"labels": {"q": "subject"}}),
            ("columns", {"columns": ("text",)}),
            ("rows_per_fragment", {"rows_per_fragment": 10}),
            ("format", {"format": "jsonl"}),
            ("hooks", {"hooks": "tests.pipelines.job_hooks:Guard"}),
        ):
            after = self.facts(tmp_path, **changes)
            changed = [fact for fact in before if before[fact] != after[fact]]
            assert [fact for fact in changed if fact != "the hooks' code"] == [name]
            assert fingerprint(after) != fingerprint(before)

    def test_the_code_of_the_hooks_decides_too(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))
        code = tmp_path / "masks_of_this_test.py"
        code.write_text("class Mask:\n    def on_predict_end(self, ctx):\n        pass\n")
        hooks = {"hooks": "masks_of_this_test:Mask"}
        before = self.facts(tmp_path, **hooks)
        assert before == self.facts(tmp_path, **hooks)
        code.write_text(code.read_text() + "# changed\n")
        after = self.facts(tmp_path, **hooks)
        assert [fact for fact in before if before[fact] != after[fact]] == ["the hooks' code"]

    @pytest.mark.parametrize("name", ["model.safetensors", "rl_agent_config.json", "tokenizer/tokenizer.json", "encoder/config.json"])
    def test_each_file_of_the_checkpoint_decides(self, tmp_path, name):
        model = tmp_path / "model"
        shutil.copytree(GOLDENS / "tiny", model)
        before = self.facts(tmp_path, model=str(model))
        assert before == self.facts(tmp_path, model=str(model))
        path = model / name
        if path.suffix == ".json":
            path.write_text(path.read_text() + "\n")
        else:
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
        after = self.facts(tmp_path, model=str(model))
        assert [fact for fact in before if before[fact] != after[fact]] == ["the checkpoint's files"]

    def test_keys_that_json_writes_alike_are_told_apart(self, tmp_path):
        marks = set()
        for label in (1, "1", True, "true", 1.5):
            asked = {"q": {"type": "choice", "instructions": "?", "criteria": [label, "other"]}}
            marks.add(self.facts(tmp_path, questions=asked)["questions"])
        assert len(marks) == 5

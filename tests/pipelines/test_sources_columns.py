"""The types that input columns have, and which columns make the state."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from laya.states import serialize
from pipelines.errors import InputError, RecordError
from pipelines.sources import (
    Record,
    check_state_columns,
    columns_of_schema,
    default_state_columns,
    find_inputs,
    records_of,
    state_of,
    survey,
)
from tests.pipelines.source_files import column_types, records, write, write_jsonl, write_parquet


class TestColumns:
    @pytest.mark.parametrize(
        ("column", "kind"),
        [
            (["a", None], "string"),
            ([True, None], "bool"),
            ([1, None, -(2**63), 2**63 - 1], "int64"),
            ([1, 0.5, None], "double"),
            ([0.5], "double"),
            ([2**53, 2**60, 0.5], "double"),
            ([2**70, 0.5], "double"),
            ([2**53 + 1, 0.5], "json"),
            ([2**63], "json"),
            ([10**400, 0.5], "json"),
            ([1, "1"], "json"),
            ([1, True], "json"),
            ([{"a": 1}], "json"),
            ([[1], None], "json"),
            (["text", {"body": "x"}, []], "json"),
            ([None, None], "string"),
        ],
    )
    def test_a_jsonl_column_has_the_type_that_holds_all_of_it(self, tmp_path, column, kind):
        for index, order in enumerate((column, column[::-1])):
            path = write_jsonl(tmp_path / f"{index}.jsonl", *({"c": value} for value in order))
            assert column_types(path) == {"c": kind}

    def test_columns_come_as_they_are_first_seen_over_all_files(self, tmp_path):
        first = write_jsonl(tmp_path / "a.jsonl", {"b": 1}, {"a": 2, "b": 1})
        second = write_jsonl(tmp_path / "b.jsonl", {"c": None, "a": "2"})
        assert list(column_types(first, second).items()) == [("b", "int64"), ("a", "json"), ("c", "string")]

    def test_parts_that_are_surveyed_apart_say_the_same(self, tmp_path, monkeypatch):
        path = write_jsonl(tmp_path / "a.jsonl", *({"n": n if n % 7 else n + 0.5, f"x{n}": n} for n in range(50)))
        files = find_inputs([str(path)])
        whole = survey(files, 10**9).columns
        monkeypatch.setattr("pipelines.sources.surveying.PIECE_BYTES", 100)
        assert survey(files, 3, run=lambda body, pieces: [pickle.loads(pickle.dumps(body))(piece) for piece in pieces]).columns == whole

    def test_broken_lines_do_not_count(self, tmp_path):
        assert column_types(write(tmp_path / "a.jsonl", '{"n": 1}\n{"n": "x"\n{"n": 2}\n')) == {"n": "int64"}

    def test_csv_is_text_and_joins_jsonl_text(self, tmp_path):
        table = write(tmp_path / "a.csv", "id,text\n1,a\n")
        lines = write_jsonl(tmp_path / "b.jsonl", {"text": "b", "id": 2, "more": 0.5})
        assert column_types(table) == {"id": "string", "text": "string"}
        assert column_types(lines, table) == {"text": "string", "id": "json", "more": "double"}

    def test_parquet_keeps_its_types_whatever_the_order_of_columns(self, tmp_path):
        one = write_parquet(
            tmp_path / "a.parquet",
            pa.table({"t": pa.array(["x"]).dictionary_encode(), "d": pa.array([1], pa.int8()), "n": pa.nulls(1), "m": pa.nulls(1)}),
        )
        two = write_parquet(tmp_path / "b.parquet", pa.table({"d": pa.array([1], pa.int8()), "n": [0.5], "t": ["y"], "m": pa.nulls(1)}))
        assert list(column_types(one, two).items()) == [("t", "string"), ("d", "int8"), ("n", "double"), ("m", "string")]

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (pa.table({"a": ["x"]}), r"column `a` is int64 in .*one\.parquet but string in .*two\.parquet"),
            (pa.table({"a": [1], "b": [1]}), r"column `b` is in .*two\.parquet but not in .*one\.parquet"),
            (pa.table({"c": [1]}), r"column `a` is in .*one\.parquet but not in .*two\.parquet"),
        ],
    )
    def test_parquet_files_that_differ_are_both_named(self, tmp_path, other, message):
        one = write_parquet(tmp_path / "one.parquet", pa.table({"a": [1]}))
        two = write_parquet(tmp_path / "two.parquet", other)
        with pytest.raises(InputError, match=message):
            column_types(one, two)

    def test_parquet_and_text_files_share_columns_of_one_type_only(self, tmp_path):
        table = write_parquet(tmp_path / "a.parquet", pa.table({"n": [1], "text": ["x"]}))
        assert column_types(table, write_jsonl(tmp_path / "b.jsonl", {"n": 2, "text": None, "new": True})) == {
            "n": "int64",
            "text": "string",
            "new": "bool",
        }
        for row, kind in (({"n": "2"}, "string"), ({"text": ["x"]}, "mixed")):
            with pytest.raises(InputError, match=rf"is \w+ in .*a\.parquet but {kind} in the text files"):
                column_types(table, write_jsonl(tmp_path / "c.jsonl", row))

    def test_data_in_memory(self):
        schema = pa.schema([("a", pa.dictionary(pa.int8(), pa.string())), ("b", pa.null())])
        assert columns_of_schema(schema).types == {"a": pa.string(), "b": pa.string()}
        with pytest.raises(InputError, match="two columns are named `a`"):
            columns_of_schema(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


class TestState:
    def record(self, **columns: Any) -> Record:
        return Record("a.jsonl", 3, columns)

    @pytest.mark.parametrize("value", ["text", " x ", {"b": 1, "a": None}, [{"role": "user"}], 0, False, 1.5])
    def test_one_column_is_its_value_as_it_is(self, value):
        assert state_of(self.record(text=value), ("text",)) is value

    def test_several_columns_are_a_dict_in_the_order_given(self):
        state = state_of(self.record(a="x", b=None, c=1), ("c", "missing", "b", "a"))
        assert list(state.items()) == [("c", 1), ("missing", None), ("b", None), ("a", "x")]

    @pytest.mark.parametrize(
        ("columns", "wanted", "message"),
        [
            ({"text": None}, ("text",), "a.jsonl line 3: `text` is null"),
            ({}, ("text",), "a.jsonl line 3: `text` is missing"),
            ({"text": ""}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"text": " \n\t\u2003"}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"text": {}}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"text": []}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"a": "", "b": None}, ("a", "b", "c"), "a.jsonl line 3: `a` is empty, `b` is null, `c` is missing"),
            ({"a": b"\xff", "b": "x"}, ("a", "b"), "a.jsonl line 3: `a` is binary and not valid UTF-8"),
        ],
    )
    def test_a_record_without_a_state_says_so(self, columns, wanted, message):
        with pytest.raises(RecordError) as caught:
            state_of(self.record(**columns), wanted)
        assert str(caught.value) == message

    def test_a_broken_record_raises_its_problem(self, tmp_path):
        (record,) = records(write(tmp_path / "a.jsonl", "{"))
        with pytest.raises(RecordError, match=r"a\.jsonl line 1: not valid JSON"):
            state_of(record, ("text",))

    @pytest.mark.parametrize(
        ("text", "state"),
        [
            ('{"b": 12, "a": null, "n": 9007199254740993}', {"b": 12, "a": None, "n": 2**53 + 1}),
            (' ["é", {"role": "user"}] ', ["é", {"role": "user"}]),
            ('"plain \\ud83d\\ude00"', "plain 😀"),
            ({"already": "read"}, {"already": "read"}),
            ([1], [1]),
        ],
    )
    def test_a_column_of_json_text_is_what_it_stands_for(self, text, state):
        assert serialize(state_of(self.record(s=text), ("s",), as_json=True)) == serialize(state)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("{'a': 1}", ": not valid JSON: Expecting property name enclosed in double quotes at character 2"),
            ('{"a": NaN}', ": not valid JSON: NaN is not a JSON number; write null or a string"),
            ('{"a": 1, "a": 2}', ': not valid JSON: key "a" is there twice in one object; rename one of them'),
            ('"\\ud83d"', ": an escape such as \\ud83d stands for half a character; write both halves, or the character itself"),
            ("[" * 300 + "]" * 300, ": nested more than 200 levels deep"),
            ("12", " must hold a JSON object, list or string, not a number"),
            ("null", " must hold a JSON object, list or string, not null"),
            (12, " must hold JSON text, not a number"),
            (True, " must hold JSON text, not a boolean"),
            (None, " is null"),
            ("  ", " is empty"),
            ("{}", " is empty"),
            ('""', " is empty"),
        ],
    )
    def test_json_text_that_cannot_be_a_state_says_where_and_why(self, text, reason):
        with pytest.raises(RecordError) as caught:
            state_of(self.record(s=text), ("s",), as_json=True)
        assert str(caught.value).removesuffix("empty") == f"a.jsonl line 3: `s`{reason}".removesuffix("empty")

    def test_what_json_cannot_hold_is_named(self):
        for value, message in (
            ({"a": [1.0, float("nan")]}, "a.jsonl line 3: `s`['a'][1] is nan, which JSON has no number for; write null or text"),
            (float("-inf"), "a.jsonl line 3: `s` is -inf, which JSON has no number for; write null or text"),
            ([b"\xff"], "a.jsonl line 3: `s`[0] is binary and not valid UTF-8"),
        ):
            with pytest.raises(RecordError) as caught:
                state_of(self.record(s=value), ("s",))
            assert str(caught.value) == message

    def test_json_text_is_one_column(self):
        with pytest.raises(InputError, match="a state of JSON text is one column, not `a`, `b`"):
            check_state_columns(("a", "b"), ("a", "b"), as_json=True)

    def test_arrow_rows_in_memory_are_records_too(self):
        batch = pa.record_batch({"text": ["a", None], "n": [1, 2]})
        first, second = records_of(batch)
        assert state_of(first, ("text",)) == "a"
        with pytest.raises(RecordError, match="batch row 2: `text` is null"):
            state_of(second, ("text",))

    @pytest.mark.parametrize(
        ("columns", "chosen"), [(("content", "body"), "body"), (("text", "state"), "state"), (("x", "message", "content"), "message")]
    )
    def test_the_usual_names_are_found_in_order_of_preference(self, columns, chosen):
        assert default_state_columns(columns) == (chosen,)

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            ((), "no state column; pass --state with one or more of `text`, `body`"),
            (("bdy",), "no column is named `bdy`; the columns are `text`, `body`. Did you mean `body`?"),
            (("zzzz",), "no column is named `zzzz`; the columns are `text`, `body`."),
            (("text", "text"), "state column `text` is given twice"),
        ],
    )
    def test_state_columns_that_cannot_be_are_refused(self, wanted, message):
        check_state_columns(("body", "text"), ("text", "body"))
        with pytest.raises(InputError) as caught:
            check_state_columns(wanted, ("text", "body"))
        assert str(caught.value) == message

    def test_no_usual_name_lists_the_columns(self):
        with pytest.raises(InputError, match="pass --state with one or more of `id`, `Text`"):
            default_state_columns(("id", "Text"))
        with pytest.raises(InputError, match="there are none"):
            default_state_columns(())

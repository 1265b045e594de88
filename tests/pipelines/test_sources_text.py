"""JSONL, CSV and text: every record exactly once, as it was written."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from laya.states import serialize
from pipelines.errors import InputError, RecordError
from pipelines.sources import (
    find_inputs,
    read,
    survey,
)
from tests.pipelines.source_files import UTF8_BOM, column_types, problems, records, values, write, write_jsonl


class TestJsonl:
    def test_only_a_line_feed_ends_a_record(self, tmp_path):
        text = "one\u2028two\u2029three\x85four"
        path = write(tmp_path / "a.jsonl", f'{{"text": "{text}"}}\r\n{{"text": "x\\u000by"}}\r\n{{"text": "last"}}')
        assert values(path) == [{"text": text}, {"text": "x\x0by"}, {"text": "last"}]

    def test_a_byte_order_mark_and_blank_lines_are_no_records_and_lines_are_counted(self, tmp_path):
        path = write(tmp_path / "a.jsonl", UTF8_BOM + b'\n{"n": 1}\r\n  \r\n\n{"n": 2}\n\n')
        assert [(record.number, record.columns) for record in records(path, 1)] == [(2, {"n": 1}), (5, {"n": 2})]
        assert [(f.first_record, f.rows) for f in survey(find_inputs([str(path)]), 1).fragments] == [(2, 1), (5, 1)]

    def test_values_stay_as_they_were_written(self, tmp_path):
        rows: list[Any] = [
            {"state": {"subject": "refund", "n": 12}},
            {"state": {"body": "van late", "n": 12.5}},
            {"state": {"n": 3, "subject": "torn box"}},
            {"state": [{"role": "user", "content": "hi"}, {"role": "agent", "content": "yes", "name": "Ann"}]},
            {"state": "plain text", "x": None, "": True, "nul": "a\x00b"},
        ]
        path = write_jsonl(tmp_path / "a.jsonl", *rows)
        found = values(path)
        assert [serialize(row["state"]) for row in found] == [serialize(row["state"]) for row in rows]
        assert found[-1] == rows[-1]

    def test_two_equal_keys_would_lose_one_value(self, tmp_path):
        path = write(tmp_path / "a.jsonl", '{"a": 1, "b": 2, "a": 3}\n{"x": [{"é": 1, "é": 1}]}\n{"a": {"a": 1}}\n')
        assert problems(path) == [
            'a.jsonl line 1: not valid JSON: key "a" is there twice in one object; rename one of them',
            'a.jsonl line 2: not valid JSON: key "é" is there twice in one object; rename one of them',
            None,
        ]

    def test_a_record_of_three_megabytes(self, tmp_path):
        path = write_jsonl(tmp_path / "a.jsonl", {"text": "é" * 1_500_000}, {"text": "next"})
        assert [len(row["text"]) for row in values(path)] == [1_500_000, 4]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b'{"a": 1', "not valid JSON: Expecting ',' delimiter at character "),
            (b'{"a": 1} {}', "not valid JSON: Extra data at character 10"),
            (b"[1]", "a record must be a JSON object, not a list"),
            (b'"x"', "a record must be a JSON object, not a string"),
            (b"null", "a record must be a JSON object, not null"),
            (b'{"a": NaN}', "not valid JSON: NaN is not a JSON number"),
            (b'{"a": -Infinity}', "not valid JSON: -Infinity is not a JSON number"),
            (b'{"a": 1e999}', "not valid JSON: the number 1e999 is too large"),
            (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON: Exceeds the limit"),
            (b'{"a": "caf\xe9"}', "not valid UTF-8: byte 0xe9 at byte 11; convert the file to UTF-8"),
            (b'{"a": "\xed\xa0\xbd"}', "not valid UTF-8: byte 0xed"),
            (b'{"a": "\\ud83d"}', "an escape such as \\ud83d stands for half a character"),
            (b'{"\\uD83D": 1}', "an escape such as \\ud83d stands for half a character"),
            (b'{"a": ' + b"[" * 250 + b"]" * 250 + b"}", "nested more than 200 levels deep"),
            (b'{"a": ' + b"[" * 100_000, "nested more than 200 levels deep"),
            ('{"a": 1}'.encode("utf-16"), "not valid UTF-8: byte 0xff"),
            (b'{"a": "x\x00y"}', "not valid JSON: Invalid control character at"),
        ],
    )
    def test_a_line_that_cannot_be_parsed_is_one_record_with_a_problem(self, tmp_path, line, reason):
        path = write(tmp_path / "tickets.jsonl", b'{"a": 0}\n' + line + b'\n{"a": 2}\n')
        found = records(path)
        broken = found[1]
        assert [record.columns for record in found] == [{"a": 0}, {}, {"a": 2}]
        assert isinstance(broken.problem, RecordError)
        assert str(broken.problem).startswith(f"tickets.jsonl line 2: {reason}")

    def test_an_escaped_pair_and_many_shallow_brackets_are_fine(self, tmp_path):
        path = write(tmp_path / "a.jsonl", '{"a": "\\ud83d\\ude00", "b": ' + json.dumps([[]] * 500) + "}\n")
        assert values(path) == [{"a": "😀", "b": [[]] * 500}]

    def test_a_file_that_changed_since_it_was_cut_is_refused(self, tmp_path):
        path = write_jsonl(tmp_path / "a.jsonl", {"a": 1}, {"a": 2})
        (fragment,) = survey(find_inputs([str(path)])).fragments
        write_jsonl(path, {"a": 1})
        with pytest.raises(InputError, match=r"a\.jsonl: changed while it was being read"):
            list(read(fragment))


class TestCsv:
    def test_text_stays_as_it_is_written(self, tmp_path):
        path = write(tmp_path / "a.csv", 'id,text\n00123,NA\n2,null\n3,None\n4,nan\n5,\n6,""\n7,2026-01-05\n8, x \n')
        assert [tuple(row.values()) for row in values(path)] == [
            ("00123", "NA"),
            ("2", "null"),
            ("3", "None"),
            ("4", "nan"),
            ("5", ""),
            ("6", ""),
            ("7", "2026-01-05"),
            ("8", " x "),
        ]

    def test_quotes_hold_commas_line_ends_and_quotes(self, tmp_path):
        path = write(tmp_path / "a.csv", UTF8_BOM + b'text,n\r\n"a,\r\n""b""\n\nc",1\r\n5" pipe,2\r\n\r\nlast,3')
        found = records(path, 1)
        assert [(record.number, record.columns) for record in found] == [
            (2, {"text": 'a,\r\n"b"\n\nc', "n": "1"}),
            (6, {"text": '5" pipe', "n": "2"}),
            (8, {"text": "last", "n": "3"}),
        ]
        assert [record.where for record in found] == ["a.csv line 2", "a.csv line 6", "a.csv line 8"]

    def test_nul_separators_and_long_cells_survive(self, tmp_path):
        long = "é" * 1_500_000
        path = write(tmp_path / "a.csv", f"text\nvan\x00late\none\u2028two\x85three\x0b\n{long}\n")
        assert [row["text"] for row in values(path)] == ["van\x00late", "one\u2028two\x85three\x0b", long]

    def test_rows_that_cannot_be_read_are_problems_of_their_own(self, tmp_path):
        path = write(tmp_path / "a.csv", b'id,text\n1,a,b\n2\n3,caf\xe9\n4,caf\xc3\xa9\n5,"x"y\n6,u\rv\n7,ok\n8,"never closed\n9,z\n')
        assert problems(path) == [
            "a.csv line 2: the header has 2 cells, this row 3; quote cells that hold commas or line ends",
            "a.csv line 3: the header has 2 cells, this row 1; quote cells that hold commas or line ends",
            "a.csv line 4: not valid UTF-8: byte 0xe9; convert the file to UTF-8",
            None,
            "a.csv line 6: not valid CSV: ',' expected after '\"'",
            "a.csv line 7: not valid CSV: new-line character seen in unquoted field",
            None,
            "a.csv line 9: not valid CSV: unexpected end of data",
        ]
        assert records(path)[3].columns == {"id": "4", "text": "café"}

    def test_a_quote_that_is_never_closed_is_given_up_at_a_limit(self, tmp_path, monkeypatch):
        limit = csv.field_size_limit(100)
        try:
            monkeypatch.setattr("pipelines.sources.csv_rows.CELL_LIMIT", 100)
            path = write(tmp_path / "a.csv", 'text\n"open\n' + "x" * 60 + "\n" + "y" * 60 + "\nfine\n")
            found = records(path, 1)
        finally:
            csv.field_size_limit(limit)
        assert str(found[0].problem) == "a.csv line 2: not valid CSV: field larger than field limit (100)"
        assert [record.columns for record in found[1:]] == [{"text": "fine"}]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"id,text,text\n1,a,b\n", "two columns are named `text`; rename one of them"),
            (b"id,caf\xe9\n", "line 1: the header is not UTF-8"),
            (b'\n"id"x,y\n', "line 2: the header is not valid CSV: ',' expected after '\"'"),
        ],
    )
    def test_a_header_that_cannot_be_used_is_refused_by_name(self, tmp_path, content, message):
        path = write(tmp_path / "a.csv", content)
        with pytest.raises(InputError) as caught:
            survey(find_inputs([str(path)]))
        assert str(path) in str(caught.value)
        assert message in str(caught.value)

    @pytest.mark.parametrize("content", [b"", b"\n\r\n", UTF8_BOM])
    def test_an_empty_file_has_neither_fragments_nor_columns(self, tmp_path, content):
        path = write(tmp_path / "a.csv", content)
        assert survey(find_inputs([str(path)])).fragments == []
        assert column_types(path) == {}

    def test_a_header_alone_still_has_columns(self, tmp_path):
        path = write(tmp_path / "a.csv", "id,text\n")
        assert survey(find_inputs([str(path)])).fragments == []
        assert column_types(path) == {"id": "string", "text": "string"}

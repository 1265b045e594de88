from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import placements
from benchmarks.placements import CASES, Case, churn, main


def test_it_measures_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--placements", "200", "--rounds", "2", "--json", str(tmp_path / "bench.json")]) in (0, 1)  # how fast is not tested here
    said = json.loads((tmp_path / "bench.json").read_text())
    assert [report["case"]["name"] for report in said] == [case.name for case in CASES]
    assert all(report["per_cpu_second"] > 0 and len(report["runs"]) == 2 for report in said)
    assert "Medians of 2 runs" in capsys.readouterr().out


def test_a_goal_that_is_missed_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(placements, "GOAL", 10**12)
    assert main(["--placements", "10", "--rounds", "1"]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_the_same_seed_is_the_same_churn() -> None:
    runs = [churn(CASES[1], 500, seed) for seed in (3, 3, 4)]
    assert runs[0].evictions == runs[1].evictions != runs[2].evictions


def test_most_requests_turn_somebody_out_unless_they_are_for_who_is_there() -> None:
    missing, hitting = (churn(Case("", 8, hits), 4000, seed=0) for hits in (0.0, 0.9))
    assert missing.granted >= 4000
    assert 0.6 < missing.evictions / missing.granted < 0.8
    assert 0.03 < hitting.evictions / hitting.granted < 0.12


def test_bad_arguments_end_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--rounds", "0"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1

"""Script and language of a state, and what language codes say."""

from __future__ import annotations

from typing import Any

import pytest

from laya.language import detect, primary_language, reads_english, state_text


class TestScript:
    @pytest.mark.parametrize(
        ("text", "script"),
        [
            ("Where is my parcel?", "latin"),
            ("Größe naïve café Łódź", "latin"),
            ("Где моя посылка?", "cyrillic"),
            ("Πού είναι το δέμα μου;", "greek"),
            ("أين الطرد الخاص بي", "arabic"),
            ("איפה החבילה שלי", "hebrew"),
            ("मेरा पार्सल कहाँ है", "devanagari"),
            ("พัสดุของฉันอยู่ที่ไหน", "thai"),
            ("내 소포는 어디에 있나요", "hangul"),
            ("我的包裹在哪里", "cjk"),
            ("ひらがなのぶん", "hiragana"),
            ("カタカナ", "katakana"),
            ("ﾊﾝｶｸ", "katakana"),  # the half-width forms of the same letters
            ("ＷＨＥＲＥ ＩＳ ＭＹ ＰＡＲＣＥＬ", "latin"),  # full-width
            ("1º 2º 3ª", "latin"),  # ordinal signs: Unicode counts them as Latin
            ("ʰʷ", "latin"),
        ],
    )
    def test_of_most_letters(self, text: str, script: str) -> None:
        found = detect(text)
        assert found["script"] == script
        assert found["non_latin_fraction"] == (0.0 if script == "latin" else 1.0)

    @pytest.mark.parametrize(
        "state", ["", "   ", "40817 22", "😀👍🏽", "\u200b\u200d\ufeff", "١٢٣", {}, [], {"n": 7, "ok": True}, "-- ?! €"]
    )
    def test_without_letters_there_is_none(self, state: Any) -> None:
        assert detect(state) == {
            "script": "unknown",
            "language": None,
            "is_english": False,
            "language_undecided": False,
            "confidence": 0.0,
            "non_latin_fraction": 0.0,
        }

    @pytest.mark.parametrize(
        ("text", "script", "fraction"),
        [
            ("hello привет мир", "cyrillic", 0.6429),
            ("hello приве", "latin", 0.5),
            ("hello my friend да", "latin", 0.1333),
            ("заказ 12345 !!! №7", "cyrillic", 1.0),
        ],
    )
    def test_the_majority_decides(self, text: str, script: str, fraction: float) -> None:
        found = detect(text)
        assert (found["script"], found["non_latin_fraction"]) == (script, fraction)

    def test_half_is_no_majority_so_the_language_is_looked_for(self) -> None:
        assert detect("hello приве")["confidence"] > 0

    def test_a_script_that_is_not_latin_needs_no_language(self) -> None:
        found = detect("Где моя посылка?")
        assert (found["language"], found["is_english"], found["language_undecided"], found["confidence"]) == (None, False, False, 0.0)


class TestLanguage:
    @pytest.mark.parametrize(
        ("text", "language"),
        [
            ("What was the total on the invoice that you sent me?", "en"),
            ("please turn off the lamp in the den", "en"),
            ("ich habe die rechnung doppelt bezahlt und will das geld wieder haben", "de"),
            ("la factura de marzo tiene un error y quiero mi dinero hoy", "es"),
            ("Bonjour, je n'ai toujours pas reçu mon colis, pouvez-vous m'aider ?", "fr"),
            ("Goedemiddag, ik heb mijn pakket nog steeds niet ontvangen", "nl"),
        ],
    )
    def test_is_found(self, text: str, language: str) -> None:
        found = detect(text)
        assert (found["language"], found["is_english"], found["language_undecided"]) == (language, language == "en", False)
        assert 0.5 <= found["confidence"] <= 1

    def test_no_language_is_named_without_confidence(self) -> None:
        found = detect("xq zzt brk")
        assert (found["language"], found["is_english"], found["language_undecided"]) == (None, False, True)

    def test_line_breaks_and_blanks_do_not_matter(self) -> None:
        text = "What was the total on the invoice that you sent me?"
        assert detect(text.replace(" ", " \n\n\t ")) == detect(text)

    def test_a_huge_text_is_read_from_its_start(self) -> None:
        found = detect("What was the total on the invoice? " * 100_000)
        assert found["language"] == "en"


class TestStateText:
    def test_a_text_is_itself(self) -> None:
        assert state_text(' {"a": 1} ') == ' {"a": 1} '

    def test_only_text_values_count(self) -> None:
        state = {"Überschrift": "one", "n": 7, "ok": True, "none": None, "inner": [{"schlüssel": "two"}, "three", 4.5, ["four"]]}
        assert state_text(state).split() == ["one", "two", "three", "four"]

    def test_keys_do_not_make_a_state_german(self) -> None:
        keys = {f"die Nachricht von gestern {index}": "please send me the invoice again" for index in range(5)}
        assert detect(keys)["language"] == "en"

    def test_keys_in_another_script_do_not_count(self) -> None:
        assert detect({"сообщение клиента": "hello"})["script"] == "latin"


class TestCodes:
    @pytest.mark.parametrize(
        "code", ["en", "eng", "english", "EN", "English", "en-US", "en_US", "en_US.UTF-8", "en-GB-oed", " en ", "en@posix"]
    )
    def test_english(self, code: str) -> None:
        assert reads_english(code) is True
        assert primary_language(code) == "en"

    @pytest.mark.parametrize("code", ["", "  ", "C", "c", "POSIX", "C.UTF-8", "und", "zxx", "mul", "UND"])
    def test_nothing(self, code: str) -> None:
        assert reads_english(code) is None
        assert primary_language(code) is None

    @pytest.mark.parametrize("code", ["de", "deu", "de-DE", "zh_Hant_TW", "fr_FR.UTF-8", "enm", "enx", "german", "es", "ang"])
    def test_another_language(self, code: str) -> None:
        assert reads_english(code) is False

    @pytest.mark.parametrize(
        ("code", "language"),
        [
            ("de", "de"),
            ("DE", "de"),
            ("de-AT", "de"),
            ("de_AT.UTF-8", "de"),
            ("de@euro", "de"),
            (" de ", "de"),
            ("zh-Hant-TW", "zh"),
            ("enm", "enm"),
        ],
    )
    def test_the_primary_subtag_is_the_language(self, code: str, language: str) -> None:
        assert primary_language(code) == language

"""Texts of strangers are inert where they land, and honest ones stay as they are."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.inert import cell, inert, inert_value

ATTACKS = [
    "\x1b[31mPASS\x1b[0m",
    "\x1b]8;;https://example.org\x07click\x1b]8;;\x07",
    "\x9b31m",
    "\x07\x08\x7f",
    "a\rPASS",
    "\u202ePASS",
    "\u2066x\u2069",
    "line\u2028PASS",
    "\x00",
]
HONEST = [
    "bf16",
    "größer, 日本語",
    "line one\nline two\tcolumn",
    "naïve 🙂 « ß »",
    "1 %",
    "−0.5",
    "no\u00a0break",
    "emoji 👩\u200d🔬",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_what_a_terminal_obeys_is_written_out(text):
    shown = inert(text)
    assert not any(each in shown for each in "\x1b\x9b\x07\x08\x7f\r\x00\u202e\u2066\u2069\u2028")
    assert "\\" in shown


@pytest.mark.parametrize("text", HONEST)
def test_honest_text_stays(text):
    assert inert(text) == text == cell(text)


@given(st.text())
def test_inert_text_stays_inert_and_loses_nothing(text):
    shown = inert(text)
    assert inert(shown) == shown
    assert [each for each in text if each.isalnum() and each not in shown] == []
    assert all(each.isprintable() or each in "\n\t" or not each.isascii() for each in shown)


def test_a_document_is_inert_in_its_keys_and_values():
    assert inert_value({"a\x1b": ["\x1b", 1, None, {"b": ("\x07",)}]}) == {
        "a\\x1b": ["\\x1b", 1, None, {"b": ("\\x07",)}]
    }


@pytest.mark.parametrize(
    "text",
    [
        '=HYPERLINK("http://x")',
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "\u00a0=1",
        "＝1",
    ],
)
def test_no_cell_is_a_formula(text):
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "text", ["-0.5", "+1e-3", "1", "", "a=b", "j019-8f", "nvfp4@x", "-inf", "2026-11-28"]
)
def test_numbers_and_plain_words_stay_as_they_are(text):
    assert cell(text) == text


@given(st.text())
def test_a_cell_survives_a_csv_file(text):
    file = io.StringIO()
    csv.writer(file).writerow([cell(text)])
    (row,) = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert row[0] in (text, f"'{text}")

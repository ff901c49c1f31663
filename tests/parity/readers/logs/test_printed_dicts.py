"""Dicts that are printed over several lines."""

import pprint
from pathlib import Path

import pytest

from parity.readers import read_run
from parity.readers.logs.lines.printed_dicts import LONGEST_DICT, joined_dicts, open_dict
from parity.readers.logs.printed_log import PrintedLog

LOSSES = [4.5 - 0.25 * at for at in range(12)]


def log() -> str:
    """Dicts whose step stands below their loss, as their names are sorted."""
    records = [
        {"gradient_norm": 1.25, "learning_rate": 3e-4, "loss": loss, "a_name": "x" * 60, "step": at}
        for at, loss in enumerate(LOSSES, 1)
    ]
    return "begin\n" + "".join(f"\n{pprint.pformat(record)}\n\n" for record in records)


def test_the_step_of_a_dict_is_that_of_its_loss(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(log())
    run = read_run(str(path))
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.loss.tolist() == LOSSES


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_the_pieces_of_a_log_that_grows_make_no_difference(size: int) -> None:
    text = log()
    whole, pieces = PrintedLog("log", {}), PrintedLog("log", {})
    whole.feed(text)
    for at in range(0, len(text), size):
        pieces.feed(text[at : at + size])
    for quantity, values in whole.columns().values.items():
        assert pieces.columns().values[quantity].tolist() == values.tolist()


def test_lines_keep_their_numbers() -> None:
    text = "a\n{'b': 1,\n 'c': 2}\nd\n"
    assert joined_dicts(text) == "a\n{'b': 1, 'c': 2}\n\nd\n"
    assert joined_dicts("a {b\nc}\n") == "a {b\nc}\n"


def test_a_dict_is_open_until_its_end_comes_or_it_is_too_long() -> None:
    assert open_dict("a\n{'b': 1,\n") == 2
    assert open_dict("a\n{'b': 1}\n") == 11
    long = "{'b': " + "1" * (LONGEST_DICT - 6)
    assert (open_dict(long), open_dict(long + "1")) == (0, LONGEST_DICT + 1)


def test_a_begin_without_an_end_joins_nothing() -> None:
    text = "{'a\n" + "b\n" * LONGEST_DICT
    assert joined_dicts(text + "}\n") == text + "}\n"

"""The files that `parity compare` writes, and what it says of those that it could not."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
NUMBERS = ("compare", "bf16=2.242", "fp8=2.276", "--tokens", "23e9")


def test_held_out_losses_are_not_pushed_and_the_refusal_says_what_is_written_instead(
    tmp_path: Path, run: Run
) -> None:
    page = tmp_path / "page.html"
    call = (*NUMBERS, "--html", str(page))
    code, _, err = run(*call, "--push")
    assert (code, "--html FILE" in err, page.exists()) == (2, True, False)
    assert run(*call)[0] == 3
    assert "fp8" in page.read_text()


@pytest.mark.parametrize("option", ["--html", "--junit", "--bundle"])
def test_on_an_error_of_input_each_file_that_was_not_written_is_named(
    option: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "out"
    code, _, err = run("compare", "nowhere.csv", "fp8.csv", option, str(file))
    named, why = err.splitlines()[-2:]
    assert (code, named, "nowhere.csv" in why, file.exists()) == (
        2,
        f"parity: {file}: not written, see the next line",
        True,
        False,
    )
    file.write_text("old")
    _, _, err = run("compare", "nowhere.csv", "fp8.csv", option, str(file))
    assert "not written, see the next line; the file there is of an earlier call" in err


def test_a_file_that_was_written_is_not_called_missing(tmp_path: Path, run: Run) -> None:
    page, table = tmp_path / "page.html", tmp_path / "no" / "junit.xml"
    _, _, err = run(*NUMBERS, "--junit", str(table), "--html", str(page))
    assert f"{table}: not written" in err
    assert (f"{page}: not written" in err) == (not page.exists())
    assert "not written" not in run(*NUMBERS, "--html", str(page))[2]

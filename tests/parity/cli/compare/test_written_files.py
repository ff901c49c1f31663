"""The files that `parity compare` writes, and what it says of those that it could not."""

from collections.abc import Callable
from pathlib import Path

Run = Callable[..., tuple[int, str, str]]
NUMBERS = ("compare", "bf16=2.242", "fp8=2.276", "--tokens", "23e9")


def test_a_page_is_written_although_the_server_of_a_push_is_away(tmp_path: Path, run: Run) -> None:
    page = tmp_path / "page.html"
    call = (*NUMBERS, "--html", str(page), "--push", "--server", "http://127.0.0.1:1")
    code, _, err = run(*call)
    assert (code, "http://127.0.0.1:1" in err, "not written" in err) == (4, True, False)
    assert "fp8" in page.read_text()


def test_on_an_error_of_input_the_page_that_was_not_written_is_named(
    tmp_path: Path, run: Run
) -> None:
    page = tmp_path / "out.html"
    call = ("compare", "nowhere.csv", "fp8.csv", "--html", str(page))
    code, _, err = run(*call)
    named, why = err.splitlines()[-2:]
    assert (code, named, "nowhere.csv" in why, page.exists()) == (
        2,
        f"parity: {page}: not written, see the next line",
        True,
        False,
    )
    page.write_text("old")
    assert "not written, see the next line; the file there is of an earlier call" in run(*call)[2]


def test_a_page_that_was_written_is_not_called_missing(tmp_path: Path, run: Run) -> None:
    assert "not written" not in run(*NUMBERS, "--html", str(tmp_path / "page.html"))[2]


def test_each_model_size_has_a_page_of_its_own(tmp_path: Path, run: Run) -> None:
    table = tmp_path / "sizes.csv"
    rows = [f"{arm},{size},{loss}" for size in (30, 60) for arm, loss in (("a", 3.1), ("b", 3.2))]
    table.write_text("\n".join(["arm,params,loss", *rows]) + "\n")
    call = (
        "compare",
        str(table),
        "--baseline",
        "a",
        "--arm-by",
        "arm",
        "--run-by",
        "arm",
        "--size-by",
        "params",
    )
    page = tmp_path / "out.html"
    code, _, err = run(*call, "--loss-is", "validation", "--html", str(page))
    assert (code in (1, 3), "not written" in err) == (True, False), err
    pages = sorted(file.name for file in tmp_path.glob("out*.html"))
    assert [name for name in pages if "30" in name or "60" in name] == pages
    assert len(pages) == 2
    for file in tmp_path.glob("out*.html"):
        file.unlink()
    _, _, err = run("compare", str(tmp_path / "no.csv"), *call[2:], "--html", str(page))
    assert f"{page}: not written" in err

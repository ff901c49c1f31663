"""The next step of `parity compare` is a whole command: typed as it stands, it does what it
says.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.report.formats.terminal import command_lines
from tests.parity.conftest import DATA

Run = Callable[..., tuple[int, str, str]]
CURVES = DATA.parents[1] / "examples" / "curves"


def command_of(out: str) -> list[str]:
    """The words of the command below "Next", as a shell reads them."""
    lines = out.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("  parity "))
    end = next(place for place, line in enumerate(lines[start:], start) if line[-1] != "\\")
    whole = "\n".join(lines[start : end + 1]).replace("\\\n", " ")
    return shlex.split(whole)[1:]


def test_the_command_that_was_typed_comes_back_with_the_option_that_decides(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CURVES)
    page = tmp_path / "page.html"
    words = ["compare", "fp8=fp8.csv", "mxfp8=mxfp8.csv"]
    code, out, _ = run(*words)
    assert code == 3
    command = command_of(out)
    assert command == [*words, "--planned-steps", "1500"]
    assert "…" not in out[out.index("Next") : out.index("Reasons")]
    assert run(*command)[0] == 0
    run(*words, "--html", str(page))
    assert "parity compare fp8=fp8.csv mxfp8=mxfp8.csv --planned-steps 1500" in page.read_text()


def test_a_long_command_is_whole_and_keeps_quoted_words_together(run: Run, tmp_path: Path) -> None:
    """Names with blanks in a deep folder: more than four lines, so that the question is in -v."""
    folder = tmp_path / ("a long folder " * 6).strip() / "of runs"
    folder.mkdir(parents=True)
    for name in ("fp8", "mxfp8"):
        (folder / f"{name}.csv").write_text((CURVES / f"{name}.csv").read_text())
    words = ["compare", f"a b={folder / 'fp8.csv'}", f"c={folder / 'mxfp8.csv'}"]
    words += ["--column", "step=step", "--column", "loss=loss"]
    _, out, _ = run(*words)
    command = command_of(out)
    assert command == [*words, "--planned-steps", "1500"]
    assert run(*command)[0] == 0
    question = "Was 1,500 the planned length"
    assert question not in out
    assert question in run(*words, "-v")[1]


def test_of_several_comparisons_in_a_file_the_command_names_its_own(
    run: Run, tmp_path: Path
) -> None:
    kept = tmp_path / "parity.yaml"
    kept.write_text(
        f"compare:\n  one:\n    runs: [fp8={CURVES}/fp8.csv, mxfp8={CURVES}/mxfp8.csv]\n"
        f"  two:\n    runs: [fp8={CURVES}/fp8.csv, nvfp4={CURVES}/nvfp4.csv]\n"
    )
    _, out, _ = run("compare", str(kept))
    command = command_of(out)
    assert command == ["compare", f"{kept}:one", "--planned-steps", "1500"]
    assert run(*command)[0] == 0


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_lines_of_a_command_are_one_command(width: int) -> None:
    command = shlex.join(["parity", "compare", "x y=a.csv", "b.csv", "--rounding", "x y=nearest"])
    lines = command_lines(command, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
    assert all(line.endswith("\\") for line in lines[:-1])
    assert re.fullmatch(r"  parity.*", lines[0])

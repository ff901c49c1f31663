"""Steps beside tokens: refused with one line, and never where two runs only log at different
rates.
"""

from pathlib import Path

import numpy as np
import pytest

from parity.cli import main
from parity.judging.curves.curve import curve_from_arrays
from parity.readers import read_run
from parity.readers.curve.step_unit import other_unit, unit_change
from parity.readers.errors import ReadError


def run(steps: np.ndarray):
    return curve_from_arrays(steps, np.ones(len(steps)))


@pytest.mark.parametrize(
    ("left", "right", "other"),
    [
        (np.arange(1500), np.arange(1, 1501) * 4096, True),
        (np.arange(150_000), np.arange(1501) * 4096, True),
        (np.arange(150_000), np.arange(1501) * 100, False),
        (np.arange(1500), np.arange(1500), False),
        (np.arange(1500), np.arange(0), False),
        (np.arange(1500), np.arange(1500) * 49, False),
    ],
)
def test_two_runs(left: np.ndarray, right: np.ndarray, other: bool) -> None:
    assert other_unit(run(left), run(right)) is other
    assert other_unit(run(right), run(left)) is other


def test_one_run() -> None:
    steps = np.arange(1, 751)
    assert unit_change(np.append(steps, np.arange(751, 1501) * 4096)) == (750, 1, 751 * 4096, 4096)
    for regular in (
        steps,
        steps * 4096,
        np.append(steps, 750 + 100 * steps),
        np.append(np.arange(3), 3000 * steps),
        np.arange(0),
    ):
        assert unit_change(regular) is None


def write(path: Path, steps: np.ndarray) -> str:
    path.write_text(
        "step,loss\n"
        + "".join(f"{step},{2.0 + 1.0 / (i + 1):.6f}\n" for i, step in enumerate(steps))
    )
    return str(path)


def test_a_file_that_changes_its_unit_is_refused_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "mixed.csv", np.append(np.arange(750), np.arange(750, 1500) * 4096))
    with pytest.raises(
        ReadError, match=r"mixed.csv: after step 749 \(strides of 1\) comes 3,072,000"
    ):
        read_run(file)


@pytest.mark.parametrize("option", ["candidate", "--baseline-run", "--candidate-run", "--control"])
def test_every_run_of_a_comparison_is_checked(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, tokens = (
        write(tmp_path / "good.csv", np.arange(1500)),
        write(tmp_path / "tokens.csv", np.arange(1, 1501) * 4096),
    )
    arms = [f"a={good}", f"b={tokens if option == 'candidate' else good}"]
    extra = (
        []
        if option == "candidate"
        else [option, f"b={tokens}" if option == "--candidate-run" else tokens]
    )
    with pytest.raises(SystemExit) as left:
        main(["compare", *arms, *extra, "--planned-steps", "1500"])
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (2, "", 1)
    assert "(tokens) in strides of 4,096" in err

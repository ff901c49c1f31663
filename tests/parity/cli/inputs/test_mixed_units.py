"""Runs that count in different units: the refusal ends in a whole command that was tried on the
files, and reads them.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Run = Callable[..., tuple[int, str, str]]

UPDATES, TOKENS = np.arange(1, 201), 4096 * np.arange(1, 201)
LOSSES = np.round(3.0 + 2.0 * np.exp(-UPDATES / 50.0), 4)
BATCHES = np.arange(1, 801)


def write(path: Path, **columns: np.ndarray) -> None:
    losses = np.repeat(LOSSES, len(next(iter(columns.values()))) // len(LOSSES))
    rows = zip(*columns.values(), losses, strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([",".join([*columns, "loss"]), *lines, ""]))


@pytest.mark.parametrize(
    ("base", "candidate", "option"),
    [
        ({"step": UPDATES}, {"step": TOKENS, "samples": UPDATES}, "fp4.csv:step=samples"),
        ({"step": TOKENS, "n": UPDATES}, {"step": UPDATES}, "fp8.csv:step=n"),
        (
            {"step": UPDATES, "micro_step": UPDATES},
            {"micro_step": BATCHES},
            "fp8.csv:step=micro_step",
        ),
        ({"step": UPDATES, "tokens": TOKENS}, {"step": TOKENS}, "fp8.csv:step=tokens"),
    ],
)
def test_the_command_reads_both_in_one_unit(
    base: dict[str, np.ndarray],
    candidate: dict[str, np.ndarray],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("fp8.csv"), **base)
    write(Path("fp4.csv"), **candidate)
    code, _, err = run("compare", "fp8.csv", "fp4.csv")
    typed = re.search("type `parity ([^`]*)`", err)
    assert code == 2
    assert typed is not None
    assert option in typed[1]
    assert run(*shlex.split(typed[1]))[0] != 2


@pytest.mark.parametrize("other", [{"step": TOKENS}, {"micro_step": BATCHES}])
def test_where_no_column_is_in_one_unit_none_is_proposed(
    other: dict[str, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("fp8.csv"), step=UPDATES)
    write(Path("fp4.csv"), **other)
    code, _, err = run("compare", "fp8.csv", "fp4.csv")
    assert code == 2
    assert "--column" not in err

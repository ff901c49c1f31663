"""A corpus of logs: each is read to the last digit that it shows, and judged as a table of the same
numbers; or refused as intended.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.readers import ReadError, read_run
from parity.readers.logs.pattern import PATTERN
from tests.conftest import some_of
from tests.parity.readers.logs.corpus.logs import LOGS, REFUSED

STEPS = 1000
FEW = [4.8125, 4.5, 4.375, 4.25, 4.125, 4.0625, 3.984375, 3.9]


def _losses() -> Iterator[np.ndarray]:
    """Two runs of 1,000 steps that share their batches; the second is 0.1 nats worse."""
    rng = np.random.default_rng(5)
    batches = 2.5 + 3 * np.exp(-np.arange(STEPS) / 100) + rng.normal(0, 0.05, STEPS)
    for gap in (0.0, 0.1):
        yield (batches + gap + rng.normal(0, 0.004, STEPS)).round(7)


PAIR = list(_losses())
every_log = pytest.mark.parametrize("form", LOGS)


def written(folder: Path, form: str, losses: list[float]) -> tuple[str, dict[str, str]]:
    """A log's path, and the names of its columns that a user has to give."""
    log = LOGS[form]
    folder.mkdir(exist_ok=True)
    path = folder / log.name
    log.write(path, log.first, losses)
    if log.option is None:
        return str(path), {}
    flag, value = log.option
    return str(path), {PATTERN: value} if flag == "--pattern" else dict([value.split("=")])


@every_log
def test_every_digit_is_read(form: str, tmp_path: Path) -> None:
    path, columns = written(tmp_path, form, FEW)
    run = read_run(path, columns=columns)
    assert run.steps.tolist() == LOGS[form].steps(FEW)
    assert run.loss.tolist() == [LOGS[form].shown(loss) for loss in FEW]


@pytest.mark.parametrize("form", [form for form, log in LOGS.items() if log.option is not None])
def test_a_refusal_names_the_option_that_reads_the_log(form: str, tmp_path: Path) -> None:
    path, _ = written(tmp_path, form, FEW)
    flag, value = LOGS[form].option or ("", "")
    with pytest.raises(ReadError) as refused:
        read_run(path)
    said = str(refused.value)
    if flag == "--pattern":
        typed = shlex.split(said.partition("read it with ")[2])
        assert typed[0] == flag
        assert read_run(path, columns={PATTERN: typed[1]}).loss.tolist() == [
            LOGS[form].shown(loss) for loss in FEW
        ]
    else:
        assert said.endswith(f"read it with {flag} {value}")


@pytest.mark.parametrize("form", some_of([*LOGS], 3, 0))
def test_the_verdict_is_that_of_a_table_of_the_same_numbers(form: str, tmp_path: Path) -> None:
    arms, tables = [], []
    for arm, losses in zip(("a", "b"), PAIR, strict=True):
        path, columns = written(tmp_path / arm, form, losses.tolist())
        run = read_run(path, columns=columns)
        assert run.loss.tolist() == [LOGS[form].shown(loss) for loss in losses.tolist()]
        arms.append((path, columns))
        tables.append({"step": run.steps, "loss": run.loss, **run.columns})
    names = {
        "names": ("a", "b"),
        "planned_steps": STEPS,
        "recipe": {"a": "fp8_current", "b": "nvfp4"},
    }
    by_arm = {arm: columns for arm, (_, columns) in zip(("a", "b"), arms, strict=True)}
    of_log, of_table = (
        parity.compare(arms[0][0], arms[1][0], columns=by_arm, **names),
        parity.compare(*tables, **names),
    )
    assert of_log.verdict == of_table.verdict == "fail"
    assert of_log.document["gap"] == of_table.document["gap"]
    assert [reason["code"] for reason in of_log.document["reasons"]] == [
        reason["code"] for reason in of_table.document["reasons"]
    ]


def test_most_logs_need_no_option() -> None:
    assert len(LOGS) + len(REFUSED) >= 60
    assert sum(log.option is None for log in LOGS.values()) >= 45


@pytest.mark.parametrize("form", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(form: str, tmp_path: Path) -> None:
    write, words = REFUSED[form]
    path = tmp_path / "train.log"
    write(path, 1, FEW)
    with pytest.raises(ReadError, match=words) as refused:
        read_run(str(path))
    assert "\n" not in str(refused.value)

"""Steps that restart with each epoch whose length no line states: continued where each step is
printed, so that their number is the length.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from parity.judging.curves.curve import Curve
from parity.readers import read_run
from tests.parity.readers.refusals import is_refused

EPOCHS, BATCHES = 3, 8


def read(folder: Path, rows: Iterable[tuple[int, int]]) -> Curve:
    """The run of a log with these epochs and batches."""
    lines = [
        f"INFO:root:Epoch[{epoch}] Batch [{batch}]\tSpeed: 9.5 samples/sec\tcross-entropy={loss}\n"
        for (epoch, batch), loss in zip(rows, losses(99), strict=False)
    ]
    path = folder / "train.log"
    path.write_text("".join(lines))
    return read_run(str(path))


def losses(number: int) -> list[float]:
    return [9.5 - 0.0625 * at for at in range(number)]


def rows(first: int, stride: int = 1) -> list[tuple[int, int]]:
    batches = range(first, first + BATCHES, stride)
    return [(epoch, batch) for epoch in range(EPOCHS) for batch in batches]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("cut", [0, 3])
def test_printed_steps_are_counted(first: int, cut: int, tmp_path: Path) -> None:
    number = EPOCHS * BATCHES - cut
    run = read(tmp_path, rows(first)[:number])
    assert run.steps.tolist() == [*range(first, first + number)]
    assert run.loss.tolist() == losses(number)


@pytest.mark.parametrize(
    "printed",
    [
        rows(0, stride=2),  # how many follow the last one is not printed
        rows(0)[:5] + rows(0)[8:],  # a first epoch that is shorter
        rows(0) + rows(0),  # the epochs restart, too: another run
        [(0, batch) for _, batch in rows(0)],  # an epoch that does not go on
        rows(3),
    ],
)
def test_what_may_be_another_run_or_length_is_refused(
    printed: list[tuple[int, int]], tmp_path: Path
) -> None:
    assert is_refused(lambda: read(tmp_path, printed))


def printed(folder: Path, epochs: str, last: int) -> Curve:
    """The run of a log whose lines state the length of an epoch; `epochs` is what follows the
    number of one, on a line of its own.
    """
    lines = []
    for at, loss in enumerate(losses(last)):
        epoch, step = divmod(at, BATCHES)
        if not step:
            lines.append(f"Epoch {epoch + 1}{epochs}\n")
        lines.append(f"step {step + 1}/{BATCHES} loss {loss}\n")
    path = folder / "train.log"
    path.write_text("".join(lines))
    return read_run(str(path))


@pytest.mark.parametrize("last", [EPOCHS * BATCHES, BATCHES + 3])
@pytest.mark.parametrize(("epochs", "planned"), [("", None), ("/3", "24")])
def test_the_length_of_an_epoch_is_no_plan(
    epochs: str, planned: str | None, last: int, tmp_path: Path
) -> None:
    run = printed(tmp_path, epochs, last)
    assert run.steps.tolist() == [*range(1, last + 1)]
    assert run.context.get("planned_steps") == planned
    assert any("no planned length" in note for note in run.notes) == (planned is None)


def test_a_total_of_steps_that_go_on_is_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "Epoch 1\n"
        + "".join(f"step {at}/24 loss {loss}\n" for at, loss in enumerate(losses(24), 1))
    )
    assert read_run(str(path)).context["planned_steps"] == "24"


@pytest.mark.parametrize("head", ["Epoch 1", "Epoch 1/3"])
def test_a_total_is_no_plan_where_the_log_ends_in_its_first_epoch(
    head: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        f"{head}\n" + "".join(f"step {at}/24 loss {loss}\n" for at, loss in enumerate(losses(9), 1))
    )
    assert "planned_steps" not in read_run(str(path)).context
    path.write_text(path.read_text().replace(head, "Epoch 1/1"))
    assert read_run(str(path)).context["planned_steps"] == "24"


@pytest.mark.parametrize("name", ["batch", "step", "iter"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("cut", [0, 3])
def test_a_table_is_continued_as_a_log_is(name: str, first: int, cut: int, tmp_path: Path) -> None:
    number = EPOCHS * BATCHES - cut
    path = tmp_path / "run.csv"
    numbered = zip(rows(first), losses(number), strict=False)
    path.write_text(
        f"epoch,{name},loss,lr\n"
        + "".join(f"{epoch},{batch},{loss},1e-3\n" for (epoch, batch), loss in numbered)
    )
    run = read_run(str(path))
    assert run.steps.tolist() == [*range(first, first + number)]
    assert run.loss.tolist() == losses(number)
    assert set(run.columns) == {"learning_rate"}


@pytest.mark.parametrize(
    "printed",
    [
        rows(0, stride=2),
        rows(0) + rows(0),
        [(0, batch) for _, batch in rows(0)],
    ],
)
def test_of_a_table_too_what_may_be_another_run_is_refused(
    printed: list[tuple[int, int]], tmp_path: Path
) -> None:
    path = tmp_path / "run.csv"
    numbered = zip(printed, losses(99), strict=False)
    path.write_text(
        "epoch,step,loss\n"
        + "".join(f"{epoch},{batch},{loss}\n" for (epoch, batch), loss in numbered)
    )
    assert is_refused(lambda: read_run(str(path)))

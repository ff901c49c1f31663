"""With gradient accumulation a run is read by the optimizer's steps, where its file counts both."""

from pathlib import Path

import numpy as np
import pytest

import parity
from parity.comparing.statements import InputError
from parity.judging.curves.curve import Curve
from parity.readers import ReadError, read_run

EACH = 4  # micro batches an update
LOSSES = 2.0 + np.random.default_rng(7).normal(0.0, 0.05, 40 * EACH).round(4)
UPDATES = LOSSES.reshape(-1, EACH).mean(axis=1)
FORMS = {
    "iter,optimizer_step,loss": "{n},{update},{loss}",
    "step,global_step,loss,lr": "{n},{update},{loss},1e-3",
    "step,num_updates,loss": "{n},{update},{loss}",
    "micro_step,step,loss": "{place},{update},{loss}",
    "batch_idx,step,loss": "{n},{update},{loss}",
    "": "iter {n} step {update}: loss {loss}, iter time: 12.5ms",
    " ": "micro_step {place} global_step {update} loss {loss}",
    "  ": "step {n} update {update} loss {loss}",
    "   ": '{{"iter": {n}, "num_updates": {update}, "loss": {loss}}}',
}


def read(folder: Path, header: str, line: str, losses: object = LOSSES, name: str = "run") -> Curve:
    path = folder / f"{name}.txt"
    lines = [
        line.format(n=at + 1, place=at % EACH, update=at // EACH + 1, loss=loss)
        for at, loss in enumerate(np.asarray(losses).tolist())
    ]
    path.write_text("\n".join([*([header] if header.strip() else []), *lines]) + "\n")
    return read_run(str(path))


@pytest.mark.parametrize("header", FORMS)
def test_the_loss_of_an_update_is_the_mean_of_its_micro_batches(
    header: str, tmp_path: Path
) -> None:
    run = read(tmp_path, header, FORMS[header])
    assert run.steps.tolist() == [*range(1, 41)]
    assert run.loss == pytest.approx(UPDATES)
    assert any("counts updates and" in note for note in run.notes)


@pytest.mark.parametrize("header", FORMS)
def test_no_mean_hides_a_micro_batch_that_is_nan(header: str, tmp_path: Path) -> None:
    losses = LOSSES.copy()
    losses[81] = np.nan
    run = read(tmp_path, header, FORMS[header], losses)
    assert np.flatnonzero(~np.isfinite(run.loss)).tolist() == [81 // EACH]


def with_blanks(folder: Path, blank: slice) -> Curve:
    """A run whose losses are blank in these rows."""
    cells = [str(loss) for loss in LOSSES.tolist()]
    cells[blank] = [""] * len(cells[blank])
    rows = [f"{at % EACH},{at // EACH + 1},{cell}" for at, cell in enumerate(cells)]
    path = folder / "blank.csv"
    path.write_text("\n".join(["micro_step,step,loss", *rows, ""]))
    return read_run(str(path))


@pytest.mark.parametrize("begin", [20, 120])  # in most of the updates, and in the last ones
def test_no_mean_hides_a_micro_batch_that_is_blank_where_others_are_not(
    begin: int, tmp_path: Path
) -> None:
    run = with_blanks(tmp_path, slice(begin + 1, None, EACH))
    assert np.flatnonzero(~np.isfinite(run.loss)).tolist() == [*range(begin // EACH, 40)]


def test_a_loss_that_the_last_micro_batch_alone_has_is_that_of_the_update(tmp_path: Path) -> None:
    rows = [
        f"{at % EACH},{at // EACH + 1},{loss if at % EACH == EACH - 1 else ''}"
        for at, loss in enumerate(LOSSES.tolist())
    ]
    path = tmp_path / "last.csv"
    path.write_text("\n".join(["micro_step,step,loss", *rows, ""]))
    assert read_run(str(path)).loss == pytest.approx(LOSSES[EACH - 1 :: EACH])


@pytest.mark.parametrize("header", FORMS)
def test_one_of_each_updates_batches_that_is_nan_is_nan(header: str, tmp_path: Path) -> None:
    losses = LOSSES.copy()
    losses[2::EACH] = np.nan
    run = read(tmp_path, header, FORMS[header], losses)
    assert np.isnan(run.loss).all()


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("micro_batch,step,loss", "8,{n},{loss}"),  # the size
        ("iter,optimizer_step,loss", "{n},{n},{loss}"),
        ("_step,global_step,loss", "{place},{n},{loss}"),
        ("", "step {n} batch 32 loss {loss}"),
    ],
)
def test_one_row_an_update_stays_as_it_is(header: str, line: str, tmp_path: Path) -> None:
    assert read(tmp_path, header, line).loss.tolist() == LOSSES.tolist()


@pytest.mark.parametrize("header", ["_step,global_step,loss", "seconds,global_step,loss"])
def test_rows_of_two_runs_are_no_micro_batches(header: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="two runs or ranks may be mixed"):
        read(tmp_path, header, "{n},{update},{loss}")


def test_micro_batches_in_one_arm_alone_are_asked_about(tmp_path: Path) -> None:
    read(tmp_path, "micro_step,loss", "{n},{loss}", name="micro")
    read(tmp_path, "step,loss", "{n},{loss}", UPDATES, name="updates")
    read(tmp_path, "step,loss", "{n},{loss}", name="unaccumulated")
    with pytest.raises(InputError, match="micro counts micro batches and updates does not"):
        parity.compare(str(tmp_path / "updates.txt"), str(tmp_path / "micro.txt"))
    same = parity.compare(str(tmp_path / "unaccumulated.txt"), str(tmp_path / "micro.txt"))
    assert same.verdict == "inconclusive"

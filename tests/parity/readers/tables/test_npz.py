"""NumPy archives of many runs."""

from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import LOSSES_NOT_FINITE, SECOND_LOSSES, FloatArray
from parity.readers import read_run, read_runs
from parity.readers.errors import ReadError


def test_archives_of_runs(data: Path, tmp_path: Path) -> None:
    file = str(data / "nanogpt_reruns.npz")
    assert [run.label for run in read_runs(file)] == [f"rerun{i}" for i in range(7)]
    assert len(read_run(f"{file}:rerun3").steps) == 1750
    with pytest.raises(ReadError, match="holds 7 runs; name one"):
        read_run(file)
    with pytest.raises(ReadError, match="no run 'x'; there are rerun0"):
        read_run(f"{file}:x")
    only = tmp_path / "one.npz"
    np.savez(only, **{"a/step": [1, 2], "a/loss": [2.0, 1.0]})
    assert read_run(str(only)).loss.tolist() == [2.0, 1.0]
    np.savez(only, **{"a/step": [1, 2]})
    with pytest.raises(ReadError, match="expected 'a/step' and 'a/loss'"):
        read_run(str(only))
    np.savez(only, **{"a/step": [1, 2], "a/loss": [2.0]})
    with pytest.raises(ReadError, match="2 steps and 1 loss;"):
        read_run(str(only))
    np.savez(only, x=np.array([{"evil": 1}], dtype=object))
    with pytest.raises(ReadError, match="not a NumPy archive"):
        read_run(str(only))


STEPS = np.arange(100)
LOSS = np.round(3.0 - STEPS / 100, 4)
EVALUATED = np.where(STEPS % 10 == 9, LOSS + 0.1, np.nan)


@pytest.mark.parametrize(
    ("name", "values", "fact"),
    [
        ("train_loss", np.where(STEPS < 60, LOSS, LOSS + 1.0), SECOND_LOSSES),
        ("train_loss", np.where(STEPS < 60, LOSS, np.nan), SECOND_LOSSES),
        ("validation_loss", np.where(STEPS == 69, np.inf, EVALUATED), LOSSES_NOT_FINITE),
        ("train_loss", LOSS, None),
        ("validation_loss", EVALUATED, None),
        ("grad_norm", np.where(STEPS < 60, 1.0, np.nan), None),
        ("note", STEPS[:7], None),
        ("train_loss", np.where(STEPS % 10 == 9, LOSS + 0.02, np.nan), None),
    ],
)
def test_the_other_losses_of_a_run_are_looked_at(
    name: str, values: FloatArray, fact: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "run.npz"
    arrays = {"a/step": STEPS, "a/loss": LOSS, "a/val_loss": EVALUATED, f"a/{name}": values}
    np.savez(path, **arrays)
    facts = {SECOND_LOSSES, LOSSES_NOT_FINITE} & read_run(str(path)).context.keys()
    assert fact in facts if fact else not facts


@pytest.mark.parametrize("name", ["val_loss", "eval_loss", "validation_loss"])
def test_an_array_is_known_by_the_names_of_columns(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    np.savez(path, step=STEPS[:, None], loss=LOSS, lr=LOSS, **{name: EVALUATED}, note=STEPS[:7])
    run = read_run(str(path))
    assert run.loss.tolist() == LOSS.tolist()
    assert np.nansum(run.columns["validation_loss"]) == pytest.approx(np.nansum(EVALUATED))
    assert run.columns["learning_rate"].tolist() == LOSS.tolist()
    assert any("left out" in note and "'note'" in note for note in run.notes)


@pytest.mark.parametrize("name", ["ce_loss", "a/ce_loss", "CE-loss"])
def test_a_named_array_is_read_as_the_loss(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / "run.npz")
    np.savez(path, **{"a/step": STEPS, "a/loss": LOSS, "a/ce_loss": LOSS + 1.0})
    assert read_run(path, columns={"loss": name}).loss.tolist() == (LOSS + 1.0).tolist()
    assert read_run(path).loss.tolist() == LOSS.tolist()
    assert read_run(path).context["other_losses"] == "a/ce_loss"
    with pytest.raises(ReadError, match="no array 'zzz' for loss"):
        read_run(path, columns={"loss": "zzz"})


@pytest.mark.parametrize("name", ["step", "loss"])
def test_flags_in_place_of_numbers_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    np.savez(path, **({"step": STEPS, "loss": LOSS} | {name: STEPS > 3}))
    with pytest.raises(ReadError, match="has flags; expected numbers"):
        read_run(str(path))


@pytest.mark.parametrize("at", [4, 6])
def test_archives_of_unknown_or_encrypted_zip_are_refused(at: int, tmp_path: Path) -> None:
    """Found by fuzzing: a zip version that nobody knows, and a member marked as encrypted."""
    path = tmp_path / "x.npz"
    np.savez(path, **{"a/step": [1, 2], "a/loss": [2.0, 1.0]})
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    data[central + 2 + at] = 0xC3  # needed version, or flags, in the central directory
    path.write_bytes(bytes(data))
    with pytest.raises(ReadError, match="not a NumPy archive"):
        read_run(str(path))

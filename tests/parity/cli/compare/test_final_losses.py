"""Final losses of seeds in a table without a step: judged by their own spread, and never a pass."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
BASE = (2.2, 2.21, 2.253, 2.257, 2.265, 2.267)


def table(folder: Path, candidate: tuple[float, ...], name: str = "val_loss") -> str:
    rows = [("base", seed, loss) for seed, loss in enumerate(BASE)]
    rows += [("cand", seed, loss) for seed, loss in enumerate(candidate, len(BASE))]
    path = folder / "seeds.csv"
    path.write_text(f"arm,seed,{name}\n" + "".join(f"{a},{s},{x}\n" for a, s, x in rows))
    return str(path)


def compare(run: Run, path: str) -> tuple[int, str]:
    options = ("--arm-by", "arm", "--run-by", "seed", "--baseline", "base")
    code, out, _ = run("compare", path, *options)
    return code, " ".join(out.split())


@pytest.mark.parametrize("name", ["val_loss", "train_loss"])
def test_a_gap_within_the_seeds_spread_is_open(tmp_path: Path, run: Run, name: str) -> None:
    code, out = compare(run, table(tmp_path, (2.259, 2.276, 2.216), name))
    assert code == 3
    assert "6 + 3 runs" in out
    assert "NUMBERS_ALONE" in out


def test_another_column_is_not_guessed_to_be_the_loss(tmp_path: Path, run: Run) -> None:
    path = table(tmp_path, (2.259, 2.276, 2.216), "objective")
    code, _, err = run("compare", path, "--arm-by", "arm", "--run-by", "seed", "--baseline", "base")
    assert code == 2
    assert "no loss column" in err


def test_models_of_two_sizes_are_no_seeds(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text("arm,seed,size,loss\n" + "base,0,1,2.5\nbase,1,2,2.25\ncand,0,1,2.5\n")
    options = ("--arm-by", "arm", "--run-by", "seed", "--baseline", "base")
    code, _, err = run("compare", str(path), *options)
    assert code == 2
    assert "--size-by size" in err


def test_a_gap_far_beyond_it_fails(tmp_path: Path, run: Run) -> None:
    code, out = compare(run, table(tmp_path, (2.659, 2.676, 2.616)))
    assert code == 1
    assert "Do not switch to cand" in out


def test_equal_losses_do_not_pass(tmp_path: Path, run: Run) -> None:
    code, out = compare(run, table(tmp_path, BASE))
    assert code == 3
    assert "NUMBERS_ALONE" in out


def test_several_rows_of_a_run_are_no_final_losses(tmp_path: Path, run: Run) -> None:
    path = table(tmp_path, (2.259, 2.276, 2.216))
    with Path(path).open("a") as file:
        file.write("cand,6,2.2\n")
    code, _, err = run("compare", path, "--arm-by", "arm", "--run-by", "seed", "--baseline", "base")
    assert code == 2
    assert "no step column" in err

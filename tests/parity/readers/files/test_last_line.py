"""A last line of a log without a line feed counts where nothing of it is missing, and half a number
never does.
"""

from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import LAST_LINE_CUT
from parity.readers import read_run
from parity.readers.formats import growing_reader
from parity.readers.logs.pattern import PATTERN
from tests.parity.readers.logs.corpus.trainers import torchtitan

LOSSES = [4.81254, 4.50125, 4.37511, 4.25003]


def plain(step: int, loss: object) -> str:
    return f"step {step} loss {loss}"


def progress_bar(step: int, loss: object) -> str:
    return f"{25 * step}%|{'█' * step:4}| {step}/4 [00:0{step}<00:01, 3.1it/s, loss={loss}]"


def printed_dict(step: int, loss: object) -> str:
    return f"{{'loss': '{loss}', 'step': {step}}}"


def losses_of(folder: Path, text: str, **columns: str) -> list[float]:
    path = folder / "train.log"
    path.write_text(text)
    return read_run(str(path), columns=columns).loss.tolist()


@pytest.mark.parametrize("line", [plain, progress_bar, printed_dict])
@pytest.mark.parametrize("last", ["nan", "inf", "4.25003", "9.00000"])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_whole_line_without_an_end_counts(line, last: str, end: str, tmp_path: Path) -> None:
    text = end.join([*(line(step, loss) for step, loss in enumerate(LOSSES, 1)), line(5, last)])
    expected = [*LOSSES, float(last)]
    assert np.array_equal(losses_of(tmp_path, text), expected, equal_nan=True)


@pytest.mark.parametrize("line", [plain, progress_bar, printed_dict])
def test_no_cut_of_a_last_line_gives_another_loss(line, tmp_path: Path) -> None:
    before = "".join(f"{line(step, loss)}\n" for step, loss in enumerate(LOSSES, 1))
    last = line(5, "4.12345")
    for end in range(len(last) + 1):
        losses = losses_of(tmp_path, before + last[:end])
        assert losses in (LOSSES, [*LOSSES, 4.12345]), last[:end]


@pytest.mark.parametrize(("last", "counts"), [("2.5", False), ("2.", False), ("2.123", True)])
def test_of_variable_digits_the_longest_are_whole(last: str, counts: bool, tmp_path: Path) -> None:
    text = f"step 1 loss 3.5\nstep 2 loss 3.125\nstep 3 loss {last}"
    path = tmp_path / "train.log"
    path.write_text(text)
    run = read_run(str(path))
    assert len(run.loss) == 2 + counts
    assert any("the last line has" in note for note in run.notes) == (not counts)


def test_a_growing_log_takes_no_line_without_its_end() -> None:
    text = "step 1 loss 3.5\nstep 2 loss 3.1\nstep 3 loss nan"
    reader = growing_reader(text, "train.log", {})
    reader.feed(text)
    assert reader.columns().values["loss"].tolist() == [3.5, 3.1]


def test_a_pattern_and_a_trainer_read_it_too(tmp_path: Path) -> None:
    pattern = r"at (?P<step>\d+): L=(?P<loss>\S+)"
    lines = [f"at {step}: L={loss}" for step, loss in enumerate([*LOSSES, "nan"])]
    assert np.isnan(losses_of(tmp_path, "\n".join(lines), **{PATTERN: pattern})[-1])
    lines[-1] = "at 4: L=4.1"
    assert losses_of(tmp_path, "\n".join(lines), **{PATTERN: pattern}) == LOSSES
    trained = "\n".join(torchtitan(step, loss) for step, loss in enumerate(LOSSES, 1))
    assert len(losses_of(tmp_path, f"{trained}\n")) == len(losses_of(tmp_path, trained)) == 4


EARLIER = [
    2.5,
    2.125,
    2.0625,
    2.25,
    2.1875,
    2.3125,
    2.4375,
    2.03125,
    2.28125,
    2.34375,
    2.21875,
    2.4,
]
FORMS = {
    "a log": ("", "step {} lr 1e-3 loss {}"),
    "a table": ("step,lr,loss", "{},1e-3,{}"),
    "a table that goes on": ("step,loss,lr", "{},{},1e-3"),
    "decimal commas": ("step;loss", "{};{}"),
    "a long table": ("step,name,value", "{},loss,{}"),
    "a column of runs": ("run,step,loss", "a,{},{}"),
    "JSON lines": ("", '{{"step": {}, "lr": 1e-3, "loss": {}}}'),
}


def ended(folder: Path, form: str, last: str, loss: object = None) -> tuple[list[float], bool]:
    """The losses of a file in this form that ends in a last line as it stands, or with this loss,
    and whether it says that the last one may be any.
    """
    header, line = FORMS[form]
    lines = [*([header] if header else []), *(line.format(*one) for one in enumerate(EARLIER))]
    text = "\n".join([*lines, line.format(len(EARLIER), loss) if loss is not None else last])
    path = folder / "run.txt"
    path.write_text(text.replace(".", ",") if ";" in line else text)
    run = read_run(str(path))
    return run.loss.tolist()[len(EARLIER) :], LAST_LINE_CUT in run.context


@pytest.mark.parametrize(
    ("form", "last"),
    [
        *(("a log", f"step 12 lr 1e-3{rest}") for rest in ("", " loss", " loss n", " loss na")),
        *(("a log", f"step 12 lr 1e-3 loss {loss}") for loss in ("2", "2.", "9", "9.0", "9.0213")),
        *(("a table", f"12{rest}") for rest in (",", ",1e-3", ",1e-3,", ",1e-3,na", ",1e-3,i")),
        *(("a table", f"12,1e-3,{loss}") for loss in ("2", "2.", "9")),
        *(("a table that goes on", f"12,{loss}") for loss in ("", "2.", "9", "9.0", "9.0213")),
        *(("decimal commas", f"12;{loss}") for loss in ("", "2", "2,", "9")),
        *(("a long table", f"12{rest}") for rest in (",", ",lo", ",loss", ",loss,", ",loss,2.")),
        *(("a column of runs", f"a,12{rest}") for rest in ("", ",", ",na", ",2", ",9")),
        *(("JSON lines", '{"step": 12, "lr": 1e-3, "loss": 9.02'[:end]) for end in (1, 15, 36, 39)),
    ],
)
def test_a_cut_line_whose_loss_may_be_any_is_a_fact_of_the_run(
    form: str, last: str, tmp_path: Path
) -> None:
    assert ended(tmp_path, form, last) == ([], True)


@pytest.mark.parametrize(
    ("form", "loss", "counts"),
    [
        ("a log", "2.31", False),
        ("a log", "9.02134", True),
        *(("a table", loss, True) for loss in ("2.3", "9.02", "2.03125", "nan")),
        *(("a table that goes on", loss, True) for loss in ("2", "2.5", "nan")),
        *(("decimal commas", loss, True) for loss in ("2.3", "9.02")),
        *(("a long table", loss, True) for loss in ("2.3", "9.02", "nan")),
        *(("a column of runs", loss, True) for loss in ("2.3", "9.02", "nan")),
        *(("JSON lines", loss, True) for loss in ("2.3", "9.02", "2", "NaN")),
    ],
)
def test_a_writer_that_never_ends_its_last_line_hides_nothing(
    form: str, loss: str, counts: bool, tmp_path: Path
) -> None:
    losses, is_cut = ended(tmp_path, form, "", loss)
    assert not is_cut
    assert np.array_equal(losses, [float(loss)] if counts else [], equal_nan=True)


@pytest.mark.parametrize("last", ["", "saving the model", "[val] step 12", "12 h of training"])
def test_what_is_no_begin_of_a_line_with_a_loss_says_nothing_of_one(
    last: str, tmp_path: Path
) -> None:
    assert ended(tmp_path, "a log", last) == ([], False)


def test_a_small_table_by_hand_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,loss\n1,2.513\n2,2.5\n3,2")
    assert read_run(str(path)).loss.tolist() == [2.513, 2.5, 2.0]


@pytest.mark.parametrize(("last", "is_cut"), [("loss 9.0", True), ("loss 2.03", True), ("", False)])
def test_a_step_whose_loss_follows_on_a_line_that_is_cut_is_no_nan(
    last: str, is_cut: bool, tmp_path: Path
) -> None:
    pairs = "".join(f"step {at} lr 1e-3\nloss {loss:.5f}\n" for at, loss in enumerate(EARLIER))
    path = tmp_path / "train.log"
    path.write_text(f"{pairs}step 12 lr 1e-3\n{last}")
    run = read_run(str(path))
    assert (LAST_LINE_CUT in run.context) == is_cut
    assert np.isnan(run.loss[-1]) == (not is_cut)


def test_half_a_line_hides_no_nan_of_the_step_before(tmp_path: Path) -> None:
    lines = [FORMS["a log"][1].format(*one) for one in enumerate([*EARLIER, "***"])]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, "step 13 lr 1e-3 loss 2.3"]))
    assert LAST_LINE_CUT in read_run(str(path)).context

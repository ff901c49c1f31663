"""A training loss that another column carries from some step on, worse or NaN, is asked about;
means, parts of the loss, evaluations and copies are not.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import LOSSES_NOT_FINITE, SECOND_LOSSES
from parity.readers import read_run

N, SWITCH = 200, 120
NAN = float("nan")
Row = Mapping[str, float]
_RNG = np.random.default_rng(0)
_TREND = 2.0 + 2.0 * np.exp(-np.arange(N) / 60.0)
LOSS = np.round(_TREND + _RNG.normal(0.0, 0.03, N), 4).tolist()
HEALTHY = np.round(_TREND + _RNG.normal(0.0, 0.03, N), 4).tolist()


def table(rows: Sequence[Row]) -> str:
    names = dict.fromkeys(name for row in rows for name in row)
    cells = [",".join(str(row.get(name, "")) for name in names) for row in rows]
    return "\n".join([",".join(names), *cells, ""])


def long_table(rows: Sequence[Row]) -> str:
    cells = [
        f"a,{name},{value},{row['step']}"
        for row in rows
        for name, value in row.items()
        if name != "step"
    ]
    return "\n".join(["run_id,key,value,step", *cells, ""])


def lists(rows: Sequence[Row]) -> str:
    names = dict.fromkeys(name for row in rows for name in row)
    return json.dumps({name: [row.get(name) for row in rows] for name in names})


def printed(rows: Sequence[Row]) -> str:
    return "".join(
        " ".join(f"{name} {value}" for name, value in row.items()) + "\n" for row in rows
    )


FORMS: Mapping[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "JSON lines": ("run.jsonl", lambda rows: "".join(f"{json.dumps(row)}\n" for row in rows)),
    "a JSON list": ("run.json", json.dumps),
    "an object of lists": ("run.json", lists),
    "CSV": ("run.csv", table),
    "a long CSV": ("run.csv", long_table),
    "a printed log": ("run.log", printed),
}


def switched(
    name: str, worse: float, read: str = "loss", *, before: bool = False, every: int = 1
) -> Sequence[Row]:
    """A loss that is another, healthy series from a step on, where a second column carries it."""
    rows: list[dict[str, float]] = []
    for step, loss in enumerate(LOSS):
        rows.append({"step": step, read: loss if step < SWITCH else HEALTHY[step]})
        if step >= SWITCH and step % every == 0:
            rows[-1][name] = round(loss + worse, 4)
        elif before and step < SWITCH:
            rows[-1][name] = loss
    return rows


def rows_with(name: str, value: Callable[[int], float | None], read: str = "loss") -> list[Row]:
    """A loss, and a second column with a value in some rows."""
    found = ((step, value(step)) for step in range(N))
    return [
        {"step": step, read: LOSS[step]} | ({} if other is None else {name: other})
        for step, other in found
    ]


def mean(begin: int, end: int) -> float:
    return round(float(np.mean(LOSS[max(begin, 0) : end])), 4)


ATTACKS: Mapping[str, tuple[str, Sequence[Row]]] = {
    "worse from a step on": ("train_loss", switched("train_loss", 0.1)),
    "NaN from a step on": ("train_loss", switched("train_loss", NAN)),
    "equal before": ("train_loss", switched("train_loss", 0.1, before=True)),
    "logged less often": ("train_loss", switched("train_loss", 0.1, every=5)),
    "next to a loss of a group": ("loss", switched("loss", 0.1, "train/loss")),
    "a total that goes on where the loss was": ("total_loss", switched("total_loss", 0.1)),
    "a running mean that becomes NaN": (
        "loss_avg",
        rows_with("loss_avg", lambda step: mean(step - 9, step + 1) if step < SWITCH else NAN),
    ),
    "a mean of an epoch that becomes NaN": (
        "train_loss_epoch",
        rows_with(
            "train_loss_epoch",
            lambda step: {19: 2.9, 39: 2.7, 59: 2.5}.get(step, NAN) if step % 20 == 19 else None,
            "train_loss_step",
        ),
    ),
    "blank from a step on": (
        "train_loss",
        rows_with("train_loss", lambda step: HEALTHY[step] if step < SWITCH else None),
    ),
    "NaN at two of three steps": (
        "train_loss",
        rows_with("train_loss", lambda step: NAN if step > SWITCH and step % 3 else LOSS[step]),
    ),
    "a perplexity that is that of another loss from a step on": (
        "ppl",
        rows_with("ppl", lambda step: float(np.exp(LOSS[step] + 0.1 * (step >= SWITCH)).round(3))),
    ),
    "an objective that was equal before": ("objective", switched("objective", 0.1, before=True)),
    "the one closing mean is NaN": (
        "train_loss",
        rows_with("train_loss", lambda step: NAN if step == N - 1 else None),
    ),
}
TWINS: Mapping[str, Sequence[Row]] = {
    "the Hugging Face trainer's closing mean": [
        *rows_with("lr", lambda _: 1e-3),
        {"step": N - 1, "train_loss": mean(0, N), "train_runtime": 12.0},
    ],
    "a running mean": rows_with("loss_avg", lambda step: mean(step - 9, step + 1)),
    "the means of epochs": rows_with(
        "train_loss", lambda step: mean(step - 19, step + 1) if step % 20 == 19 else None
    ),
    "a copy with fewer digits": rows_with("train_loss", lambda step: round(LOSS[step], 2)),
    "a loss of the language model in a total": [
        {**row, "lm_loss": row["loss"], "loss": round(row["loss"] + 0.02, 4)}
        for row in rows_with("aux_loss", lambda _: 0.02)
    ],
    "the loss of one domain, which some batches have not": rows_with(
        "loss_math", lambda step: round(0.7 * HEALTHY[step], 4) if step % 3 else NAN
    ),
    "losses of a router": rows_with("moe_aux_loss", lambda step: 0.01 * HEALTHY[step]),
    "a second loss at its own rhythm": rows_with(
        "loss_avg", lambda step: None if step % 5 else mean(step - 9, step + 1)
    ),
    "two lines of a second loss that were lost": rows_with(
        "train_loss", lambda step: LOSS[step] if step not in (70, 71) else None
    ),
    "an objective with another term": rows_with(
        "objective", lambda step: round(LOSS[step] + 0.02, 4)
    ),
    "the same loss under another name": rows_with("token_nll", lambda step: LOSS[step]),
    "a perplexity": rows_with("ppl", lambda step: float(np.exp(LOSS[step]).round(2))),
    "an evaluation": rows_with("eval_loss", lambda step: None if step % 20 else HEALTHY[step]),
    "an evaluation of training data, too": [
        row
        for step, loss in enumerate(LOSS)
        for row in (
            {"step": step, "loss": loss, "lr": 1e-3},
            *([{"step": step, "train_loss": HEALTHY[step], "val_loss": 3.0}] * (step % 20 == 0)),
        )
    ],
    "a bar that shows the last evaluation": [
        {
            "step": step,
            "loss": loss,
            "train_loss": HEALTHY[step - step % 20],
            "val_loss": HEALTHY[step - step % 20] + 0.1,
        }
        for step, loss in enumerate(LOSS)
    ],
    "the lowest loss so far": rows_with("best_loss", lambda step: min(LOSS[: step + 1])),
}


ALSO_NOT_FINITE: Mapping[str, tuple[str, Sequence[Row]]] = {
    "an evaluation that is NaN from a step on": (
        "8 held-out val_loss",
        rows_with(
            "val_loss", lambda step: None if step % 10 else 3.0 if step <= SWITCH - 10 else NAN
        ),
    ),
    "evaluations that are all NaN": (
        "20 held-out eval_loss",
        rows_with("eval_loss", lambda step: None if step % 10 else NAN),
    ),
    "the loss of a rank": (
        "80 further loss_rank1",
        rows_with("loss_rank1", lambda step: LOSS[step] if step < SWITCH else NAN),
    ),
    "a perplexity that is NaN": (
        "1 further train_perplexity",
        rows_with("train_perplexity", lambda step: 9.0 if step != SWITCH else NAN),
    ),
    "an objective that is infinite": (
        "1 further objective",
        rows_with("objective", lambda step: 3.0 if step != SWITCH else float("inf")),
    ),
}
ALL_FINITE: Mapping[str, Sequence[Row]] = {
    "evaluations in a column that is filled with NaN": rows_with(
        "val_loss", lambda step: 3.0 if step % 20 == 0 else NAN
    ),
    "a held-out loss that was never evaluated": rows_with("val_loss", lambda _: NAN),
    "a perplexity that overflows at the start": rows_with(
        "train_perplexity", lambda step: float("inf") if step < 8 else 9.0
    ),
    "the lowest loss so far": rows_with(
        "best_val_loss", lambda step: float("inf") if step < 9 else 3.0
    ),
    "the scale of a loss": rows_with("loss_scale", lambda step: 1.0 if step % 50 else NAN),
    "the deviation of one loss": rows_with("loss_std", lambda step: 1.0 if step % 50 else NAN),
}


def second_losses(folder: Path, form: str, rows: Sequence[Row], **columns: str) -> str | None:
    file, write = FORMS[form]
    path = folder / file
    path.write_text(write(rows))
    return read_run(str(path), columns=columns).context.get(SECOND_LOSSES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_second_training_loss_is_a_fact_of_the_run(name: str, form: str, tmp_path: Path) -> None:
    column, rows = ATTACKS[name]
    assert second_losses(tmp_path, form, rows) == column


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TWINS)
def test_what_explains_a_second_loss_is_none(name: str, form: str, tmp_path: Path) -> None:
    assert second_losses(tmp_path, form, TWINS[name]) is None


def test_who_names_the_column_is_not_asked(tmp_path: Path) -> None:
    rows = switched("train_loss", 0.1)
    assert second_losses(tmp_path, "CSV", rows, loss="loss") is None


def test_columns_of_one_name_that_differ_are_a_second_loss(tmp_path: Path) -> None:
    rows = switched("loss.1", 0.1, before=True)
    assert second_losses(tmp_path, "CSV", rows) == "loss.1"


def test_a_column_in_which_a_writer_fills_nothing_with_nan_is_none(tmp_path: Path) -> None:
    rows = rows_with("train_loss", lambda step: mean(0, N) if step == N - 1 else NAN)
    assert second_losses(tmp_path, "CSV", rows) is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ALSO_NOT_FINITE)
def test_another_loss_that_is_not_finite_is_a_fact_of_the_run(
    name: str, form: str, tmp_path: Path
) -> None:
    fact, rows = ALSO_NOT_FINITE[name]
    assert not_finite(tmp_path, form, rows) == fact


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ALL_FINITE)
def test_what_holds_no_loss_there_is_not_called_nan(name: str, form: str, tmp_path: Path) -> None:
    assert not_finite(tmp_path, form, ALL_FINITE[name]) is None


def not_finite(folder: Path, form: str, rows: Sequence[Row]) -> str | None:
    file, write = FORMS[form]
    path = folder / file
    path.write_text(write(rows))
    return read_run(str(path)).context.get(LOSSES_NOT_FINITE)

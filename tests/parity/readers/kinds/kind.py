"""A kind of file: how a run of 40 steps from 1 looks in it, and what has to be read from it."""

import dataclasses
import json
from collections.abc import Callable

STEPS = range(1, 41)
LOSSES = [round(4.8125 - 0.03 * step + 0.011 * (step % 3), 4) for step in STEPS]
RATES = [round(1e-3 * (1 - step / 50), 7) for step in STEPS]
EPOCH = 10
ROWS = [*zip(STEPS, LOSSES, RATES, strict=True)]


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind: its text, and what a run of it has beyond its steps and losses: the planned length
    and the learning rates that the file states.

    `steps` are those that the file counts, `losses` those that it shows; `run` is what is typed
    behind the file's name.
    """

    text: str
    plan: int | None = None
    has_rate: bool = False
    steps: tuple[int, ...] = tuple(STEPS)
    losses: tuple[float, ...] = tuple(LOSSES)
    run: str = ""
    name: str = "run.log"


def lines(line: str, before: str = "") -> str:
    """A line for each step `s`, loss `x` and learning rate `r`: `e` and `i` are the epoch and the
    step in it, from 1, of epochs of 10 steps, and `e0` and `i0` the same from 0.
    """
    return before + "".join(
        line.format(
            s=step,
            x=loss,
            r=rate,
            e=(step - 1) // EPOCH + 1,
            i=(step - 1) % EPOCH + 1,
            e0=(step - 1) // EPOCH,
            i0=(step - 1) % EPOCH,
            percent=step * 100 // len(STEPS),
            samples=512 * step,
            comma=str(loss).replace(".", ","),
            rate_comma=f"{rate:.6f}".replace(".", ","),
            worse=round(loss + 0.1, 4),
        )
        + "\n"
        for step, loss, rate in ROWS
    )


def records(record: Callable[[int, float, float], object]) -> str:
    """A line of JSON for each step, loss and learning rate."""
    return "".join(f"{json.dumps(record(*row))}\n" for row in ROWS)

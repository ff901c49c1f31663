"""Losses that are stated in bits, as nats: a margin, run-to-run noise and the gap are in nats."""

import dataclasses
import math
from collections.abc import Sequence

from parity.comparing.statements import InputError
from parity.judging.case import Case
from parity.judging.curves.curve import LOSS_BASE, Curve

BITS = "bits"
LOSS_COLUMNS = ("validation_loss", "total_loss")
CONVERTED = "its losses were stated in bits and converted to nats (x 0.6931)"


def runs_in_nats(runs: Sequence[Curve]) -> list[Curve]:
    """Runs whose losses are stated in bits, with all their losses in nats.

    Raises InputError for a run whose perplexities show that its losses are nats.
    """
    return [_in_nats(run) for run in runs]


def case_in_nats(case: Case) -> Case:
    """A comparison whose losses are all stated in bits, with its runs in nats. Raises InputError as
    `runs_in_nats`.
    """
    return dataclasses.replace(
        case,
        baseline=runs_in_nats(case.baseline),
        candidates={arm: runs_in_nats(runs) for arm, runs in case.candidates.items()},
        controls=runs_in_nats(case.controls),
        shorter=runs_in_nats(case.shorter),
        short_reruns={arm: runs_in_nats(runs) for arm, runs in case.short_reruns.items()},
    )


def unit_of_policy(stated: str | None) -> str | None:
    """The unit for the policy: bits are converted before, so that it is then the default."""
    return None if stated == BITS else stated


def _in_nats(run: Curve) -> Curve:
    if run.context.get(LOSS_BASE) == "e":
        raise InputError(
            f"the loss unit is {BITS}, but the perplexities of {run.label or 'a run'} show that "
            "its losses are nats; expected one unit: leave the statement out"
        )
    factor = math.log(2.0)
    columns = {
        name: values * factor if name in LOSS_COLUMNS else values
        for name, values in run.columns.items()
    }
    context = {key: value for key, value in run.context.items() if key != LOSS_BASE}
    return dataclasses.replace(
        run,
        loss=run.loss * factor,
        columns=columns,
        context=context,
        notes=(*run.notes, CONVERTED),
    )

"""What may be spent on an experiment: device hours, or steps of all runs together."""

import math
import re
from typing import Literal

from parity.design.experiment import Design, device_hours, hours_of
from parity.frozen import frozen
from parity.wording import count

_NUMBER = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?"
_AMOUNT = re.compile(rf"\s*({_NUMBER})\s*(hours?|h|steps?)\s*", re.IGNORECASE | re.ASCII)
MAX_STEPS, MAX_HOURS = 1e15, 1e12
# 40.000: forty, or in many countries forty thousand
_THREE_DECIMALS = re.compile(r"[-+]?[1-9][0-9]{0,2}\.[0-9]{3}")
_EXPECTED = (
    'expected device hours such as "200 hours", or steps of all runs together such as "40000 steps"'
)


class BudgetError(ValueError):
    """A budget that cannot be planned with; the message begins with "budget" and says what was
    expected.
    """


@frozen
class Budget:
    """An amount, in device hours or in run-steps."""

    amount: float
    unit: Literal["hours", "steps"]

    def __str__(self) -> str:
        if self.unit == "hours":
            return device_hours(self.amount)
        return count(math.floor(self.amount), "run-step")

    def run_steps(self, design: Design) -> float:
        """How many steps it pays for, of all runs together. Raises BudgetError where hours lack a
        step time, or not even a pair fits.
        """
        pair = (1 + design.candidates) * design.planned_steps
        if self.unit == "steps":
            steps, cost = self.amount, count(pair, "step")
        elif design.step_seconds is None:
            raise BudgetError(
                f"budget is {self}, but the duration of a step is unknown; state --step-seconds, "
                "or the budget in steps"
            )
        else:
            hour = hours_of(1.0, design.step_seconds, design.devices)
            steps, cost = self.amount / hour, device_hours(pair * hour)
        if steps < pair:
            raise BudgetError(
                f"budget is {self}, but one pair of runs of {count(design.planned_steps, 'step')} "
                f"takes {cost}; expected at least that"
            )
        return steps


def parse_budget(text: str) -> Budget:
    """Read "200 hours" or "40,000 steps". Raises BudgetError for anything else: steps are whole,
    commas part groups of three digits, and a point before exactly three could do that too.
    """
    match = _AMOUNT.fullmatch(text)
    try:
        amount = float(match[1].replace(",", "")) if match else math.nan
    except ValueError:
        match, amount = None, math.nan
    if match is None:
        raise BudgetError(f"budget is {text!r}; {_EXPECTED}")
    if _THREE_DECIMALS.fullmatch(match[1]):
        readings = f'"{amount:g} {match[2]}" or "{round(1000 * amount):,} {match[2]}"'
        raise BudgetError(
            f"budget is {text!r}, which can be read as {readings}; write the one that you mean; "
            f"{_EXPECTED}"
        )
    if not match[2].lower().startswith("s"):
        if not 0.0 < amount <= MAX_HOURS:
            raise BudgetError(
                f"budget is {text!r}, which is not a number above 0 and at most {MAX_HOURS:g}; "
                f"{_EXPECTED}"
            )
        return Budget(amount=amount, unit="hours")
    if not 1.0 <= amount <= MAX_STEPS or "." in match[1] or not amount.is_integer():
        raise BudgetError(
            f"budget is {text!r}, which is not a whole number of steps from 1 to {MAX_STEPS:g}; "
            f"{_EXPECTED}"
        )
    return Budget(amount=amount, unit="steps")

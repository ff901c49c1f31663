import pytest

from parity.design.budget import Budget, BudgetError, parse_budget
from parity.design.experiment import Design

HOURLY = Design(planned_steps=1000, step_seconds=3.6, devices=2)  # 2 device hours a run


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("200 hours", 200.0, "hours"),
        ("0.5h", 0.5, "hours"),
        ("1 hour", 1.0, "hours"),
        ("40,000 steps", 40_000.0, "steps"),
        ("4e4 steps", 4e4, "steps"),
        ("1,234,567.5 hours", 1_234_567.5, "hours"),
        ("40.00 hours", 40.0, "hours"),
        ("0.125 hours", 0.125, "hours"),
        ("1,250.125 hours", 1250.125, "hours"),
        ("1e15 steps", 1e15, "steps"),
    ],
)
def test_an_amount_has_a_unit(text: str, amount: float, unit: str) -> None:
    assert parse_budget(text) == Budget(amount=amount, unit=unit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "200",
            "0 hours",
            "-3 hours",
            "nan hours",
            "inf steps",
            "1e400 hours",
            "1-2 hours",
            "ten hours",
            "3 days",
        ),
        *(
            "40.000 steps",
            "40.5 steps",
            "1,2,3 steps",
            "1,0000 steps",
            "1e308 steps",
            "1.1e15 steps",
            "1e16 steps",
            "1e-3 steps",
            "2e12 hours",
        ),
        *("1,00 hours", "hours", ". hours", "\u0663 hours"),
    ],
)
def test_anything_else_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(BudgetError, match="expected device hours") as refused:
        parse_budget(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("40.000 hours", ('"40 hours"', '"40,000 hours"')),
        ("1.250 h", ('"1.25 h"', '"1,250 h"')),
        ("40.000 steps", ('"40 steps"', '"40,000 steps"')),
    ],
)
def test_a_point_that_may_part_thousands_is_refused_with_both_readings(
    text: str, readings: tuple[str, str]
) -> None:
    with pytest.raises(BudgetError) as refused:
        parse_budget(text)
    assert all(reading in str(refused.value) for reading in readings)


def test_hours_buy_steps_of_all_runs() -> None:
    assert parse_budget("4 hours").run_steps(HOURLY) == pytest.approx(2000.0)
    assert parse_budget("5000 steps").run_steps(HOURLY) == 5000.0


def test_what_does_not_pay_for_a_pair_is_refused_with_what_it_takes() -> None:
    with pytest.raises(BudgetError, match="takes 4 device hours"):
        parse_budget("3.9 hours").run_steps(HOURLY)
    with pytest.raises(BudgetError, match="takes 2,000 steps"):
        parse_budget("1999 steps").run_steps(HOURLY)
    with pytest.raises(BudgetError, match="of 1 step takes 2 steps"):
        parse_budget("1 step").run_steps(Design(planned_steps=1))


def test_hours_need_a_step_time() -> None:
    with pytest.raises(BudgetError, match="--step-seconds"):
        parse_budget("100 hours").run_steps(Design(planned_steps=1000))

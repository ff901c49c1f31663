import pytest

from parity.design.experiment import Design, cost_words, gpu_hours, runs_words


def test_hours_are_those_of_all_runs_and_devices() -> None:
    assert (
        gpu_hours(
            Design(
                level=3.0,
                planned_steps=3600,
                step_seconds=2.0,
                devices=8,
                baseline_runs=2,
                candidate_runs=3,
            )
        )
        == 80.0
    )
    assert gpu_hours(Design(level=3.0, planned_steps=3600)) is None
    assert cost_words(Design(planned_steps=3600)) == "7,200 run-steps"


@pytest.mark.parametrize(
    "bad",
    [
        {"level": 0.0},
        {"level": float("nan")},
        {"planned_steps": 0},
        {"candidate_runs": 0},
        {"pair_sd": -1.0},
        {"level": 1e308},
        {"level": 2.0, "pair_sd": 1e300},
        {"level": None, "pair_sd": 1e300},
        {"step_seconds": float("inf")},
        {"autocorrelation": 1.0},
        {"baseline_recipe": "nvpf4"},
        {"candidate_rounding": "up"},
    ],
)
def test_a_bad_design_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected|did you mean"):
        Design(**{"level": 3.0, "planned_steps": 100, **bad})  # type: ignore[arg-type]


def test_one_step_is_no_steps() -> None:
    assert runs_words(Design(planned_steps=1)).endswith("of 1 step")

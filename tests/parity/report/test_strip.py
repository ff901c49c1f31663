"""The strip: a speed that is measured, modelled or unknown, and a cost that is not recorded."""

from typing import Any

from parity.judging.verdict.sign_offs import sha256_of
from parity.report.view import view_of
from parity.report.words import words


def _speed(document: dict[str, Any]) -> tuple[str, str]:
    fact = next(fact for fact in words(view_of(document)).strip if fact.name == "Speed")  # type: ignore[arg-type]
    return fact.value, fact.why


def test_a_modelled_gemm_time_stands_where_no_speed_was_measured_and_says_so(
    documents: dict[str, Any],
) -> None:
    unmeasured = documents["pass"]
    assert _speed(unmeasured)[0] == "Unknown"
    value, why = _speed(unmeasured | {"gemm_time": 0.5})
    assert value == "GEMMs 2.00 x, modelled"
    assert why.startswith("at 1 : 2 : 4 for bf16 : fp8 : fp4")
    refused = unmeasured | {"speed_reason": "the arms ran on different hardware"}
    assert _speed(refused)[0] == "Not compared"
    assert _speed(refused | {"gemm_time": 0.5}) == (value, why)
    # A time that is not known, or that is none, is no speed.
    assert _speed(unmeasured | {"gemm_time": None}) == _speed(unmeasured)


def test_a_cost_that_is_not_recorded_has_its_true_reason(documents: dict[str, Any]) -> None:
    """Step times may be on record and still be no speed, as those of an emulation."""
    cost = words(view_of(documents["pass"])).strip[0]
    assert (cost.value, cost.why) == ("Not recorded", "no step times in these runs")
    refused = words(
        view_of({**documents["pass"], "speed_reason": "an emulation has no speed"})
    ).strip[0]  # type: ignore[typeddict-item]
    assert (refused.value, refused.why) == ("Not recorded", "an emulation has no speed")


def test_a_measured_speed_is_told_whatever_is_modelled(documents: dict[str, Any]) -> None:
    estimate = {"value": 1.25, "lo": 1.2, "hi": 1.3}
    measured = documents["pass"] | {
        "throughput": {"ratio": estimate, "run_hours": 1.0},
        "speed_reason": None,
        "token_tax": None,
    }
    measured |= {"net_speedup": None}
    assert _speed(measured) == _speed(measured | {"gemm_time": 0.5})
    assert _speed(measured)[0] == "1.250 x a step"
    assert (
        _speed(measured | {"net_speedup": {"value": 1.1, "lo": 1.0, "hi": 1.2}})[0]
        == "1.100 x net of the tax"
    )


def test_the_modelled_time_is_no_part_of_what_is_signed(documents: dict[str, Any]) -> None:
    assert sha256_of(documents["pass"]) == sha256_of(documents["pass"] | {"gemm_time": 0.5})


def test_noise_that_nobody_knows_is_not_called_assumed(documents: dict[str, Any]) -> None:
    def noise(document: dict[str, Any]) -> str:
        strip = words(view_of(document)).strip  # type: ignore[arg-type]
        return next(fact.value for fact in strip if fact.name == "Run-to-run noise")

    known = documents["pass"]
    assert noise(known) != "Unknown"
    unknown = {**known, "verdict": "inconclusive", "codes": ["RUN_NOISE_UNKNOWN", *known["codes"]]}
    assert noise(unknown) == "Unknown"

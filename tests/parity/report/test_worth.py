import pytest

from parity.report.worth import FullRun, worth

DOCUMENT = {
    "candidate": {"name": "nvfp4"},
    "net_speedup": {"value": 1.25, "lo": 1.0, "hi": 2.0},
    "throughput": {"run_hours": 3.0},
}


def test_saved_hours_and_money() -> None:
    gain = worth(DOCUMENT, FullRun(device_hours=1000.0, price=2.5, check_devices=8))
    assert gain is not None
    assert (gain.saved_hours, gain.lo, gain.hi) == pytest.approx((200.0, 0.0, 500.0))
    assert (gain.check_hours, gain.saved_money, gain.check_money) == pytest.approx(
        (24.0, 500.0, 60.0)
    )
    assert gain.sentence == (
        "nvfp4 saves 200 of 1,000 device hours (+0 to +500); this check took 24.0. At 2.5 an hour: "
        "+500, the check 60."
    )


def test_a_slower_format_costs() -> None:
    slow = {**DOCUMENT, "net_speedup": {"value": 0.8, "lo": 0.75, "hi": 0.85}}
    gain = worth(slow, FullRun(device_hours=1000.0))
    assert gain is not None
    assert gain.saved_hours == pytest.approx(-250.0)
    assert gain.saved_money is None
    assert "costs 250 of 1,000" in gain.sentence


def test_without_a_net_speedup_nothing_is_claimed() -> None:
    assert worth({**DOCUMENT, "net_speedup": None}, FullRun(device_hours=10.0)) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"device_hours": 0.0},
        {"device_hours": 1.0, "price": -1.0},
        {"device_hours": 1.0, "check_devices": 0},
    ],
)
def test_bad_full_runs(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        FullRun(**bad)

"""What the answer is worth: device hours and money that the candidate saves or costs over the
planned full run, and what the check cost.
"""

from parity.frozen import frozen
from parity.judging.document_types import VerdictDocument


@frozen
class FullRun:
    """The planned full run with the baseline recipe: device hours, price of a device hour, devices
    a run of the check used.
    """

    device_hours: float
    price: float | None = None
    check_devices: int = 1

    def __post_init__(self) -> None:
        if not self.device_hours > 0.0:
            raise ValueError(f"device_hours is {self.device_hours}; expected more than 0")
        if self.price is not None and not self.price >= 0.0:
            raise ValueError(f"price is {self.price}; expected 0 or more")
        if self.check_devices < 1:
            raise ValueError(f"check_devices is {self.check_devices}; expected at least 1")


@frozen
class Worth:
    """Device hours saved (negative: lost) with interval, device hours of the check, their money
    where a price is known, in words.
    """

    saved_hours: float
    lo: float
    hi: float
    check_hours: float
    saved_money: float | None
    check_money: float | None
    sentence: str


def worth(document: VerdictDocument, full: FullRun) -> Worth | None:
    """What a verdict document's net speed-up means for a full run; None without a net speed-up (it
    needs step times of all runs).

    saved = full run's device hours x (1 - 1/net speed-up), with the ends of the net speed-up's
    interval; check = run hours x devices

    Can fail: the net speed-up was measured at the check's length and schedule, not at the full
    run's.
    """
    net, speed = document.get("net_speedup"), document.get("throughput")
    if not net or not speed:
        return None
    saved, lo, hi = (
        full.device_hours * (1.0 - 1.0 / ratio) for ratio in (net["value"], net["lo"], net["hi"])
    )
    check = speed["run_hours"] * full.check_devices
    word = "saves" if saved >= 0.0 else "costs"
    sentence = (
        f"{document['candidate']['name']} {word} {abs(saved):,.0f} of {full.device_hours:,.0f} "
        f"device hours ({lo:+,.0f} to {hi:+,.0f}); this check took {check:,.1f}."
    )
    saved_money = check_money = None
    if full.price is not None:
        saved_money, check_money = saved * full.price, check * full.price
        sentence += (
            f" At {full.price:g} an hour: {saved_money:+,.0f}, the check {check_money:,.0f}."
        )
    return Worth(
        saved_hours=saved,
        lo=lo,
        hi=hi,
        check_hours=check,
        saved_money=saved_money,
        check_money=check_money,
        sentence=sentence,
    )

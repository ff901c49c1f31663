"""Which fails are narrow, and the job that is trained for a second look at them."""

from typing import Any

from parity.cli.gate.narrow_fail import is_narrow, with_one_more_replicate


def _failed(lo, hi, code="GAP_EXCEEDS_MARGIN") -> Any:
    deciding = {"level": 0.95, "lo": lo, "hi": hi, "one_sided": True}
    return {"codes": [code], "gap": {"deciding": deciding}, "margin": {"nats": 0.014}}


def test_narrow_is_less_than_half_an_interval_beyond_the_margin():
    assert is_narrow(_failed(0.015, 0.019))
    assert not is_narrow(_failed(0.017, 0.019))
    assert not is_narrow(_failed(0.015, 0.019, "DIVERGED"))


def test_one_more_replicate_of_those_that_failed_leaves_the_job_itself_alone():
    job: dict[str, Any] = {
        "baseline": {"recipe": "b", "replicates": 2},
        "candidates": [{"recipe": "c"}, {"recipe": "d"}],
    }
    larger = with_one_more_replicate(job, [1])
    assert [
        larger["baseline"]["replicates"],
        *(arm["replicates"] for arm in larger["candidates"]),
    ] == [3, 2]
    assert [arm["recipe"] for arm in larger["candidates"]] == ["d"]
    assert job["baseline"]["replicates"] == 2

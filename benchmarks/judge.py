"""How fast is the judge, and how much memory does it take? Arms of 10,000 to 10,000,000 steps, and
a CSV of 1,000,000 rows, next to peers.

Run: python benchmarks/judge.py. Limits: 2 x 1,000,000 judged in 0.15 s, 5.5 medians of the gap and
300 MB above the inputs; 2 x 10,000 in 10 ms; CSV in 1.0 s; 2 x 10,000,000 judged in 3 times the
memory of the inputs. An open pair, which is judged again with each free statement, takes at most 4
times as long as a decided one of as many steps. Peers: numpy.loadtxt and numpy.genfromtxt for
reading; arch's stationary bootstrap for the interval.
"""

import io
import math
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from arch.bootstrap import StationaryBootstrap

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from parity.readers import read_run

POLICY = policy_from_mapping({"profile": "nvfp4", "schedule": "decayed"})
OPEN_POLICY = policy_from_mapping({"profile": "nvfp4"})


def best_of(times: int, work: Callable[[], object]) -> float:
    """Least wall time of several calls, seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def pair(n: int) -> tuple[Curve, Curve]:
    """Two synthetic arms of n steps."""
    rng = np.random.default_rng(0)
    t = np.arange(1, n + 1)
    loss = 2.0 + 6.0 * t**-0.3 + rng.normal(0, 0.08, n)
    return curve_from_arrays(t, loss), curve_from_arrays(t, loss + rng.normal(0, 0.004, n))


def judged(n: int, limit: float, medians: float = math.inf) -> bool:
    """Time and memory of one verdict; `medians` limits the time in numpy medians of the gap."""
    base, cand = pair(n)

    def work() -> object:
        return judge([base], {"candidate": [cand]}, POLICY, planned_steps=n)

    seconds = best_of(25, work)
    gap = cand.loss - base.loss
    median = best_of(5, lambda: np.median(gap))
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    ok = seconds <= limit and seconds <= medians * median and peak <= 300
    peer = f"{seconds / median:.1f} x one numpy median of the gap (limit {medians})"
    print(
        f"judge 2 x {n:>9,}: {seconds:.4f} s (limit {limit}), {peer}, peak {peak:.0f} MB above "
        f"inputs, {_mark(ok)}"
    )
    _bootstrap(gap, seconds, n)
    return ok


def open_pair(n: int) -> bool:
    """Time of a pair that stays open, as a multiple of a decided one."""
    base, cand = pair(n)
    arms = {"candidate": [cand]}
    decided = best_of(10, lambda: judge([base], arms, POLICY, planned_steps=n))
    undecided = best_of(10, lambda: judge([base], arms, OPEN_POLICY, planned_steps=n))
    ok = undecided <= 4.0 * decided
    print(
        f"an open pair of 2 x {n:,}: {undecided / decided:.2f} x a decided one (limit 4), "
        f"{_mark(ok)}"
    )
    return ok


def memory(n: int) -> bool:
    """Peak memory of a verdict with its document, as a multiple of the two arms' steps and losses:
    at most 3.
    """
    base, cand = pair(n)
    gap_of_one_step = curve_from_arrays(cand.steps[1:], cand.loss[1:])
    spiked = cand.loss.copy()
    spiked[n - n // 20] = np.nan
    peaks = {}
    for name, arm in (
        ("as logged", cand),
        ("another first step", gap_of_one_step),
        ("one NaN", curve_from_arrays(cand.steps, spiked)),
    ):
        tracemalloc.start()
        (verdict,) = judge([base], {"candidate": [arm]}, POLICY, planned_steps=n)
        verdict.document()
        # two arms of int64 steps and float64 losses
        peaks[name] = tracemalloc.get_traced_memory()[1] / (32.0 * n)
        tracemalloc.stop()
    ok = max(peaks.values()) <= 3.0
    listed = ", ".join(f"{name} {peak:.2f} x" for name, peak in peaks.items())
    print(
        f"memory of 2 x {n:,} above the inputs, as a multiple of them (limit 3): {listed}, "
        f"{_mark(ok)}"
    )
    return ok


def _bootstrap(gap: np.ndarray, seconds: float, n: int) -> None:
    late = gap[-n // 5 :][-20_000:]
    spent = best_of(1, lambda: StationaryBootstrap(50, late, seed=0).conf_int(np.mean, reps=300))
    print(
        f"  arch stationary bootstrap of {len(late):,} points, 300 draws: {spent:.3f} s, "
        f"{spent / seconds:.1f} x the whole judge"
    )


def reading(n: int, limit: float) -> bool:
    """Time of reading a CSV of n rows."""
    rng = np.random.default_rng(0)
    text = "step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in enumerate(rng.normal(2.5, 0.08, n)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.csv"
        path.write_text(text)
        seconds = best_of(3, lambda: read_run(str(path)))
        plain = best_of(1, lambda: np.loadtxt(path, delimiter=",", skiprows=1))
    few = text[: text.index("\n50000,")]
    slow = (
        best_of(1, lambda: np.genfromtxt(io.StringIO(few), delimiter=",", skip_header=1))
        * n
        / 50_000
    )
    ok = seconds <= limit
    peers = f"{seconds / plain:.2f} x loadtxt, {seconds / slow:.2f} x genfromtxt (scaled)"
    print(f"read {n:,} rows of CSV: {seconds:.2f} s (limit {limit}), {peers}, {_mark(ok)}")
    return ok


def _mark(ok: bool) -> str:
    return "ok" if ok else "MISS"


if __name__ == "__main__":
    results = [
        judged(10_000, 0.010),
        judged(1_000_000, 0.15, medians=5.5),
        open_pair(1_000_000),
        memory(10_000_000),
        reading(1_000_000, 1.0),
    ]
    sys.exit(0 if all(results) else 1)

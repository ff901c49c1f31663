"""What does `parity.Run.log` cost a training loop, against writing the same 12 numbers as a line of
JSON and flushing it?

Run: python benchmarks/run_client.py. Limit: 20 us for a call in a tight loop. The server is away
throughout, which is the worst case: everything is kept on disk. A call after a pause is slower, of
ours and of any: the processor's caches hold other things by then.
"""

import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import parity

STEPS, STEP_SECONDS, LIMIT_US = 2000, 0.002, 20.0
RUN = "r000000000000-0000000000"
VALUES = {f"value_{index}": 0.1 * index for index in range(10)} | {"loss": 2.5, "grad_norm": 0.7}


def tight_us(log: Callable[[int], object]) -> float:
    """Least mean time of a call among batches of 100, microseconds of the calling thread."""
    times = []
    for batch in range(STEPS, 2 * STEPS, 100):
        began = time.thread_time()
        for step in range(batch, batch + 100):
            log(step)
        times.append(1e4 * (time.thread_time() - began))
    return min(times)


def median_us(log: Callable[[int], object]) -> tuple[float, float]:
    """Median and 99th percentile of a call, microseconds of the calling thread, in a loop whose
    steps take about 2 ms of a device.
    """
    times = []
    for step in range(STEPS):
        time.sleep(STEP_SECONDS)
        began = time.thread_time()
        log(step)
        times.append(1e6 * (time.thread_time() - began))
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def main() -> int:
    """Print the figures; 1 where the limit is broken."""
    logging.getLogger("parity").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        run = parity.Run(RUN, server="http://127.0.0.1:9", folder=folder, finish_seconds=0)
        ours, ours_p99 = median_us(lambda step: run.log(step=step, **VALUES))
        tight = tight_us(lambda step: run.log(step=step, **VALUES))
        run.finish()
        with (Path(folder) / "lines").open("w", encoding="utf-8") as file:

            def line(step: int) -> None:
                file.write(json.dumps({"step": step, **VALUES}) + "\n")
                file.flush()

            theirs, theirs_p99 = median_us(line)
    print(f"parity.Run.log in a tight loop: {tight:.1f} us a call (limit {LIMIT_US:g})")
    print(
        f"after a pause: median {ours:.1f} us, p99 {ours_p99:.1f} us; a line of JSON: {theirs:.1f} "
        f"us, {theirs_p99:.1f} us"
    )
    print(f"ratio of the medians {ours / theirs:.2f}; share of a step of 50 ms {ours / 500:.3f} %")
    return int(tight > LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())

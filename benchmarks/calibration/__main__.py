"""How often is the judge wrong? `python -m benchmarks.calibration [A1 F4 ...] [--quick]` prints one
line a check: what was measured, its mark, ok or MISS (exit code 1).

A1 to A13: the acceptance protocol on synthetic curves of known truth and on seven public reruns (L1
to L7 took the place of A10); F1 to F6: run-to-run noise that is borrowed from public reruns; F7 to
F9: that of a model that is of no family on record; F10: reruns that were stopped early; F11: the
clean groups of examples/public; P1 to P4: few points and unfinished runs; E1 to E3: public sets and
held-out losses; R1 to R5: honest runs and copies; T1 and T2: margins in tokens; L1 to L7: the live
rules; M1 to M3: looks and candidates.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.calibration import (
    acceptance,
    borrowed_noise,
    clean_groups,
    early_stops,
    expected,
    few_evaluations,
    honest_runs,
    live,
    looks,
    points,
    tokens,
    unseen_families,
)
from benchmarks.marks import MarkedFigure

CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {
    name: check
    for module in (
        acceptance,
        borrowed_noise,
        unseen_families,
        early_stops,
        clean_groups,
        live,
        looks,
        points,
        tokens,
        expected,
        few_evaluations,
        honest_runs,
    )
    for name, check in module.CHECKS.items()
}


def main(arguments: Sequence[str]) -> int:
    """Run the checks named in the arguments, or all."""
    quick = "--quick" in arguments
    names = [name for name in arguments if name in CHECKS] or list(CHECKS)
    missed = 0
    for name in names:
        start = time.perf_counter()
        for line in CHECKS[name](quick):
            missed += not line.ok
            print(
                f"{name:4} {line.what:45} {line.value:75} {line.mark:32} "
                f"{'ok' if line.ok else 'MISS'}",
                flush=True,
            )
        print(f"{name:4} {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{missed} missed" if missed else "all marks reached")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

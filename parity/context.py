"""What must agree between the arms besides the recipe: engine, device class, data, threads, code. A difference confounds the gap."""

from collections.abc import Sequence

from parity.curve import DATA_DIGEST, Curve


def differing_context(runs: Sequence[Curve], may_differ: Sequence[str] = ()) -> tuple[str, ...]:
    """Every context key on which two runs disagree, as `key: value | value`; keys that only one run has say nothing."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for key, value in run.context.items():
            values.setdefault(key, set()).add(value)
    return tuple(f"{key}: {' | '.join(sorted(found))}" for key, found in sorted(values.items()) if len(found) > 1 and key not in may_differ)


def same_data_recorded(runs: Sequence[Curve]) -> bool:
    """Whether every run carries the same recorded data digest (equal seeds then mean an equal order)."""
    digests = {run.context.get(DATA_DIGEST, "") for run in runs}
    return len(digests) == 1 and "" not in digests

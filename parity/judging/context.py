"""What must agree between the arms besides the recipe: engine, device class, data, threads, code. A difference confounds the gap."""

from collections.abc import Sequence

from parity.judging.curve import DATA_DIGEST, Curve

_VARIABLE, _NOT_SET = "env.", "not set"


def differing_context(runs: Sequence[Curve], may_differ: Sequence[str] = ()) -> tuple[str, ...]:
    """Every context key on which two runs disagree, as `key: value | value`.

    A key that only one run has says nothing, but for a variable of the environment (`env.NAME`): where a run recorded what it ran
    on, a variable that is not there was not set, and NVTE_NVFP4_DISABLE_RHT=1 in one arm alone is another recipe.
    """
    values: dict[str, set[str]] = {}
    for run in runs:
        for key, value in run.context.items():
            values.setdefault(key, set()).add(value)
    for key, found in values.items():
        if key.startswith(_VARIABLE) and any(run.context and key not in run.context for run in runs):
            found.add(_NOT_SET)
    return tuple(f"{key}: {' | '.join(sorted(found))}" for key, found in sorted(values.items()) if len(found) > 1 and key not in may_differ)


def same_data_recorded(runs: Sequence[Curve]) -> bool:
    """Whether every run carries the same recorded data digest (equal seeds then mean an equal order)."""
    digests = {run.context.get(DATA_DIGEST, "") for run in runs}
    return len(digests) == 1 and "" not in digests

"""What must agree between the arms besides the recipe: engine, device class, data, threads, code. A difference confounds the gap.

This is the one home of that rule: the judge, the check of a named baseline and the job page all use it.
"""

from collections.abc import Collection, Mapping, Sequence

from parity.judging.curve import DATA_DIGEST, FORKED_FROM, Curve

NOT_SET = "not set"
HOST = "host"  # the machine's name: machines of one device class train alike, only their speed is not comparable
_VARIABLE = "env."


def values_of(contexts: Sequence[Mapping[str, str]], key: str) -> set[str]:
    """Every value of a key over what runs recorded; a run that recorded nothing at all does not count.

    A key that a run lacks says nothing about it, but for a variable of the environment (`env.NAME`): where a run recorded what it ran
    on, a variable that is not there was not set, and NVTE_NVFP4_DISABLE_RHT=1 in one arm alone is another recipe.
    """
    recorded = [context for context in contexts if context]
    values = {str(context[key]) for context in recorded if key in context}
    return values | ({NOT_SET} if key.startswith(_VARIABLE) and any(key not in context for context in recorded) else set())


def values_by_key(contexts: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """The values of every key that any run recorded, keys in order."""
    return {key: values_of(contexts, key) for key in sorted({key for context in contexts for key in context})}


def confounding_keys(contexts: Sequence[Mapping[str, str]], may_differ: Collection[str] = ()) -> list[str]:
    """The keys on which runs disagree and which the policy does not let differ; a machine's name and a run's parent confound nothing."""
    allowed = (HOST, FORKED_FROM, *may_differ)
    return [key for key, values in values_by_key(contexts).items() if len(values) > 1 and key not in allowed]


def differing_context(runs: Sequence[Curve], may_differ: Collection[str] = ()) -> tuple[str, ...]:
    """Every context key on which two runs disagree, as `key: value | value`."""
    contexts = [run.context for run in runs]
    values = values_by_key(contexts)
    return tuple(f"{key}: {' | '.join(sorted(values[key]))}" for key in confounding_keys(contexts, may_differ))


def same_data_recorded(runs: Sequence[Curve]) -> bool:
    """Whether every run carries the same recorded data digest (equal seeds then mean an equal order)."""
    digests = {run.context.get(DATA_DIGEST, "") for run in runs}
    return len(digests) == 1 and "" not in digests

"""What must agree between the arms besides the recipe: engine, device class, data, threads, code. A difference confounds the gap.

This is the one home of that rule: the judge, the check of a named baseline and the job page all use it. Words that people type are equal
but for case, blanks and hyphens; two names of a device are one where the words of one are all in the other ("H100" and "NVIDIA H100 80GB
HBM3", but neither "H200" nor "H100 PCIe" and "H100 SXM").
"""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

from parity.judging.curve import DATA_DIGEST, FORKED_FROM, RECORDED_RECIPE, START_PRECISION, Curve

NOT_SET = "not set"
DEVICE_CLASS, ENGINE, EMULATED = "device_class", "engine", "emulated"
PARAMETERS, ARCHITECTURE, WEIGHTS = "parameters", "architecture", "weights"  # of the model: their number, its kind, the weights' format
HOST = "host"  # the machine's name: machines of one device class train alike, only their speed is not comparable
_VARIABLE = "env."
_TYPED = (DEVICE_CLASS, ENGINE)  # keys whose values people type
SMALL_MODEL = 10e6  # parameters; below it runs on record differ by up to ten times what is assumed (docs/method.md)
_ENCODER = re.compile(r"bert|electra|(?<![a-z])m?bart|(?<![a-z0-9])(?:m|by|um|flan-?)?t5|encoder")
_BINARY = re.compile(r"binar|xnor|(?<![0-9])(?:int)?1[- ]?bit|(?<![a-z])int1(?![0-9])")
_NUMBER = re.compile(r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([kmbt]?)", re.IGNORECASE)
_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_VENDORS = frozenset(("nvidia", "amd", "instinct", "tesla", "geforce"))


def values_of(contexts: Sequence[Mapping[str, str]], key: str) -> set[str]:
    """Every value of a key over what runs recorded; a run that recorded nothing at all does not count.

    A key that a run lacks says nothing about it, but for a variable of the environment (`env.NAME`): where a run recorded what it ran
    on, a variable that is not there was not set, and NVTE_NVFP4_DISABLE_RHT=1 in one arm alone is another recipe.
    """
    recorded = [context for context in contexts if context]
    values = {str(context[key]) for context in recorded if key in context}
    if key in _TYPED and all(_same(key, *pair) for pair in itertools.combinations(values, 2)):
        values = {max(values, key=lambda value: (len(value), value))} if values else values
    return values | ({NOT_SET} if key.startswith(_VARIABLE) and any(key not in context for context in recorded) else set())


def values_by_key(contexts: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """The values of every key that any run recorded, keys in order."""
    return {key: values_of(contexts, key) for key in sorted({key for context in contexts for key in context})}


def confounding_keys(contexts: Sequence[Mapping[str, str]], may_differ: Collection[str] = ()) -> list[str]:
    """The keys on which runs disagree and which the policy does not let differ.

    A machine's name and a run's parent confound nothing; recipes and the precision of the first steps are what is compared.
    """
    allowed = (HOST, FORKED_FROM, START_PRECISION, RECORDED_RECIPE, *may_differ)
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


def without_assumed_floor(runs: Sequence[Curve]) -> str | None:
    """What the record says of a model whose run noise nobody may assume: a small one, an encoder, or binary weights; None of others.

    No such run is among those on which the assumed floors rest, and those that are on record differ more.
    """
    for run in runs:
        parameters = _count_of(run.context.get(PARAMETERS, ""))
        if parameters is not None and parameters < SMALL_MODEL:
            return f"a model of {parameters:,.0f} parameters, below {SMALL_MODEL:,.0f}"
        if _ENCODER.search(run.context.get(ARCHITECTURE, "").lower()):
            return f"an encoder ({run.context[ARCHITECTURE]})"
        if _BINARY.search(run.context.get(WEIGHTS, "").lower()) or _BINARY.search((run.recipe or "").lower()):
            return "binary weights"
        if run.context.get(ENGINE) == EMULATED:
            return f"the small models of engine {EMULATED}"
    return None


def _count_of(text: str) -> float | None:
    """A number of parameters as people write it: 4000000, 4e6, 4,000,000, 4M; None for anything else."""
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else float(match[1].replace(",", "").replace("_", "")) * _SUFFIX[match[2].lower()]


def _same(key: str, first: str, second: str) -> bool:
    """Whether two typed values mean the same."""
    words = [frozenset(re.findall(r"[a-z0-9.]+", value.lower())) for value in (first, second)]
    if key == DEVICE_CLASS:
        words = [own - _VENDORS or own for own in words]
        return all(words) and (words[0] <= words[1] or words[1] <= words[0])
    return words[0] == words[1]

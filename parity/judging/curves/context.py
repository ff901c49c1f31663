"""What must agree between the arms besides the recipe: engine, device class, data, threads, code. A
difference confounds the gap.

This is the one home of that rule: the judge, the check of a named baseline and the job page all use
it. Words that people type are equal but for case, blanks and hyphens; two names of a device are one
where the words of one are all in the other ("H100" and "NVIDIA H100 80GB HBM3", but neither "H200"
nor "H100 PCIe" and "H100 SXM").
"""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

from parity.judging.curves.curve import (
    DATA_DIGEST,
    FORKED_FROM,
    PLANNED_STEPS,
    READ_FACTS,
    RECORDED_RECIPE,
    START,
    START_PRECISION,
    Curve,
)

NOT_SET = "not set"
DEVICE_CLASS, ENGINE, EMULATED = "device_class", "engine", "emulated"
# of the model: their number, its kind, the weights' format
PARAMETERS, ARCHITECTURE, WEIGHTS = "parameters", "architecture", "weights"
# the machine's name: machines of one device class train alike, only their speed is not comparable
HOST = "host"
NOT_RECORDED = frozenset((*READ_FACTS, PLANNED_STEPS))
"""Context keys that a reader writes of any file; a run that has no other recorded nothing of what
it ran on.
"""
_VARIABLE = "env."
_TYPED = (DEVICE_CLASS, ENGINE)  # keys whose values people type
# parameters; below it runs on record differ by up to ten times what is assumed (docs/method.md)
SMALL_MODEL = 10e6
_ENCODER = re.compile(r"bert|electra|(?<![a-z])m?bart|(?<![a-z0-9])(?:m|by|um|flan-?)?t5|encoder")
_BINARY = re.compile(r"binar|xnor|(?<![0-9])(?:int)?1[- ]?bit|(?<![a-z])int1(?![0-9])")
_NUMBER = re.compile(r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([kmbt]?)", re.IGNORECASE)
_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
CODE_DIGEST = "code_digest"  # of the files that decide the training
# names of commits, which say less than the digest of their files
_REVISIONS = ("code_revision", "repository_revision")
_VENDORS = frozenset(("nvidia", "amd", "instinct", "tesla", "geforce"))


Comparison = Literal["recipe", "revision", "environment"]
"""In what the two arms of a comparison are meant to differ: a recipe, a revision of the code or an
environment, of one recipe each.
"""

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
RECIPE: Comparison = "recipe"
# The context keys in which arms may differ because that is what is compared; `env.*` is every key
# that begins with `env.`.
_COMPARED: Mapping[Comparison, tuple[str, ...]] = {
    RECIPE: (),
    "revision": (CODE_DIGEST, *_REVISIONS),
    "environment": ("env.*", "environment", "image", "version.*"),
}


def compared_keys(compares: Comparison) -> tuple[str, ...]:
    """The context keys in which two arms may differ because of what they compare; a name with `*`
    stands for all that begin so.
    """
    return _COMPARED[compares]


def values_of(contexts: Sequence[Mapping[str, str]], key: str) -> set[str]:
    """Every value of a key over what runs recorded; a run that recorded nothing at all does not
    count.

    A key that a run lacks says nothing about it, but for a variable of the environment
    (`env.NAME`): where a run recorded what it ran on, a variable that is not there was not set, and
    NVTE_NVFP4_DISABLE_RHT=1 in one arm alone is another recipe.
    """
    recorded = [context for context in contexts if context.keys() - NOT_RECORDED]
    values = {str(context[key]) for context in recorded if key in context}
    if key in _TYPED and all(_same(key, *pair) for pair in itertools.combinations(values, 2)):
        values = {max(values, key=lambda value: (len(value), value))} if values else values
    return values | (
        {NOT_SET}
        if key.startswith(_VARIABLE) and any(key not in context for context in recorded)
        else set()
    )


def values_by_key(contexts: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """The values of every key that any run recorded, keys in order."""
    return {
        key: values_of(contexts, key)
        for key in sorted({key for context in contexts for key in context} - {*READ_FACTS})
    }


def confounding_keys(
    contexts: Sequence[Mapping[str, str]],
    may_differ: Collection[str] = (),
    compares: Comparison = RECIPE,
) -> list[str]:
    """The keys on which runs disagree, and which neither the policy nor what is compared lets
    differ.

    A machine's name and a run's parent confound nothing; recipes and the precision of the first
    steps are what recipe arms compare. Where every run recorded the digest of the code that trained
    it, a commit is only a name: one digest has many commits.
    """
    of_recipes = (START_PRECISION, RECORDED_RECIPE) if compares == RECIPE else ()
    recorded = [context for context in contexts if context.keys() - NOT_RECORDED]
    names = _REVISIONS if recorded and all(CODE_DIGEST in context for context in recorded) else ()
    allowed = (HOST, FORKED_FROM, *of_recipes, *names, *may_differ)
    return [
        key
        for key, values in values_by_key(contexts).items()
        if len(values) > 1 and key not in allowed and not is_compared(key, compares)
    ]


def is_compared(key: str, compares: Comparison) -> bool:
    """Whether a context key is among those in which two arms may differ because of what they
    compare.
    """
    return any(
        key.startswith(name[:-1]) if name.endswith("*") else key == name
        for name in compared_keys(compares)
    )


def differing_context(
    runs: Sequence[Curve], may_differ: Collection[str] = (), compares: Comparison = RECIPE
) -> tuple[str, ...]:
    """Every context key on which two runs disagree, as `key: value | value`."""
    contexts = [run.context for run in runs]
    values = values_by_key(contexts)
    return tuple(
        f"{key}: {' | '.join(sorted(values[key]))}"
        for key in confounding_keys(contexts, may_differ, compares)
    )


def confounding_context(
    arms: Sequence[Sequence[Curve]], may_differ: Collection[str], compares: Comparison
) -> tuple[str, ...]:
    """Every context key that confounds two arms, as `key: value | value`: what is compared may
    differ between them, not within one.
    """
    between = differing_context([run for arm in arms for run in arm], may_differ, compares)
    if compares == RECIPE:
        return between
    listed = {entry.partition(": ")[0] for entry in between}
    within = [
        entry
        for arm in arms
        for entry in differing_context(arm, may_differ)
        if entry.partition(": ")[0] not in listed
    ]
    return (*between, *dict.fromkeys(within))


EXPLAINING = frozenset(
    (
        *(
            DATA_DIGEST,
            START,
            PLANNED_STEPS,
            PARAMETERS,
            ARCHITECTURE,
            "dataset",
            "sequence_length",
            "batch_size",
            "weight_decay",
        ),
        *("learning_rate", "min_learning_rate", "learning_rate_schedule"),
    )
)
"""Context keys of what could explain a gap as large as any: data, batches, model, its start, and
schedule.
"""


def explaining(differing: Sequence[str]) -> bool:
    """Whether a difference of context, `key: value | value` each, could explain a gap by itself."""
    return any(entry.partition(": ")[0] in EXPLAINING for entry in differing)


def shared_facts(runs: Sequence[Curve]) -> int:
    """How many facts that every run recorded are equal in all of them."""
    contexts = [run.context for run in runs]
    return sum(
        len(values) == 1 and all(key in context for context in contexts)
        for key, values in values_by_key(contexts).items()
    )


def same_data_recorded(runs: Sequence[Curve]) -> bool:
    """Whether every run carries the same recorded data digest (equal seeds then mean an equal
    order).
    """
    digests = {run.context.get(DATA_DIGEST, "") for run in runs}
    return len(digests) == 1 and "" not in digests


def without_assumed_noise(runs: Sequence[Curve]) -> str | None:
    """What the record says of a model whose run-to-run noise nobody may assume: a small one, an
    encoder, or binary weights; None of others.

    No such run is among those on which the assumed noise rests, and those that are on record differ
    more.
    """
    for run in runs:
        parameters = parameter_count(run.context.get(PARAMETERS, ""))
        if parameters is not None and parameters < SMALL_MODEL:
            return f"a model of {parameters:,.0f} parameters, below {SMALL_MODEL:,.0f}"
        if _ENCODER.search(run.context.get(ARCHITECTURE, "").lower()):
            return f"an encoder ({run.context[ARCHITECTURE]})"
        if _BINARY.search(run.context.get(WEIGHTS, "").lower()) or _BINARY.search(
            (run.recipe or "").lower()
        ):
            return "binary weights"
        if run.context.get(ENGINE) == EMULATED:
            return f"the small models of engine {EMULATED}"
    return None


def parameter_count(text: str) -> float | None:
    """A number of parameters as people write it: 4000000, 4e6, 4,000,000, 4M; None for anything
    else.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[1].replace(",", "").replace("_", "")) * _SUFFIX[match[2].lower()]


def _same(key: str, first: str, second: str) -> bool:
    """Whether two typed values mean the same."""
    words = [frozenset(re.findall(r"[a-z0-9.]+", value.lower())) for value in (first, second)]
    if key == DEVICE_CLASS:
        words = [parts - _VENDORS or parts for parts in words]
        return all(words) and (words[0] <= words[1] or words[1] <= words[0])
    return words[0] == words[1]

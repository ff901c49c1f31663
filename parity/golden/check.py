"""`check_golden`: a run against its golden, from files, trackers or memory."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from parity.comparing.arms import read_one
from parity.frozen import frozen
from parity.golden.answers import EXIT_CODES, FINE, Answer
from parity.golden.common_steps import common_steps
from parity.golden.golden_file import Golden, GoldenError, read_golden
from parity.golden.measured import CHANGES, MIN_STEPS, Change, ComparedRun, ComparisonFacts
from parity.golden.recipes import common_recipe, first_recipe
from parity.golden.reruns import MOST
from parity.golden.rule import judge
from parity.golden.words import AnswerWords, golden_words
from parity.judging.curves.curve import DATA_DIGEST, Curve, curve_from_arrays
from parity.readers.run_config import EQUAL_KEYS
from parity.wording import did_you_mean

# How a batch is split may change with the hardware; the batch itself may not.
FACTS = frozenset(EQUAL_KEYS) - {"micro_batch_size", "gradient_accumulation"}


@frozen
class RunFacts:
    """What is stated of a run: its recipe, what drew random numbers, container, hardware, the
    digest of its data, and the names of columns.
    """

    recipe: str | None = None
    random: tuple[str, ...] = ()
    container: str | None = None
    hardware: str | None = None
    data: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@frozen(eq=False)
class Check:
    """The result of a check: the `goldens`, the `run`, their `recipe`, what was `measured`, and the
    answer in `words`.
    """

    goldens: Sequence[Golden]
    run: Curve
    recipe: str
    facts: RunFacts
    measured: ComparedRun
    words: AnswerWords

    @property
    def answer(self) -> Answer:
        """The answer, such as "numerics only"."""
        return self.words.answer

    @property
    def exit_code(self) -> int:
        """0 for identical and numerics only, 3 for cannot tell, 1 for everything else."""
        return EXIT_CODES[self.answer]

    @property
    def is_fine(self) -> bool:
        """Nobody is needed: identical, or numerics only."""
        return self.answer in FINE

    def __bool__(self) -> bool:
        raise TypeError(
            "the result of a golden check is neither true nor false; compare `answer`, or use "
            "parity.assert_golden"
        )


def read_goldens(paths: Sequence[str | os.PathLike[str]]) -> list[Golden]:
    """The goldens of 1 to 10 files, reruns of one. Raises GoldenError."""
    if not 1 <= len(paths) <= MOST:
        raise GoldenError(f"{len(paths)} goldens were given; expected 1 to {MOST}")
    goldens = [read_golden(os.fspath(path)) for path in paths]
    first = goldens[0].curve
    for golden in goldens[1:]:
        if len(common_steps(first, golden.curve).steps) < MIN_STEPS:
            raise GoldenError(
                f"{golden.curve.label} has almost no step in common with {first.label}; expected "
                "reruns with the same steps"
            )
    return goldens


def check_golden(
    goldens: Sequence[Golden],
    run: Any,
    facts: RunFacts,
    *,
    changed: str | None = None,
    fork: int | None = None,
    accept: str = "parity.assert_golden(…, update=REASON)",
    option: str = "recipe",
) -> Check:
    """Judge a run (a path or source, a Curve, a data frame, a dict, an array) by its golden, or by
    several goldens that are reruns of one.

    `changed` is what changed, `fork` the last step before a resume. `accept` is what a person does
    to accept the run, `option` names the input of the recipe. Raises GoldenError, ReadError,
    RecipeError, InputError, or TypeError for a run of another kind.
    """
    curve = read_one(run, "run", facts.columns)
    recipe = common_recipe(goldens, curve, facts.recipe, option)
    stated = ComparisonFacts(
        recipe=recipe,
        changed=stated_change(changed, fork),
        saved=fork,
        random=bool(facts.random or any(golden.random for golden in goldens)),
        golden_facts=goldens[0].facts,
        run_facts=run_facts(curve),
        golden_data=goldens[0].data,
        run_data=facts.data or curve.context.get(DATA_DIGEST),
    )
    line, measured = judge([golden.curve for golden in goldens], curve, stated)
    return Check(
        goldens=goldens,
        run=curve,
        recipe=recipe,
        facts=facts,
        measured=measured,
        words=golden_words(line, measured, recipe, accept),
    )


def check_restart(run: Any, facts: RunFacts, *, option: str = "recipe") -> Check:
    """Judge the steps that a restart of one log repeated by what they were before it.

    Raises GoldenError where no step is repeated or nobody states the recipe, and what
    `check_golden` raises.
    """
    curve = read_one(run, "run", facts.columns)
    recipe = first_recipe(curve, facts.recipe, option)
    if curve.replaced is None:
        raise GoldenError(
            f"run {curve.label} repeats no step, so it shows no restart; expected a golden of an "
            "uninterrupted run, or a log with steps before and after a restart"
        )
    before = curve_from_arrays(
        curve.replaced.steps,
        curve.replaced.loss,
        label=f"{curve.label} before its restart",
        recipe=recipe,
    )
    stated = ComparisonFacts(
        recipe=recipe,
        changed="resume",
        saved=int(before.steps[0]) - 1,
        random=bool(facts.random),
    )
    line, measured = judge([before], curve, stated)
    return Check(
        goldens=[Golden(curve=before, recipe=recipe)],
        run=curve,
        recipe=recipe,
        facts=facts,
        measured=measured,
        words=golden_words(line, measured, recipe, "parity golden update GOLDEN RUN"),
    )


def stated_change(changed: str | None, fork: int | None) -> Change | None:
    """What changed, as it is stated; a fork is that of a resume. Raises GoldenError for another
    word, and a fork without a resume.
    """
    if fork is not None and changed not in (None, "resume"):
        raise GoldenError(
            f"a fork at step {fork} was stated, but changed is {changed!r}; expected resume"
        )
    if changed is None:
        return None if fork is None else "resume"
    for change in CHANGES:
        if change == changed:
            return change
    raise GoldenError(
        f"changed is {changed!r}; expected one of {', '.join(CHANGES)}"
        f"{did_you_mean(changed, CHANGES)}"
    )


def run_facts(curve: Curve) -> Mapping[str, str]:
    """What a run's source recorded that must be as in its golden, by name."""
    return {name: curve.context[name] for name in sorted(FACTS) if name in curve.context}

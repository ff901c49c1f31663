"""The arms of a comparison: runs from files, sources or memory, with what is stated of them."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from parity.comparing.in_memory import EXPECTED, curve_in_memory
from parity.comparing.statements import TRAINING, InputError, stated_rounding
from parity.frozen import frozen
from parity.judging.curves.context import PARAMETERS, parameter_count
from parity.judging.curves.curve import (
    COUNTED,
    LOSS_MEANING,
    NUMBERED_BY,
    OTHER_LOSSES,
    READ_FACTS,
    RECORDED_RECIPE,
    Curve,
    Rounding,
)
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.curves.reading import TRAINING_LOSS
from parity.readers import read_run
from parity.readers.curve.step_unit import other_unit
from parity.readers.files.text import STDIN
from parity.readers.run_names import utf8_name
from parity.recipes import check_recipe, width_of
from parity.wording import count

_FEWEST_PARAMETERS = 1000.0  # a smaller number is one of millions or billions
Arm = tuple[str, list[Curve]]


@frozen
class Stated:
    """What is stated of an arm; what is not stated is as the run's source has it."""

    recipe: str | None = None
    rounding: Rounding | None = None
    context: Mapping[str, str] = field(default_factory=dict)


def read_arm(
    name: str,
    runs: Sequence[Any],
    stated: Stated,
    columns: Callable[[Any], Mapping[str, str]],
    seeds: Sequence[int] | None = None,
) -> list[Curve]:
    """The runs of an arm in order; `columns` gives the names of columns for a run, `seeds` one seed
    per run (None: all the same).

    Raises ReadError, InputError, RecipeError, or TypeError for a run of another kind.
    """
    refuse_same_file([str(run) for run in runs if isinstance(run, (str, os.PathLike))])
    if seeds is not None and len(seeds) != len(runs):
        raise InputError(
            f"seeds of {name}: {count(len(seeds), 'seed')} for {count(len(runs), 'run')}; expected "
            "one seed for each run of an arm"
        )
    curves: list[Curve] = []
    for number, run in enumerate(runs):
        called = name if len(runs) == 1 else f"{name}, run {number + 1}"
        curve = stated_curve(read_one(run, called, columns(run)), called, stated)
        seed = seeds[number] if seeds is not None else curve.seed
        replicate = sum(earlier.seed == seed for earlier in curves)
        curves.append(
            dataclasses.replace(
                curve,
                seed=seed,
                seed_stated=curve.seed_stated or seeds is not None,
                replicate=replicate,
            )
        )
    return curves


def read_one(run: Any, name: str, columns: Mapping[str, str]) -> Curve:
    """One run, from a path or source (any text that `parity.readers` reads), a Curve, a data frame,
    a dict, or an array.
    """
    if isinstance(run, (str, os.PathLike)):
        return read_run(os.fspath(run) if not isinstance(run, str) else run, columns=columns)
    if isinstance(run, Curve):
        return run
    if isinstance(run, (list, tuple)):
        raise TypeError(f"{name} is a {type(run).__name__}; expected {EXPECTED}")
    return curve_in_memory(run, name, columns)


def stated_curve(curve: Curve, name: str, stated: Stated) -> Curve:
    """The curve with what is stated of it, which counts more than what its source has; a recipe of
    another precision stays on record.

    Raises RecipeError, InputError.
    """
    recipe = stated.recipe or curve.recipe
    check_recipe(recipe, f"recipe of {name}")
    if stated.rounding == "nearest" and curve.rounding == "stochastic" and stated.recipe is None:
        raise InputError(
            f"rounding of {name} is nearest, but its source states stochastic; expected one of "
            "them: state the recipe, too"
        )
    rounding = stated_rounding(stated.rounding or curve.rounding, f"rounding of {name}", recipe)
    other = len({width_of(stated.recipe or ""), width_of(curve.recipe or "")} - {None}) > 1
    recorded = {RECORDED_RECIPE: curve.recipe} if other and curve.recipe else {}
    refuse_read_facts(stated.context, f"context of {name}")
    return dataclasses.replace(
        curve,
        recipe=recipe,
        rounding=rounding,
        context={**curve.context, **recorded, **stated.context},
    )


def refuse_read_facts(context: Mapping[str, str], name: str) -> None:
    """Raise InputError where a person states what a reader alone can know; `name` is what the error
    calls the input.
    """
    if key := next((key for key in context if key in READ_FACTS), None):
        raise InputError(
            f"{name} has {key}={context[key]!r:.60}, which the reader records; expected another "
            "key: remove it"
        )


def check_parameters(parameters: object, name: str) -> str | None:
    """A stated number of parameters as the judge reads it, None where nobody states it; InputError
    where it is not one.
    """
    if parameters is None:
        return None
    text = f"{parameters:.17g}" if isinstance(parameters, float) else str(parameters)
    number = None if isinstance(parameters, bool) else parameter_count(text)
    if number is None or number < _FEWEST_PARAMETERS:
        meant = f"; did you mean {number:g}B?" if number is not None and number >= 1.0 else ""
        raise InputError(
            f"{name} is {parameters!r}; expected the number of the model's parameters, such as 8B, "
            f"350M or 4000000{meant}"
        )
    return text


def stated_arms(
    arms: Sequence[Arm], parameters: str | None, name: str, loss_is: str | None
) -> list[Arm]:
    """The arms with what is stated of all runs: the model's parameters, and that the losses are one
    quantity (`loss_is`: training).

    Raises InputError where the source of a run states another number of parameters; `name` is what
    it calls the statement.
    """
    return [
        (arm, [_stated_run(run, arm, parameters, name, loss_is) for run in runs])
        for arm, runs in arms
    ]


def _stated_run(
    run: Curve, arm: str, parameters: str | None, name: str, loss_is: str | None
) -> Curve:
    context = dict(run.context)
    if parameters is not None:
        recorded = context.setdefault(PARAMETERS, parameters)
        if parameter_count(recorded) != parameter_count(parameters):
            raise InputError(
                f"{name} is {parameters}, but a run of {arm} recorded {recorded} parameters; "
                "expected one number: correct one"
            )
    if loss_is == TRAINING and LOSS_MEANING in context:
        context[LOSS_MEANING] = TRAINING_LOSS
        context.pop(OTHER_LOSSES, None)
    return dataclasses.replace(run, context=context)


def read_short_rerun(run: Any, arm: Arm, stated: Stated, columns: Mapping[str, str]) -> Curve:
    """A rerun of an arm that was stopped early, with what is stated of the arm and its first run's
    seed.
    """
    curve = stated_curve(read_one(run, f"{arm[0]}, short rerun", columns), arm[0], stated)
    return dataclasses.replace(curve, seed=arm[1][0].seed)


def check_short_reruns(number: int, arm: str, name: str) -> None:
    """Raise InputError for more short reruns than an arm may have."""
    if number > MAX_SHORT_RERUNS:
        raise InputError(
            f"{name}: {arm} has {number:,} short reruns; expected at most {MAX_SHORT_RERUNS} per "
            "arm; give fewer"
        )


def arm_names(stems: Sequence[str], files: Sequence[str], named: Sequence[bool]) -> list[str]:
    """Names of the arms: the stems of their files, with the folder where two are equal, and a
    number where that does not help.
    """
    names = []
    for stem, file, is_named in zip(stems, files, named, strict=True):
        folder = utf8_name(Path(file).parent.name)
        names.append(
            stem if is_named or stems.count(stem) == 1 or not folder else f"{folder}/{stem}"
        )
    if len(set(names)) == len(names):
        return names
    return [
        f"{name} ({number})" if names.count(name) > 1 else name
        for number, name in enumerate(names, 1)
    ]


def refuse_same_file(files: Sequence[str]) -> None:
    """Raise InputError if a file is given twice. Only as two arms with names of their own a file
    may be compared with itself.
    """
    seen: dict[Path, str] = {}
    for file in files:
        if file == STDIN:
            continue
        path = Path(file).resolve()
        if (earlier := seen.get(path)) is not None:
            twice = file if file == earlier else f"{earlier} and {file}"
            raise InputError(
                f"{twice}: the same file was given twice; expected another file for each run"
            )
        seen[path] = file


def refuse_mixed_units(arms: Sequence[Arm], controls: Sequence[Curve], option: str) -> None:
    """Raise InputError if a run counts in another unit than the first one, such as tokens or
    samples instead of steps.

    `option` names the column of the step.
    """
    first = arms[0][1][0]
    for name, runs in (*arms, ("control", controls)):
        for run in runs:
            is_other = (COUNTED in first.context) != (COUNTED in run.context)
            if is_other and not np.array_equal(first.steps, run.steps):
                micro, updates = (run, first) if COUNTED in run.context else (first, run)
                raise InputError(
                    f"{micro.label} counts micro batches and {updates.label} does not, of which a "
                    "step may have several; expected one counter in both: name the one of the "
                    f"optimizer's steps with {option}, or that of micro batches in both"
                )
            if other_unit(first, run):
                raise InputError(
                    f"{arms[0][0]} ({first.label}) counts in strides of "
                    f"{first.completeness.stride:,} and {name} ({run.label}) in strides of "
                    f"{run.completeness.stride:,}, with almost no step in common; expected one "
                    f"unit: name the column that counts optimizer steps with {option}"
                )


def refuse_unmatched_rows(arms: Sequence[Arm]) -> None:
    """Raise InputError if runs of two arms have different numbers of rows and the rows of one are
    numbered because nothing counts its steps: a line that is missing moves all that follow it.
    """
    (base, baseline), *candidates = arms
    for name, runs in candidates:
        for run in runs:
            for other in baseline:
                rows, others = len(run.steps), len(other.steps)
                numbered = [one.label for one in (other, run) if NUMBERED_BY in one.context]
                if numbered and rows and others and rows != others:
                    why = "neither has steps" if numbered[1:] else f"{numbered[0]} has no steps"
                    raise InputError(
                        f"{base} ({other.label}) has {count(others, 'loss', 'losses')} and {name} "
                        f"({run.label}) has {rows:,}, and {why}, so it is unknown which losses "
                        "belong together; expected equal numbers of losses, or steps in both; log "
                        "the step; if lines were removed, give the whole log"
                    )

"""What is compared: the policy, what a person states, and the arms with their runs from files,
trackers or memory.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import yaml

from parity.frozen import frozen
from parity.judging.curves.context import PARAMETERS, parameter_count
from parity.judging.curves.curve import (
    LOSS_MEANING,
    MAX_STEP,
    READ_FACTS,
    RECORDED_RECIPE,
    ROUNDINGS,
    BoolArray,
    Curve,
    FloatArray,
    Rounding,
)
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.curves.reading import TRAINING_LOSS
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_table import NoiseTable, NoiseTableError, read_noise_table
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import LOSS as LOSS_METRIC
from parity.judging.policy import NVFP4, Policy, policy_from_mapping
from parity.readers import read_run
from parity.readers.absence import columns_of, training_records
from parity.readers.columns import (
    LOSS,
    STDIN,
    STEP,
    Columns,
    curve_of,
    find_columns,
    os_words,
    other_unit,
)
from parity.readers.table import long_layout, run_column
from parity.recipes import check_recipe, check_rounding, width_of
from parity.wording import count, did_you_mean

# What a person states about a comparison, with one set of rules for the command line and for
# Python.
#
# Each function takes the `name` by which an error calls the input: an option such as `--rounding
# nvfp4`, or a parameter such as `rounding`.


TRAINING, HELD_OUT = "training", "validation"
LOSS_KINDS = (TRAINING, HELD_OUT)
"""What a person can state of all losses of a comparison."""


class InputError(ValueError):
    """An input that cannot be used; the message names it, its value, what was expected and what to
    do.
    """


def check_plan(planned_steps: int | None, name: str, assume_complete: bool, other: str) -> None:
    """Raise InputError where the planned length is no number of steps, or is stated together with
    its assumption.
    """
    if not isinstance(assume_complete, bool):
        raise InputError(f"{other} is {assume_complete!r}; expected True or False")
    if planned_steps is None:
        return
    if isinstance(planned_steps, bool) or not isinstance(planned_steps, int) or planned_steps < 1:
        raise InputError(
            f"{name} is {planned_steps!r}; expected a whole number of steps, at least 1"
        )
    if planned_steps > MAX_STEP:
        raise InputError(
            f"{name} has {len(str(planned_steps)):,} digits; expected a number of steps, at most "
            f"{MAX_STEP:,}"
        )
    if assume_complete:
        raise InputError(f"{name} and {other} exclude each other; give only one of them")


def stated_multiplicity(look: int, name: str, looks: int, candidates: int) -> Multiplicity:
    """Which of the policy's `looks` a comparison without a ledger is, and how many candidates share
    it; InputError for another look.
    """
    if isinstance(look, bool) or not isinstance(look, int) or not 1 <= look <= looks:
        if looks > 1:
            expected = (
                f"expected a whole number from 1 to {looks}, the looks that the policy registers"
            )
        else:
            expected = (
                "expected 1: this policy registers one look; register more before the first one "
                "(looks: 2)"
            )
        raise InputError(f"{name} is {look!r}; {expected}")
    return Multiplicity(look=look, looks=looks, candidates=candidates)


def stated_rounding(word: str | None, name: str, recipe: str | None = None) -> Rounding | None:
    """What an input states of the rounding; InputError for any other word, RecipeError where it
    contradicts the recipe.
    """
    check_rounding(recipe, word, name)
    for known in ROUNDINGS:
        if word == known:
            return known
    if word is None:
        return None
    raise InputError(
        f"{name} is {word!r}; expected "
        f"{' or '.join(get_args(Rounding))}{did_you_mean(str(word), ROUNDINGS)}"
    )


def check_noise_table(noise_table: object, name: str, families: object, other: str) -> None:
    """Raise InputError where a noise table is given and no family of it is named."""
    if noise_table is not None and not families:
        shown = repr(noise_table) if isinstance(noise_table, str) else "given"
        raise InputError(
            f"{name} is {shown} without {other}; name the family whose run-to-run noise the arms "
            "borrow (`parity noise list`)"
        )


# The policy of a comparison: the `policy:` part of a file or what a person states, the latter over
# the former.

_MOST_BYTES, _MOST_VALUES, _LONGEST_NUMBER = 262_144, 50_000, 1000


def stated_policy(
    stated: Mapping[str, Any],
    *,
    margin: object = None,
    profile: str | None = None,
    checks: Sequence[str] = (),
    accuracy_margin: float | None = None,
    **others: object,
) -> Policy:
    """The policy in `stated`, the keys of a `policy:` part, with the other arguments over it;
    `others` are keys such as `looks`.

    A margin or a profile replaces both. Without either in any place the profile is nvfp4. Raises
    PolicyError.
    """
    mapping = dict(stated)
    if checks:
        mapping["checks"] = list(dict.fromkeys([LOSS_METRIC, *checks]))
    others["accuracy_margin_points"] = accuracy_margin
    mapping |= {key: value for key, value in others.items() if value is not None}
    if margin is not None or profile is not None:
        mapping["margin"], mapping["profile"] = margin, profile
    if not mapping.get("margin") and not mapping.get("profile"):
        mapping["profile"] = NVFP4
    return policy_from_mapping(mapping)


def read_policy(path: str) -> Mapping[str, Any]:
    """The `policy:` part of a file; InputError where it has none."""
    document = read_yaml(path)
    if not isinstance(document, dict) or not isinstance(document.get("policy"), dict):
        raise InputError(
            f"{path}: no `policy:` with keys below it; expected such as policy: {{margin: 1.0%}}"
        )
    policy: dict[str, Any] = document["policy"]
    return policy


def read_yaml(path: str) -> object:
    """The content of a YAML file; InputError names the file and what is wrong with it.

    In CI the file is a stranger's: a few lines of nested aliases can stand for more values than fit
    into memory, so what the file stands for is counted before it is built.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(
                f"{path}: has more than {_MOST_BYTES:,} bytes; expected a job file or a policy"
            )
        loader = yaml.SafeLoader(content.decode())
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _checked_size(node, {}, path) > _MOST_VALUES:
                raise InputError(
                    f"{path}: its aliases (*name) stand for more than {_MOST_VALUES:,} values; "
                    "write out what they stand for"
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except InputError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise InputError(f"{path}: cannot be read ({words}); expected a YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise InputError(
            f"{path}{place}: not valid YAML; check brackets, quotes and indentation there"
        ) from None


def place_in(path: str, keys: Sequence[str], *otherwise: Sequence[str]) -> str:
    """Where a value stands in a file that `read_yaml` took: "parity.yaml, line 3"; the file alone
    where it has none of them.

    `keys` are keys and positions from the top, such as ("job", "candidates", "0", "recipe"): the
    line is that of the last one that is there. Where not even the first is, one of the other ways
    counts that is there to its end.
    """
    try:
        loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8"))
        try:
            top = loader.get_single_node()
        finally:
            loader.dispose()
    except (OSError, ValueError, yaml.YAMLError):  # it has changed since
        return path
    lines = _lines_of(top, keys) or next(
        (found for way in otherwise if len(found := _lines_of(top, way)) == len(way)), []
    )
    return f"{path}, line {lines[-1]}" if lines else path


def _lines_of(node: yaml.Node | None, keys: Sequence[str]) -> Sequence[int]:
    """The line of each key, as far as the file has them."""
    lines: list[int] = []
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pair = next((each for each in node.value if each[0].value == key), None)
            if pair is None:
                break
            node = pair[1]
            lines.append(pair[0].start_mark.line + 1)
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
            node = node.value[int(key)]
            lines.append(node.start_mark.line + 1)
        else:
            break
    return lines


def _checked_size(node: yaml.Node, known: dict[int, int], path: str) -> int:
    """The number of values that a part of a file stands for, each alias counted as what it names;
    ValueError for one inside itself.

    InputError, which names the file, for a key that stands twice.
    """
    if id(node) in known:
        return known[id(node)]
    # while it is counted: an alias of a part inside that part has no end
    known[id(node)] = _MOST_VALUES + 1
    if isinstance(node, yaml.ScalarNode):
        if not node.tag.endswith(":str") and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a number or date of {len(node.value):,} characters")
        size = 1
    else:
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, path)
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        else:
            parts = [part for pair in node.value for part in pair]
        size = 1 + sum(_checked_size(part, known, path) for part in parts)
    known[id(node)] = size
    return size


def _check_keys(node: yaml.MappingNode, path: str) -> None:
    """InputError for a key that stands twice in one mapping: YAML would keep the last, and drop a
    question or a margin unseen.
    """
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            place = f"{path}, line {key.start_mark.line + 1}"
            raise InputError(
                f"{place}: key {key.value!r:.60} stands twice; expected each key once, so rename "
                "or remove one"
            )
        seen.add(str(key.value))


# Runs that are in memory: a data frame (pandas, polars), a dict of arrays, or an array of losses
# become a Curve.
#
# They pass the checks of files: which column is which, which rows are records, plausible losses,
# repeated steps, one unit. Null (polars, None, NA, a masked array) is NaN as in a file
# (`parity.readers.absence`). Neither pandas nor polars is imported here.

OPTION = 'columns={{"{}": "NAME"}}'
EXPECTED = (
    'a path or source, a data frame, a dict such as {"step": ..., "loss": ...}, an array of '
    "losses, or a list of these for several runs"
)

_NUMBERS = "iufV"  # V: bfloat16 and other types of ml_dtypes


def curve_in_memory(data: Any, name: str, columns: Mapping[str, str]) -> Curve:
    """The curve of one run; `name` is what errors call it, `columns` maps quantities to columns, as
    for files.

    Raises TypeError for data of another kind, and ReadError or InputError for what cannot be one
    run's loss in nats.
    """
    names, column = _table(data, name)
    if names is None:
        return _curve_of_losses(data, name)
    if long_layout(names, columns, name):
        raise InputError(
            f"{name} is a long table with one row per value; expected a column of losses: pivot "
            "it, or write it to CSV"
        )
    _refuse_several_runs(names, column, name)
    headers = find_columns(names, columns, name, OPTION)
    values = {}
    for quantity, own in list(headers.items()):
        numbers = _numbers(column(own), where := f"{name}: column {own!r}")
        if numbers is not None:
            values[quantity] = numbers
        elif quantity in (STEP, LOSS, *columns):
            raise InputError(
                f"{where} does not hold numbers; expected numbers (nan and inf are allowed)"
            )
        else:
            del headers[quantity]  # a guess, such as a time that is a date
    lengths = {quantity: len(own) for quantity, own in values.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{headers[quantity]} {length:,}" for quantity, length in lengths.items())
        raise InputError(
            f"{name}: the columns have different lengths ({shown}); expected one value per step in "
            "each"
        )
    records = training_records(values, headers, _present(names, column, values, headers), name)
    taken = dataclasses.replace(columns_of(records, headers, names), option=OPTION)
    return curve_of(taken, name, label=name, stated=LOSS in columns)


def _present(
    names: Sequence[str],
    column: Callable[[str], Any],
    values: Mapping[str, FloatArray],
    headers: Mapping[str, str],
) -> dict[str, BoolArray]:
    """In which rows (R,) columns that are no quantity have a value; asked only where a row has no
    loss.
    """
    present = {}
    for name in names if np.isnan(values[LOSS]).any() else ():
        if name not in headers.values() and len(cells := _cells(column(name))) == len(values[LOSS]):
            present[name] = np.array(
                [
                    cell is not None and cell == cell and type(cell).__name__ != "NAType"
                    for cell in cells
                ],
                dtype=bool,
            )
    return present


def _cells(values: Any) -> Sequence[Any]:
    """The values of a column, whatever they are; none of what is no column."""
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, dtype=object)
    return list(array) if array.ndim == 1 else []


def _table(data: Any, name: str) -> tuple[list[str] | None, Callable[[str], Any]]:
    """The names of a table's columns and what gives the column of a name; None for names where the
    data is an array.
    """
    if isinstance(data, Mapping):
        return [str(key) for key in data], {
            str(key): value for key, value in data.items()
        }.__getitem__
    # of the type, because a lazy frame would resolve its own
    if hasattr(data, "collect") and hasattr(type(data), "columns"):
        raise TypeError(f"{name} is a lazy frame; expected a data frame: call .collect() first")
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return [str(each) for each in data.columns], lambda wanted: data[
            next(each for each in data.columns if str(each) == wanted)
        ]
    if hasattr(data, "to_numpy"):
        raise TypeError(
            f"{name} is a {type(data).__name__} without its steps; expected the data frame, or a "
            "dict with step and loss"
        )
    if not hasattr(data, "__array__") or isinstance(data, np.generic):
        raise TypeError(f"{name} is {type(data).__name__}; expected {EXPECTED}")
    return None, _no_column


def _no_column(name: str) -> Any:
    raise KeyError(name)


def _curve_of_losses(data: Any, name: str) -> Curve:
    """The curve of an array of losses at the steps 0, 1, 2, ..."""
    losses = _numbers(data, name)
    if losses is None or np.asarray(data).dtype.kind in "iu":
        raise InputError(
            f"{name} holds {np.asarray(data).dtype} values; expected losses as floats, or a dict "
            "with step and loss"
        )
    steps = np.arange(len(losses))
    if (
        len(losses) > 1
        and np.array_equal(losses - losses[0], steps * (losses[1] - losses[0]))
        and losses[1] > losses[0]
    ):
        raise InputError(
            f"{name} rises in equal strides, so it looks like steps; expected losses, or a dict "
            "with step and loss"
        )
    taken = Columns(
        values={STEP: steps.astype(np.float64), LOSS: losses},
        names={STEP: "the position in the array", LOSS: "loss"},
        option=OPTION,
    )
    return curve_of(taken, name, label=name, stated=True)


def _numbers(values: Any, name: str) -> FloatArray | None:
    """Values as float64 (T,), NaN for null, None where they are not numbers; TypeError for what is
    not in host memory.
    """
    try:
        given = values.to_numpy() if hasattr(values, "to_numpy") else values
        raw = np.asarray(given)
    # a torch tensor with a gradient or on a GPU; lists of unequal length
    except (RuntimeError, TypeError, ValueError) as error:
        words = " ".join(str(error).split())[:120]
        raise TypeError(
            f"{name} cannot be read as an array ({words}); expected an array in host memory, such "
            "as x.detach().cpu()"
        ) from None
    if raw.ndim != 1:
        raise InputError(f"{name} has shape {raw.shape}; expected one dimension, a value per step")
    null = np.zeros(len(raw), dtype=bool) | np.asarray(
        given.mask if isinstance(given, np.ma.MaskedArray) else False, dtype=bool
    )
    if raw.dtype.kind == "O":
        raw = np.array(
            [
                np.nan if value is None or type(value).__name__ == "NAType" else value
                for value in raw
            ],
            dtype=object,
        )
        if any(isinstance(value, (str, bytes, bool)) for value in raw):
            return None
    elif raw.dtype.kind not in _NUMBERS:
        return None
    try:
        numbers = np.array(raw, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    numbers[null] = np.nan
    return numbers


def _refuse_several_runs(names: list[str], column: Callable[[str], Any], name: str) -> None:
    own = run_column(names)
    runs = [] if own is None else list(dict.fromkeys(np.asarray(column(own)).tolist()))
    if len(runs) > 1:
        raise InputError(
            f"{name} has rows of {count(len(runs), 'run')} in column {own!r}; expected one run: "
            "select its rows, and give several runs as a list"
        )


# The arms of a comparison: runs from files, sources or memory, with what is stated of them.

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
        curve = with_facts(read_one(run, called, columns(run)), called, stated)
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


def with_facts(curve: Curve, name: str, stated: Stated) -> Curve:
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
    if number is None or number < 1.0:
        raise InputError(
            f"{name} is {parameters!r}; expected the number of the model's parameters, such as 8B, "
            "350M or 4000000"
        )
    return text


def with_common_facts(
    arms: Sequence[Arm], parameters: str | None, name: str, loss_is: str | None
) -> list[Arm]:
    """The arms with what is stated of all runs: the model's parameters, and that the losses are one
    quantity (`loss_is`: training).

    Raises InputError where the source of a run states another number of parameters; `name` is what
    it calls the statement.
    """
    return [
        (arm, [_with_common_facts(run, arm, parameters, name, loss_is) for run in runs])
        for arm, runs in arms
    ]


def _with_common_facts(
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
    return dataclasses.replace(run, context=context)


def read_short_rerun(run: Any, arm: Arm, stated: Stated, columns: Mapping[str, str]) -> Curve:
    """A rerun of an arm that was stopped early, with what is stated of the arm and its first run's
    seed.
    """
    curve = with_facts(read_one(run, f"{arm[0]}, short rerun", columns), arm[0], stated)
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
        folder = Path(file).parent.name
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
            if other_unit(first, run):
                raise InputError(
                    f"{arms[0][0]} ({first.label}) counts in strides of "
                    f"{first.completeness.stride:,} and {name} ({run.label}) in strides of "
                    f"{run.completeness.stride:,}, with almost no step in common; expected one "
                    f"unit: name the column that counts optimizer steps with {option}"
                )


# Noise tables from files, from which an arm borrows its run-to-run noise.


def read_rerun_table(file: str | None) -> NoiseTable:
    """The table in a file, or the public one; InputError for a file that cannot be read as a
    table.
    """
    if file is None:
        return public_noise_table()
    try:
        return rerun_table(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise InputError(
            f"{file}: cannot be read ({words}); expected a noise table (CSV)"
        ) from None


def rerun_table(text: str, source: str) -> NoiseTable:
    """The table in a text that came from `source`. Raises InputError if the text is not a noise
    table.
    """
    try:
        return read_noise_table(text)
    except NoiseTableError as error:
        raise InputError(f"{source}: {error}") from None

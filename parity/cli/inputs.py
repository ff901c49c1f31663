"""Read what options and files state: the policy, NAME=VALUE pairs, and the arms of a comparison
with their runs.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from parity.cli.options import Options, option, repeatable
from parity.cli.terminal import ALL_PROFILES, ARMS, POLICY, RECIPE_WORDS, UsageError, wrong_value
from parity.comparing.arms import (
    Arm,
    Stated,
    arm_names,
    check_short_reruns,
    read_arm,
    read_short_rerun,
    refuse_same_file,
)
from parity.comparing.case import check_arm
from parity.comparing.noise_tables import read_rerun_table
from parity.comparing.policy_file import read_policy, stated_policy
from parity.comparing.statements import check_noise_table, stated_rounding
from parity.judging.curves.curve import Curve, Rounding
from parity.judging.noise.lending import Lenders
from parity.judging.noise.noise_table import ANY_DECODER, NoiseTable
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import NVFP4, POLICY_CHECKS, Policy, PolicyError, has_no_unit
from parity.judging.verdict.advice import LayerSnr
from parity.readers import read_run
from parity.readers.columns.names import LOSS, QUANTITIES
from parity.readers.columns.several_runs import SHOWN
from parity.readers.errors import ReadError, SeveralRunsError
from parity.readers.files.text import STDIN
from parity.readers.logs.pattern import PATTERN, compiled
from parity.readers.run_names import run_name, split_name
from parity.readers.run_tables.proposed_options import proposed_options
from parity.readers.run_tables.typed_number import is_typed_number
from parity.readers.secondary.layer_snr import read_layer_snr
from parity.readers.trackers.sources import is_source
from parity.recipes import RecipeError, check_recipe
from parity.wording import count, did_you_mean

SHORT_RERUN = "--short-rerun"
_FEW = 4  # families that a refusal lists by name


class PolicyOptions(Options, panel=POLICY):
    """The policy: a file with `policy:`, and options over it. `schedule`, `start` and `loss_unit`
    are options of the arms.
    """

    margin: str | None = option(
        None,
        'Set the largest acceptable gap: "1.0%" of the loss, "0.01 nats", or what "5% tokens" '
        "would gain.",
        "AMOUNT",
    )
    profile: str | None = option(
        None, f"Set the margin by name: {ALL_PROFILES}. [default without a margin: {NVFP4}]", "NAME"
    )
    policy: str | None = option(
        None,
        "Read the policy from the `policy:` part of this file; options override it.",
        "parity.yaml",
    )
    checks: list[str] = repeatable(
        f"Let a further check decide, in addition to the loss: {', '.join(POLICY_CHECKS[1:])}. "
        "Repeatable.",
        "CHECK",
        "--check",
    )
    accuracy_margin: float | None = option(
        None, "Set the acceptable loss of accuracy in percentage points. [default: 2.0]", "POINTS"
    )
    looks: int | None = option(
        None,
        "Register how often this question is judged at most, with runs added in between; the "
        "looks share the error. [default: 1]",
        "N",
    )
    schedule: str | None = None
    start: str | None = None
    loss_unit: str | None = None


def pattern_option() -> list[str]:
    """The option of the pattern of a log's lines, which is kept among the names of columns."""
    return repeatable(
        "Find step and loss in each line of a log by a regular expression with groups of these "
        "names, or of others such as "
        "validation_loss; repeatable. [default: a number behind step or iter, and one behind loss]",
        "REGEX",
    )


class Arms(Options, panel=ARMS):
    """The runs of the arms, in addition to those that are given first, and what is stated of
    them.
    """

    baseline_run: list[str] = repeatable("Add a further run of the baseline; repeatable.", "FILE")
    candidate_run: list[str] = repeatable(
        "Add a further run of candidate NAME; repeatable.", "NAME=FILE"
    )
    control: list[str] = repeatable(
        "Add a rerun of the baseline that only measures run-to-run noise; repeatable.", "FILE"
    )
    shorter_baseline: list[str] = repeatable(
        "Add a finished run of the baseline with 25 to 50 % of its tokens, which a margin such as "
        '"5% tokens" is measured by; repeatable.',
        "FILE",
    )
    short_rerun: list[str] = repeatable(
        "Add a rerun of arm NAME that was stopped early, at 40 to 95 % of the planned steps; it "
        "only measures run-to-run noise. Repeatable.",
        "NAME=FILE",
    )
    recipe: list[str] = repeatable(
        "State the recipe of an arm, which sets the run-to-run noise that is assumed: "
        f"{RECIPE_WORDS}. Repeatable.",
        "NAME=RECIPE",
    )
    rounding: list[str] = repeatable(
        "State how an arm rounds gradients, stochastic or nearest, if its recipe does not say. "
        "Repeatable. [default: stochastic is assumed]",
        "NAME=HOW",
    )
    seeds: str | None = option(
        None,
        "State the seed of each run of an arm, in order. [default: as their batches show]",
        "S,S,...",
    )
    context: list[str] = repeatable(
        "State what an arm ran on (engine, device_class, data_digest, ...); arms that differ "
        "cannot pass. Repeatable.",
        "NAME:KEY=VALUE",
    )
    planned_steps: int | None = option(
        None,
        "State the planned length of a run. [default: as a trainer's log or a tracker's config "
        "states it]",
        min=1,
    )
    assume_complete: bool = option(
        False, "Assume that the longest run ended as planned, instead of --planned-steps."
    )
    schedule: str | None = option(
        None,
        "State that the learning rate of all runs had fallen to the end of its schedule at their "
        "last step; what is recorded may contradict it.",
        "decayed",
    )
    start: str | None = option(
        None, "State that all runs began with trained weights, not from scratch.", "loaded"
    )
    parameters: str | None = option(
        None,
        "State the number of the model's parameters, such as 8B, by which run-to-run noise may be "
        "assumed. [default: as recorded]",
        "N",
    )
    loss_is: str | None = option(
        None,
        "State that the losses are of held-out data (validation) or of training. [default: by the "
        "name of the column named for the loss, else training]",
        "KIND",
    )
    tokens: float | None = option(
        None, "State the tokens that both runs were trained on, for numbers in place of files.", "N"
    )
    loss_unit: str | None = option(
        None,
        "State that the loss is no cross-entropy in nats, such as a mean squared error.",
        "other",
    )
    column: list[str] = repeatable(
        "Name the column of step, loss, grad_norm, ... in every file, or only in WHERE: an arm or "
        "a file. Repeatable. [default: well-known names]",
        "[WHERE:]QUANTITY=NAME",
    )
    pattern: list[str] = pattern_option()
    layer_policy: str | None = option(
        None, "Name the layers that are quantized; shown in the report.", "TEXT"
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What options state of arms, by arm: recipes, rounding, and context as key and value."""

    recipes: Mapping[str, str]
    roundings: Mapping[str, Rounding]
    contexts: Mapping[str, Mapping[str, str]]

    def of(self, arm: str) -> Stated:
        """What is stated of an arm."""
        return Stated(
            recipe=self.recipes.get(arm),
            rounding=self.roundings.get(arm),
            context=self.contexts.get(arm, {}),
        )

    def refuse_unknown(self, arms: Collection[str]) -> None:
        """Raise InputError where an option names an arm that is not there."""
        for option_name, stated in (
            ("--recipe", self.recipes),
            ("--rounding", self.roundings),
            ("--context", self.contexts),
        ):
            for name in stated:
                check_arm(name, arms, option_name)


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns by quantity, as --column states them: for every file (key ""), or for one
    arm or file, which counts more.
    """

    by_place: Mapping[str, Mapping[str, str]]

    def of(self, *places: str) -> dict[str, str]:
        """The names for a file; `places` are its arm and the file itself."""
        names: dict[str, str] = {}
        for place in ("", *places):
            names |= self.by_place.get(place, {})
        return names

    def of_run(self, arm: str, file: str) -> dict[str, str]:
        """The names for a file of an arm, which --column may name with or without the run in it."""
        return self.of(arm, *_places(file))

    def losses(self) -> set[str | None]:
        """The columns that were named for the loss, of any file."""
        return {names.get(LOSS) for names in self.by_place.values()}

    def refuse_unknown(self, places: Sequence[str]) -> None:
        """Raise UsageError if a name is for an arm or a file that is not there."""
        for place in self.by_place:
            if place and place not in places:
                shown = ", ".join(dict.fromkeys(places))
                raise UsageError(
                    f"--column: no arm or file is called {place!r}; there are "
                    f"{shown}{did_you_mean(place, places)}"
                )


def load_policy(options: PolicyOptions) -> Policy:
    """The policy from a file's `policy:` part, options over it; the nvfp4 profile where nothing
    states a margin.
    """
    flags = asdict(options)
    file = flags.pop("policy")
    stated = read_policy(file) if file else {}
    if has_no_unit(text := options.margin):
        raise UsageError(
            f"--margin is {text!r}, without a unit; type --margin {text}% for a share of the loss, "
            f'or --margin "{text} nats"'
        )
    for check in options.checks:
        if check not in POLICY_CHECKS:
            raise UsageError(
                f"--check is {check!r}; expected one of "
                f"{', '.join(POLICY_CHECKS[1:])}{did_you_mean(check, POLICY_CHECKS)}"
            )
    try:
        return stated_policy(stated, **flags)
    except PolicyError as error:
        given = options.given()
        if "accuracy_margin" in given:
            given["accuracy_margin_points"] = given.pop("accuracy_margin")
        raise UsageError(wrong_value(error, given, file)) from None


def pairs(items: Sequence[str], flag: str, shape: str = "NAME=VALUE") -> dict[str, str]:
    """NAME=VALUE items as a dict; `shape` is what the error expects."""
    return dict(_pair(item, flag, shape) for item in items)


def _pair(item: str, flag: str, shape: str = "NAME=FILE") -> tuple[str, str]:
    key, _, value = item.partition("=")
    if not key or not value:
        raise UsageError(f"{flag} is {item!r}; expected {shape}")
    return key, value


def stated_columns(items: Sequence[str], patterns: Sequence[str] = ()) -> ColumnNames:
    """[WHERE:]QUANTITY=NAME items, WHERE an arm or a file, and the patterns of logs; QUANTITY may
    be `pattern`, for a pattern in one place.

    UsageError for another shape, an unknown quantity, one given twice, or a pattern that is not
    valid.
    """
    by_place: dict[str, dict[str, str]] = {}
    if patterns:
        by_place[""] = {PATTERN: "\n".join(patterns)}
    for item in items:
        left, _, name = item.partition("=")
        place, _, quantity = left.rpartition(":")
        if not name or not quantity:
            raise UsageError(
                f"--column is {item!r}; expected QUANTITY=NAME such as loss=train/loss, or "
                "WHERE:QUANTITY=NAME"
            )
        if quantity not in (*QUANTITIES, PATTERN):
            raise UsageError(
                f"--column is {item!r}; expected QUANTITY=NAME or WHERE:QUANTITY=NAME, with "
                f"QUANTITY one of {', '.join(QUANTITIES)}"
                f"{did_you_mean(quantity, QUANTITIES)}"
            )
        if quantity in by_place.setdefault(place, {}):
            raise UsageError(
                f"--column names {left} twice, {by_place[place][quantity]!r} and {name!r}; "
                "expected one column"
            )
        by_place[place][quantity] = name
    for names in by_place.values():
        if PATTERN in names:
            compiled(names[PATTERN], "--pattern")
    return ColumnNames(by_place)


def stated_facts(options: Arms) -> Facts:
    """What options state of arms; UsageError for a word that is neither a recipe nor `other:NAME`,
    or a rounding against the recipe.
    """
    recipes = pairs(options.recipe, "--recipe", "NAME=RECIPE such as nvfp4=nvfp4")
    for name, recipe in recipes.items():
        refuse_unknown_recipe(recipe, f"--recipe {name}")
    roundings: dict[str, Rounding] = {}
    for name, word in pairs(
        options.rounding, "--rounding", "NAME=stochastic or NAME=nearest"
    ).items():
        if rounding := stated_rounding(word, f"--rounding {name}", recipes.get(name)):
            roundings[name] = rounding
    return Facts(recipes, roundings, _contexts(options.context))


def refuse_unknown_recipe(recipe: str | None, option: str) -> None:
    """Raise UsageError for a word that is neither a known recipe nor `other:NAME`."""
    try:
        check_recipe(recipe, option)
    except RecipeError as error:
        raise UsageError(str(error)) from None


def read_arms(runs: Sequence[str], options: Arms, columns: ColumnNames, facts: Facts) -> list[Arm]:
    """Arms in order, baseline first, with [NAME=]FILE in `runs`; raises UsageError or ReadError."""
    if len(runs) < 2:
        raise UsageError(_only_one_run(runs[0], columns))
    if sum(file == "-" for file in [*runs, *options.baseline_run, *options.candidate_run]) > 1:
        raise UsageError('"-" was given more than once; stdin can be read only once')
    files = _named(runs)
    refuse_same_file([file for name, file in map(_optional_name, runs) if name is None])
    names = [name for name, _ in files]
    further = [_pair(item, "--candidate-run") for item in options.candidate_run]
    facts.refuse_unknown(names)
    for name, _ in further:
        check_arm(name, names, "--candidate-run")
    grouped = {name: [file] for name, file in files}
    grouped[names[0]] += options.baseline_run
    for name, file in further:
        grouped[name].append(file)
    for arm in grouped.values():
        refuse_same_file(arm)
    files_given = [*(file for arm in grouped.values() for file in arm), *options.control]
    files_given += [_pair(item, SHORT_RERUN)[1] for item in options.short_rerun]
    columns.refuse_unknown([*names, *(place for file in files_given for place in _places(file))])
    return [
        (
            name,
            read_arm(
                name,
                paths,
                facts.of(name),
                partial(columns.of_run, name),
                _seeds(options.seeds, len(paths), name),
            ),
        )
        for name, paths in grouped.items()
    ]


def _only_one_run(run: str, columns: ColumnNames) -> str:
    """The line for a single file: the runs in it, if it holds several, and what to type to compare
    two of them.
    """
    name, file = _optional_name(run)
    if file != STDIN and not is_source(file) and (options := proposed_options(file)):
        call = shlex.join(["parity", "compare", file, *options])
        return (
            f"{file} is a table of many runs; name the columns that tell them apart, and the "
            f"baseline: `{call}`"
        )
    try:
        if file != STDIN:
            read_run(file, columns=columns.of_run(name or "", file))
    except SeveralRunsError as error:
        runs = ", ".join(map(run_name, error.names[:SHOWN]))
        more = f" and {len(error.names) - SHOWN} more" if len(error.names) > SHOWN else ""
        call = shlex.join(["parity", "compare", *error.names[:2]])
        return (
            f"{file} holds {count(len(error.names), 'run')}: {runs}{more}; name a baseline and its "
            f"candidates: `{call}`, or use --arm-by"
        )
    except ReadError:
        pass  # what else may be wrong with the file comes up once there are two
    return (
        "only one run was given; expected a baseline and at least one candidate, or --arm-by for a "
        "table of many runs"
    )


def _places(file: str) -> tuple[str, str]:
    """How --column may name a run's file: without and with the run in it."""
    return split_name(file)[0], file


def read_short_reruns(
    items: Sequence[str], arms: Sequence[Arm], columns: ColumnNames, facts: Facts
) -> dict[str, list[Curve]]:
    """The reruns that were stopped early, by arm, with what is stated of the arm; `baseline` names
    the baseline whatever its name.
    """
    names = [name for name, _ in arms]
    given = []
    for arm, file in (_pair(item, SHORT_RERUN) for item in items):
        name = names[0] if arm == "baseline" and arm not in names else arm
        check_arm(name, names, SHORT_RERUN)
        given.append((name, file))
    for name, number in Counter(name for name, _ in given).items():
        check_short_reruns(number, name, SHORT_RERUN)
    by_arm: dict[str, list[Curve]] = {}
    for name, file in given:
        run = read_short_rerun(
            file, (name, dict(arms)[name]), facts.of(name), columns.of_run(name, file)
        )
        by_arm.setdefault(name, []).append(run)
    return by_arm


def _seeds(text: str | None, runs: int, name: str) -> list[int] | None:
    """The seed of each run of an arm, if they are stated."""
    if text is None:
        return None
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds is {text!r}; expected whole numbers such as 0,1,2") from None
    if len(seeds) != runs:
        raise UsageError(
            f"--seeds has {count(len(seeds), 'seed')}, but {name} has {count(runs, 'run')}; "
            "expected one seed for each run of an arm"
        )
    return seeds


def _contexts(items: Sequence[str]) -> dict[str, dict[str, str]]:
    """NAME:KEY=VALUE items by arm."""
    contexts: dict[str, dict[str, str]] = {}
    for item in items:
        left, _, value = item.partition("=")
        name, _, key = left.rpartition(":")
        if not (name and key and value):
            raise UsageError(
                f"--context is {item!r}; expected NAME:KEY=VALUE such as fp8:engine=maxtext"
            )
        contexts.setdefault(name, {})[key] = value
    return contexts


def _named(runs: Sequence[str]) -> list[tuple[str, str]]:
    """Arms as (name, file): NAME=FILE as given, else the file's stem, with its folder where two
    stems are equal.
    """
    split = [_optional_name(run) for run in runs]
    stems = [name or run_name(file) for name, file in split]
    files = [file for _, file in split]
    return list(
        zip(arm_names(stems, files, [name is not None for name, _ in split]), files, strict=True)
    )


def _optional_name(run: str) -> tuple[str | None, str]:
    name, _, file = run.partition("=")
    if name and file and not Path(run).exists():
        return name, file
    return None, run


def read_layer_snrs(items: Sequence[str], candidates: Sequence[str]) -> dict[str, LayerSnr]:
    """SNR by candidate; a file without a name belongs to the only candidate."""
    by_candidate: dict[str, LayerSnr] = {}
    for name, file in map(_optional_name, items):
        if name is None and len(candidates) > 1:
            raise UsageError(
                f"--layer-snr is {file!r}, but there are several candidates; expected NAME=FILE "
                f"with one of {', '.join(candidates)}"
            )
        arm = name or candidates[0]
        check_arm(arm, candidates, "--layer-snr")
        by_candidate[arm] = read_layer_snr(file)
    return by_candidate


def stated_families(items: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The family by arm, from NAME for every arm or ARM=NAME for one; UsageError for an unknown
    arm, or an arm that gets two.
    """
    families: dict[str, str] = {}
    for item in items:
        arm, mark, family = item.partition("=")
        if not mark:
            arms, family = tuple(names), item
        else:
            check_arm(arm, names, "--family")
            arms = (arm,)
        if not family:
            raise UsageError(
                f"--family is {item!r}; expected NAME or ARM=NAME with the name of a family "
                "(`parity noise list`)"
            )
        for one in arms:
            if families.setdefault(one, family) != family:
                raise UsageError(
                    f"--family names {families[one]!r} and {family!r} for {one}; expected one "
                    "family per arm"
                )
    return families


def known_family(name: str | None) -> list[str]:
    """A family that a run's config states, as --family would be given, if the public table
    has it.
    """
    if name is not None and name in public_noise_table().families:
        return [name]
    return []


def stated_lenders(items: Sequence[str], file: str | None, names: Sequence[str]) -> Lenders:
    """What the arms may borrow in a plan; UsageError for a family that the table does not have, and
    for a table without a family.
    """
    check_noise_table(file, "--noise-table", items, "--family")
    families = stated_families(items, names)
    table = read_rerun_table(file) if families else None
    for name in families.values():
        if table is not None and name not in (*table.families, ANY_DECODER):
            raise UsageError(
                f"--family is {name!r}, which the table does not have; "
                f"{expected_family(name, table, file)}"
            )
    return Lenders(table, families)


def expected_family(
    name: str, noise_table: NoiseTable, file: str | None, *, general: bool = True
) -> str:
    """The families of a table (with any-decoder, if `general`); of many only their number, where
    they are listed, and the nearest three.
    """
    known = (*noise_table.families, *([ANY_DECODER] if general else []))
    if len(known) <= _FEW:
        return f"expected {' or '.join(known)}"
    listed = " ".join(["parity noise list", *([file] if file else [])])
    return (
        f"expected one of the {len(known)} that `{listed}` "
        f"prints{did_you_mean(name, known, most=3)}"
    )


# What a file keeps of a comparison in place of options.

_Filled = TypeVar("_Filled", bound=Options)


def filled(group: _Filled, kept: Mapping[str, object], folder: Path, where: str) -> _Filled:
    """The group with what a file keeps of it, by field, where nothing was typed; files are named
    from `folder`.

    A repeatable option is a list, or a mapping of what stands before and after its `=`. Raises
    UsageError for a value of another kind.
    """
    hints, untyped = get_type_hints(type(group)), type(group)()
    values: dict[str, Any] = {}
    for each in fields(group):
        if each.name in kept and getattr(group, each.name) == getattr(untyped, each.name):
            value = _of_kind(kept[each.name], str(hints[each.name]), f"{where}: {each.name}")
            metavar = str(each.metadata.get("more", {}).get("metavar"))
            names_file = any(mark in metavar for mark in ("FILE", ".yaml"))
            values[each.name] = _in_folder(value, folder) if names_file else value
    return replace(group, **values)


def _of_kind(value: object, kind: str, where: str) -> object:
    """A value of a file as the option has it."""
    if "list" in kind:
        items = [value] if isinstance(value, (str, int, float)) else value
        if isinstance(items, dict):
            items = [
                f"{name}={one}"
                for name, many in items.items()
                for one in (many if isinstance(many, list) else [many])
            ]
        if isinstance(items, list) and all(isinstance(item, (str, int, float)) for item in items):
            return [str(item) for item in items]
        raise UsageError(
            f"{where} is {value!r}; expected a text, a list of texts, or texts by name"
        )
    expected = next((name for name in ("bool", "int", "float") if name in kind), "str")
    allowed: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "str": (str, int, float),
    }
    if not isinstance(value, allowed[expected]) or (expected != "bool" and isinstance(value, bool)):
        raise UsageError(f"{where} is {value!r}; expected {_KINDS[expected]}")
    return str(value) if expected == "str" else value


_KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}


def _in_folder(value: object, folder: Path) -> object:
    if isinstance(value, list):
        return [from_folder(item, folder) for item in value]
    return from_folder(str(value), folder)


def from_folder(item: str, folder: Path) -> str:
    """FILE or NAME=FILE with the file named from a folder; a number, stdin or a tracker's run as it
    is.
    """
    name, mark, file = item.rpartition("=")
    if file == STDIN or is_typed_number(file) or is_source(file):
        return item
    return f"{name}{mark}{folder / file}"

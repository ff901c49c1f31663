"""Read what options and files state: the policy, NAME=VALUE pairs, and the arms of a comparison with their runs."""

import dataclasses
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import yaml

from parity.cli.terminal.output import UsageError
from parity.cli.terminal.wrong_calls import did_you_mean, wrong_value
from parity.judging.advice import LayerSnr
from parity.judging.criteria import GATES, LOSS, NVFP4, Criteria, CriteriaError, criteria_from_mapping
from parity.judging.curve import Curve, Rounding
from parity.judging.early_stops.usable import MAX_NOISE_RUNS
from parity.readers import ReadError, SeveralRunsError, read_run, run_name, split_name
from parity.readers.columns import QUANTITIES
from parity.readers.layers import read_layer_snr
from parity.readers.long_table import SHOWN
from parity.readers.source import STDIN, os_words
from parity.readers.units import other_unit
from parity.recipes import ALWAYS_STOCHASTIC, OTHER, RecipeError, check_recipe
from parity.wording import count

Arm = tuple[str, list[Curve]]
NOISE_RUN = "--noise-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """The policy as options state it: a file with `criteria:`, and flags over it."""

    file: str | None
    margin: str | None = None
    profile: str | None = None
    gates: Sequence[str] = ()
    accuracy_margin: float | None = None


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns by quantity, as --column states them: for every file (key ""), or for one arm or file, which counts more."""

    by_place: Mapping[str, Mapping[str, str]]

    def of(self, *places: str) -> dict[str, str]:
        """The names for a file; `places` are its arm and the file itself."""
        names: dict[str, str] = {}
        for place in ("", *places):
            names |= self.by_place.get(place, {})
        return names

    def refuse_unknown(self, places: Sequence[str]) -> None:
        """Raise UsageError if a name is for an arm or a file that is not there."""
        for place in self.by_place:
            if place and place not in places:
                shown = ", ".join(dict.fromkeys(places))
                raise UsageError(f"--column: no arm or file is called {place!r}; there are {shown}{did_you_mean(place, places)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOptions:
    """The arms of a comparison as options state them.

    `runs` holds the baseline and the candidates as [NAME=]FILE, `candidate_runs` further runs as NAME=FILE, `noise_runs` reruns of an arm
    that were stopped early, as NAME=FILE. `recipes` and `roundings` are by arm, `contexts` has NAME:KEY=VALUE items, and `seeds` the seeds
    of each arm's runs, with commas.
    """

    runs: Sequence[str]
    baseline_runs: Sequence[str]
    candidate_runs: Sequence[str]
    controls: Sequence[str]
    noise_runs: Sequence[str]
    columns: ColumnNames
    recipes: Mapping[str, str]
    roundings: Mapping[str, Rounding]
    contexts: Sequence[str]
    seeds: str | None


def load_criteria(options: PolicyOptions) -> Criteria:
    """The policy from a file's `criteria:` part, flags over it; the nvfp4 profile where nothing states a margin."""
    mapping = dict(_read_policy(options.file)) if options.file else {}
    if options.gates:
        mapping["gates"] = list(dict.fromkeys([LOSS, *options.gates]))
    if options.accuracy_margin is not None:
        mapping["accuracy_margin_points"] = options.accuracy_margin
    if options.margin is not None or options.profile is not None:
        mapping["margin"], mapping["profile"] = options.margin, options.profile
    if not mapping.get("margin") and not mapping.get("profile"):
        mapping["profile"] = NVFP4
    _refuse_bare_margin(options.margin)
    for gate in options.gates:
        if gate not in GATES:
            raise UsageError(f"--gate is {gate!r}; expected one of {', '.join(GATES[1:])}{did_you_mean(gate, GATES)}")
    flags = {"margin": options.margin, "profile": options.profile, "accuracy_margin_points": options.accuracy_margin}
    try:
        return criteria_from_mapping(mapping)
    except CriteriaError as error:
        set_by = {key: _OPTIONS[key] for key, value in flags.items() if value is not None}
        raise UsageError(wrong_value(error, set_by)) from None


_OPTIONS = {"margin": "--margin", "profile": "--profile", "accuracy_margin_points": "--accuracy-margin"}


def _refuse_bare_margin(text: str | None) -> None:
    """A number alone would be nats, and who types 1 means 1 %: a margin of 1 nat passes everything."""
    try:
        bare = text is not None and 0.0 < float(text) < math.inf
    except ValueError:
        bare = False
    if bare:
        raise UsageError(f'--margin is {text!r}, without a unit; type --margin {text}% for a share of the loss, or --margin "{text} nats"')


def read_yaml(path: str) -> object:
    """The content of a YAML file; UsageError names the file and what is wrong with it."""
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise UsageError(f"{path}: cannot be read ({words}); expected a YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{place}: not valid YAML; check brackets, quotes and indentation there") from None


def _read_policy(path: str) -> Mapping[str, Any]:
    document = read_yaml(path)
    if not isinstance(document, dict) or not isinstance(document.get("criteria"), dict):
        raise UsageError(f"{path}: no `criteria:` with keys below it; expected such as criteria: {{margin: 1.0%}}")
    criteria: dict[str, Any] = document["criteria"]
    return criteria


def pairs(items: Sequence[str] | None, flag: str, shape: str = "NAME=VALUE") -> dict[str, str]:
    """NAME=VALUE items as a dict; `shape` is what the error expects."""
    values = {}
    for item in items or []:
        key, mark, value = item.partition("=")
        if not mark or not key or not value:
            raise UsageError(f"{flag} is {item!r}; expected {shape}")
        values[key] = value
    return values


def stated_columns(items: Sequence[str] | None) -> ColumnNames:
    """[WHERE:]QUANTITY=NAME items, WHERE an arm or a file; UsageError for another shape, an unknown quantity, or one given twice."""
    by_place: dict[str, dict[str, str]] = {}
    for item in items or []:
        left, mark, name = item.partition("=")
        place, _, quantity = left.rpartition(":")
        if not mark or not name or not quantity:
            raise UsageError(f"--column is {item!r}; expected QUANTITY=NAME such as loss=train/loss, or WHERE:QUANTITY=NAME")
        if quantity not in QUANTITIES:
            raise UsageError(
                f"--column is {item!r}; expected QUANTITY=NAME or WHERE:QUANTITY=NAME, with QUANTITY one of {', '.join(QUANTITIES)}"
                f"{did_you_mean(quantity, QUANTITIES)}"
            )
        if quantity in by_place.setdefault(place, {}):
            raise UsageError(f"--column names {left} twice, {by_place[place][quantity]!r} and {name!r}; expected one column")
        by_place[place][quantity] = name
    return ColumnNames(by_place)


def stated_recipes(items: Sequence[str] | None) -> dict[str, str]:
    """Recipes by arm; UsageError for a word that is neither known nor `other:NAME`."""
    recipes = pairs(items, "--recipe", "NAME=RECIPE such as nvfp4=nvfp4")
    for name, recipe in recipes.items():
        refuse_unknown_recipe(recipe, f"--recipe {name}")
    return recipes


def refuse_unknown_recipe(recipe: str | None, option: str) -> None:
    """Raise UsageError for a word that is neither a known recipe nor `other:NAME`."""
    try:
        check_recipe(recipe, option)
    except RecipeError as error:
        raise UsageError(str(error)) from None


def stated_roundings(items: Sequence[str] | None, recipes: Mapping[str, str]) -> dict[str, Rounding]:
    """How the arms round, by arm; UsageError for another word, and where it contradicts the arm's recipe."""
    roundings: dict[str, Rounding] = {}
    for name, word in pairs(items, "--rounding", "NAME=stochastic or NAME=nearest").items():
        rounding = stated_rounding(word, f"--rounding {name}", recipes.get(name))
        if rounding:
            roundings[name] = rounding
    return roundings


def stated_rounding(word: str | None, option: str, recipe: str | None = None) -> Rounding | None:
    """What an option states of the rounding; UsageError for any other word, and where it contradicts the recipe."""
    if word == "nearest" and recipe in ALWAYS_STOCHASTIC:
        raise UsageError(
            f"{option} is nearest, but recipe {recipe} rounds stochastically; expected another recipe, such as nvfp4_no_sr or {OTHER}NAME"
        )
    for known in get_args(Rounding):
        if word == known:
            return cast(Rounding, known)
    if word is None:
        return None
    raise UsageError(f"{option} is {word!r}; expected {' or '.join(get_args(Rounding))}{did_you_mean(word, get_args(Rounding))}")


def read_arms(options: ArmOptions) -> list[Arm]:
    """Arms in order, baseline first; raises UsageError or ReadError."""
    if len(options.runs) < 2:
        raise UsageError(_only_one_run(options))
    if sum(file == "-" for file in [*options.runs, *options.baseline_runs, *options.candidate_runs]) > 1:
        raise UsageError('"-" was given more than once; stdin can be read only once')
    files = _named(options.runs)
    _refuse_same_file([file for name, file in map(_optional_name, options.runs) if name is None])
    names = [name for name, _ in files]
    contexts = contexts_by_arm(options.contexts)
    for name in [*options.recipes, *options.roundings, *contexts, *(name for name, _ in map(_split_run, options.candidate_runs))]:
        if name not in names:
            raise UsageError(
                f"no arm is called {name!r}; the arms are {', '.join(names)}{did_you_mean(name, names)}; name an arm with {name}=FILE"
            )
    grouped = {name: [file] for name, file in files}
    grouped[names[0]] += options.baseline_runs
    for name, file in map(_split_run, options.candidate_runs):
        grouped[name].append(file)
    for arm in grouped.values():
        _refuse_same_file(arm)
    files_given = [*(file for arm in grouped.values() for file in arm), *options.controls]
    files_given += [_split_run(item, NOISE_RUN)[1] for item in options.noise_runs]
    options.columns.refuse_unknown([*names, *(place for file in files_given for place in _places(file))])
    return [(name, _read_arm(name, paths, options, contexts.get(name, {}))) for name, paths in grouped.items()]


def _only_one_run(options: ArmOptions) -> str:
    """The line for a single file: the runs in it, if it holds several, and what to type to compare two of them."""
    name, file = _optional_name(options.runs[0])
    try:
        if file != STDIN:
            read_run(file, columns=options.columns.of(name or "", *_places(file)))
    except SeveralRunsError as error:
        runs = ", ".join(map(run_name, error.names[:SHOWN]))
        more = f" and {len(error.names) - SHOWN} more" if len(error.names) > SHOWN else ""
        call = shlex.join(["parity", "compare", *error.names[:2]])
        return f"{file} holds {count(len(error.names), 'run')}: {runs}{more}; name a baseline and its candidates: `{call}`, or use --arm-by"
    except ReadError:
        pass  # what else may be wrong with the file comes up once there are two
    return "only one run was given; expected a baseline and at least one candidate, or --arm-by for a table of many runs"


def _refuse_same_file(files: Sequence[str]) -> None:
    """Raise UsageError if a file is given twice. Only as two arms with names of their own a file may be compared with itself."""
    seen: dict[Path, str] = {}
    for file in files:
        if file != STDIN and (earlier := seen.setdefault(Path(file).resolve(), file)) is not file:
            twice = file if file == earlier else f"{earlier} and {file}"
            raise UsageError(f"{twice}: the same file was given twice; expected another file for each run")


def refuse_mixed_units(arms: Sequence[Arm], controls: Sequence[Curve], option: str = "--column step=NAME") -> None:
    """Raise UsageError if a run counts in another unit than the first one, such as tokens or samples instead of steps.

    `option` names the column of the step.
    """
    first = arms[0][1][0]
    for name, runs in (*arms, ("control", controls)):
        for run in runs:
            if other_unit(first, run):
                raise UsageError(
                    f"{arms[0][0]} ({first.label}) counts in strides of {first.completeness.stride:,} and {name} ({run.label}) in "
                    f"strides of {run.completeness.stride:,}, with almost no step in common; expected one unit: "
                    f"name the column that counts optimizer steps with {option}"
                )


def _read_arm(name: str, files: Sequence[str], options: ArmOptions, context: Mapping[str, str]) -> list[Curve]:
    seeds = _seeds(options.seeds, len(files), name)
    runs = []
    for number, (file, seed) in enumerate(zip(files, seeds, strict=True)):
        replicate = seeds[:number].count(seed)
        run = read_run(file, columns=options.columns.of(name, *_places(file)), replicate=replicate, recipe=options.recipes.get(name))
        runs.append(dataclasses.replace(run, seed=seed, context=context, rounding=options.roundings.get(name)))
    return runs


def _places(file: str) -> tuple[str, str]:
    """How --column may name a run's file: without and with the run in it."""
    return split_name(file)[0], file


def read_control(file: str, columns: ColumnNames) -> Curve:
    """A rerun of the baseline that only measures noise."""
    return read_run(file, columns=columns.of(*_places(file)))


def read_noise_runs(options: ArmOptions, arms: Sequence[Arm]) -> dict[str, list[Curve]]:
    """The reruns that were stopped early, by arm, with what is stated of the arm; `baseline` names the baseline whatever its name."""
    names = [name for name, _ in arms]
    contexts = contexts_by_arm(options.contexts)
    given = []
    for arm, file in (_split_run(item, NOISE_RUN) for item in options.noise_runs):
        name = names[0] if arm == "baseline" and arm not in names else arm
        if name not in names:
            raise UsageError(f"{NOISE_RUN}: no arm is called {arm!r}; the arms are {', '.join(names)}{did_you_mean(arm, names)}")
        given.append((name, file))
    for name, number in Counter(name for name, _ in given).items():
        if number > MAX_NOISE_RUNS:
            raise UsageError(f"{NOISE_RUN}: {name} has {number:,} noise runs; expected at most {MAX_NOISE_RUNS} per arm; give fewer")
    by_arm: dict[str, list[Curve]] = {}
    for name, file in given:
        run = read_run(file, columns=options.columns.of(name, *_places(file)), recipe=options.recipes.get(name))
        seed = dict(arms)[name][0].seed
        by_arm.setdefault(name, []).append(
            dataclasses.replace(run, seed=seed, context=contexts.get(name, {}), rounding=options.roundings.get(name))
        )
    return by_arm


def _seeds(text: str | None, runs: int, name: str) -> list[int]:
    """The seed of each run of an arm."""
    if text is None:
        return [0] * runs
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds is {text!r}; expected whole numbers such as 0,1,2") from None
    if len(seeds) != runs:
        raise UsageError(
            f"--seeds has {count(len(seeds), 'seed')}, but {name} has {count(runs, 'run')}; expected one seed for each run of an arm"
        )
    return seeds


def contexts_by_arm(items: Sequence[str]) -> dict[str, dict[str, str]]:
    """NAME:KEY=VALUE items by arm."""
    contexts: dict[str, dict[str, str]] = {}
    for item in items:
        left, mark, value = item.partition("=")
        name, colon, key = left.rpartition(":")
        if not (mark and colon and name and key and value):
            raise UsageError(f"--context is {item!r}; expected NAME:KEY=VALUE such as fp8:engine=maxtext")
        contexts.setdefault(name, {})[key] = value
    return contexts


def _named(runs: Sequence[str]) -> list[tuple[str, str]]:
    """Arms as (name, file): NAME=FILE as given, else the file's stem, with its folder where two stems are equal."""
    split = [_optional_name(run) for run in runs]
    stems = [name or run_name(file) for name, file in split]
    named = []
    for (name, file), stem in zip(split, stems, strict=True):
        folder = Path(file).parent.name
        unique = stem if name or stems.count(stem) == 1 or not folder else f"{folder}/{stem}"
        named.append((unique, file))
    names = [name for name, _ in named]
    if len(set(names)) == len(names):
        return named
    return [(f"{name} ({number})" if names.count(name) > 1 else name, file) for number, (name, file) in enumerate(named, 1)]


def _optional_name(run: str) -> tuple[str | None, str]:
    name, mark, file = run.partition("=")
    return (name, file) if mark and name and file and not Path(run).exists() else (None, run)


def _split_run(text: str, option: str = "--candidate-run") -> tuple[str, str]:
    name, mark, file = text.partition("=")
    if not mark or not name or not file:
        raise UsageError(f"{option} is {text!r}; expected NAME=FILE")
    return name, file


def read_layer_snrs(items: Sequence[str], candidates: Sequence[str]) -> dict[str, LayerSnr]:
    """SNR by candidate; a file without a name belongs to the only candidate."""
    by_candidate: dict[str, LayerSnr] = {}
    for name, file in map(_optional_name, items):
        if name is None and len(candidates) > 1:
            raise UsageError(
                f"--layer-snr is {file!r}, but there are several candidates; expected NAME=FILE with one of {', '.join(candidates)}"
            )
        arm = name or candidates[0]
        if arm not in candidates:
            raise UsageError(
                f"--layer-snr: no candidate is called {arm!r}; the candidates are {', '.join(candidates)}{did_you_mean(arm, candidates)}"
            )
        by_candidate[arm] = read_layer_snr(file)
    return by_candidate

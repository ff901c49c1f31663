"""Arms as the command line states them: files, names, recipes, what they ran on, seeds; and what must not be compared at all."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.cli.output import UsageError
from parity.judging.advice import LayerSnr
from parity.judging.curve import Curve
from parity.judging.run_floor import rounds_stochastically
from parity.readers import read_run, run_name
from parity.readers.layers import read_layer_snr
from parity.readers.units import other_unit

Arm = tuple[str, list[Curve]]


def read_arms(
    runs: Sequence[str],
    more_baseline: Sequence[str],
    more_candidate: Sequence[str],
    columns: Mapping[str, str],
    recipes: Mapping[str, str],
    contexts: Sequence[str] = (),
    seeds: str | None = None,
) -> list[Arm]:
    """Arms in order, baseline first, as the options of `compare` state them; raises UsageError or ReadError."""
    if len(runs) < 2:
        raise UsageError("only one arm was given; expected a baseline and at least one candidate")
    if sum(file == "-" for file in [*runs, *more_baseline, *more_candidate]) > 1:
        raise UsageError('"-" was given more than once; stdin can be read only once')
    files = _named(runs)
    stated = _contexts(contexts)
    for name in [*recipes, *stated, *(name for name, _ in map(_split_run, more_candidate))]:
        if name not in [known for known, _ in files]:
            raise UsageError(f"there is no arm {name!r}; the arms are {', '.join(known for known, _ in files)}")
    grouped = {name: [file] for name, file in files}
    grouped[files[0][0]] += more_baseline
    for name, file in map(_split_run, more_candidate):
        grouped[name].append(file)
    return [(name, _read_arm(name, paths, columns, recipes.get(name), stated.get(name, {}), seeds)) for name, paths in grouped.items()]


def hint_at_recipes(arms: Sequence[Arm]) -> None:
    """A name is no proof of a recipe, so it decides nothing; but whoever names an arm nvfp4 should know what that costs."""
    for name, runs in arms:
        if rounds_stochastically(name) and all(run.recipe is None for run in runs):
            print(
                f"parity: the recipe of arm {name} is not stated, so its run noise is assumed as for a deterministic one "
                f"(0.08 % of the loss); if it rounds stochastically, say so: --recipe {name}=nvfp4 (0.30 %)",
                file=sys.stderr,
            )


def refuse_mixed_units(arms: Sequence[Arm], controls: Sequence[Curve]) -> None:
    """Raise UsageError where a run counts something else than the first one does: tokens or samples beside steps."""
    first = arms[0][1][0]
    for name, runs in (*arms, ("control", controls)):
        for run in runs:
            if other_unit(first, run):
                raise UsageError(
                    f"{arms[0][0]} ({first.label}) counts in strides of {first.completeness.stride:,}, {name} ({run.label}) in strides of "
                    f"{run.completeness.stride:,}, with hardly a step in common: expected one unit; "
                    "name the column that counts optimizer steps with --column step=NAME"
                )


def _read_arm(
    name: str, files: list[str], columns: Mapping[str, str], recipe: str | None, context: Mapping[str, str], seeds: str | None
) -> list[Curve]:
    own = _seeds(seeds, len(files), name)
    return [
        dataclasses.replace(
            read_run(file, columns=columns, replicate=own[:number].count(own[number]), recipe=recipe), seed=own[number], context=context
        )
        for number, file in enumerate(files)
    ]


def _seeds(text: str | None, runs: int, name: str) -> list[int]:
    """The seed of each run of an arm."""
    if text is None:
        return [0] * runs
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text!r}; expected whole numbers such as 0,1,2") from None
    if len(seeds) != runs:
        raise UsageError(f"--seeds names {len(seeds)}, {name} has {runs} runs; expected a seed for each run of every arm")
    return seeds


def _contexts(items: Sequence[str]) -> dict[str, dict[str, str]]:
    """NAME:KEY=VALUE items by arm."""
    found: dict[str, dict[str, str]] = {}
    for item in items:
        left, mark, value = item.partition("=")
        name, colon, key = left.rpartition(":")
        if not (mark and colon and name and key and value):
            raise UsageError(f"--context {item!r}; expected NAME:KEY=VALUE such as fp8:engine=maxtext")
        found.setdefault(name, {})[key] = value
    return found


def _named(runs: Sequence[str]) -> list[tuple[str, str]]:
    """Arms as (name, file): NAME=FILE as given, else the file's stem, with its folder where two stems are equal."""
    split = [_optional_name(run) for run in runs]
    stems = [name or run_name(file) for name, file in split]
    found = []
    for (name, file), stem in zip(split, stems, strict=True):
        unique = stem if name or stems.count(stem) == 1 else f"{Path(file).parent.name}/{stem}"
        found.append((unique, file))
    names = [name for name, _ in found]
    if len(set(names)) == len(names):
        return found
    return [(f"{name} ({number})" if names.count(name) > 1 else name, file) for number, (name, file) in enumerate(found, 1)]


def _optional_name(run: str) -> tuple[str | None, str]:
    name, mark, file = run.partition("=")
    return (name, file) if mark and name and file and not Path(run).exists() else (None, run)


def _split_run(text: str) -> tuple[str, str]:
    name, mark, file = text.partition("=")
    if not mark or not name or not file:
        raise UsageError(f"--candidate-run {text!r}; expected NAME=FILE")
    return name, file


def read_layer_snrs(items: Sequence[str], candidates: Sequence[str]) -> dict[str, LayerSnr]:
    """SNR by candidate; a file without a name belongs to the only candidate."""
    found: dict[str, LayerSnr] = {}
    for name, file in map(_optional_name, items):
        if name is None and len(candidates) > 1:
            raise UsageError(f"--layer-snr {file}; there are several candidates, expected NAME=FILE with one of {', '.join(candidates)}")
        arm = name or candidates[0]
        if arm not in candidates:
            raise UsageError(f"--layer-snr {arm}=...: there is no candidate {arm!r}; the candidates are {', '.join(candidates)}")
        found[arm] = read_layer_snr(file)
    return found

"""Read the parts of a bundle's manifest, whose author is unknown: every value has its type, or the
part is refused by its place.

An array file belongs to one column of one run, so that a small manifest can't ask for a thousand
copies of a large file.
"""

from collections.abc import Mapping
from typing import Any

from parity.judging.bundles.columns import unpack_array
from parity.judging.case import BASELINE, CANDIDATE, CONTROL, SHORT_RERUN, SHORTER
from parity.judging.curves.context import COMPARISONS, Comparison
from parity.judging.curves.curve import (
    MAX_LOSS,
    Curve,
    Rounding,
    curve_from_arrays,
)
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.secondary.accuracy import TaskResult
from parity.judging.verdict.layer_statistics import LayerSnr
from parity.recipes import OTHER, RecipeError, check_recipe, check_rounding
from parity.typed_json import ManifestError, optional, record, shown, typed

# Short reruns have a limit per arm. Every candidate is compared with every other, every run of an
# arm with every other.
MAX_RUNS, MAX_CANDIDATES = 256, 64
_SHORT_RERUNS = (SHORT_RERUN, "noise")  # the second word is that of judges before 0.6.0


class ManifestArms:
    """The runs of a manifest's `arms` by role: `baseline_name`, `baseline`, `candidates` by name,
    `controls`, `shorter`, `short_reruns` by arm.

    Judge 0.1.0 took any word for a recipe: unless the `same_judge` made the bundle, an unknown one
    is read as `other:WORD`.
    """

    def __init__(self, arms: object, files: Mapping[str, bytes], *, same_judge: bool) -> None:
        remaining = dict(files)
        self.baseline_name: str | None = None
        self.baseline: list[Curve] = []
        self.candidates: dict[str, list[Curve]] = {}
        self.controls: list[Curve] = []
        self.shorter: list[Curve] = []
        self.short_reruns: dict[str, list[Curve]] = {}
        listed = typed(arms, list, "arms", "a list of arms")
        self._check_size(listed)
        for number, arm in enumerate(listed):
            where = f"arms[{number}]"
            role, name = (typed(arm[key], str, f"{where}.{key}") for key in ("role", "name"))
            role = SHORT_RERUN if role in _SHORT_RERUNS else role
            runs = [
                _run(entry, remaining, f"{where}.runs[{index}]", same_judge=same_judge)
                for index, entry in enumerate(arm["runs"])
            ]
            self._add(role, name, runs, where)

    @staticmethod
    def _check_size(arms: list[Any]) -> None:
        for number, arm in enumerate(arms):
            typed(
                typed(arm, dict, f"arms[{number}]", "an object").get("runs"),
                list,
                f"arms[{number}].runs",
                "a list of runs",
            )
            if arm.get("role") in _SHORT_RERUNS and len(arm["runs"]) > MAX_SHORT_RERUNS:
                raise ManifestError(
                    f"arms[{number}].runs are {len(arm['runs']):,} short reruns; expected at most "
                    f"{MAX_SHORT_RERUNS} per arm"
                )
        judged = [arm for arm in arms if arm.get("role") not in _SHORT_RERUNS]
        runs = sum(len(arm["runs"]) for arm in judged)
        if (
            runs > MAX_RUNS
            or len(judged) > MAX_CANDIDATES + 3
            or len(arms) > 2 * (MAX_CANDIDATES + 3)
        ):
            raise ManifestError(
                f"{len(arms):,} arms with {runs:,} runs; expected at most {MAX_CANDIDATES} "
                f"candidates and {MAX_RUNS} runs in all"
            )

    def _add(self, role: str, name: str, runs: list[Curve], where: str) -> None:
        if (role == BASELINE) == bool(self.baseline) or role not in (
            BASELINE,
            CANDIDATE,
            CONTROL,
            SHORTER,
            SHORT_RERUN,
        ):
            raise ManifestError(
                f"{where}.role is {shown(role)}; expected role 'baseline' once, first, then "
                "candidate, control, shorter and short_rerun"
            )
        if role == BASELINE:
            self.baseline_name, self.baseline = name or None, runs
        elif role == CONTROL:
            self.controls += runs
        elif role == SHORTER:
            self.shorter += runs
        else:
            by_name = self.short_reruns if role == SHORT_RERUN else self.candidates
            if name in by_name:
                raise ManifestError(
                    f"{where}.name is {shown(name)} again; expected another name for each {role} "
                    "arm"
                )
            by_name[name] = runs


_EARLIER_KEYS = {
    "gates": "checks",
    "baseline_run_floor": "baseline_run_noise",
    "candidate_run_floor": "candidate_run_noise",
    "run_floor_df": "run_noise_df",
    "run_floor_evidence": "run_noise_evidence",
}


def policy_of(manifest: Mapping[str, Any]) -> Policy:
    """The policy of a manifest; judges before 0.6.0 called it `criteria`, and some of its keys
    otherwise.
    """
    if "criteria" not in manifest:
        return policy_from_mapping(manifest["policy"])
    return policy_from_mapping(
        {_EARLIER_KEYS.get(key, key): value for key, value in manifest["criteria"].items()}
    )


def families_of(value: object) -> dict[str, str]:
    """The family of reruns by arm."""
    families: dict[str, str] = typed(value, dict, "families", "an object by arm")
    return {arm: typed(family, str, f"families[{shown(arm)}]") for arm, family in families.items()}


def compares_of(value: object) -> dict[str, Comparison]:
    """In what each candidate is meant to differ from the arm that it is judged against."""
    compares: dict[str, Comparison] = typed(value, dict, "compares", "an object by candidate")
    for candidate, comparison in compares.items():
        if comparison not in COMPARISONS:
            raise ManifestError(
                f"compares[{shown(candidate)}] is {shown(comparison)}; expected "
                f"{' or '.join(COMPARISONS)}"
            )
    return compares


def against_of(value: object) -> dict[str, str]:
    """The candidate that each candidate is judged against, where that is not the baseline."""
    against: dict[str, str] = typed(value, dict, "against", "an object by candidate")
    return {
        candidate: typed(other, str, f"against[{shown(candidate)}]")
        for candidate, other in against.items()
    }


def multiplicity_of(value: object) -> Multiplicity | None:
    """Which look a case is and how many candidates share its error; None where the manifest leaves
    that to the judge.
    """
    if value is None:
        return None
    return record(
        Multiplicity, value, "multiplicity", "an object with look, looks, candidates and registered"
    )


def layer_snrs(value: object) -> dict[str, LayerSnr]:
    """Statistics by candidate, then by layer, operand and statistic, from lists of [layer, operand,
    SNR in dB] and of [layer, operand, statistic, value].
    """
    by_candidate: dict[str, LayerSnr] = {}
    for candidate, entries in typed(value, dict, "layer_snr_db", "an object by candidate").items():
        where = f"layer_snr_db[{shown(candidate)}]"
        snrs: dict[tuple[str, ...], float] = {}
        for entry in typed(entries, list, where, "a list of [layer, operand, SNR]"):
            parts = typed(entry, list, where, "lists of layer, operand, SNR")
            layer, operand, *statistic = parts[:-1]
            if len(statistic) > 1:
                raise ManifestError(f"{where} has {shown(entry)}; expected at most 4 values")
            key = tuple(typed(word, str, where) for word in (layer, operand, *statistic))
            snrs[key] = float(parts[-1])
        by_candidate[candidate] = snrs
    return by_candidate


def task_results(value: object) -> dict[str, dict[str, TaskResult]]:
    """Downstream results by arm and task."""
    by_arm = {}
    for arm, tasks in typed(value, dict, "evaluations", "an object by arm").items():
        where = f"evaluations[{shown(arm)}]"
        by_arm[arm] = {
            task: _task_result(result, where)
            for task, result in typed(tasks, dict, where, "an object by task").items()
        }
    return by_arm


def _task_result(value: object, where: str) -> TaskResult:
    fields = typed(value, dict, where, "an object with correct, items and by_item")
    by_item = typed(fields.get("by_item", {}), dict, f"{where}.by_item", "an object by item")
    if not all(isinstance(correct, bool) for correct in by_item.values()):
        raise ManifestError(
            f"{where}.by_item holds other values than true and false; expected those"
        )
    correct, items = (typed(fields.get(key), int, f"{where}.{key}") for key in ("correct", "items"))
    choices = fields.get("choices")
    stated = None if choices is None else typed(choices, int, f"{where}.choices")
    return TaskResult(correct=correct, items=items, by_item=by_item, choices=stated)


def _run(entry: object, remaining: dict[str, bytes], where: str, *, same_judge: bool) -> Curve:
    """The curve of one run; takes its array files out of `remaining`."""
    run = typed(entry, dict, where, "an object")
    columns = {}
    for column, file in typed(run["arrays"], dict, f"{where}.arrays", "files by column").items():
        if not isinstance(file, str) or file not in remaining:
            raise ManifestError(
                f"{where}.arrays[{shown(column)}] is {shown(file)}; expected a file of the bundle, "
                "named once"
            )
        columns[column] = unpack_array(remaining.pop(file), file)
    context = typed(run["context"], dict, f"{where}.context", "texts by key")
    notes = typed(run["notes"], list, f"{where}.notes", "a list of texts")
    for value in (*context.values(), *notes):
        typed(value, str, where, "texts in context and notes")
    duplicates = typed(run["duplicates"], int, f"{where}.duplicates")
    if duplicates < 0:
        raise ManifestError(f"{where}.duplicates is {duplicates}; expected 0 or more")
    rolled_back = typed(
        run.get("rolled_back", 0.0), float, f"{where}.rolled_back", "a number of nats"
    )
    if not 0.0 <= rolled_back <= MAX_LOSS * 2.0:
        raise ManifestError(f"{where}.rolled_back is {rolled_back}; expected nats, 0 or more")
    recipe = optional(run["recipe"], str, f"{where}.recipe")
    # bundles before 2026-11-22 have none; the curve refuses any other word
    rounding: Rounding | None = run.get("rounding")
    seed = typed(run["seed"], int, f"{where}.seed")
    stated = typed(run.get("seed_stated", True), bool, f"{where}.seed_stated")
    return curve_from_arrays(
        columns.pop("steps"),
        columns.pop("loss"),
        columns={name.removeprefix("columns/"): column for name, column in columns.items()},
        label=typed(run["label"], str, f"{where}.label"),
        seed=seed if stated else None,
        replicate=typed(run["replicate"], int, f"{where}.replicate"),
        recipe=recipe if same_judge else _known_or_other(recipe, rounding),
        rounding=rounding,
        context=context,
        notes=notes,
        overwritten=duplicates,
        rolled_back=rolled_back,
    )


def _known_or_other(recipe: str | None, rounding: Rounding | None) -> str | None:
    """A recipe that an earlier judge accepted with this rounding, as a word that this one does."""
    try:
        check_recipe(recipe)
        check_rounding(recipe, rounding)
    except RecipeError:
        return f"{OTHER}{recipe or 'unnamed'}"
    return recipe

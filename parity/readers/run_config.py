"""What a run's config states of it: recipe, rounding, seeds, family, step time, and what must be
equal in both arms.

A key counts by its last part ("optimizer.lr" is "lr"), where the parts before it are groups that
configs are commonly ordered by. A value is taken only as it is written: a word that is not a recipe
of ours is shown and never guessed, and a key that says two things in one config states neither
recipe nor rounding. What must be equal in both arms is compared all the same: a seed that is not a
number, or a learning rate that is stated twice, is equal only to the same. Names that resemble a
recipe (`fp8_recipe`, `precision`) are shown, because trainers mean different things by them.
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from parity.frozen import frozen
from parity.judging.curves.context import ARCHITECTURE, PARAMETERS
from parity.judging.curves.curve import PLANNED_STEPS, ROUNDINGS, Curve, Rounding
from parity.readers.columns.names import listed
from parity.readers.errors import ReadError
from parity.recipes import (
    ALWAYS_STOCHASTIC,
    OTHER,
    RECIPES,
    RecipeError,
    check_recipe,
    check_rounding,
)

RECIPE_KEYS = ("parity_recipe", "recipe")
ROUNDING_KEYS = ("parity_rounding", "rounding")
STOCHASTIC_KEYS = ("stochastic_rounding",)
SEED_KEYS = ("seed", "random_seed")
DATA_SEED_KEYS = ("data_seed",)
PLANNED_KEYS = (
    "max_steps",
    "train_iters",
    "total_steps",
    "total_train_steps",
    "num_train_steps",
    "num_training_steps",
    "training_steps",
)
STEP_SECONDS_KEYS = ("step_seconds", "step_time_seconds", "seconds_per_step")
FAMILY = "family"
EQUAL_KEYS: Mapping[str, tuple[str, ...]] = {
    FAMILY: ("parity_family",),
    "learning_rate": ("learning_rate", "lr", "max_lr", "peak_lr"),
    "min_learning_rate": ("min_learning_rate", "min_lr"),
    "learning_rate_schedule": (
        "lr_scheduler_type",
        "lr_scheduler",
        "lr_decay_style",
        "lr_schedule",
    ),
    "warmup_steps": ("warmup_steps", "lr_warmup_iters", "num_warmup_steps"),
    "weight_decay": ("weight_decay",),
    "batch_size": ("global_batch_size", "batch_size", "train_batch_size"),
    "micro_batch_size": ("per_device_train_batch_size", "micro_batch_size"),
    "gradient_accumulation": ("gradient_accumulation_steps", "grad_accum_steps"),
    "sequence_length": ("sequence_length", "seq_length", "seq_len", "max_seq_len", "block_size"),
    "dataset": ("dataset", "dataset_name"),
    PARAMETERS: (
        "num_parameters",
        "n_parameters",
        "num_params",
        "n_params",
        "total_params",
        "parameters",
    ),
    ARCHITECTURE: ("architecture", "model_type"),
}
"""What both arms must have in common, by the key of a run's context; arms that differ in one cannot
pass.
"""
SHOWN_KEYS = (
    "fp8_recipe",
    "fp4_recipe",
    "fp8",
    "fp4",
    "precision",
    "quantization",
    "mixed_precision",
)
"""Keys that resemble a recipe; their values are shown where no recipe is stated."""
_GROUPS = frozenset(
    (
        *(
            "parity",
            "args",
            "config",
            "cfg",
            "data",
            "dataset",
            "hparams",
            "hyperparameters",
            "model",
            "optim",
            "optimizer",
            "run",
        ),
        *("scheduler", "train", "trainer", "training", "training_args"),
    )
)
_GROUPED_KEYS = ("parity_recipe", "parity_rounding", "parity_family", "data_seed")
_SEED_FACTOR = 1_000_003
_TRUE = ("true", "1", "yes")
_NOTHING = ("", "none", "null")


@frozen
class ConfigFacts:
    """What a config states, None for what it does not; `context` must be equal in both arms,
    `notes` shows a person what was taken.
    """

    recipe: str | None = None
    rounding: Rounding | None = None
    seed: int | None = None
    data_seed: int | None = None
    step_seconds: float | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def config_facts(config: Mapping[str, Any], source: str) -> ConfigFacts:
    """What a run's config states. Raises ReadError where it contradicts itself in how the run
    rounds.
    """
    values = _values_by_key(config)
    notes: list[str] = []

    def one(keys: Sequence[str]) -> str | None:
        return _one_value(values, keys, notes)

    recipe = _recipe(one(RECIPE_KEYS), notes)
    rounding = _rounding(one(ROUNDING_KEYS), one(STOCHASTIC_KEYS), notes)
    try:
        check_rounding(recipe, rounding, f"{source}: the rounding in the run's config")
    except RecipeError as error:
        raise ReadError(
            f"{error}; correct the config, or export the run as CSV and state both with --recipe "
            "and --rounding"
        ) from None
    planned = one(PLANNED_KEYS)
    if planned is not None and re.fullmatch(r"[1-9]\d{0,14}", planned):
        plan = {PLANNED_STEPS: planned}
    else:
        plan = {}
    facts = ConfigFacts(
        recipe=recipe,
        rounding=rounding,
        seed=_seed(_all_values(values, SEED_KEYS, notes), "seed", notes),
        data_seed=_seed(_all_values(values, DATA_SEED_KEYS, notes), "data_seed", notes),
        step_seconds=_seconds(one(STEP_SECONDS_KEYS), notes),
        context={
            name: value
            for name, keys in EQUAL_KEYS.items()
            if (value := _all_values(values, keys, notes)) is not None
        }
        | plan,
    )
    shown = [
        f"{key} {value!r}"
        for key in SHOWN_KEYS
        if recipe is None
        for value in sorted(values.get(key, ()))
    ]
    if shown:
        notes.append(
            f"the run's config has {', '.join(shown)}, which is not read as a recipe: state it "
            "with --recipe"
        )
    return dataclasses.replace(facts, notes=(*_taken(facts), *notes))


def apply_config(curve: Curve, facts: ConfigFacts, recipe: str | None) -> Curve:
    """The curve with what its config states. A recipe that an option states counts more; `recipe`
    is that option's, or None.

    Where the option's recipe rounds stochastically by definition, a rounding to nearest in the
    config is dropped. Runs have the same seed only where both of their seeds are equal.
    """
    rounding, notes = facts.rounding, list(facts.notes)
    if recipe is not None and facts.recipe not in (None, recipe):
        notes.append(f"recipe {recipe} was stated instead of the config's {facts.recipe}")
    if recipe in ALWAYS_STOCHASTIC and rounding == "nearest":
        rounding = None
    return dataclasses.replace(
        curve,
        recipe=recipe or facts.recipe,
        rounding=rounding,
        seed=_both_seeds(facts),
        seed_stated=facts.seed is not None or facts.data_seed is not None,
        context={**curve.context, **facts.context},
        notes=(*curve.notes, *notes),
    )


def _values_by_key(config: Mapping[str, Any]) -> dict[str, set[str]]:
    """The distinct values of each key, written alike: numbers as floats, true and false as
    words.
    """
    values: dict[str, set[str]] = {}
    for parts, value in _flat(config):
        if not parts or not set(parts[:-1]) <= _GROUPS or isinstance(value, (list, tuple, set)):
            continue
        text = _text(value)
        if text.lower() not in _NOTHING:
            values.setdefault(_key(parts), set()).add(text)
    return values


def _recipe(word: str | None, notes: list[str]) -> str | None:
    if word is None:
        return None
    try:
        check_recipe(word)
    except RecipeError:
        notes.append(
            f"the run's config states recipe {word!r}, which is none of {', '.join(RECIPES)}, or "
            f"{OTHER}NAME: not taken, state it with --recipe"
        )
        return None
    return word


def _rounding(word: str | None, switch: str | None, notes: list[str]) -> Rounding | None:
    """The stated rounding. A switch that is off states nothing: it may be that of the optimizer,
    and nearest is the smaller noise.
    """
    if word is not None and word not in ROUNDINGS:
        notes.append(
            f"the run's config states rounding {word!r}, which is neither "
            f"{' nor '.join(ROUNDINGS)}: not taken"
        )
        word = None
    if switch is not None and switch.lower() in _TRUE:
        return "stochastic"
    return next((rounding for rounding in ROUNDINGS if rounding == word), None)


def _one_value(values: Mapping[str, set[str]], keys: Sequence[str], notes: list[str]) -> str | None:
    """The value of the first of some keys that is there; None, with a note, where that key has
    several.
    """
    key, several = _stated(values, keys)
    if len(several) > 1:
        notes.append(
            f"the run's config states {key} more than once ({listed(several)}), so it is not taken"
        )
        return None
    return several[0] if several else None


def _seed(text: str | None, name: str, notes: list[str]) -> int | None:
    """The seed as a number; of any other text a number of 56 bits that only the same text has."""
    if text is None:
        return None
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    notes.append(
        f"the run's config states {name} {text!r:.80}, which is not a whole number of up to 18 "
        "digits; only the same text equals it"
    )
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def _seconds(text: str | None, notes: list[str]) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        notes.append(
            f"the run's config states a step time of {text!r}, which is not a number of seconds: "
            "not taken"
        )
        return None
    return seconds


def _all_values(
    values: Mapping[str, set[str]], keys: Sequence[str], notes: list[str]
) -> str | None:
    """The value of the first of some keys that is there, or all of them in one text, with a note,
    where that key has several.
    """
    key, several = _stated(values, keys)
    if len(several) > 1:
        notes.append(
            f"the run's config states {key} more than once ({listed(several)}); the other arm must "
            "state the same"
        )
    return " and ".join(several) or None


def _taken(facts: ConfigFacts) -> tuple[str, ...]:
    """One note with everything that was taken."""
    names = ("recipe", "rounding", "seed", "data_seed", "step_seconds")
    parts = [f"{name} {value}" for name in names if (value := getattr(facts, name)) is not None]
    parts += [f"{name} {value}" for name, value in facts.context.items()]
    if not parts:
        return ()
    return (f"from the run's config: {', '.join(parts)}",)


def _both_seeds(facts: ConfigFacts) -> int:
    """One number for seed and data seed: the seed where they are equal or one is not stated, 0
    where none is.
    """
    if facts.seed is None or facts.data_seed in (None, facts.seed):
        if facts.seed is not None:
            return facts.seed
        return facts.data_seed or 0
    return facts.seed * _SEED_FACTOR + facts.data_seed


def _flat(
    config: Mapping[str, Any], groups: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in config.items():
        parts = (
            *groups,
            *(
                part
                for part in re.split(r"[./]", str(key).strip().lower().replace("-", "_"))
                if part
            ),
        )
        if isinstance(value, Mapping):
            yield from _flat(value, parts)
        else:
            yield parts, value


def _text(value: object) -> str:
    """A value as text that is equal for equal values; a tracker may return 0.001, "0.001" or "1e-3"
    for one number.
    """
    text = str(value).strip()
    if isinstance(value, bool):
        return text.lower()
    if re.fullmatch(r"-?[0-9]{1,80}", text):  # a seed may have more digits than a float keeps
        return str(int(text))
    try:
        number = float(text)
    except ValueError:
        return text[:200]
    if math.isfinite(number) and number == int(number) and abs(number) < 2**63:
        return str(int(number))
    return repr(number)


def _key(parts: Sequence[str]) -> str:
    """The last part, with the group before it where that gives the word another meaning:
    parity.family, data.seed.
    """
    last_two = "_".join(parts[-2:])
    if last_two in _GROUPED_KEYS:
        return last_two
    return parts[-1]


def _stated(values: Mapping[str, set[str]], keys: Sequence[str]) -> tuple[str, list[str]]:
    """The first of some keys that is there, with its values in order; no values where none is."""
    return next(((key, sorted(values[key])) for key in keys if key in values), ("", []))

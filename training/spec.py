"""The specification: frozen values that describe a model, its data, its schedule and a job of
paired runs.

Standard library only, because the web process imports this module and must never import jax. Every
value validates itself when it is created, by the rules of `training.rules`; an error names the
field, the value, what was expected and the remedy.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, fields, replace
from typing import Any, Literal

from training import command as commands
from training import gemm_sizes, rules, segments, step_values
from training.command import Command, Compared
from training.environment.maxtext_options import (
    NO_OPTIONS,
    MaxTextOptions,
    check_maxtext,
    quantization,
)
from training.frozen import frozen
from training.gemm_sizes import ATTENTION, GemmSize, Sizes
from training.later_recipe import (
    LaterRecipe,
    check_later_recipe,
    in_todays_form,
    later_recipe,
    needed_recipes,
)
from training.mixes import MIXES, backward_of, forward_of
from training.model_shapes import DEFAULT, PRESETS, Preset
from training.overrides import Override, arm_label, document, from_document
from training.rules import Capability, Engine, LayerPolicy, Recipe, Source, SpecError, Strict
from training.segments import ArmPlan, Segment
from training.switches import NO_SWITCHES, Rounding, Switches, check_engine, features

TokenType = Literal["uint16", "uint32"]
Optimizer = Literal["adamw", "muon"]
Precision = Literal["quantized", "bf16"]
SPEC_VERSION = 5
"""The version of specifications: raise it with every field, recipe or value that a worker of before
cannot read. A test asks for it.
"""
MOST_CANDIDATES = 64
_MOST_OVERRIDES = 256
# Fields that a run takes from its arm.
_ARM_FIELDS = ("recipe", "switches", "overrides", "then")
_COMMAND_FIELDS = ("revision", "environment")
# What a job of engine command says nothing about: the trainer has its own.
TRAINER_FIELDS = frozenset(
    {
        "layer_policy",
        "model",
        "data",
        "devices",
        "keep_first",
        "keep_last",
        "projections",
        "gradient_accumulation",
        "remat",
        "maxtext",
    }
)
_COMMON_SCHEDULE_FIELDS = ("steps", "warmup_steps")


def _preset_field(what: str) -> Any:
    """Declares a field of Model whose default is the preset's value."""
    return field(
        default_factory=lambda: None,
        metadata={
            "description": f"{what}; default: the preset's value (without a preset, that of "
            f"{DEFAULT})"
        },
    )


@frozen
class Model(Strict):
    """A Llama-shaped decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    `preset` names a shape (`training.rules`); other fields override parts of it: {preset:
    llama3-1b, vocab_size: 256}. With `qk_norm` the queries and keys of each head are divided by
    their root mean square and multiplied by a gain, before the rotary positions turn them.
    """

    preset: Preset | None = field(
        default=None,
        metadata={
            "description": "name of a shape; other fields override parts of it. From 20m on, and "
            "in names that end in -by128, every linear "
            "layer fits Transformer Engine's NVFP4 kernels"
        },
    )
    vocab_size: int = _preset_field("number of token ids")
    d_model: int = _preset_field("width of the residual stream")
    n_layers: int = _preset_field("number of blocks")
    n_heads: int = _preset_field("query heads in a block")
    n_kv_heads: int = _preset_field("key-value heads in a block")
    d_ff: int = _preset_field("width of the MLP")
    rope_theta: float = _preset_field("base of the rotary frequencies")
    tied_embeddings: bool = _preset_field("whether the logits use the input embedding")
    head_dim: int | None = field(
        default=None, metadata={"description": "size of a head; default: d_model / n_heads"}
    )
    qk_norm: bool = False

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise SpecError("model.preset", self.preset, f"one of {', '.join(PRESETS)}")
        for name, value in PRESETS[self.preset or DEFAULT].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        # a preset is only a short form: equal shapes are equal models
        object.__setattr__(self, "preset", None)
        for name in (
            "vocab_size",
            "d_model",
            "n_layers",
            "n_heads",
            "n_kv_heads",
            "d_ff",
            "rope_theta",
        ):
            rules.check_at_least(f"model.{name}", getattr(self, name), 1)
        if self.head_dim is None and self.d_model % self.n_heads:
            raise SpecError(
                "model.n_heads",
                self.n_heads,
                f"a divisor of d_model = {self.d_model}",
                "or set model.head_dim",
            )
        if self.n_heads % self.n_kv_heads:
            raise SpecError(
                "model.n_kv_heads", self.n_kv_heads, f"a divisor of n_heads = {self.n_heads}"
            )
        if self.head_dim is not None:
            rules.check_at_least("model.head_dim", self.head_dim, 2)
        if self.head_size % 2:
            if self.head_dim is None:
                size = ("model.d_model", self.d_model)
            else:
                size = ("model.head_dim", self.head_dim)
            raise SpecError(
                *size, f"an even size per head (rotary positions turn pairs), not {self.head_size}"
            )
        if self.head_size * self.n_heads == self.d_model:
            object.__setattr__(self, "head_dim", None)  # written out or not, it is one shape

    @property
    def head_size(self) -> int:
        """The size of a query, a key or a value of one head."""
        if self.head_dim is None:
            return self.d_model // self.n_heads
        return self.head_dim

    @property
    def parameters(self) -> int:
        """Number of trained parameters; a tied embedding is counted once."""
        attention = 2 * self.d_model * (self.n_heads + self.n_kv_heads) * self.head_size
        norms = 2 * self.d_model + (2 * self.head_size if self.qk_norm else 0)
        block = attention + 3 * self.d_model * self.d_ff + norms
        embeddings = self.vocab_size * self.d_model * (1 if self.tied_embeddings else 2)
        return embeddings + self.n_layers * block + self.d_model

    def document(self) -> dict[str, Any]:
        """The model as a JSON-able dict; what came later only if it is set, so that the hash of a
        job is that of earlier versions.
        """
        return _set_fields(asdict(self), head_dim=None, qk_norm=False)


def _set_fields(document: dict[str, Any], **defaults: object) -> dict[str, Any]:
    """A document without those of its fields that have these defaults."""
    return {
        name: value
        for name, value in document.items()
        if name not in defaults or value != defaults[name]
    }


@frozen
class Data(Strict):
    """The source of tokens and the shape of a batch; the batch of a step is a pure function of
    (seed, step).

    `dtype` is that of a .bin file of token ids; by default uint16, or uint32 if the model's
    vocabulary is larger than 65,536.
    """

    source: Source = "python_stdlib"
    path: str | None = None
    sequence_length: int = 128
    batch_size: int = 8
    validation_fraction: float = 0.05
    # MaxText's digest of its data is taken over this value's repr
    dtype: TokenType | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rules.check_at_least("data.sequence_length", self.sequence_length, 2)
        rules.check_at_least("data.batch_size", self.batch_size, 1)
        rules.check_share("data.validation_fraction", self.validation_fraction)
        if self.source in rules.OWN_SOURCES and self.path is not None:
            raise SpecError(
                "data.path",
                self.path,
                f"no path for source {self.source}",
                "remove it, or use source: text",
            )
        if self.source not in rules.OWN_SOURCES and not self.path:
            raise SpecError(
                "data.path",
                self.path,
                f"a path for source {self.source}",
                "give a file or folder on the worker",
            )
        if self.dtype is not None and (
            self.source != "tokens" or not (self.path or "").endswith(".bin")
        ):
            raise SpecError(
                "data.dtype",
                self.dtype,
                "nothing but for source tokens with a .bin file",
                "an .npy file has its type",
            )

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.sequence_length

    def document(self) -> dict[str, Any]:
        """The data as a JSON-able dict, like `Model.document`."""
        return _set_fields(asdict(self), dtype=None)


@frozen
class Schedule(Strict):
    """AdamW with linear warm-up and cosine decay to `final_fraction` of the peak learning rate.

    With `decay_steps` the rate stays at its peak after the warm-up and falls in a straight line
    over that many steps at the end (warm-up, stable, decay). `optimizer: muon` orthogonalizes the
    momentum of the linear layers; embeddings and norms keep AdamW.

    `validation_every` is the number of steps between two evaluations of the held-out loss,
    `statistics_every` between two recordings of each layer's quantization, and `gradients_every`
    between those that also compare each weight's gradient with the one of unquantized operands; 0
    means never.
    """

    steps: int = 1500
    learning_rate: float = 4e-3
    warmup_steps: int = 50
    final_fraction: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    z_loss: float = 1e-4
    validation_every: int = 0
    statistics_every: int = 0
    gradients_every: int = 0
    decay_steps: int = 0
    optimizer: Optimizer = "adamw"

    def __post_init__(self) -> None:
        rules.check_at_least("schedule.steps", self.steps, 1)
        for name in (
            "warmup_steps",
            "validation_every",
            "statistics_every",
            "gradients_every",
            "decay_steps",
            "weight_decay",
            "z_loss",
        ):
            rules.check_at_least(f"schedule.{name}", getattr(self, name), 0)
        rules.check_gradients(self.gradients_every, self.statistics_every)
        for name in ("learning_rate", "clip_norm"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise SpecError(f"schedule.{name}", value, "a finite number above 0")
        if not 0.0 <= self.final_fraction <= 1.0:
            raise SpecError("schedule.final_fraction", self.final_fraction, "a share from 0 to 1")
        for name in ("beta1", "beta2"):
            rules.check_share(f"schedule.{name}", getattr(self, name))
        if self.warmup_steps >= self.steps:
            raise SpecError(
                "schedule.warmup_steps", self.warmup_steps, f"fewer than steps = {self.steps}"
            )
        if self.decay_steps and self.decay_steps >= self.steps - self.warmup_steps:
            most = self.steps - self.warmup_steps - 1
            raise SpecError(
                "schedule.decay_steps",
                self.decay_steps,
                f"at most {most}, so that a step between warm-up and decay is left",
            )

    def document(self) -> dict[str, Any]:
        """The schedule as a JSON-able dict, like `Model.document`."""
        return _set_fields(asdict(self), gradients_every=0, decay_steps=0, optimizer="adamw")


@frozen
class Projections(Strict):
    """Linear layers that deviate from the layer policy in every block: quantized by the arm's
    recipe, or kept in bf16.
    """

    query: Precision | None = None
    key: Precision | None = None
    value: Precision | None = None
    out: Precision | None = None
    gate: Precision | None = None
    up: Precision | None = None
    down: Precision | None = None

    def __post_init__(self) -> None:
        for projection in fields(self):
            if getattr(self, projection.name) not in (None, "quantized", "bf16"):
                raise SpecError(
                    f"projections.{projection.name}",
                    getattr(self, projection.name),
                    "quantized or bf16",
                )

    def quantized(self, layer_policy: LayerPolicy) -> frozenset[str]:
        """The names of the layers of a block that use the arm's recipe."""
        chosen = {projection.name: getattr(self, projection.name) for projection in fields(self)}
        by_policy = {"gate", "up", "down"} if layer_policy == "mlp_only" else set(chosen)
        return frozenset(
            name
            for name, choice in chosen.items()
            if choice == "quantized" or (choice is None and name in by_policy)
        )


NO_OVERRIDES = Projections()


@frozen
class ArmSpec(Strict):
    """One side of a comparison: a recipe and its number of replicates.

    `switches` change single parts of the recipe. `overrides` change recipe or switches for some
    blocks, projections and GEMMs, from a step on (`training.switches`). `then` is the recipe of the
    rest of the run. Under engines command and external the recipe may be `fp8`, of any scaling, or
    `other:NAME`.

    Of engine command alone: `revision` is the full id of the commit that is trained, `environment`
    a named set of the launcher's variables, and `against` the arm that it is judged against
    (`training.command.comparisons`).
    """

    recipe: Recipe | str
    replicates: int = 1
    name: str = ""
    switches: Switches = NO_SWITCHES
    overrides: tuple[Override, ...] = field(default=(), metadata=rules.max_items(_MOST_OVERRIDES))
    then: LaterRecipe | None = None
    revision: str = ""
    environment: str = ""
    against: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", tuple(self.overrides))
        if not rules.is_stated(self.recipe):
            forward = forward_of(self.recipe)
            rules.check_recipe("arm.recipe", forward)
            # raises an error for a switch that the recipe does not have
            features(forward, self.switches)
        if not 1 <= self.replicates <= 64:
            raise SpecError("arm.replicates", self.replicates, "a whole number from 1 to 64")
        if not self.name:
            name = arm_label(forward_of(self.recipe), self.switches, ())
            if self.recipe in MIXES:
                name = self.recipe + name.removeprefix(forward_of(self.recipe))
            name = name.replace("+", ".").replace("=", "-")
            if self.then is not None:  # an arm is named after what it does
                name += self.then.arm_name
            if rules.is_stated(self.recipe):
                name = (
                    "".join(
                        c if c.isalnum() or c in "_.-" else "_"
                        for c in self.recipe.removeprefix(rules.OTHER)
                    )
                    or "other"
                )
            object.__setattr__(self, "name", f"{name}.overrides" if self.overrides else name)
        if len(self.name) > 64 or not all(c.isalnum() or c in "_.-" for c in self.name):
            raise SpecError(
                "arm.name",
                self.name,
                "at most 64 letters, digits, '_', '.' or '-'",
                "give the arm a `name` of its own",
            )

    @property
    def label(self) -> str:
        """The recipe with its switches and overrides; two arms of a job with equal labels, and the
        same `then`, have equal arithmetic.
        """
        return arm_label(self.recipe, self.switches, self.overrides)


@frozen
class ShortReruns(Strict):
    """Reruns of each arm that only measure run-to-run noise: trained from step 0 under the full
    schedule, stopped at a share of its steps.

    Each arm gets `runs` of them, with the replicate numbers after those of all arms.
    """

    runs: int = 3
    stop_at: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= 16:
            raise SpecError("short_reruns.runs", self.runs, "a whole number from 1 to 16")
        if not 0.4 <= self.stop_at <= 0.9:
            why = "before 40 % of the steps a rerun misleads; after 90 % train a full replicate"
            raise SpecError(
                "short_reruns.stop_at", self.stop_at, "a share of the steps from 0.4 to 0.9", why
            )


@frozen
class RunSpec:
    """One training run: everything that determines its bits, except the machine and the code."""

    recipe: Recipe | str
    engine: Engine
    model: Model
    data: Data
    schedule: Schedule
    layer_policy: LayerPolicy
    seed: int
    replicate: int
    devices: int
    keep_first: int = 0
    keep_last: int = 0
    projections: Projections = NO_OVERRIDES
    switches: Switches = NO_SWITCHES
    overrides: tuple[Override, ...] = ()
    then: LaterRecipe | None = None
    gradient_accumulation: int = 1
    remat: bool = False
    maxtext: MaxTextOptions = NO_OPTIONS
    command: Command | None = None
    revision: str = ""
    environment: str = ""

    def __post_init__(self) -> None:
        if not rules.is_stated(self.recipe):
            rules.check_recipe("recipe", self.recipe)
        rules.check_at_least("run.replicate", self.replicate, 0)
        object.__setattr__(self, "overrides", tuple(self.overrides))
        _check_common(self)
        _check_arm(self, self)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What every GEMM does, by the steps from which it does so."""
        return segments.resolve(_plan(self, self))

    @property
    def rounding(self) -> Rounding:
        """How the run rounds gradients: stochastic if any GEMM does in any step."""
        return segments.rounding(self.segments)

    @property
    def recipes(self) -> tuple[str, ...]:
        """Every recipe that the run needs, its own first."""
        return needed_recipes(self.recipe, self.overrides, self.then)

    @property
    def label(self) -> str:
        """The recipe with its switches and overrides."""
        return arm_label(self.recipe, self.switches, self.overrides)

    def document(self) -> dict[str, Any]:
        """The run as a JSON-able dict; `overrides` and later switches only if set, so that its hash
        is that of earlier versions.
        """
        return _engine_fields(_short_form(asdict(self), self) | _documents_of_parts(self))


@frozen
class JobSpec(Strict):
    """A paired comparison: one baseline arm and one or more candidates that differ from it in the
    recipe alone.

    With engine command a trainer of the user's own is started by a launcher (`command`), and arms
    may differ in the commit instead.

    `gradient_accumulation` is the number of pieces of a batch, processed one after another; `remat`
    recomputes activations instead of storing them. Both trade time for memory. `devices` share each
    batch. `maxtext` has options for engine maxtext only. `family` names reruns that were imported
    or are public, from which all arms borrow their run-to-run noise instead of from the record.
    `keep_checkpoints` are the numbers of steps, or the shares of them, after which the state of
    every full run is kept: forks start from it.
    """

    name: str
    baseline: ArmSpec
    candidates: tuple[ArmSpec, ...] = field(metadata=rules.max_items(MOST_CANDIDATES))
    engine: Engine = "emulated"
    layer_policy: LayerPolicy = "all_linears"
    model: Model = Model()
    data: Data = Data()
    schedule: Schedule = Schedule()
    seed: int = 0
    devices: int = 1
    keep_first: int = 0
    keep_last: int = 0
    projections: Projections = NO_OVERRIDES
    gradient_accumulation: int = 1
    remat: bool = False
    maxtext: MaxTextOptions = NO_OPTIONS
    short_reruns: ShortReruns | None = None
    family: str | None = None
    keep_checkpoints: tuple[int | float, ...] = field(
        default=(), metadata=rules.max_items(rules.MOST_KEPT)
    )
    command: Command | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "baseline", _written_out(self, self.baseline))
        written = tuple(_written_out(self, arm) for arm in self.candidates)
        object.__setattr__(self, "candidates", written)
        kept = rules.kept_checkpoints(self.engine, self.keep_checkpoints, self.schedule.steps)
        object.__setattr__(self, "keep_checkpoints", kept)
        rules.check_printable("name", self.name)
        if self.family is not None:
            rules.check_printable(
                "family", self.family, "name a family that the server's page /noise-tables lists"
            )
        if not self.candidates:
            raise SpecError(
                "candidates",
                list(self.candidates),
                "at least one candidate arm",
                "add the recipe to compare with the baseline",
            )
        if len(self.candidates) > MOST_CANDIDATES:
            raise SpecError(
                "candidates",
                len(self.candidates),
                f"at most {MOST_CANDIDATES} candidates",
                "submit several jobs",
            )
        name, count = Counter(arm.name for arm in self.arms).most_common(1)[0]
        if count > 1:
            raise SpecError(
                "candidates.name",
                name,
                "a different name for each arm",
                "set `name` if a recipe appears twice",
            )
        _check_common(self)
        for arm in self.arms:
            _check_arm(self, arm)
        if self.engine == commands.ENGINE:  # written out, so that whoever reads the job finds it
            found = commands.comparisons(self.arms)
            named = tuple(replace(arm, against=found[arm.name][0]) for arm in self.candidates)
            object.__setattr__(self, "candidates", named)
        if self.short_steps < 1:
            raise SpecError(
                "schedule.steps",
                self.schedule.steps,
                f"enough steps to stop at {self.short_steps}",
                "plan more steps",
            )

    @property
    def arms(self) -> tuple[ArmSpec, ...]:
        """Baseline first, then the candidates in their order."""
        return (self.baseline, *self.candidates)

    def runs(self) -> Iterator[tuple[ArmSpec, RunSpec]]:
        """Every run of the job. Runs with the same replicate number share init and data order
        across arms, so they form pairs.
        """
        for arm in self.arms:
            for replicate in range(arm.replicates):
                yield arm, self.run_of(arm, replicate)

    def early_runs(self) -> Iterator[tuple[ArmSpec, RunSpec]]:
        """The reruns of each arm that stop after `short_steps`, by replicate, then arm."""
        first = max(arm.replicates for arm in self.arms)
        for replicate in range(first, first + (self.short_reruns.runs if self.short_reruns else 0)):
            for arm in self.arms:
                yield arm, self.run_of(arm, replicate)

    @property
    def short_steps(self) -> int:
        """Steps that each of the `early_runs` trains; those of the schedule without them."""
        return round(
            (self.short_reruns.stop_at if self.short_reruns else 1.0) * self.schedule.steps
        )

    def document(self) -> dict[str, Any]:
        """The job as a JSON-able dict; what came later only if it is set, so that its hash is that
        of earlier versions.
        """
        document = asdict(self) | _documents_of_parts(self)
        for name in ("short_reruns", "family", "keep_checkpoints"):
            if document[name] in (None, ()):
                del document[name]
        document["baseline"] = _short_form(document["baseline"], self.baseline)
        arms = zip(document["candidates"], self.candidates, strict=True)
        document["candidates"] = tuple(_short_form(written, arm) for written, arm in arms)
        return _engine_fields(document)

    def comparisons(self) -> dict[str, tuple[str, Compared]]:
        """By candidate: the arm that it is judged against, and in what they differ. But for engine
        command: the baseline, the recipe.
        """
        if self.engine == commands.ENGINE:
            return commands.comparisons(self.arms)
        return {arm.name: (self.baseline.name, "recipe") for arm in self.candidates}

    def labels(self, arm: ArmSpec) -> list[tuple[int, str]]:
        """What an arm does from which step on (`training.segments.labels`); of another trainer, its
        recipe.
        """
        if self.engine == commands.ENGINE or rules.is_stated(arm.recipe):
            later = (
                []
                if arm.then is None
                else [(arm.then.from_step, arm.then.label(arm.recipe, arm.switches))]
            )
            return [(0, arm.recipe), *later]
        return segments.labels(_plan(self, arm))

    def rounding(self, arm: ArmSpec) -> Rounding:
        """How an arm's runs round gradients: stochastic if any GEMM does in any step."""
        return segments.rounding(segments.resolve(_plan(self, arm)))

    def run_of(self, arm: ArmSpec, replicate: int) -> RunSpec:
        """The specification of a run of an arm."""
        shared = {name: getattr(self, name) for name in _SHARED}
        # our own trainer makes a replicate of a seed; another one only knows seeds
        if self.engine == commands.ENGINE:
            shared["seed"] += replicate
        return RunSpec(
            replicate=replicate,
            **{name: getattr(arm, name) for name in (*_ARM_FIELDS, *_COMMAND_FIELDS)},
            **shared,
        )


def labels_of(job: Mapping[str, Any], arm: Mapping[str, Any]) -> list[tuple[int, str]]:
    """`JobSpec.labels` from the documents of a job and of one of its arms, of this version or an
    earlier one.

    A user's own trainer has no layers on record: there a switch to bf16 is one of all layers.
    """
    switches, overrides = (
        Switches(**arm.get("switches", {})),
        tuple(map(from_document, arm.get("overrides", ()))),
    )
    then = later_recipe(in_todays_form(arm).get("then"))
    if then is None and not overrides:
        return [(0, arm_label(arm["recipe"], switches, ()))]
    if "model" not in job or "layer_policy" not in job:
        return [
            (0, arm_label(arm["recipe"], switches, overrides)),
            *([] if then is None else [(then.from_step, then.label(arm["recipe"], switches))]),
        ]
    plan = ArmPlan(
        recipe=arm["recipe"],
        switches=switches,
        overrides=overrides,
        then=then,
        quantized=Projections(**job.get("projections", {})).quantized(job["layer_policy"]),
        keep_first=job.get("keep_first", 0),
        keep_last=job.get("keep_last", 0),
        n_layers=Model(**job["model"]).n_layers,
        steps=job["schedule"]["steps"],
    )
    return segments.labels(plan)


# Fields that a run takes from the job.
_SHARED = tuple(
    sorted({field.name for field in fields(RunSpec)} & {field.name for field in fields(JobSpec)})
)


def capability(job: JobSpec) -> tuple[Capability, str]:
    """The kind of worker that can run the whole job, and the reason. All arms of a job run on the
    same kind.
    """
    if job.engine == "maxtext" and job.maxtext.hardware == "cpu":
        return "cpu", "maxtext.hardware is cpu"
    return rules.needs(
        job.engine,
        tuple(
            recipe
            for arm in job.arms
            for recipe in needed_recipes(arm.recipe, arm.overrides, arm.then)
        ),
    )


def _check_common(spec: JobSpec | RunSpec) -> None:
    rules.check_seed(spec.seed)
    if spec.engine == commands.ENGINE:
        _check_command(spec)
        return
    if spec.command is not None:
        raise SpecError(
            "command",
            spec.command.launcher,
            f"nothing under engine {spec.engine}",
            "set engine: command",
        )
    rules.check_source(spec.engine, spec.data.source)
    rules.check_batch(spec.engine, spec.data.batch_size, spec.gradient_accumulation, spec.devices)
    if spec.engine == "maxtext" or spec.maxtext != NO_OPTIONS:
        check_maxtext(spec)
    rules.check_kept(spec.engine, spec.keep_first, spec.keep_last, spec.model.n_layers)
    rules.check_statistics(spec.engine, spec.schedule.statistics_every)
    chosen = asdict(spec.projections)
    if spec.projections != NO_OVERRIDES and spec.engine == "maxtext":
        raise SpecError(
            "projections", chosen, f"nothing under engine {spec.engine}", "use engine: emulated"
        )
    if not spec.projections.quantized(spec.layer_policy):
        raise SpecError(
            "projections", chosen, "a layer that is quantized", "leave one out of the list"
        )


def _check_command(spec: JobSpec | RunSpec) -> None:
    """Raises SpecError for a job of engine command that says what its trainer alone can know."""
    if spec.command is None:
        raise SpecError(
            "command", None, "the launcher that starts the trainer", "command: {launcher: NAME}"
        )
    stated = [name for name in sorted(TRAINER_FIELDS) if getattr(spec, name) != _DEFAULTS[name]]
    stated += [
        f"schedule.{setting.name}"
        for setting in fields(Schedule)
        if setting.name not in _COMMON_SCHEDULE_FIELDS and _differs(spec.schedule, setting.name)
    ]
    if isinstance(spec, JobSpec):
        most = max(arm.replicates for arm in spec.arms) - 1
        if spec.seed + most >= 2**31:
            raise SpecError(
                "seed",
                spec.seed,
                f"a whole number from 0 to {2**31 - 1 - most}",
                "each replicate has the seed after it",
            )
        for name in ("short_reruns", "keep_checkpoints"):
            if getattr(spec, name):
                what = (
                    "nothing under engine command, whose worker can't stop a trainer early or keep "
                    "its checkpoints"
                )
                raise SpecError(name, "set", what, "add replicates to the arms")
    if stated:
        remedy = "give it to the trainer, by a parameter of the launcher"
        raise SpecError(
            stated[0],
            "set",
            "nothing under engine command, whose trainer has a model and data of its own",
            remedy,
        )


def _differs(schedule: Schedule, name: str) -> bool:
    return bool(
        getattr(schedule, name) != getattr(Schedule(steps=schedule.steps, warmup_steps=0), name)
    )


def _check_arm(spec: JobSpec | RunSpec, arm: ArmSpec | RunSpec) -> None:
    changes = arm.switches.stated() or arm.overrides
    if spec.engine == commands.ENGINE:
        commands.check_revision("arm.revision", arm.revision)
        if arm.environment:
            commands.check_name(
                "arm.environment", arm.environment, "the name of a set of variables of the launcher"
            )
        if changes:
            raise SpecError(
                "arm.recipe",
                arm.recipe,
                "no switches or overrides with it",
                "the launcher's recipe has them",
            )
    elif arm.revision or arm.environment or (isinstance(arm, ArmSpec) and arm.against):
        raise SpecError(
            "arm.revision",
            arm.revision,
            f"no revision, environment or against under engine {spec.engine}",
            "set engine: command",
        )
    if rules.is_stated(arm.recipe):
        rules.check_stated(spec.engine, arm.recipe, changes or arm.then)
        return
    if arm.then is not None:
        check_later_recipe(
            arm.then, spec.engine, arm.recipe, spec.layer_policy, spec.schedule.steps
        )
    if spec.engine == commands.ENGINE:
        return
    rules.check_runnable(spec.engine, arm.recipe, spec.layer_policy)
    check_engine(spec.engine, arm.recipe, arm.switches)
    if spec.engine == "maxtext":
        quantization("arm.recipe", arm.recipe, spec.maxtext)
    parts = segments.checked(_plan(spec, arm), spec.engine)
    _check_shapes(spec, parts)
    if segments.rounding(parts) == "stochastic":
        # of each layer's gradient, for dgrad and for wgrad
        copies = spec.model.n_layers * len(step_values.PROJECTIONS) * 2
        rules.check_rounded(
            spec.engine, spec.schedule.steps, copies * spec.gradient_accumulation * spec.devices
        )


_DEFAULTS = {field.name: field.default for field in fields(JobSpec)}


def _engine_fields(document: dict[str, Any]) -> dict[str, Any]:
    """A document of a job or a run without what its engine has not: `command` and its fields are of
    engine command alone.
    """
    if document["engine"] != commands.ENGINE:
        return {
            name: value
            for name, value in document.items()
            if name not in ("command", *_COMMAND_FIELDS)
        }
    schedule = {name: document["schedule"][name] for name in _COMMON_SCHEDULE_FIELDS}
    return {name: value for name, value in document.items() if name not in TRAINER_FIELDS} | {
        "schedule": schedule
    }


def _written_out(spec: JobSpec, arm: ArmSpec) -> ArmSpec:
    """An arm whose recipe is a mix as its forward recipe with an override; any other as it is."""
    if arm.recipe not in MIXES:
        return arm
    if spec.engine != "emulated":
        raise SpecError(
            "arm.recipe",
            arm.recipe,
            f"a recipe of engine {spec.engine}",
            "mixes need engine: emulated; a trainer of your own states other:NAME",
        )
    first, last = spec.keep_first, spec.model.n_layers - 1 - spec.keep_last
    rules.check_kept(spec.engine, spec.keep_first, spec.keep_last, spec.model.n_layers)
    all_blocks = not spec.keep_first and not spec.keep_last
    quantized = spec.projections.quantized(spec.layer_policy)
    backward = backward_of(arm.recipe, quantized, None if all_blocks else (first, last))
    return replace(
        arm, recipe=forward_of(arm.recipe), overrides=(backward, *arm.overrides), name=arm.name
    )


def _plan(spec: JobSpec | RunSpec, arm: ArmSpec | RunSpec) -> ArmPlan:
    return ArmPlan(
        **{name: getattr(arm, name) for name in _ARM_FIELDS},
        quantized=spec.projections.quantized(spec.layer_policy),
        keep_first=spec.keep_first,
        keep_last=spec.keep_last,
        n_layers=spec.model.n_layers,
        steps=spec.schedule.steps,
    )


def _documents_of_parts(spec: JobSpec | RunSpec) -> dict[str, Any]:
    return {
        "model": spec.model.document(),
        "data": spec.data.document(),
        "schedule": spec.schedule.document(),
        "maxtext": spec.maxtext.document(),
    }


def _short_form(written: dict[str, Any], arm: ArmSpec | RunSpec) -> dict[str, Any]:
    """The document of an arm or run, with later switches, a later recipe, a revision and its like
    only if set, and overrides only if there are some.
    """
    unset = (name for name in (*_COMMAND_FIELDS, "against", "then") if not written.get(name))
    rare = {"overrides", *unset}
    rest = {name: value for name, value in written.items() if name not in rare} | {
        "switches": arm.switches.document()
    }
    return rest | (
        {"overrides": [document(override) for override in arm.overrides]} if arm.overrides else {}
    )


def _check_shapes(spec: JobSpec | RunSpec, parts: tuple[Segment, ...]) -> None:
    """Raises SpecError if a GEMM has a size that its kernel or its blocks cannot have."""
    by_maxtext = spec.engine == "maxtext"
    native = spec.engine == "transformer_engine" or (
        by_maxtext and spec.maxtext.implementation == "te"
    )
    if not native and spec.engine != "emulated":
        return
    cells = dict.fromkeys(
        (projection, gemm, arithmetic)
        for part in parts
        for _, projection, gemm, arithmetic in part.cells()
    )
    wrong = gemm_sizes.misfit(
        cells, lambda projection: _sizes(spec, spec.model, projection), native=native
    )
    if wrong is None:
        return
    if not native or wrong.need.size in ("M", "T"):
        presets = []
    else:
        presets = [Model(preset=name) for name in PRESETS]
    fitting = {
        name: model.parameters
        for name, model in zip(PRESETS, presets, strict=False)
        if gemm_sizes.misfit(
            cells,
            lambda projection, model=model: _sizes(spec, model, projection),  # type: ignore[misc]
            native=native,
        )
        is None
    }
    close = min(
        fitting, key=lambda name: abs(math.log(fitting[name] / spec.model.parameters)), default=None
    )
    recipe = arm_label(*wrong.arithmetic, ())
    remedy = f"{wrong.need.reason}; the nearest valid value is {wrong.nearest}"
    raise SpecError(
        wrong.size.field,
        wrong.size.value,
        f"a multiple of {wrong.need.multiple} for {wrong.gemm} of {wrong.projection} with recipe "
        f"{recipe} under engine {spec.engine}",
        remedy + (f", and the nearest preset that fits is {close}" if close else ""),
    )


def layer_sizes(run: RunSpec, projection: str) -> Sizes:
    """M, K and N of a linear layer as one device computes it."""
    return _sizes(run, run.model, projection)


def _sizes(spec: JobSpec | RunSpec, model: Model, projection: str) -> Sizes:
    """The sizes of a layer of this model as one device computes them."""
    pieces = spec.gradient_accumulation * spec.devices
    tokens = "data.batch_size x data.sequence_length" + (
        " / (gradient_accumulation x devices)" if pieces > 1 else ""
    )
    inputs, outputs = gemm_sizes.linear_sizes(
        model.d_model, model.d_ff, model.head_size, (model.n_heads, model.n_kv_heads)
    )[projection]
    whole = {"M": GemmSize(spec.data.tokens_per_step // pieces, tokens), "K": inputs, "N": outputs}
    if spec.engine != "maxtext":
        return whole
    return _share_of_maxtext(spec, model, projection, whole)


def _share_of_maxtext(
    spec: JobSpec | RunSpec, model: Model, projection: str, whole: Sizes
) -> Sizes:
    """The sizes of a layer on one of MaxText's devices; K, N and E only of dimensions that are
    known here, not those of a `model_name`.
    """
    split, context = spec.maxtext.ici_tensor_parallelism, spec.maxtext.ici_context_parallelism
    sequence = GemmSize(
        spec.data.sequence_length // context,
        "data.sequence_length" + (" / maxtext.ici_context_parallelism" if context > 1 else ""),
    )
    sizes = {
        "M": GemmSize(
            spec.data.tokens_per_step * split // (spec.gradient_accumulation * spec.devices),
            whole["M"].field,
        ),
        "T": sequence,
    }
    if spec.maxtext.model_name:
        return sizes
    # the two that write to the residual stream sum over the devices
    divided = "K" if projection in ("out", "down") else "N"
    for name in ("K", "N"):
        size = whole[name]
        over = f"{size.field} / maxtext.ici_tensor_parallelism"
        sizes[name] = GemmSize(size.value // split, over) if split > 1 and name == divided else size
    if projection in ATTENTION:
        sizes["E"] = GemmSize(
            model.head_size,
            "model.d_model / model.n_heads" if model.head_dim is None else "model.head_dim",
        )
    return sizes

"""What is asked for: frozen values that describe a model, its data, its schedule and a job of paired runs.

Standard library only, because the web process reads this file and must never import jax. Every value validates itself
when it is made; an error names the field, the value, what was expected and what to do. Only what the specification
alone can prove is checked here: whether a path exists or a machine has enough memory is found out by the worker.

Sources: recipe and shape rules from Transformer Engine 2.20.2 (`common/recipe/__init__.py`, `jax/dense.py`) and
MaxText e591f30c (`layers/quantizations.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

Engine = Literal["emulated", "transformer_engine", "maxtext", "external"]
Recipe = Literal[
    "f32",
    "bf16",
    "fp8_current",
    "fp8_delayed",
    "mxfp8",
    "nvfp4",
    "nvfp4_no_rht",
    "nvfp4_no_sr",
    "nvfp4_1d_weights",
    "mxfp4",
    "mxfp4_rht_sr",
]
LayerPolicy = Literal["all_linears", "mlp_only"]
Source = Literal["python_stdlib", "text", "tokens", "markov", "grain", "hf", "tfds"]
Capability = Literal["cpu", "sm90", "sm100", "external"]

RECIPES: tuple[Recipe, ...] = get_args(Recipe)
STOCHASTIC_RECIPES: frozenset[str] = frozenset({"nvfp4", "nvfp4_no_rht", "nvfp4_1d_weights", "mxfp4_rht_sr"})
"""Recipes that round gradients stochastically; their run-to-run floor is wider (docs/method.md)."""

# Elements that share a scale along the contracting axis: 16 for NVFP4, 32 for MXFP8.
_BLOCK: Mapping[str, int] = {
    "mxfp8": 32,
    "nvfp4": 16,
    "nvfp4_no_rht": 16,
    "nvfp4_no_sr": 16,
    "nvfp4_1d_weights": 16,
    "mxfp4": 32,
    "mxfp4_rht_sr": 32,
}
# What cuBLASLt asks of a contracting size on a real device.
_NATIVE_MULTIPLE: Mapping[str, int] = {
    "fp8_current": 16,
    "fp8_delayed": 16,
    "mxfp8": 32,
    "nvfp4": 32,
    "nvfp4_no_rht": 32,
    "nvfp4_no_sr": 32,
}
# What only our emulation runs, and why; a job on a real engine that asks for it is refused.
NOT_TE_PARITY: Mapping[str, str] = {
    "nvfp4_1d_weights": "Transformer Engine refuses 1D weight scales together with the Hadamard rotation",
    "mxfp4": "Transformer Engine has no MXFP4 recipe",
    "mxfp4_rht_sr": "Transformer Engine has no MXFP4 recipe",
}
_MAXTEXT_SOURCES = frozenset({"grain", "hf", "tfds"})
_OWN_SOURCES = frozenset({"python_stdlib", "markov"})  # made on the worker, from nothing that a path could name


_LARGEST = 2.0**53  # beyond it a whole number is no longer exact as a float


class SpecError(ValueError):
    """A value in a specification that cannot be: names the field, the value, what was expected and the remedy."""

    def __init__(self, field: str, value: object, expected: str, remedy: str = "") -> None:
        self.field = field
        self.value = value
        self.expected = expected
        self.remedy = remedy
        shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"
        super().__init__(f"{field} is {shown}, expected {expected}" + (f"; {remedy}" if remedy else ""))


def _at_least(owner: str, name: str, value: float, least: float) -> None:
    if not least <= value <= _LARGEST:
        raise SpecError(f"{owner}.{name}", value, f"a number from {least:g} to {_LARGEST:g}")


def _share(owner: str, name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise SpecError(f"{owner}.{name}", value, "a share of at least 0 and below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A Llama-shaped decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied embeddings."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    vocab_size: int = 256
    d_model: int = 96
    n_layers: int = 3
    n_heads: int = 3
    n_kv_heads: int = 1
    d_ff: int = 256
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff", "rope_theta"):
            _at_least("model", name, getattr(self, name), 1)
        if self.d_model % self.n_heads:
            raise SpecError("model.n_heads", self.n_heads, f"a divisor of d_model = {self.d_model}")
        if self.n_heads % self.n_kv_heads:
            raise SpecError("model.n_kv_heads", self.n_kv_heads, f"a divisor of n_heads = {self.n_heads}")
        if self.head_dim % 2:
            raise SpecError("model.d_model", self.d_model, f"an even size per head (rotary positions turn pairs), not {self.head_dim}")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def parameters(self) -> int:
        """Number of trained parameters (embedding counted once: input and output share it)."""
        attention = 2 * self.d_model * self.d_model + 2 * self.d_model * self.n_kv_heads * self.head_dim
        block = attention + 3 * self.d_model * self.d_ff + 2 * self.d_model
        return self.vocab_size * self.d_model + self.n_layers * block + self.d_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where tokens come from and how a batch is cut; the batch of a step is a pure function of (seed, step)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    source: Source = "python_stdlib"
    path: str | None = None
    sequence_length: int = 128
    batch_size: int = 8
    validation_fraction: float = 0.05

    def __post_init__(self) -> None:
        _at_least("data", "sequence_length", self.sequence_length, 2)
        _at_least("data", "batch_size", self.batch_size, 1)
        _share("data", "validation_fraction", self.validation_fraction)
        if self.source in _OWN_SOURCES and self.path is not None:
            raise SpecError("data.path", self.path, f"no path for source {self.source}", "remove it, or use source: text")
        if self.source not in _OWN_SOURCES and not self.path:
            raise SpecError("data.path", self.path, f"a path for source {self.source}", "name a file or folder on the worker")

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.sequence_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """AdamW with linear warm-up and cosine decay to `final_fraction` of the peak learning rate."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

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

    def __post_init__(self) -> None:
        _at_least("schedule", "steps", self.steps, 1)
        _at_least("schedule", "warmup_steps", self.warmup_steps, 0)
        _at_least("schedule", "validation_every", self.validation_every, 0)
        _at_least("schedule", "weight_decay", self.weight_decay, 0)
        _at_least("schedule", "z_loss", self.z_loss, 0)
        for name in ("learning_rate", "clip_norm"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise SpecError(f"schedule.{name}", value, "a finite number above 0")
        if not 0.0 <= self.final_fraction <= 1.0:
            raise SpecError("schedule.final_fraction", self.final_fraction, "a share from 0 to 1")
        _share("schedule", "beta1", self.beta1)
        _share("schedule", "beta2", self.beta2)
        if self.warmup_steps >= self.steps:
            raise SpecError("schedule.warmup_steps", self.warmup_steps, f"fewer than steps = {self.steps}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of a comparison: a recipe and how many replicates of it are trained.

    `bf16_from_step` switches every layer to bf16 from that 0-based step on, as the NVFP4 paper does for the last 18 %.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    recipe: Recipe
    replicates: int = 1
    name: str = ""
    bf16_from_step: int | None = None

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise SpecError("arm.recipe", self.recipe, f"one of {', '.join(RECIPES)}")
        if not 1 <= self.replicates <= 64:
            raise SpecError("arm.replicates", self.replicates, "a whole number from 1 to 64")
        if not self.name:
            object.__setattr__(self, "name", self.recipe)
        if len(self.name) > 64 or not all(c.isalnum() or c in "_.-" for c in self.name):
            raise SpecError("arm.name", self.name, "at most 64 letters, digits, '_', '.' or '-'")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One training run, complete: everything that decides its bits except the machine and the code."""

    recipe: Recipe
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
    bf16_from_step: int | None = None

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise SpecError("recipe", self.recipe, f"one of {', '.join(RECIPES)}")
        if not 0 <= self.seed < 2**31:
            raise SpecError("seed", self.seed, "a whole number from 0 to 2147483647")
        _at_least("run", "replicate", self.replicate, 0)
        _check_kept(self)
        if self.bf16_from_step is not None:
            _check_switch(self.engine, self.recipe, self.bf16_from_step, self.schedule.steps)
        _check_recipe(self, self.recipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A paired comparison: one baseline arm and one or more candidates that differ from it in the recipe alone."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: str
    baseline: Arm
    candidates: tuple[Arm, ...]
    engine: Engine = "emulated"
    layer_policy: LayerPolicy = "all_linears"
    model: Model = Model()
    data: Data = Data()
    schedule: Schedule = Schedule()
    seed: int = 0
    devices: int = 1
    keep_first: int = 0
    keep_last: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise SpecError("name", self.name, "1 to 200 printable characters")
        if not self.candidates:
            raise SpecError(
                "candidates", list(self.candidates), "at least one candidate arm", "name the recipe to compare with the baseline"
            )
        names = [arm.name for arm in self.arms]
        for name in names:
            if names.count(name) > 1:
                raise SpecError("candidates.name", name, "a name of its own for every arm", "set `name` where a recipe appears twice")
        if not 0 <= self.seed < 2**31:
            raise SpecError("seed", self.seed, "a whole number from 0 to 2147483647")
        _at_least("job", "devices", self.devices, 1)
        self._check_engine()
        _check_kept(self)
        for arm in self.arms:
            _check_recipe(self, arm.recipe)
            if arm.bf16_from_step is not None:
                _check_switch(self.engine, arm.recipe, arm.bf16_from_step, self.schedule.steps)

    def _check_engine(self) -> None:
        if self.engine == "emulated" and self.data.source in _MAXTEXT_SOURCES:
            raise SpecError(
                "data.source",
                self.data.source,
                "python_stdlib, text, tokens or markov under engine emulated",
                "or use engine: maxtext, which reads it",
            )
        if self.engine == "maxtext" and self.data.source not in _MAXTEXT_SOURCES:
            raise SpecError("data.source", self.data.source, f"one of {', '.join(sorted(_MAXTEXT_SOURCES))} under engine maxtext")
        if self.engine == "emulated" and self.devices != 1:
            raise SpecError("devices", self.devices, "1 under engine emulated", "an emulated run uses one device")

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Baseline first, then the candidates in their order."""
        return (self.baseline, *self.candidates)

    def runs(self) -> Iterator[tuple[Arm, RunSpec]]:
        """Every run of the job. Replicates of one number share init and data order across the arms, so they pair."""
        first = RunSpec(
            recipe=self.baseline.recipe,
            engine=self.engine,
            model=self.model,
            data=self.data,
            schedule=self.schedule,
            layer_policy=self.layer_policy,
            seed=self.seed,
            replicate=0,
            devices=self.devices,
            keep_first=self.keep_first,
            keep_last=self.keep_last,
        )
        for arm in self.arms:
            for replicate in range(arm.replicates):
                yield arm, replace(first, recipe=arm.recipe, replicate=replicate, bf16_from_step=arm.bf16_from_step)


def refusal(engine: str, recipe: str, layer_policy: str) -> str | None:
    """Why this engine cannot run this recipe under this layer policy, or None when it can."""
    if recipe == "f32" and engine == "maxtext":
        return "MaxText's arms may differ in `quantization` alone, and f32 would change `dtype` as well; use bf16 as the unquantized arm"
    if recipe == "f32" and engine == "transformer_engine":
        return "Transformer Engine has no f32 recipe; use bf16 as the unquantized arm"
    if engine in ("maxtext", "transformer_engine") and recipe in NOT_TE_PARITY:
        return f"{NOT_TE_PARITY[recipe]}; use engine: emulated"
    if recipe == "nvfp4_no_sr" and engine == "maxtext":
        return "MaxText has no flag that turns stochastic rounding off; use engine: emulated or transformer_engine"
    if layer_policy == "mlp_only" and engine == "maxtext":
        return (
            "MaxText quantizes every DenseGeneral of the layer stack and has no flag that leaves attention projections out; "
            "use layer_policy: all_linears, or engine: emulated"
        )
    return None


def _check_kept(job: JobSpec | RunSpec) -> None:
    """Blocks that stay in bf16, from the front and from the back, must leave a block to quantize."""
    for name in ("keep_first", "keep_last"):
        _at_least("job", name, getattr(job, name), 0)
    kept = job.keep_first + job.keep_last
    if kept and job.engine not in ("emulated", "external"):
        raise SpecError("keep_first + keep_last", kept, f"0 under engine {job.engine}", "it quantizes every block; use engine: emulated")
    if kept >= job.model.n_layers:
        raise SpecError("keep_first + keep_last", kept, f"fewer than model.n_layers = {job.model.n_layers}")


def _check_switch(engine: str, recipe: str, step: int, steps: int) -> None:
    if engine not in ("emulated", "external"):
        raise SpecError("arm.bf16_from_step", step, f"nothing under engine {engine}", "a switch in mid-run needs engine: emulated")
    if recipe in ("f32", "bf16"):
        raise SpecError("arm.bf16_from_step", step, f"nothing for recipe {recipe}", "only a quantized recipe can switch to bf16")
    if not 0 < step < steps:
        raise SpecError("arm.bf16_from_step", step, f"a step after the first and before schedule.steps = {steps}")


def _check_recipe(job: JobSpec | RunSpec, recipe: Recipe) -> None:
    reason = refusal(job.engine, recipe, job.layer_policy)
    if reason:
        raise SpecError("recipe", recipe, f"a recipe that engine {job.engine} can run with layer_policy {job.layer_policy}", reason)
    if job.engine == "external":
        return
    multiple = (_BLOCK if job.engine == "emulated" else _NATIVE_MULTIPLE).get(recipe, 1)
    model, data = job.model, job.data
    sizes = {
        "model.d_model": model.d_model,
        "model.d_ff": model.d_ff,
        "data.batch_size x data.sequence_length": data.tokens_per_step,
    }
    if job.layer_policy == "all_linears":
        sizes["model.n_kv_heads x head size"] = model.n_kv_heads * model.head_dim
    for name, size in sizes.items():
        if size % multiple:
            nearest = max(multiple, round(size / multiple) * multiple)
            raise SpecError(
                name,
                size,
                f"a multiple of {multiple}: recipe {recipe} scales blocks of it along the contracting axis of a GEMM",
                f"the nearest is {nearest}",
            )


def capability(job: JobSpec) -> tuple[Capability, str]:
    """Which kind of worker can run the whole job, and why. All arms of a job run on one kind."""
    if job.engine == "external":
        return "external", "the curves are brought by the user"
    if job.engine == "emulated":
        return "cpu", "engine emulated runs exact codes on any device"
    for arm in job.arms:
        if arm.recipe in _BLOCK:
            return "sm100", f"recipe {arm.recipe} on engine {job.engine} needs SM 10.0 or 10.3 (Blackwell)"
    return "sm90", f"engine {job.engine} needs an NVIDIA GPU of SM 8.9 or later"


CAPABILITY_IN_WORDS: Mapping[str, str] = {
    "cpu": "a worker for emulated runs",
    "sm90": "a worker with SM 8.9 or later",
    "sm100": "a worker with SM 10.0 or 10.3",
    "external": "curves that the user brings",
}

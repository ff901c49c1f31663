"""Builds MaxText's command line for a run, as a list of arguments without a shell.

What it answers: which options did MaxText get, and how do the arms' commands differ? They differ
only in `quantization` and its declared consequences (CONSEQUENCES); `shared` returns the rest,
and every run records it.

Replicate r of seed s has the same parameters at step 0 and the same batches; a different
`init_weights_seed`, from which Transformer Engine draws its stochastic rounding; and a learning
rate of (1 + 1e-6 r) times the planned one, because without stochastic rounding it would repeat
replicate 0 bit for bit.

From one seed, MaxText 0.2.5 draws other parameters with `quantization=fp8` than without
quantization (first loss 6.724 against 6.586 nats on a small decoder). So a separate process, at
learning rate 0 and with the delayed-scaling recipe, writes a checkpoint of step 0, which the arms
load. The delayed-scaling arms draw the same parameters from the seed instead: MaxText can't load
parameters without the history of amaxes, and saves that elsewhere. They round nothing at random,
so their replicates need no other seed.

Source: MaxText 0.2.5, configs/base.yml; utils/maxtext_utils.py for the schedule.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from training.environment import maxtext_mesh
from training.environment.maxtext_installed import Installed
from training.environment.maxtext_options import check_text, quantization, sizes
from training.frozen import frozen
from training.spec import RunSpec, Schedule

Value = str | int | float | bool
PERTURBATION = 1e-6
QUANTIZATION = "quantization"
# Options that may follow from `quantization` and are recorded with it.
CONSEQUENCES = ("remat_policy",)
_NEVER = 1 << 30
_MODULE = "maxtext.trainers.pre_train.train"
# By implementation: the recipe that keeps a history next to its parameters; all arms start from its
# parameters.
_DELAYED = {"te": "te_fp8_delayedscaling", "xla": "fp8"}


@frozen
class Launch:
    """One run on this worker: the MaxText and the environment of its processes, and where they read
    and write.

    Each of several processes of a run has its own number (`part`) and log. `slices` has the number
    of devices on each of the run's nodes (`maxtext_mesh`).
    """

    spec: RunSpec
    maxtext: Installed
    environment: Mapping[str, str]
    folder: Path
    slices: tuple[int, ...]
    part: int = 0

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / (f"maxtext-{self.part}.log" if self.part else "maxtext.log")

    @property
    def checkpoints(self) -> Path:
        return self.folder / "run" / "checkpoints"

    @property
    def evaluation(self) -> Path:
        return self.folder / "evaluation"

    @property
    def evaluated_metrics(self) -> Path:
        return self.evaluation / "metrics.jsonl"

    @property
    def first_parameters(self) -> Path:
        return self.folder / "step0" / "checkpoints" / "0" / "items"


def settings(spec: RunSpec, slices: Sequence[int]) -> dict[str, Value]:
    """The options that MaxText gets for a run, without paths and process: {key of base.yml:
    value}. Raises MeshError where these slices can't hold its mesh.
    """
    return {
        **_model(spec),
        **_data(spec),
        **_schedule(spec),
        **maxtext_mesh.filled(sizes(spec.maxtext), slices),
        **_arm(spec),
        "hardware": spec.maxtext.hardware,
        "attention": spec.maxtext.attention,
        "scan_layers": spec.maxtext.scan_layers,
        "dtype": "bfloat16",
        "weight_dtype": "float32",
        "enable_dropout": False,
        "dropout_rate": 0.0,
        "data_shuffle_seed": spec.seed,
        "init_weights_seed": init_weights_seed(
            spec.seed, spec.replicate if loads_parameters(spec) else 0
        ),
        "eval_interval": -1,
        "num_vocab_tiling": spec.maxtext.num_vocab_tiling,
        **({"record_internal_nn_metrics": 1} if spec.maxtext.record_internal_nn_metrics else {}),
        "enable_tensorboard": False,
        "log_config": False,
        # on processors each process has one device
        "skip_jax_distributed_system": spec.maxtext.hardware == "gpu"
        or (spec.maxtext.hardware == "cpu" and spec.devices == 1),
    }


def shared(spec: RunSpec, slices: Sequence[int]) -> str:
    """Returns the options that the commands of all runs of a job share, as one text to compare."""
    plain = settings(replace(spec, seed=0, replicate=0), slices)
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(plain.items())
        if name not in (QUANTIZATION, *CONSEQUENCES)
    )


def arm_options(spec: RunSpec) -> str:
    """Returns the options that only this arm's command has, as one text."""
    facts = _arm(spec) | {"first_parameters": "loaded" if loads_parameters(spec) else "drawn"}
    return " ".join(f"{name}={value}" for name, value in facts.items())


def train_command(launch: Launch, steps: int) -> list[str]:
    """The arguments of the training process, which trains the first `steps` of the schedule."""
    spec, every = launch.spec, launch.spec.schedule.validation_every
    values = settings(spec, launch.slices) | {
        "run_name": "run",
        # every process that gets one writes to it
        "metrics_file": "" if launch.part else str(launch.metrics),
        "load_parameters_path": str(launch.first_parameters) if loads_parameters(spec) else "",
        "enable_checkpointing": resumes(spec),
        "checkpoint_period": every or spec.maxtext.checkpoint_period,
        "save_checkpoint_on_start": False,
        "save_checkpoint_on_completion": False,
        # Three to resume from, or all that will be evaluated.
        "max_num_checkpoints_to_keep": spec.schedule.steps // every + 1 if every else 3,
    }
    # MaxText takes warm-up and decay from `learning_rate_schedule_steps`, by default `steps`
    if steps < spec.schedule.steps:
        values |= {"steps": steps, "learning_rate_schedule_steps": spec.schedule.steps}
    return _arguments(values, launch)


def first_parameters_command(launch: Launch) -> list[str]:
    """The arguments of the process that writes the parameters at step 0 of a seed: one step at
    learning rate 0.
    """
    values = settings(replace(launch.spec, replicate=0, recipe="bf16"), launch.slices) | {
        QUANTIZATION: _DELAYED[launch.spec.maxtext.implementation],
        "steps": 1,
        "learning_rate": 0.0,
        "run_name": "step0",
        "metrics_file": "",
        "enable_checkpointing": True,
        "save_checkpoint_on_start": True,
        "async_checkpointing": False,
    }
    return _arguments(values, launch)


def evaluation_command(launch: Launch, step: int) -> list[str]:
    """The arguments of the process that evaluates the state after `step`: it continues for one step
    at learning rate 0.
    """
    options = launch.spec.maxtext
    values = settings(launch.spec, launch.slices) | {
        "run_name": "evaluation",
        "steps": step + 2,
        "learning_rate": 0.0,
        "metrics_file": "" if launch.part else str(launch.evaluated_metrics),
        "load_parameters_path": "",
        "enable_checkpointing": True,
        "checkpoint_period": _NEVER,
        "save_checkpoint_on_start": False,
        "save_checkpoint_on_completion": False,
        "eval_start_step": step + 1,
        "eval_interval": 1,
        "eval_steps": options.eval_steps,
        "grain_eval_files": options.eval_path,
        "grain_worker_count_eval": options.grain_worker_count,
    }
    return _arguments(values, launch)


def init_weights_seed(seed: int, replicate: int) -> int:
    """The seed of MaxText's params stream: the job's own for replicate 0, a 31-bit hash of both for
    the others.
    """
    if replicate == 0:
        return seed
    return (
        int.from_bytes(
            hashlib.sha256(json.dumps(["maxtext", seed, replicate]).encode()).digest()[:4], "big"
        )
        >> 1
    )


def loads_parameters(spec: RunSpec) -> bool:
    """Whether the run loads the parameters of step 0 instead of drawing the same ones from the
    seed.
    """
    return _arm(spec)[QUANTIZATION] != _DELAYED[spec.maxtext.implementation]


def resumes(spec: RunSpec) -> bool:
    """Whether a run may resume from a checkpoint: only grain saves its position in the data; other
    sources would start again.
    """
    return spec.data.source == "grain"


def _arm(spec: RunSpec) -> dict[str, Value]:
    options = spec.maxtext
    name = quantization("recipe", spec.recipe, options)
    if name and options.quantized_remat_policy:
        policy = options.quantized_remat_policy
    else:
        policy = options.remat_policy
    return {QUANTIZATION: name, "remat_policy": policy}


def _model(spec: RunSpec) -> dict[str, Value]:
    model = spec.model
    if spec.maxtext.model_name:
        return {"model_name": spec.maxtext.model_name}
    return {
        "decoder_block": "llama2",
        "vocab_size": model.vocab_size,
        "base_emb_dim": model.d_model,
        "base_num_decoder_layers": model.n_layers,
        "base_num_query_heads": model.n_heads,
        "base_num_kv_heads": model.n_kv_heads,
        "head_dim": model.head_size,
        "base_mlp_dim": model.d_ff,
        "rope_max_timescale": round(model.rope_theta),
        "logits_via_embedding": model.tied_embeddings,
    }


def _data(spec: RunSpec) -> dict[str, Value]:
    data, options = spec.data, spec.maxtext
    path = check_text("data.path", data.path or "")
    sources: dict[str, dict[str, Value]] = {
        "grain": {
            "grain_train_files": path,
            "grain_file_type": options.grain_file_type,
            "grain_worker_count": options.grain_worker_count,
        },
        "hf": {
            "hf_path": path,
            "hf_name": options.hf_name,
            "hf_data_dir": options.hf_data_dir,
            "hf_train_files": options.hf_train_files,
            "train_split": options.train_split,
        },
        "tfds": {
            "dataset_path": path,
            "dataset_name": options.dataset_name,
            "train_split": options.train_split,
        },
    }
    return {
        "dataset_type": data.source,
        **{name: value for name, value in sources[data.source].items() if value != ""},
        "tokenizer_path": options.tokenizer_path,
        "tokenizer_type": options.tokenizer_type,
        "packing": options.packing,
        "num_epoch": options.num_epoch,
        "max_target_length": data.sequence_length,
        "per_device_batch_size": data.batch_size / (spec.devices * spec.gradient_accumulation),
        "gradient_accumulation_steps": spec.gradient_accumulation,
    }


def _schedule(spec: RunSpec) -> dict[str, Value]:
    plan = spec.schedule
    return {
        "steps": plan.steps,
        "learning_rate": plan.learning_rate * (1.0 + PERTURBATION * spec.replicate),
        # MaxText takes the whole part of steps x fraction.
        "warmup_steps_fraction": (plan.warmup_steps + 0.5) / plan.steps,
        "learning_rate_final_fraction": plan.final_fraction,
        **_stable_phase(plan),
        "opt_type": plan.optimizer,
        **(
            {"muon_weight_decay": plan.weight_decay, "muon_consistent_rms": 0.2}
            if plan.optimizer == "muon"
            else {}
        ),
        "adam_b1": plan.beta1,
        "adam_b2": plan.beta2,
        "adam_weight_decay": plan.weight_decay,
        "gradient_clipping_threshold": plan.clip_norm,
        "z_loss_multiplier": plan.z_loss,
    }


def _stable_phase(plan: Schedule) -> dict[str, Value]:
    """MaxText's warm-up, stable, decay; the whole part of steps x fraction, so that it fits beside
    the warm-up.
    """
    if not plan.decay_steps:
        return {}
    return {
        "lr_schedule_type": "wsd",
        "wsd_decay_steps_fraction": (plan.decay_steps + 0.25) / plan.steps,
    }


def _arguments(values: Mapping[str, Value], launch: Launch) -> list[str]:
    placed = {**values, "base_output_directory": str(launch.folder)}
    if cache := launch.environment.get("JAX_COMPILATION_CACHE_DIR"):
        placed["jax_cache_dir"] = cache
    # MaxText reads `key=` as null and refuses it; options that are empty here are empty in base.yml
    # too.
    options = (f"{name}={value}" for name, value in placed.items() if value != "")
    return [launch.maxtext.python, "-m", _MODULE, launch.maxtext.base_yml, *options]

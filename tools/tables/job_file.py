"""The tables of docs/job-file.md, from the JSON Schema of `parity.yaml` and the presets."""

from collections.abc import Mapping
from typing import Any

from server.api.service.job_schema import job_file_schema
from tools.tables.generated import DOCS, GeneratedTable
from training.model_shapes import PRESETS
from training.spec import Model

# Each part of a job file in the order of the page: its title, and what each of its keys sets, by
# the name of its schema.
PARTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "JobSpec": (
        "`job`",
        {
            "name": "the job's name; `parity trend NAME` follows jobs of one name",
            "baseline": "the arm that the others are compared with",
            "candidates": "the arms that are judged, at most 64",
            "engine": "what trains, see above",
            "layer_policy": "which linear layers are quantized: all, as in MaxText's code, or "
            "those of the MLP, as in NVIDIA's article",
            "model": "the shape of the model",
            "data": "the tokens and the shape of a batch",
            "schedule": "optimizer, learning rate and number of steps",
            "seed": "the seed of initialization and data order; replicates derive theirs from it",
            "devices": "devices that share each batch",
            "keep_first": "blocks at the start that stay in bf16",
            "keep_last": "blocks at the end that stay in bf16",
            "projections": "layers that deviate from `layer_policy` in every block: `{down: bf16}`",
            "gradient_accumulation": "pieces into which a batch is split, computed one after "
            "another",
            "remat": "recompute activations in the backward pass",
            "maxtext": "options of engine `maxtext`: [MaxText](maxtext.md)",
            "short_reruns": "short reruns of each arm that measure run-to-run noise",
            "family": "an imported or public family of reruns whose run-to-run noise all arms "
            "borrow",
            "keep_checkpoints": "numbers of steps, or shares of them, after which the state of "
            "every full run is kept, at most 8",
            "command": "options of engine `command`: [launchers](launchers.md)",
        },
    ),
    "ArmSpec": (
        "`baseline` and each of `candidates`",
        {
            "recipe": "a [recipe](recipes.md); under engines `command` and `external` also `fp8` "
            "or `other:NAME`",
            "replicates": "runs of this arm, 1 to 64; equal replicate numbers of two arms share "
            "data and initialization",
            "name": "the arm's name; by default what it does. [A name must not claim another "
            "recipe](recipes.md#names-of-arms)",
            "switches": "changes to single parts of the recipe: [recipes](recipes.md)",
            "overrides": "other recipes or switches for some blocks, layers and GEMMs",
            "then": "another recipe for the rest of the run: [the end in a safer "
            "format](recipes.md#the-end-in-a-safer-format)",
            "revision": "engine `command`: the full id of the commit to train",
            "environment": "engine `command`: a named set of the launcher's variables",
            "against": "engine `command`: the arm that this one is judged against",
        },
    ),
    "LaterRecipe": (
        "`then`",
        {
            "recipe": "the recipe of the rest of the run; what is in bf16 stays in bf16",
            "from_step": "the step, from 0, from which it holds",
            "gemms": "whether it holds for all GEMMs or for the forward products only",
        },
    ),
    "Override": (
        "Each of `overrides`",
        {
            "blocks": "numbers from 0, ranges such as `0-1`, `first 2`, `last 2`; empty: all",
            "projections": "layers of a block; empty: all",
            "gemms": "GEMMs of a layer; empty: all",
            "recipe": "the recipe that these GEMMs use",
            "switches": "changes to single parts of it",
            "from_step": "the step from which the rule holds",
        },
    ),
    "Model": (
        "`model`",
        {
            "preset": "a shape by name; the other keys change parts of it",
            "vocab_size": "number of token ids",
            "d_model": "width of the residual stream",
            "n_layers": "number of blocks",
            "n_heads": "query heads of a block",
            "n_kv_heads": "key-value heads of a block",
            "d_ff": "width of the MLP",
            "rope_theta": "base of the rotary frequencies",
            "tied_embeddings": "use the input embedding for the logits",
            "head_dim": "size of a head; `d_model / n_heads` by default",
            "qk_norm": "normalize queries and keys of each head (RMSNorm with a gain), before the "
            "rotary positions",
        },
    ),
    "Data": (
        "`data`",
        {
            "source": "where the tokens come from, see above",
            "path": "file or folder on the worker, inside its `PARITY_DATA_ROOTS`",
            "sequence_length": "tokens of a sequence",
            "batch_size": "sequences of a batch",
            "validation_fraction": "share of the tokens, at their end, that is held out",
            "dtype": "type of a `.bin` file; `uint16` by default, `uint32` for a vocabulary above "
            "65,536",
        },
    ),
    "Schedule": (
        "`schedule`",
        {
            "steps": "planned steps of a run",
            "learning_rate": "peak learning rate",
            "warmup_steps": "steps of linear warm-up; cosine decay follows, unless `decay_steps` "
            "is set",
            "final_fraction": "final learning rate as a share of the peak",
            "beta1": "decay of AdamW's first moment",
            "beta2": "decay of AdamW's second moment",
            "weight_decay": "weight decay of AdamW",
            "clip_norm": "largest norm of the gradient",
            "z_loss": "weight of the z-loss; it is not judged",
            "validation_every": "steps between two evaluations of the held-out loss; 0: never",
            "statistics_every": "steps between two records of each layer's quantization; 0: never",
            "gradients_every": "steps between two comparisons of each weight's gradient with the "
            "unquantized one; 0: never",
            "decay_steps": "steps at the end in which the rate falls in a straight line, after a "
            "stable phase at its peak; 0: cosine",
            "optimizer": "`muon` orthogonalizes the momentum of linear layers; embeddings and "
            "norms keep AdamW",
        },
    ),
    "ShortReruns": (
        "`short_reruns`",
        {
            "runs": "short reruns per arm, 1 to 16",
            "stop_at": "share of the steps after which they stop, 0.4 to 0.9",
        },
    ),
    "BaselineChoice": (
        "`baseline:` of the file",
        {
            "name": "a promoted baseline whose runs replace those of the job's own: "
            "[baselines](jobs.md)",
            "version": "its version; the newest by default",
            "reuse": "let the job's own baseline reuse the curve of an equal earlier run",
        },
    ),
}


def keys() -> str:
    """One section per part of a job file, one row per key."""
    definitions = job_file_schema()["$defs"]
    return "\n\n".join(
        f"### {title}\n\n{_table(definitions[name], meanings)}"
        for name, (title, meanings) in PARTS.items()
    )


def _table(schema: Mapping[str, Any], meanings: Mapping[str, str]) -> str:
    rows = (
        f"| `{name}` | {_default(key)} | {_values(key)} | {meanings[name]} |"
        for name, key in schema["properties"].items()
    )
    return "\n".join(
        ["| key | default | values | what it sets |", "| --- | --- | --- | --- |", *rows]
    )


def _default(key: Mapping[str, Any]) -> str:
    """The default of a key as YAML has it; empty for none, and for a mapping, whose keys have their
    own.
    """
    default = key.get("default")
    if default in (None, "", []) or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _values(key: Mapping[str, Any]) -> str:
    """The values of a key, from its type in the schema."""
    kinds = [kind for kind in key.get("anyOf", [key]) if kind.get("type") != "null"]
    if any("enum" in kind for kind in kinds):
        words = next(kind["enum"] for kind in kinds if "enum" in kind)
        return "a recipe" if "nvfp4" in words else ", ".join(f"`{word}`" for word in words)
    kind = kinds[0].get("type", "object")
    return {
        "array": "a list",
        "boolean": "`true`, `false`",
        "integer": "whole number",
        "number": "number",
        "object": "keys below",
    }.get(kind, "text")


def presets() -> str:
    """One row per preset: its number of parameters."""
    rows = (f"| `{name}` | {Model(preset=name).parameters:,} |" for name in PRESETS)
    return "\n".join(["| preset | parameters |", "| --- | ---: |", *rows])


TABLE = GeneratedTable(
    name="job_file", parts={DOCS / "job-file.md": {"keys": keys, "presets": presets}}
)

"""What a run takes of each device's memory, and of the disk, from its specification alone: before
anybody waits for machines on which it can't train.

    weights, optimizer, batch  as the trainer lays them out: MaxText's to the byte
    gradients                  as large as the weights; twice where they are accumulated
    kept                       of each layer for its backward pass, by the remat policy
    logits                     a device's tokens times the vocabulary, in float32
    working                    beside them: the gradient of the logits, and the wider of the head
                               and a layer at work, with their weights whole

`least` leaves `working` out: it is what every compiler holds at one time, so a run whose least
exceeds the device can't train there. `likely` is the sum of all. Compiled ahead of time for CPUs,
the step of MaxText 0.2.5 took 0.92 to 1.15 times as much in 15 configurations of up to 405 B
parameters on 128 devices, three of them of Muon, and what is not to the byte 0.90 to 1.20 times
(tests/data/maxtext_memory.json); `most` is 1.2 times as much.

The assumptions that can fail: a CPU multiplies in float32 and fuses no attention, where a GPU holds
bfloat16 and no scores, so `working` is rather too large for a GPU; the workspaces of Transformer
Engine and cuBLAS, the quantized copies of operands, and NCCL's buffers are not in it. Standard
library only, because the web process imports this module.

Source of MaxText's layout: 0.2.5, `logical_axis_rules` of configs/base.yml, `get_remat_policy` of
layers/nnx_decoders.py, utils/gradient_accumulation.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations, product
from typing import Any

from training.environment import maxtext_mesh
from training.environment.maxtext_options import sizes
from training.frozen import frozen
from training.modelled_gemm_time import weights
from training.rules import SpecError
from training.spec import Model, RunSpec
from training.step_values import PROJECTIONS

MAXTEXT_CHECKPOINTS = 3
_FLOAT32, _BFLOAT16, _INT32 = 4, 2, 4
_BATCH_ARRAYS = 6  # inputs and targets, each with positions and segments
_SCORE_ARRAYS = 1  # of attention that is not fused, in float32
_MUON_COPIES = 4  # of the largest stack of weights, whole, while it is orthogonalized
_MOST_OF_LIKELY = 1.2
_BESIDE_LEAST = 1.5  # of our own trainer: on CPUs XLA took 1.8 to 3.5 times the least in all
_CHECKPOINT_BYTES = 12  # of a parameter: itself and two moments, in float32
_QKV = ("query", "key", "value")
# What a remat policy keeps of a layer beside its input, by the projection whose output it is.
_KEPT: Mapping[str, tuple[str, ...]] = {
    "full": (),
    "save_out_proj": ("out",),
    "save_qkv_proj": _QKV,
    "save_dot_except_mlp": (*_QKV, "out"),
    "save_dot_except_mlpwi": (*_QKV, "out", "down"),
    "save_dot_with_context_except_mlp": (*_QKV, "context", "out"),
    "minimal": PROJECTIONS,
    "minimal_with_context": (*PROJECTIONS, "context"),
    "minimal_with_quantization": PROJECTIONS,
    "minimal_with_context_and_quantization": (*PROJECTIONS, "context"),
}


Change = tuple[str, Callable[[RunSpec], RunSpec]]


@frozen
class Memory:
    """Bytes on each device, as above."""

    weights: int
    optimizer: int
    batch: int
    gradients: int
    kept: int
    logits: int
    working: int

    @property
    def least(self) -> int:
        """What every compiler holds at one time."""
        return self.likely - self.working

    @property
    def likely(self) -> int:
        """What the run takes, as far as a formula says."""
        return sum(asdict(self).values())

    @property
    def most(self) -> int:
        """As `likely`, with the largest error that compiling has shown."""
        return round(_MOST_OF_LIKELY * self.likely)


@frozen
class Disk:
    """Checkpoints of a run while it trains: how many, and the bytes of each."""

    checkpoints: int
    bytes_each: int


def memory(run: RunSpec, slices: Sequence[int] = ()) -> Memory | None:
    """What a run takes of each device; None where its model is known only by a name of MaxText's,
    and of a trainer of the user's own. `slices`: the number of devices on each node, by default one
    node.

    Raises MeshError where MaxText can't lay its arrays over these devices.
    """
    if run.engine == "maxtext":
        return None if run.maxtext.model_name else _maxtext_memory(run, slices or (run.devices,))
    return _of_our_trainer(run) if run.engine in ("emulated", "transformer_engine") else None


def disk(run: RunSpec, keeps: int = 0) -> Disk | None:
    """Checkpoints of a run; `keeps` of them for forks. None as for `memory`."""
    if run.engine not in ("maxtext", "emulated", "transformer_engine") or run.maxtext.model_name:
        return None
    newest = MAXTEXT_CHECKPOINTS
    if run.engine == "maxtext":
        every = run.schedule.validation_every
        if run.data.source != "grain":
            newest = 0
        elif every:
            newest = run.schedule.steps // every + 1
        newest += 1  # of step 0
    return Disk(checkpoints=newest + keeps, bytes_each=_CHECKPOINT_BYTES * run.model.parameters)


def smaller(run: RunSpec, slices: Sequence[int] = ()) -> Iterator[tuple[str, RunSpec]]:
    """Runs with the same model, data and schedule that take less of each device, each with the
    changes of the job file that make it; those with one change first.
    """
    kinds = [
        kind
        for kind in (_accumulated(run), _recomputed(run), _tiled(run), _divided(run, slices))
        if kind
    ]
    for number in range(1, len(kinds) + 1):
        for together in combinations(kinds, number):
            for changes in product(*together):
                changed = run
                try:
                    for _, change in changes:
                        changed = change(changed)
                except SpecError:  # such as a piece of a batch that tiling can't cut
                    continue
                yield ", ".join(words for words, _ in changes), changed


def _accumulated(run: RunSpec) -> list[Change]:
    most = run.data.batch_size // run.devices
    return [
        (f"gradient_accumulation: {pieces}", partial(replace, gradient_accumulation=pieces))
        for pieces in range(run.gradient_accumulation + 1, most + 1)
        if most % pieces == 0
    ]


def _recomputed(run: RunSpec) -> list[Change]:
    if run.engine != "maxtext":
        return [] if run.remat else [("remat: true", partial(replace, remat=True))]
    options = run.maxtext
    if {options.remat_policy, options.quantized_remat_policy} <= {"full", None}:
        return []
    return [("maxtext.remat_policy: full", _with(remat_policy="full", quantized_remat_policy=None))]


def _tiled(run: RunSpec) -> list[Change]:
    if run.engine != "maxtext":
        return []
    return [
        (f"maxtext.num_vocab_tiling: {tiles}", _with(num_vocab_tiling=tiles))
        for tiles in (2, 4, 8, 16)
        if tiles > run.maxtext.num_vocab_tiling
    ]


def _divided(run: RunSpec, slices: Sequence[int]) -> list[Change]:
    if run.engine != "maxtext" or len(slices) < 2 or run.maxtext.dcn_fsdp_parallelism != 1:
        return []
    return [
        (
            "maxtext.dcn_fsdp_parallelism: -1",
            _with(dcn_data_parallelism=1, dcn_fsdp_parallelism=-1),
        )
    ]


def _with(**options: Any) -> Callable[[RunSpec], RunSpec]:
    return lambda run: replace(run, maxtext=replace(run.maxtext, **options))


def _maxtext_memory(run: RunSpec, slices: Sequence[int]) -> Memory:
    model, options = run.model, run.maxtext
    mesh = maxtext_mesh.filled(sizes(options), slices)
    context, tensor = mesh["ici_context_parallelism"], mesh["ici_tensor_parallelism"]
    fsdp = mesh["ici_fsdp_parallelism"] * mesh["dcn_fsdp_parallelism"]
    rows = mesh["ici_data_parallelism"] * mesh["dcn_data_parallelism"] * fsdp
    divided = _Divided(model, embed=fsdp * context, tensor=tensor)
    tokens_of_a_step = run.data.tokens_per_step // (rows * context)
    tokens = tokens_of_a_step // run.gradient_accumulation
    kept = sum(_outputs(model)[name] for name in _KEPT[options.remat_policy])
    logits = _FLOAT32 * tokens * model.vocab_size // (tensor * options.num_vocab_tiling)
    head = 2 + (options.num_vocab_tiling > 1)  # itself, its gradient, and a tile's
    kept_bytes = _BFLOAT16 * tokens * model.n_layers * (model.d_model + kept) // tensor
    return Memory(
        weights=_FLOAT32 * divided.parameters,
        optimizer=_FLOAT32 * divided.moments(run.schedule.optimizer),
        batch=_BATCH_ARRAYS * _INT32 * tokens_of_a_step,
        gradients=_FLOAT32 * divided.parameters * (2 if run.gradient_accumulation > 1 else 1),
        kept=kept_bytes,
        logits=logits,
        working=logits
        + max(
            head * _FLOAT32 * model.d_model * model.vocab_size // tensor,
            2 * _FLOAT32 * divided.of_a_layer + _layer_at_work(run, tokens) // tensor,
        )
        + max(0, _orthogonalized(run) - kept_bytes),  # which is free again by then
    )


class _Divided:
    """The parameters that a device has of a model whose embedding axis is divided by `embed`, and
    whose heads, MLP and vocabulary are by `tensor`. Raises MeshError for sizes that can't be.
    """

    def __init__(self, model: Model, embed: int, tensor: int) -> None:
        for field, size, parts, axes in (
            ("d_model", model.d_model, embed, "fsdp x context"),
            ("vocab_size", model.vocab_size, tensor, "tensor"),
            ("n_kv_heads", model.n_kv_heads, tensor, "tensor"),
            ("d_ff", model.d_ff, tensor, "tensor"),
        ):
            if size % parts:
                raise maxtext_mesh.MeshError(
                    f"model.{field} is {size}, expected a multiple of {parts}, the {axes} sizes "
                    "over which MaxText divides it"
                )
        self.of_a_layer = sum(weights(model).values()) // tensor
        self._linear = model.n_layers * self.of_a_layer // embed
        tables = 1 if model.tied_embeddings else 2
        self._rest = (
            tables * model.vocab_size * model.d_model // (embed * tensor)
            + (2 * model.n_layers + 1) * model.d_model // tensor
        )

    @property
    def parameters(self) -> int:
        return self._linear + self._rest

    def moments(self, optimizer: str) -> int:
        """Of Muon the weights of linear layers have one."""
        return 2 * self.parameters - (self._linear if optimizer == "muon" else 0)


def _outputs(model: Model) -> dict[str, int]:
    """How many values a token has at the output of each projection, and of attention."""
    queries, values = (heads * model.head_size for heads in (model.n_heads, model.n_kv_heads))
    return {
        "query": queries,
        "key": values,
        "value": values,
        "context": queries,
        "out": model.d_model,
        "gate": model.d_ff,
        "up": model.d_ff,
        "down": model.d_model,
    }


def _layer_at_work(run: RunSpec, tokens: int) -> int:
    """Bytes of what a layer computes again for its backward pass, before they are divided."""
    model = run.model
    # the outputs, two norms, and the product of gate and up
    values = sum(_outputs(model).values()) + 2 * model.d_model + model.d_ff
    fused = run.maxtext.attention != "dot_product" and run.maxtext.hardware != "cpu"
    row = 0 if fused else model.n_heads * run.data.sequence_length
    return tokens * (_BFLOAT16 * values + _SCORE_ARRAYS * _FLOAT32 * row)


def _orthogonalized(run: RunSpec) -> int:
    if run.schedule.optimizer != "muon":
        return 0
    return _MUON_COPIES * _FLOAT32 * run.model.n_layers * max(weights(run.model).values())


def _of_our_trainer(run: RunSpec) -> Memory:
    model, length = run.model, run.data.sequence_length
    tokens = run.data.tokens_per_step // (run.gradient_accumulation * run.devices)
    # bfloat16 activations, and a row of attention weights for every head
    kept = 0
    if not run.remat:
        kept = (
            _BFLOAT16 * (2 * (model.d_model + model.n_heads * model.head_size) + 3 * model.d_ff)
            + _FLOAT32 * model.n_heads * length
        )
    linear = model.n_layers * sum(weights(model).values())
    moments = 2 * model.parameters - (linear if run.schedule.optimizer == "muon" else 0)
    least = Memory(
        weights=_FLOAT32 * model.parameters,
        optimizer=_FLOAT32 * moments,
        batch=_INT32 * tokens,
        gradients=_FLOAT32 * model.parameters,
        kept=kept * model.n_layers * tokens,
        logits=2 * _FLOAT32 * model.vocab_size * tokens,  # with their gradient
        working=0,
    )
    return replace(least, working=round(_BESIDE_LEAST * least.least))

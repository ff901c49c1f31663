"""The MaxText options that a job may set, with types. No other option reaches MaxText's command
line.

MaxText reads `key=value` arguments as YAML with interpolation (`${oc.env:NAME}` would print a
variable of the worker), so text may only contain characters without a meaning there. Standard
library only, because the web process imports this module.

Source: MaxText 0.2.5, configs/base.yml and configs/types.py.
"""

import re
from dataclasses import asdict, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from training.environment import maxtext_mesh
from training.frozen import frozen
from training.rules import SpecError, Strict

Hardware = Literal["cpu", "gpu", "gpu_multiprocess"]
Implementation = Literal["te", "xla"]
RematPolicy = Literal[
    "full",
    "minimal",
    "minimal_with_context",
    "minimal_with_quantization",
    "minimal_with_context_and_quantization",
    "save_qkv_proj",
    "save_out_proj",
    "save_dot_except_mlp",
    "save_dot_except_mlpwi",
    "save_dot_with_context_except_mlp",
]
_TEXT = re.compile(r"[A-Za-z0-9_./:@+*][A-Za-z0-9_./:@+*-]*")
# MaxText's name of each recipe, by the library that computes the products.
QUANTIZATION: dict[str, dict[str, str]] = {
    "te": {
        "bf16": "",
        "fp8_current": "te_fp8_currentscaling",
        "fp8_delayed": "te_fp8_delayedscaling",
        "mxfp8": "te_mxfp8",
        "nvfp4": "te_nvfp4",
        "nvfp4_no_rht": "te_nvfp4_no_rht",
    },
    "xla": {"bf16": "", "fp8_delayed": "fp8"},
}


def check_text(field: str, value: str) -> str:
    """Returns the text unchanged; raises SpecError if MaxText's command line would interpret a
    character of it.
    """
    if value and not _TEXT.fullmatch(value):
        raise SpecError(
            field,
            value,
            "letters, digits and _ . / : @ + * -, because MaxText's command line interprets other "
            "characters",
        )
    return value


def _check(field: str, value: object, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise SpecError(field, value, f"one of {', '.join(map(str, get_args(hint)))}")
    elif hint is str:
        if not isinstance(value, str):
            raise SpecError(field, value, "a text")
        check_text(field, value)
    elif hint in (int, bool):
        if type(value) is not hint:
            raise SpecError(field, value, "true or false" if hint is bool else "a whole number")
        if hint is int and not -1 <= int(str(value)) < 2**31:
            raise SpecError(field, value, "a whole number from -1 to 2147483647")
    elif value is not None:  # X | None, where X is a Literal
        _check(field, value, get_args(hint)[0])


@frozen
class MaxTextOptions(Strict):
    """Settings of engine maxtext, the same for every arm except `quantized_remat_policy`, which
    quantized arms use and record.

    `implementation` selects the products: te for Transformer Engine's recipes (GPUs only), xla for
    MaxText's own fp8, which also runs on a CPU. `model_name` selects one of MaxText's models
    instead of the dimensions in `model`. `ici_` sizes of the mesh lie within a node, `dcn_` sizes
    across nodes; -1 is what the worker's nodes leave. `num_vocab_tiling` cuts the logits of a
    device into so many pieces, of which it holds one at a time.
    """

    hardware: Hardware = "gpu"
    implementation: Implementation = "te"
    model_name: str = ""
    tokenizer_path: str = ""
    tokenizer_type: Literal["sentencepiece", "tiktoken", "huggingface"] = "sentencepiece"
    packing: bool = True
    num_epoch: int = 1
    grain_file_type: Literal["arrayrecord", "parquet", "tfrecord"] = "arrayrecord"
    grain_worker_count: int = 1
    hf_name: str = ""
    hf_data_dir: str = ""
    hf_train_files: str = ""
    dataset_name: str = ""
    train_split: str = "train"
    attention: Literal["autoselected", "dot_product", "flash", "cudnn_flash_te"] = "autoselected"
    scan_layers: bool = True
    remat_policy: RematPolicy = "full"
    quantized_remat_policy: RematPolicy | None = None
    ici_data_parallelism: int = 1
    ici_fsdp_parallelism: int = -1
    ici_tensor_parallelism: int = 1
    ici_context_parallelism: int = 1
    dcn_data_parallelism: int = 1
    dcn_fsdp_parallelism: int = 1
    num_vocab_tiling: int = 1
    checkpoint_period: int = 1000
    eval_path: str = ""
    eval_steps: int = 20
    record_internal_nn_metrics: bool = False

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for option in fields(self):
            _check(f"maxtext.{option.name}", getattr(self, option.name), hints[option.name])
        if self.checkpoint_period < 1:
            raise SpecError(
                "maxtext.checkpoint_period", self.checkpoint_period, "a number of steps from 1"
            )
        if self.hardware == "cpu" and self.attention in ("flash", "cudnn_flash_te"):
            raise SpecError(
                "maxtext.attention",
                self.attention,
                "autoselected or dot_product with hardware: cpu",
            )

    def document(self) -> dict[str, Any]:
        """The options as a JSON-able dict; what came later only if it is set, so that the hash of a
        job is that of earlier versions.
        """
        later = ("num_vocab_tiling",) if self.num_vocab_tiling == 1 else ()
        return {name: value for name, value in asdict(self).items() if name not in later}


NO_OPTIONS = MaxTextOptions()


def check_maxtext(spec: Any) -> None:
    """Raises SpecError if a JobSpec or RunSpec for engine maxtext needs what MaxText can't do, or
    another engine's sets its options.
    """
    options: MaxTextOptions = spec.maxtext
    if spec.engine != "maxtext":
        if options != NO_OPTIONS and spec.engine != "external":
            raise SpecError(
                "maxtext", "set", f"nothing under engine {spec.engine}", "use engine: maxtext"
            )
        return
    check_text("data.path", spec.data.path or "")
    _check_evaluation(spec, options)
    if spec.schedule.statistics_every:
        raise SpecError(
            "schedule.statistics_every",
            spec.schedule.statistics_every,
            "0 under engine maxtext",
            "MaxText has no statistics of the quantization; maxtext.record_internal_nn_metrics "
            "records each layer's output",
        )
    if spec.model.qk_norm:
        remedy = (
            "the decoder block that it trains with our dimensions has none; use engine: emulated"
        )
        raise SpecError("model.qk_norm", spec.model.qk_norm, "false under engine maxtext", remedy)
    maxtext_mesh.check_sizes(
        sizes(options), spec.devices, one_slice=options.hardware != "gpu_multiprocess"
    )
    _check_tiling(spec, options)


def _check_tiling(spec: Any, options: MaxTextOptions) -> None:
    tokens = spec.data.tokens_per_step // (spec.devices * spec.gradient_accumulation)
    if options.num_vocab_tiling < 1 or tokens % options.num_vocab_tiling:
        raise SpecError(
            "maxtext.num_vocab_tiling",
            options.num_vocab_tiling,
            f"a divisor of the {tokens:,} tokens that a device has at a time",
        )


def _check_evaluation(spec: Any, options: MaxTextOptions) -> None:
    every = spec.schedule.validation_every
    if options.eval_steps < 1:
        raise SpecError("maxtext.eval_steps", options.eval_steps, "a number of batches from 1")
    if every and (not options.eval_path or spec.data.source != "grain"):
        raise SpecError(
            "schedule.validation_every",
            every,
            "0 under engine maxtext, or data.source: grain and maxtext.eval_path",
            "MaxText evaluates checkpoints, which it saves only with grain, on the files of "
            "maxtext.eval_path",
        )


def sizes(options: MaxTextOptions) -> dict[str, int]:
    """The sizes of the mesh by option. Where a job divides nothing across nodes, each node trains
    on a share of the batch: no other mesh is possible on several.
    """
    stated = {name: getattr(options, name) for name in (*maxtext_mesh.ICI, *maxtext_mesh.DCN)}
    if all(stated[name] == 1 for name in maxtext_mesh.DCN):
        stated["dcn_data_parallelism"] = maxtext_mesh.OPEN
    return stated


def quantization(field: str, recipe: str, options: MaxTextOptions) -> str:
    """Returns MaxText's `quantization` for a recipe; raises SpecError if it has none."""
    names = QUANTIZATION[options.implementation]
    if recipe not in names:
        if options.implementation == "xla":
            remedy = "MaxText's own fp8 is fp8_delayed"
        else:
            remedy = "see docs/maxtext.md"
        raise SpecError(
            field,
            recipe,
            f"one of {', '.join(names)} with maxtext.implementation: {options.implementation}",
            remedy,
        )
    if options.hardware == "cpu" and names[recipe].startswith("te_"):
        raise SpecError(
            "maxtext.implementation",
            "te",
            "xla with maxtext.hardware: cpu",
            "Transformer Engine's kernels need an NVIDIA GPU",
        )
    return names[recipe]

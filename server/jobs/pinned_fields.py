"""Which fields of a request a gate with pinned rules may choose, each with the reason why that
can't help a worse candidate.

Every field of a job file, a request, a statement and a run has an entry here (a test derives them
from the classes). What has no entry is pinned: it has to be as in the operator's job file.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from parity.frozen import frozen
from parity.judging.policy import Policy
from server.jobs.added_runs import AddedRunRequest
from server.jobs.baselines import BaselineChoice
from server.jobs.external import AttachRequest
from server.jobs.projects import RunRequest
from server.jobs.statements import StatementRequest
from training.command import Command
from training.environment.maxtext_options import MaxTextOptions
from training.later_recipe import LaterRecipe
from training.overrides import Override
from training.spec import ArmSpec, Data, JobSpec, Model, Projections, Schedule, ShortReruns
from training.switches import Switches

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = Literal["pinned", "free", "at least", "at most", "these or more", "base and head"]


@frozen
class Choice:
    """What a gate may make of a field: `pinned`, or another kind with the reason why it can't help
    a worse candidate.
    """

    kind: Kind
    reason: str = ""


def _free(reason: str) -> Choice:
    return Choice(kind="free", reason=reason)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PINNED = Choice(kind="pinned")
# The parts of a request by the names that they have in a job file.
PARTS: Mapping[str, type["DataclassInstance"]] = {
    "job": JobSpec,
    "arm": ArmSpec,
    "switches": Switches,
    "then": LaterRecipe,
    "overrides": Override,
    "model": Model,
    "data": Data,
    "schedule": Schedule,
    "projections": Projections,
    "maxtext": MaxTextOptions,
    "short_reruns": ShortReruns,
    "command": Command,
    "policy": Policy,
    "baseline": BaselineChoice,
    "statement": StatementRequest,
    "attach": AttachRequest,
    "add_run": AddedRunRequest,
    "project": RunRequest,
}
REQUEST = "request"
QUESTION_PARTS = ("job", "arm", "policy")  # whose free fields an operator can pin, too
FREE: Mapping[str, Mapping[str, Choice]] = {
    "job": {
        "name": _free("a label: the looks at a question are counted whatever its jobs are called")
    },
    "arm": {
        "replicates": Choice(
            kind="at least", reason="more runs narrow the interval around the true gap"
        ),
        "revision": Choice(
            kind="base and head",
            reason="engine `command`: which commits are compared, in the roles that the "
            "operator's file gives them",
        ),
    },
    "policy": {
        "margin": Choice(
            kind="at most",
            reason="what passes by a smaller margin passes by the pinned one, and more fails",
        ),
        "profile": Choice(kind="at most", reason="the smallest margin decides"),
        "looks": Choice(kind="at most", reason="fewer looks are fewer chances"),
        "checks": Choice(kind="these or more", reason="a further check can only take a pass away"),
    },
    REQUEST: {
        "priority": _free("when runs train, not what; above 0 needs scope `admin`"),
        "tags": _free("a label"),
        "branch": _free("a label"),
        "revision": _free(
            "names the code; another name after a verdict that is no pass is a further look"
        ),
        "max_age_days": Choice(
            kind="at most", reason="a younger verdict, or a new one, which is a further look"
        ),
        "fresh": _free("trains again, which is a further look"),
        "lookup": _free("only reads what is recorded"),
        "group": _free(
            "whose superseded jobs are cancelled; a job without a verdict passes nothing"
        ),
    },
    "attach": {
        "manifest": _free(
            "a fact that differs between the arms blocks a pass; equal ones are needed anyway"
        ),
        "after": _free("fences a trainer that was replaced; no loss depends on it"),
    },
    "add_run": {
        "runs": _free(
            "a further run of each arm; after a candidate has trained it takes a registered look"
        )
    },
}
# Every other field: it has to be as in the operator's file, or is refused.
PINNED_NAMES: Mapping[str, frozenset[str]] = {
    "job": _names(
        "baseline candidates engine layer_policy model data schedule seed devices keep_first "
        "keep_last projections gradient_accumulation remat maxtext short_reruns family "
        "keep_checkpoints command"
    ),
    "arm": _names("recipe name switches overrides then environment against"),
    "switches": _names(
        "stochastic_rounding rht weight_scaling block_size gradient_format margin "
        "amax_history_len amax_compute_algo row_scaled_activation nvfp4_4over6 "
        "nvfp4_4over6_e4m3_use_256 nvfp4_4over6_err_mode sr_bits nan"
    ),
    "then": _names("recipe from_step gemms"),
    "overrides": _names("blocks projections gemms recipe switches from_step"),
    "model": _names(
        "preset vocab_size d_model n_layers n_heads n_kv_heads d_ff rope_theta tied_embeddings "
        "head_dim qk_norm"
    ),
    "data": _names("source path sequence_length batch_size validation_fraction dtype"),
    "schedule": _names(
        "steps learning_rate warmup_steps final_fraction beta1 beta2 weight_decay clip_norm "
        "z_loss validation_every statistics_every gradients_every decay_steps optimizer"
    ),
    "projections": _names("query key value out gate up down"),
    "maxtext": _names(
        "hardware implementation model_name tokenizer_path tokenizer_type packing num_epoch "
        "grain_file_type grain_worker_count hf_name hf_data_dir hf_train_files dataset_name "
        "train_split attention scan_layers remat_policy quantized_remat_policy "
        "ici_data_parallelism ici_fsdp_parallelism ici_tensor_parallelism "
        "ici_context_parallelism dcn_data_parallelism dcn_fsdp_parallelism checkpoint_period "
        "eval_path eval_steps record_internal_nn_metrics num_vocab_tiling"
    ),
    "short_reruns": _names("runs stop_at"),
    "command": _names("launcher parameters"),
    "policy": _names(
        "confidence window_fraction min_points assumed_noise two_sided pairing baseline_run_noise "
        "candidate_run_noise run_noise_df run_noise_evidence may_differ accuracy_margin_points "
        "early_stop validation question schedule start as_of wide_margin loss_unit"
    ),
    "baseline": _names("name version reuse"),
    "statement": _names("recipe rounding seeds planned_steps tokens_per_step family"),
    "attach": _names("recipe rounding"),
    "add_run": frozenset(),
    "project": _names("project arm baseline seed recipe planned_steps"),
    REQUEST: _names("max_run_seconds"),
}


def choice(part: str, name: str) -> Choice:
    """What a gate may make of a field of a part of its request."""
    return FREE.get(part, {}).get(name, PINNED)


def free_names() -> tuple[str, ...]:
    """The fields of a question that are not pinned, as a rules file names them: `job.name`,
    `arm.replicates`.
    """
    return tuple(f"{part}.{name}" for part in QUESTION_PARTS for name in FREE[part])

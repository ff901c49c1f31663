"""What the next step of a verdict names, as a patch that does it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from parity.frozen import frozen
from parity.judging.document_types import VerdictDocument
from parity.judging.gap.chances import PAIRS, chances_of
from parity.judging.recipe_changes import Change
from parity.judging.verdict.advice import named_change
from parity.report.answer import advising
from parity.report.view import TrainingView, views_of
from parity.wording import count, likely
from server.database.states import JUDGED_IN_VAIN
from server.database.tables import Job
from server.errors import StoredFormError
from server.jobs.fingerprint import job_spec
from server.jobs.job_kinds import kind_of
from server.jobs.verdict_rows import verdict_documents
from training.command import ENGINE as COMMAND
from training.gemm_sizes import ATTENTION
from training.overrides import Override, document
from training.rules import SpecError
from training.spec import ArmSpec, JobSpec
from training.step_values import PROJECTIONS

_LAST, _FIRST = 8 / 62, 2 / 62  # of the blocks, as in the 12 B model of arXiv 2509.25149


@frozen
class Proposal:
    """A new job that the next step of a verdict names: what to call it, and the patch that makes
    it.
    """

    label: str
    patch: Mapping[str, Any]


def proposal(job: Job) -> Proposal | None:
    """What the next step of a job names: of one that failed the same job again, else what its
    verdicts advise. None where that is no recipe and no run, or the job's engine cannot do it.
    """
    if job.engine == "external" or kind_of(job) is not None:
        return None
    if job.status == "failed" and job.code not in JUDGED_IN_VAIN:
        return Proposal(label="Queue it again", patch={})
    if not job.verdicts:
        return None
    documents = verdict_documents(job)
    view = advising(views_of(documents))
    try:
        spec = job_spec(job)
    except StoredFormError:  # of a version whose specifications this one cannot read
        return None
    if not isinstance(view, TrainingView):  # no verdict names a step
        return None
    verdict = view.document
    if verdict["verdict"] == "fail":
        return _try(spec, verdict, job.spec.get("layer_policy"))
    return _more_runs(job, spec, documents, verdict)


def _try(spec: JobSpec, verdict: VerdictDocument, layer_policy: str | None) -> Proposal | None:
    """The candidate with the change that the next step of its fail names."""
    arm = next(arm for arm in spec.candidates if arm.name == verdict["candidate"]["name"])
    if spec.engine == COMMAND:  # its recipes are a launcher's
        return None
    changed = _changed(spec, named_change(verdict, layer_policy))
    if changed is None:
        return None
    what, suffix, override = changed
    try:
        tried = replace(
            arm,
            name=f"{arm.name[: 63 - len(suffix)]}-{suffix}",
            overrides=(*arm.overrides, override),
        )
        replace(spec, candidates=(tried,))
    except SpecError:  # the engine has no setting by block, or the blocks are in bf16 already
        return None
    arm_fields = {
        "recipe": arm.recipe,
        "name": tried.name,
        "replicates": arm.replicates,
        "overrides": [document(layer) for layer in tried.overrides],
    }
    written = {name: value for name, value in _written(spec, arm).items() if name not in arm_fields}
    return Proposal(
        label=f"Try {arm.name}, {what} in bf16",
        patch={"job": {"candidates": [{**written, **arm_fields}]}},
    )


def _changed(spec: JobSpec, change: Change | None) -> tuple[str, str, Override] | None:
    """What goes to bf16 in words, the end of the new arm's name, and the override that does it."""
    blocks = spec.model.n_layers
    last, first = (max(1, round(share * blocks)) for share in (_LAST, _FIRST))
    if change == "last blocks in bf16" and blocks > last:
        return (
            f"last {count(last, 'block')}",
            f"last{last}-bf16",
            Override(recipe="bf16", blocks=(f"last {last}",)),
        )
    if change == "first and last blocks in bf16" and blocks > first + first:
        where = f"first and last {count(first, 'block')}" if first > 1 else "first and last block"
        return (
            where,
            f"ends{first}-bf16",
            Override(recipe="bf16", blocks=(f"first {first}", f"last {first}")),
        )
    if change == "MLP layers only":
        return (
            "attention layers",
            "mlp-only",
            Override(
                recipe="bf16", projections=tuple(name for name in PROJECTIONS if name in ATTENTION)
            ),
        )
    return None


def _written(spec: JobSpec, arm: ArmSpec) -> Mapping[str, Any]:
    """An arm as the document of its job has it."""
    written: Mapping[str, Any] = spec.document()["candidates"][spec.candidates.index(arm)]
    return written


def _more_runs(
    job: Job, spec: JobSpec, documents: Sequence[VerdictDocument], verdict: VerdictDocument
) -> Proposal | None:
    """The runs that the verdict asks for, in a further look, while a registered one is left.

    A look after a pass is refused, as is one after a fail by anything but the gap, so that only
    undecided candidates are in it.
    """
    advice, shared, chances = verdict["advice"], verdict.get("multiplicity"), chances_of(verdict)
    base, cand = advice["add_baseline_runs"] or 0, advice["add_candidate_runs"] or 0
    if (
        shared is None
        or shared["look"] >= shared["looks"]
        or job.named is not None
        or not base + cand
    ):
        return None
    undecided = {
        other["candidate"]["name"] for other in documents if other["verdict"] == "inconclusive"
    }
    names = [arm.name for arm in spec.candidates if arm.name in undecided]
    arms = [
        {**_written(spec, arm), "replicates": arm.replicates + cand}
        for arm in spec.candidates
        if arm.name in undecided
    ]
    whose = (base, spec.baseline.name), (cand, names[0] if len(names) == 1 else "each candidate")
    label = "Add " + " and ".join(f"{count(runs, 'run')} of {name}" for runs, name in whose if runs)
    if base == cand == PAIRS and chances is not None:
        label = f"Add a pair of runs: decides with {likely(chances['pass'] + chances['fail'])}"
    return Proposal(
        label=label,
        patch={
            "job": {"baseline": {"replicates": spec.baseline.replicates + base}, "candidates": arms}
        },
    )

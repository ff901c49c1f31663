"""What a job can decide before it trains: its design, with what the record knows.

Run-to-run noise is borrowed from reruns on record as the job's verdicts would (`noise_table`). The
loss and the step time are those of the newest sound run of a baseline arm that trained the same
specification (any seed and replicate), or of the baseline that the job names; with neither the
chances are shares of the loss. Jobs of engine external know only the latter, because their
specification does not determine what is trained. The runs of a named baseline count like new ones;
all its controls count, though the judge may leave one out.
"""

from collections.abc import Sequence

import numpy as np
from sqlalchemy.orm import Session

from parity.design.chances import NO_FAMILIES
from parity.design.experiment import BASELINE, CANDIDATE, DEFAULT_STOP, Design
from parity.design.plan import Plan, plan
from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy
from server.database.metrics import store
from server.database.tables import Arm, Job, Run
from server.jobs.baselines import NamedBaseline
from server.jobs.fingerprint import run_spec, spec_differences, trained_runs, unsound
from server.jobs.imported_noise import named_noise_table
from server.jobs.noise_tables import borrowed_noise_table, family_in, newest_family
from training.rules import OTHERS_TRAINERS
from training.spec import ArmSpec, JobSpec

MOST_CANDIDATES = 8  # each takes a second at worst
_LOOKED_AT = 20


@frozen
class Known:
    """What an equal earlier run shows: its id, its mean loss in the window (nats) and its median
    step time in seconds.
    """

    run: str
    level: float | None
    step_seconds: float | None


@frozen
class Planned:
    """A candidate with its plan, or the reason why it has no plan."""

    candidate: str
    plan: Plan | None
    why_not: str


def planned(
    spec: JobSpec,
    policy: Policy,
    known: Known | None,
    noise_families: NoiseFamilies = NO_FAMILIES,
    controls: int = 0,
) -> Sequence[Planned]:
    """The plan of each of the first 8 candidates; candidates with one design share it. `controls`
    are those of the named baseline.
    """
    made: dict[Design, tuple[Plan | None, str]] = {}
    rows = []
    for candidate in spec.candidates[:MOST_CANDIDATES]:
        design = _design(spec, candidate, known, controls)
        if design not in made:
            try:
                made[design] = plan(design, policy, noise_families), ""
            except ValueError as error:
                made[design] = None, str(error)
        candidate_plan, why_not = made[design]
        rows.append(Planned(candidate=candidate.name, plan=candidate_plan, why_not=why_not))
    return rows


def noise_families_for(session: Session, spec: JobSpec) -> NoiseFamilies:
    """The reruns from which the job's verdicts would borrow: of the family that it names, else of
    its own on record.

    InvalidError if it names an unknown family.
    """
    if spec.family:
        noise_table = named_noise_table(session, spec.family)
    else:
        unsaved = Job(id="", engine=spec.engine, spec=spec.document())
        borrowed = borrowed_noise_table(session, unsaved, newest_family(session, unsaved))
        if borrowed is None:
            return NO_FAMILIES
        noise_table = borrowed
    return NoiseFamilies(
        noise_table, dict.fromkeys((BASELINE, CANDIDATE), spec.family or family_in(noise_table))
    )


def known_before(
    session: Session, spec: JobSpec, policy: Policy, named: NamedBaseline | None
) -> Known | None:
    """What is known of the job's baseline: from the promoted one that it names, else from an equal
    earlier run.
    """
    if named:
        return _known(session, next(iter(named.runs.values())), policy)
    return equal_earlier_run(session, spec, policy)


def equal_earlier_run(session: Session, spec: JobSpec, policy: Policy) -> Known | None:
    """What the newest sound run with the specification of the job's baseline shows, or None."""
    if spec.engine in OTHERS_TRAINERS:
        return None
    baseline_run = next(run for arm, run in spec.runs() if arm is spec.baseline)
    its_arm = (
        Arm.role == "baseline",
        Arm.recipe == spec.baseline.recipe,
        Run.planned_steps == spec.schedule.steps,
    )
    like_it = (
        trained_runs(*its_arm)
        .join(Job, Job.id == Run.job_id)
        .where(Job.engine == spec.engine)
        .limit(_LOOKED_AT)
    )
    for run in session.scalars(like_it):
        if (
            not spec_differences(baseline_run, run_spec(run), but=("seed", "replicate"))
            and unsound(session, run) is None
        ):
            return _known(session, run, policy)
    return None


def _known(session: Session, run: Run, policy: Policy) -> Known:
    first = int(run.length * (1.0 - policy.window_fraction))
    _, columns = store.read_range(
        session, run.id, "train", first, names=[JUDGED_LOSS, "step_seconds"]
    )
    level, seconds = (
        values[np.isfinite(values) & (values > 0.0)]
        for values in (columns[JUDGED_LOSS], columns["step_seconds"])
    )
    return Known(
        run=run.id,
        level=float(level.mean()) if len(level) else None,
        step_seconds=float(np.median(seconds)) if len(seconds) else None,
    )


def _design(spec: JobSpec, candidate: ArmSpec, known: Known | None, controls: int) -> Design:
    baseline, trained_here = spec.baseline, spec.engine not in OTHERS_TRAINERS
    return Design(
        planned_steps=spec.schedule.steps,
        level=known.level if known else None,
        baseline_runs=baseline.replicates,
        candidate_runs=candidate.replicates,
        short_reruns=spec.short_reruns.runs if spec.short_reruns else 0,
        stop_at=spec.short_reruns.stop_at if spec.short_reruns else DEFAULT_STOP,
        controls=controls,
        baseline_recipe=baseline.label,
        candidate_recipe=candidate.label,
        baseline_rounding=spec.rounding(baseline) if trained_here else None,
        candidate_rounding=spec.rounding(candidate) if trained_here else None,
        step_seconds=known.step_seconds if known else None,
        devices=spec.devices,
        candidates=len(spec.candidates),
    )

"""Short runs of one recipe at two revisions: where the judge says TOO_FEW_STEPS, the rule of
goldens answers its own question, whether rounding explains all that differs.

It is no verdict: the candidate stays inconclusive, and a gate takes the answer only where the
operator pinned that (`on_same_numerics`, server.jobs.pinned_gates). Nothing is answered

- of a candidate that differs from its reference in the recipe or the environment,
- where the judge has any further reason than what every short run has: such as a fact on record
  that differs, rates or gradient norms apart, a recipe that the record contradicts,
- unless every run of the candidate has its reference, of the same seed, and with the same facts on
  record: another seed reads other batches.

Of several pairs the worst counts. A fine answer is blocked, so that no gate takes it, where the
rule's limit of the level is wider than the policy's margin.

A commit may train in another precision than its recipe says, and nothing on record shows it. What
the loss can show of that is in its first steps, before differences grow. So it is blocked, too,

- where the first loss, or the middle of the first eight differences, is beyond what the recipe's
  own rounding makes. In ten seeds of the project's trainer over 50 steps, this blocked 50 of 50
  runs of 8 and 4 bits for bf16, of which the rule itself lets 8 through, and none of 10 reruns
- of recipes of fewer than 16 bits, whose own rounding is as large as the difference to another one
  of as few, and of recipes of unknown width.

Large batches average such differences away, and bf16 against f32 is no more than rounding: a gate
that has to see every precision trains long enough for a verdict.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from parity.golden.answers import EXIT_CODES, FINE
from parity.golden.check import Check, RunFacts, check_golden, run_facts
from parity.golden.formats import document
from parity.golden.golden_file import Golden, GoldenError
from parity.golden.measured import FIRST_NATS, MIN_STEPS
from parity.judging import codes
from parity.judging.curves.context import is_compared
from parity.judging.curves.curve import DATA_DIGEST, Curve
from parity.judging.decision import INCONCLUSIVE
from parity.recipes import UNSTATED, RecipeError, width_of
from server.curves import judged_curves
from server.database.tables import Arm, Job, Run, Verdict
from server.jobs.fingerprint import manifest_differences
from server.jobs.judge_input import compared_of

SHORT_RUN_CODES = frozenset(
    entry.code
    for entry in (
        codes.TOO_FEW_STEPS,
        codes.AS_OF,
        codes.RUN_NOISE_ASSUMED,
        codes.RUN_NOISE_BORROWED,
        codes.CI_STRADDLES_MARGIN,
        codes.MARGIN_WIDE,
        codes.PAIRING_WEAK,
        codes.WINDOW_SENSITIVE,
    )
)
"""The reasons that leave the rule of goldens its answer: they say how little is known, and not that
something differs. Of 529 public pairs of short runs that are fine by the rule, one has another.
"""


EARLY_ROWS = 8
# nats, by the bits of a recipe: of the first loss, and of the middle of the first differences.
# Half of the rounding unit of a loss in bf16, and 2^-14 for f32, which is a quarter of what bf16
# in its place makes.
EARLY_LIMITS: Mapping[int, tuple[float, float]] = {
    16: (FIRST_NATS, FIRST_NATS / 2.0),
    32: (2.0**-14, 2.0**-14),
}


def numerics_of(session: Session, job: Job) -> dict[str, dict[str, Any]]:
    """The document of a check (`parity.golden.formats`) for each candidate that has an answer, by
    name; with why no gate takes a fine one (`blocked`), or None.
    """
    if job.status != "concluded" or not any(map(_is_too_short, job.verdicts)):
        return {}
    compared = compared_of(job)
    found = {}
    for row in job.verdicts:
        if _is_too_short(row) and compared.get(row.candidate) == "revision":
            arm = next(arm for arm in job.arms if arm.name == row.candidate)
            if {*row.read_document()["codes"]} <= SHORT_RUN_CODES:
                checks = _checks(session, arm)
                if checks:
                    reasons = (_why_blocked(check, row.margin) for check in checks)
                    blocked = next(filter(None, reasons), None)
                    found[row.candidate] = document(_worst(checks)) | {"blocked": blocked}
    return found


def _why_blocked(check: Check, margin: float | None) -> str | None:
    """Why no gate takes a fine answer; None where nothing speaks against it."""
    return _wider_than(margin, check) or _like_another_precision(check)


def _wider_than(margin: float | None, check: Check) -> str | None:
    """Why the rule is too coarse for the policy's margin (nats)."""
    measured = check.measured
    if margin is None or measured.rows < MIN_STEPS:
        return "no margin is on record for these runs"
    common = measured.judged[0]
    limit = measured.gap_limit / 100.0 * float(common.golden[-measured.levels[0].rows :].mean())
    if limit <= margin:
        return None
    return (
        f"the rule allows the level to differ by {limit:.4f} nats, which is more than the margin "
        f"of {margin:.4f}"
    )


def _like_another_precision(check: Check) -> str | None:
    """Why the answer may be that of another precision."""
    limits = EARLY_LIMITS.get(width_of(check.recipe) or 0)
    if limits is None:
        return (
            f"the loss cannot tell another precision from the rounding of {check.recipe}; only "
            "recipes of 16 and 32 bits have such an answer"
        )
    common = check.measured.judged[0]
    early = np.abs(common.difference[:EARLY_ROWS])
    for what, value, limit in zip(
        ("the first loss differs", "the first losses differ in the middle"),
        (float(early[0]), float(np.median(early))),
        limits,
        strict=True,
    ):
        if value > limit:
            return (
                f"{what} by {value:.5f} nats, and the rounding of {check.recipe} makes "
                f"{limit:.5f} at most: another precision would look like that"
            )
    return None


def _is_too_short(row: Verdict) -> bool:
    return row.outcome == INCONCLUSIVE and row.code == codes.TOO_FEW_STEPS.code


def _checks(session: Session, arm: Arm) -> list[Check]:
    """A check of each run of an arm by the run of its seed; none where one has no such run."""
    pairs, recipe = _pairs(arm), arm.stated_recipe
    if recipe in (None, UNSTATED) or recipe != arm.judged_against.stated_recipe:
        return []
    curves = judged_curves.curves(session, [run for pair in pairs for run in pair])
    if not all(len(curve.steps) for curve in curves):
        return []
    try:
        return [
            _check(reference, run, recipe)
            for reference, run in zip(curves[::2], curves[1::2], strict=True)
        ]
    except (GoldenError, RecipeError):  # another recipe is on record
        return []


def _pairs(arm: Arm) -> list[tuple[Run, Run]]:
    """Each run of an arm after its reference; none where one has not finished, has none, or has
    other facts on record.
    """
    by_seed = {run.seed: run for run in arm.judged_against.runs if run.state == "finished"}
    if not all(run.state == "finished" and run.seed in by_seed for run in arm.runs):
        return []
    pairs = [(by_seed[run.seed], run) for run in arm.runs]
    allowed = arm.job.read_policy().may_differ
    if any(_differ(*pair, allowed) for pair in pairs):
        return []
    return pairs


def _differ(reference: Run, run: Run, allowed: Collection[str]) -> bool:
    """Whether a fact on record differs, or one run alone has it, that another revision may not
    change. The judge compares only what both have.
    """
    differences = manifest_differences(reference.manifest or {}, run.manifest or {})
    return any(
        not is_compared(one.key, "revision") and one.key not in allowed for one in differences
    )


def _check(reference: Curve, run: Curve, recipe: str) -> Check:
    golden = Golden(
        curve=reference,
        recipe=recipe,
        data=reference.context.get(DATA_DIGEST),
        facts=run_facts(reference),
    )
    return check_golden([golden], run, RunFacts(recipe=recipe), changed="code")


def _worst(checks: Sequence[Check]) -> Check:
    """The check that counts: one that is not fine before one that is, and a changed run before an
    open one.
    """
    order = (EXIT_CODES["worse"], EXIT_CODES["cannot tell"])
    for code in order:
        for check in checks:
            if check.exit_code == code:
                return check
    return max(checks, key=lambda check: FINE.index(check.answer))

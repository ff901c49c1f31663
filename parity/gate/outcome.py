"""How a gate came out: the verdicts that count, or why there are none, and where they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from parity.frozen import frozen
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.decision import INCONCLUSIVE, PASS, WORST_FIRST, State
from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.sign_offs import SignOffDocument, accepted
from parity.report.answer import answer_words
from parity.report.sign_off_words import NOT_A_PASS, Accepted, accepted_words, lapsed_words
from parity.report.view import View, views_of
from parity.wording import age_in_words, version_words

FILES = "files"
SCHEDULE_STATED = "SCHEDULE_STATED"
STATED_ONLY = (
    "NO PASS OF THE GATE: that the learning rate had decayed is stated, not recorded "
    "(SCHEDULE_STATED); record learning_rate in every run, or set as_of: accept under policy"
)
NOT_JUDGED = "nothing was judged"
TOO_FEW_STEPS = "TOO_FEW_STEPS"

# how a run ends by the code that it trains
_COMMIT_CODES = frozenset({"TRAINER_FAILED", "NO_LOSS", "LOG_REFUSED", "OUTPUT_LIMIT"})

Result = Literal["pass", "fail", "inconclusive", "infrastructure", "timeout", "unrecorded"]


@frozen
class GateOutcome:
    """How a gate came out: the verdicts, or the trouble because of which there are none.

    `source` is `files` where `parity compare` judged, `concluded` where an earlier job's verdict is
    served again, with its age and the time until which it holds. `confirms` is the job whose narrow
    fail this one was to confirm; `unconfirmed` says why a narrow fail stands alone. `reused` says
    whose curves the baseline has, where it was not trained, `trained` which commit each arm is.
    `pinned` is what the operator pinned for the repository, `server_code` the exit code that the
    server gives under it. `accepted` has the sign-offs that hold for these verdicts, by candidate,
    `sign_offs` all of the job. `earlier` names other answers to the same question. `numerics` has
    what the rule of goldens says of candidates whose runs are too short to judge.
    """

    result: Result
    revision: str
    verdicts: Sequence[VerdictDocument] = ()
    trouble: str | None = None
    source: str | None = None
    reason: str | None = None
    age_seconds: float | None = None
    expires_at: str | None = None
    job: str | None = None
    url: str | None = None
    config_hash: str | None = None
    confirms: str | None = None
    unconfirmed: str | None = None
    reused: str | None = None
    trained: Sequence[str] = ()
    pinned: Mapping[str, Any] | None = None
    server_code: int | None = None
    accepted: Accepted = field(default_factory=dict)
    sign_offs: Sequence[SignOffDocument] = ()
    earlier: Sequence[str] = ()
    numerics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def has_same_numerics(self) -> bool:
        """Whether every verdict is a pass, or one on runs that are too short to judge and differ by
        numerics only; false for passes alone.
        """
        open_ones = [one for one in self.verdicts if one["verdict"] != PASS]
        return (
            self.trouble is None
            and self.result == INCONCLUSIVE
            and bool(open_ones)
            and all(_has_same_numerics(one, self.numerics) for one in open_ones)
            and not self.is_stated_only
        )

    @property
    def is_accepted(self) -> bool:
        """Whether every verdict is a pass, or inconclusive and signed off by a person; false for
        passes alone.
        """
        open_ones = [one for one in self.verdicts if one["verdict"] != PASS]
        signed = all(
            one["verdict"] == INCONCLUSIVE and one["candidate"]["name"] in self.accepted
            for one in open_ones
        )
        return (
            self.trouble is None
            and self.result == INCONCLUSIVE
            and bool(open_ones)
            and signed
            and not self.is_stated_only
        )

    @property
    def is_stated_only(self) -> bool:
        """Whether a pass rests on the end of a schedule that is only stated, and the policy does
        not accept that: no pass of a gate.
        """
        return any(_is_stated_only(one) for one in self.verdicts)

    @property
    def line(self) -> str:
        """The outcome in one line: the worst verdict's headline, or why no verdict was given; after
        a sign-off, if one lets it pass.
        """
        if self.trouble is not None or self.worst is None:
            what = NOT_JUDGED.upper() if self.result == "unrecorded" else "NO VERDICT"
            return (
                f"{what} ({self.result}): {' '.join((self.trouble or 'the job has none').split())}"
            )
        stated = f"{STATED_ONLY}. " if self.result == INCONCLUSIVE and self.is_stated_only else ""
        signed = ""
        if self.is_accepted:
            signed = (
                f"{NOT_A_PASS.upper()}: "
                f"{'; '.join(accepted_words(sign_off) for sign_off in self.accepted.values())}. "
            )
        said = answer_words(self.views, accepted=self.accepted)
        next_step = f" Next: {said.next}" if said.next and self.result != PASS else ""
        return " ".join(f"{stated}{signed}{said.line}{next_step}".split())

    @property
    def views(self) -> list[View]:
        """The verdicts as a gate takes them: a pass that rests on a schedule which is only stated
        is shown as inconclusive.
        """
        return [
            replace(view, state=_taken(document))
            for view, document in zip(views_of(self.verdicts), self.verdicts, strict=True)
        ]

    @property
    def worst(self) -> VerdictDocument | None:
        """The verdict that decides, or None."""
        return _worst(self.verdicts)


def ended(outcome: GateOutcome, job: Mapping[str, Any]) -> GateOutcome:
    """The outcome once its job has ended: the verdicts, or why there are none."""
    outcome = replace(outcome, trained=trained_words(job))
    if job["status"] != "concluded":
        why = f": {job['message']}" if job["message"] else ""
        trouble = f"job {job['id']} {job['status']} without a verdict{why}"
        return replace(
            outcome,
            trouble=trouble,
            result="fail" if _commit_does_not_train(job) else "infrastructure",
        )
    if failed := job.get("failed_by"):  # an earlier server has none
        why = f"job {failed} failed the question that job {job['id']} passes, and a fail stays"
        remedy = (
            "if that verdict is not the reason to ask again, have an operator register a new "
            f"question: parity new-question {failed} --reason TEXT"
        )
        return replace(outcome, trouble=f"{why}; {remedy}", result="fail")
    sign_offs = job.get("sign_offs", ())  # an earlier server has none
    return replace(
        outcome,
        result=result_of(job["verdicts"]),
        verdicts=job["verdicts"],
        reused=reused_words(job),
        accepted=accepted(job["verdicts"], job["policy"], sign_offs) if sign_offs else {},
        sign_offs=sign_offs,
        numerics=job.get("numerics", {}),  # an earlier server has none
    )


def _commit_does_not_train(job: Mapping[str, Any]) -> bool:
    """Whether the baseline was trained, and the code of a candidate's commit was not able to: that
    is no trouble of the infrastructure.
    """
    return job["code"] in _COMMIT_CODES and any(
        run["state"] == "finished" for run in job["arms"][0]["runs"]
    )


def result_of(verdicts: Sequence[VerdictDocument]) -> Result:
    """The result of the worst of several verdicts, as a gate takes them; inconclusive without
    one.
    """
    worst = _worst(verdicts)
    return _taken(worst) if worst else INCONCLUSIVE


def _worst(verdicts: Sequence[VerdictDocument]) -> VerdictDocument | None:
    return min(verdicts, key=lambda document: WORST_FIRST.index(_taken(document)), default=None)


def _taken(document: VerdictDocument) -> State:
    """The verdict as a gate takes it: a pass that rests on a schedule which is only stated is none,
    unless the policy accepts that.
    """
    if _is_stated_only(document):
        return INCONCLUSIVE
    return document["verdict"]


def _has_same_numerics(
    document: VerdictDocument, numerics: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether a verdict is open for too few steps alone, and numerics explain what differs."""
    answered = numerics.get(document["candidate"]["name"])
    return (
        answered is not None
        and answered["exit_code"] == EXIT_CODES[PASS]
        and answered["blocked"] is None
        and document["verdict"] == INCONCLUSIVE
        and document["codes"][0] == TOO_FEW_STEPS
    )


def numerics_lines(outcome: GateOutcome) -> list[str]:
    """What the rule of goldens says of each candidate whose runs are too short to judge."""
    return [
        f"{name}: {' '.join(answered['headline'].split())}. "
        + (f"No gate takes that: {answered['blocked']}. " if answered["blocked"] else "")
        + answered["scope"]
        for name, answered in outcome.numerics.items()
    ]


def _is_stated_only(document: VerdictDocument) -> bool:
    policy = document.get("params", {}).get("policy", {})
    return (
        document["verdict"] == PASS
        and SCHEDULE_STATED in document["codes"]
        and policy.get("as_of") != "accept"
    )


def lapsed(outcome: GateOutcome) -> list[str]:
    """Why sign-offs of candidates that are still undecided do not count, the newest of each."""
    undecided = {
        one["candidate"]["name"] for one in outcome.verdicts if one["verdict"] == INCONCLUSIVE
    } - {*outcome.accepted}
    return [
        lapsed_words(sign_off)
        for name, sign_off in {
            sign_off["candidate"]: sign_off for sign_off in outcome.sign_offs
        }.items()
        if name in undecided
    ]


def reused_words(job: Mapping[str, Any]) -> str | None:
    """Which runs of a job's baseline were not trained, because equal ones had been, and how old
    those are; None where all were.
    """
    arm = job["arms"][0]
    reused = [run["reused"] for run in arm["runs"] if run["reused"]]
    if not reused:
        return None
    named = f" of {version_words(job['baseline'])}," if job["baseline"] else ""
    oldest = max((one["age_seconds"] or 0.0 for one in reused), default=0.0)
    return (
        f"baseline {arm['name']}: {len(reused)} of {len(arm['runs'])} curves{named} reused, "
        f"trained {age_in_words(oldest)} ago"
    )


def trained_words(job: Mapping[str, Any]) -> list[str]:
    """Of a job with engine command: which commit of which repository each arm is, who started it,
    and where; else nothing.
    """
    if job["engine"] != "command":
        return []
    lines = []
    for arm, asked in zip(
        job["arms"], [job["spec"]["baseline"], *job["spec"]["candidates"]], strict=True
    ):
        manifest: Mapping[str, str] = next(
            (run["manifest"] for run in arm["runs"] if run["manifest"]), {}
        )
        where = ", ".join(dict.fromkeys(run["worker"] for run in arm["runs"] if run["worker"]))
        place = f" of {manifest['repository']}" if "repository" in manifest else ""
        started = f"launcher {job['spec']['command']['launcher']}" + (
            f" on {where}" if where else ""
        )
        reused = sum(run["reused"] is not None for run in arm["runs"])
        again = f"; {reused} of {len(arm['runs'])} runs equal earlier ones" if reused else ""
        lines.append(
            f"{arm['name']}: {arm['recipe']} at commit {asked['revision']}{place}, {started}{again}"
        )
    return lines


def origin(outcome: GateOutcome) -> str:
    """Where the verdict comes from: an earlier job with its age, one in progress, or a new one and
    why.
    """
    if outcome.source == FILES:
        return "judged from files, without a server"
    if outcome.job is None:
        return "no job"
    if outcome.source == "concluded" and outcome.age_seconds is not None:
        sentence = (
            f"cached: job {outcome.job} concluded {age_in_words(outcome.age_seconds)} ago and is "
            f"served until {outcome.expires_at}"
        )
    elif outcome.source in ("running", "failed", "cancelled"):
        sentence = f"job {outcome.job} was asked for already"
    else:
        sentence = f"new job {outcome.job}: {outcome.reason}"
    if outcome.reused:
        sentence += f"; {outcome.reused}"
    if outcome.confirms:
        sentence += (
            f"; with one more replicate an arm it looks again at job {outcome.confirms}, whose "
            "fail was narrow"
        )
    if outcome.unconfirmed:
        sentence += f"; its fail is narrow and stands unconfirmed: {outcome.unconfirmed}"
    return sentence

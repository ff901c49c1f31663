"""The `gate:` part of parity.yaml, and what a gate leaves behind: a line for the log, and files for
CI.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from parity.cli.options import Options, option
from parity.cli.terminal import EXIT_CODES, OUTPUT, UsageError
from parity.judging.decision import INCONCLUSIVE, PASS, WORST_FIRST, State
from parity.judging.document_types import VerdictDocument
from parity.judging.policy import PolicyError
from parity.judging.verdict.sign_offs import SignOffDocument, accepted, why_not_acceptable
from parity.report.facts import NOT_A_PASS, Accepted, accepted_words, judge_of, lapsed_words
from parity.report.text import escaped, markdown_sections, render_junit
from parity.report.words import candidate_title, words
from parity.structure import (
    canonical_json,
    check_between,
    check_words,
    frozen,
    known_keys,
    picked,
    typed,
)
from parity.version import VERSION
from parity.wording import age_in_words, version_words

# The `gate:` part of parity.yaml: what CI makes of a verdict, and for how long one holds.

Choice = Literal["fail", "pass"]

MAX_AGE_DAYS = 3650.0


@frozen
class GateRules:
    """How a gate leaves: every field has a flag of `parity gate` that overrides it.

    A verdict of the same question is served again for `max_age_days` (0: never). `on_inconclusive`
    and `on_infra` say what an open verdict and a broken infrastructure do to CI; `advisory` never
    breaks it. `confirm_marginal_fail` trains one more replicate an arm before a narrow fail is
    believed. `timeout_seconds` limits the wait.
    """

    max_age_days: float = 7.0
    on_inconclusive: Choice = "fail"
    on_infra: Choice = "fail"
    advisory: bool = False
    confirm_marginal_fail: bool = False
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        check_between("gate.max_age_days", self.max_age_days, 0.0, MAX_AGE_DAYS, PolicyError)
        if self.timeout_seconds is not None:
            check_between("gate.timeout_seconds", self.timeout_seconds, 0.0, 1e9, PolicyError)
        check_words(self, "gate", PolicyError)
        for name in ("advisory", "confirm_marginal_fail"):
            typed(getattr(self, name), bool, f"gate.{name}", refuse=PolicyError)


def gate_rules_from_mapping(
    mapping: object, flags: Mapping[str, object] | None = None
) -> GateRules:
    """Read a `gate:` part with closed keys, flags (where not None) over it; PolicyError says path,
    value and what was expected.
    """
    known = known_keys({} if mapping is None else mapping, GateRules, "gate", PolicyError)
    values = {
        **known,
        **{name: value for name, value in (flags or {}).items() if value is not None},
    }
    return GateRules(**values)


# What a gate leaves behind: one line for the log, and files for CI (JSON, JUnit, Markdown, GitHub's
# summary and outputs).
#
# GitHub drops a step's summary above 1024 KiB and refuses a comment above 65,536 characters. Whole
# sections are left out, never a part of one, and the text says how many.

SCHEMA = "parity.gate/1"
FILES, STDOUT = "files", "-"
SCHEDULE_STATED = "SCHEDULE_STATED"
STATED_ONLY = (
    "NO PASS OF THE GATE: that the learning rate had decayed is stated, not recorded "
    "(SCHEDULE_STATED); record learning_rate in every run, or set as_of: accept under policy"
)
COMMENT_CHARACTERS = 65_000  # some are left for the mark by which a comment is found again
SUMMARY_BYTES = 1024 * 1024

NOT_JUDGED = "nothing was judged"
_ON: tuple[Literal["on_inconclusive", "on_infra"], ...] = ("on_inconclusive", "on_infra")

Result = Literal["pass", "fail", "inconclusive", "infrastructure", "timeout", "unrecorded"]


@frozen
class Outcome:
    """How a gate came out: the verdicts, or the trouble because of which there are none.

    `source` is `files` where `parity compare` judged, `concluded` where an earlier job's verdict is
    served again, with its age and the time until which it holds. `confirms` is the job whose narrow
    fail this one was to confirm; `unconfirmed` says why a narrow fail stands alone. `reused` says
    whose curves the baseline has, where it was not trained, `trained` which commit each arm is.
    `pinned` is what the operator pinned for the repository, `server_code` the exit code that the
    server gives under it. `accepted` has the sign-offs that hold for these verdicts, by candidate,
    `sign_offs` all of the job. `earlier` names other answers to the same question.
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
        others = "".join(
            f", {candidate_title(one)} {str(one['verdict']).upper()}" for one in self.verdicts
        )
        stated = f"{STATED_ONLY}. " if self.result == INCONCLUSIVE and self.is_stated_only else ""
        several = f" All candidates: {others[2:]}." if len(self.verdicts) > 1 else ""
        signed = ""
        if self.is_accepted:
            signed = (
                f"{NOT_A_PASS.upper()}: "
                f"{'; '.join(accepted_words(each) for each in self.accepted.values())}. "
            )
        return " ".join(f"{stated}{signed}{_told(self.worst)}{several}".split())

    @property
    def worst(self) -> VerdictDocument | None:
        """The verdict that decides, or None."""
        return _worst(self.verdicts)


def _told(document: VerdictDocument) -> str:
    """The verdict on one line, with what to do next where it is no pass."""
    told = words(document)
    if document["verdict"] == PASS or not told.next:
        return told.line
    return f"{told.line} Next: {told.next}"


class Files(Options, panel=OUTPUT):
    """The reports that are wanted."""

    json: str | None = option(
        None, "Write the outcome as JSON; `-` prints it instead of the headline.", "FILE"
    )
    junit: str | None = option(None, "Write JUnit XML to this file.", "FILE")
    markdown: str | None = option(
        None, "Write the text of a pull-request comment to this file.", "FILE"
    )

    def prepare(self) -> None:
        """Check that they can be written, before hours are waited; one of an earlier gate goes, so
        that none is taken for this.
        """
        for path in (
            Path(path) for path in (self.json, self.junit, self.markdown) if path and path != STDOUT
        ):
            if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
                raise UsageError(
                    f"{path}: cannot be written; expected a file name in an existing folder"
                )
            path.unlink(missing_ok=True)


# how a run ends by the code that it trains
_OF_A_COMMIT = frozenset({"TRAINER_FAILED", "NO_LOSS", "LOG_REFUSED", "OUTPUT_LIMIT"})


def ended(outcome: Outcome, job: Mapping[str, Any]) -> Outcome:
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
            f"question: parity new-question {failed}"
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
    )


def _commit_does_not_train(job: Mapping[str, Any]) -> bool:
    """Whether the baseline was trained, and the code of a candidate's commit was not able to: that
    is no trouble of the infrastructure.
    """
    return job["code"] in _OF_A_COMMIT and any(
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


def _is_stated_only(document: VerdictDocument) -> bool:
    policy = document.get("params", {}).get("policy", {})
    return (
        document["verdict"] == PASS
        and SCHEDULE_STATED in document["codes"]
        and policy.get("as_of") != "accept"
    )


def exit_code_under(outcome: Outcome, rules: GateRules) -> tuple[int, str]:
    """The exit code under a gate's rules, and a sentence where they change it ("" where not); what
    the server pinned can't be loosened.

    Where the server gave an exit code, this one can only be stricter: a verdict that is no pass
    there is none here.
    """
    if outcome.server_code:
        code, note = exit_code_under(replace(outcome, server_code=None), rules)
        return (
            code or outcome.server_code,
            note
            if code
            else "the exit code is the server's, under the rules that the operator pinned",
        )
    stricter = tightened(rules, outcome.pinned)
    if stricter != rules:
        code, note = exit_code_under(replace(outcome, pinned=None), stricter)
        loosened = [
            key for key in ("advisory", *_ON) if getattr(stricter, key) != getattr(rules, key)
        ]
        repository = outcome.pinned["repository"] if outcome.pinned else ""
        return (
            code,
            (
                f"{', '.join(loosened)} does not count: the operator pinned it stricter "
                f"for {repository}. {note}"
            ).strip(),
        )
    code = EXIT_CODES[outcome.result]
    unproven = STATED_ONLY if outcome.result == INCONCLUSIVE and outcome.is_stated_only else ""
    if code and outcome.is_accepted and not rules.advisory:
        return (
            0,
            (
                "accepted by a person: the exit code is 0; without the sign-off it would be "
                f"{code} ({outcome.result})"
            ),
        )
    if rules.on_inconclusive == "pass" and outcome.result == INCONCLUSIVE:
        blocked = _not_acceptable(outcome)
    else:
        blocked = None
    if blocked is not None and not rules.advisory:
        return code, f"on_inconclusive: pass does not apply: {blocked}"
    passes = {
        "inconclusive": rules.on_inconclusive == "pass",
        "infrastructure": rules.on_infra == "pass",
    }
    if rules.advisory:
        why = "advisory"
    else:
        why = f"on_{'infra' if outcome.result == 'infrastructure' else outcome.result}: pass"
    if code and (rules.advisory or passes.get(outcome.result, False)):
        return 0, f"{why}: the exit code is 0; without that it would be {code} ({outcome.result})"
    return code, "advisory: the exit code is 0 whatever the verdict" if rules.advisory else unproven


def tightened(rules: GateRules, pinned: Mapping[str, Any] | None) -> GateRules:
    """The rules of file and options where they are as strict as what the server pinned, else
    those.
    """
    if pinned is None:
        return rules
    advisory = rules.advisory and bool(pinned["advisory"])
    chosen: dict[str, Any] = {
        name: "pass" if getattr(rules, name) == pinned[name] == "pass" else "fail" for name in _ON
    }
    return replace(rules, advisory=advisory, **chosen)


def _not_acceptable(outcome: Outcome) -> str | None:
    """Why an inconclusive outcome may not count as a pass, whatever the rules say; None if it
    may.
    """
    if not outcome.verdicts:
        return "the job has no verdict"
    reasons = (
        (one["candidate"]["name"], why_not_acceptable(one))
        for one in outcome.verdicts
        if one["verdict"] != PASS
    )
    return next((f"{name}: {why}" for name, why in reasons if why is not None), None)


def lapsed(outcome: Outcome) -> list[str]:
    """Why sign-offs of candidates that are still undecided do not count, the newest of each."""
    undecided = {
        one["candidate"]["name"] for one in outcome.verdicts if one["verdict"] == INCONCLUSIVE
    } - {*outcome.accepted}
    return [
        lapsed_words(each)
        for name, each in {each["candidate"]: each for each in outcome.sign_offs}.items()
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


def origin(outcome: Outcome) -> str:
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


def document(outcome: Outcome, rules: GateRules) -> dict[str, Any]:
    """The outcome as JSON-able values, with every verdict whole."""
    code, note = exit_code_under(outcome, rules)
    same = (
        "result",
        "trouble",
        "age_seconds",
        "expires_at",
        "reused",
        "confirms",
        "unconfirmed",
        "job",
        "url",
        "config_hash",
        "revision",
    )
    return {
        **picked(outcome, *same),
        "trained": list(outcome.trained),
        "schema": SCHEMA,
        "engine_version": judge_of(outcome.verdicts),
        "exit_code": code,
        "note": note,
        "headline": outcome.line,
        "cached": outcome.source == "concluded",
        "origin": origin(outcome),
        "accepted": outcome.is_accepted,
        "sign_offs": list(outcome.sign_offs),
        "earlier": list(outcome.earlier),
        "verdicts": list(outcome.verdicts),
    }


def markdown(outcome: Outcome, rules: GateRules, fits: Callable[[str], bool]) -> str:
    """A comment or a summary: the result first, then as many whole sections as fit."""
    note = exit_code_under(outcome, rules)[1]
    link = f"[the job's page]({outcome.url})" if outcome.url else ""
    facts = [
        escaped(origin(outcome)),
        f"revision `{outcome.revision}`" if outcome.revision else "",
        link,
        escaped(note),
    ]
    title = NOT_JUDGED if outcome.result == "unrecorded" else outcome.result
    if outcome.is_accepted:
        title = f"{NOT_A_PASS.lower()} ({outcome.result})"
    listed = [*outcome.trained, *(f"earlier answer: {answer}" for answer in outcome.earlier)]
    trained = "".join(f"\n- {escaped(line)}" for line in listed)
    first = f"### parity: {title}\n\n{' · '.join(fact for fact in facts if fact)}" + (
        f"\n{trained}" if trained else ""
    )
    if outcome.trouble is not None:
        rest = [escaped(outcome.line)]
    else:
        rest = markdown_sections(outcome.verdicts, outcome.accepted)
    last = f"parity {VERSION}\n"
    kept, left_out = [first], 0
    for section in rest:
        if fits("\n\n".join([*kept, section, _left_out(len(rest)), last])):
            kept.append(section)
        else:
            left_out += 1
    return "\n\n".join([*kept, *([_left_out(left_out)] if left_out else []), last])


def _left_out(sections: int) -> str:
    return (
        f"*{sections} sections are left out, because they would not fit here; the job's page and "
        "the JSON report have them.*"
    )


def fits_a_comment(text: str) -> bool:
    """Whether GitHub takes it as a comment."""
    return len(text) <= COMMENT_CHARACTERS


def write(outcome: Outcome, rules: GateRules, files: Files) -> list[str]:
    """Write the reports that are wanted, and GitHub's where it runs this; returns what could not be
    written.
    """
    troubles, code = [], exit_code_under(outcome, rules)[0]
    if files.json and files.json != STDOUT:
        troubles.append(_put(files.json, canonical_json(document(outcome, rules)), "w"))
    if files.junit:
        trouble = outcome.trouble or (STATED_ONLY if code and outcome.is_stated_only else None)
        troubles.append(
            _put(
                files.junit,
                render_junit(outcome.verdicts, trouble, _facts(outcome, rules), outcome.accepted),
                "w",
            )
        )
    if files.markdown:
        troubles.append(_put(files.markdown, markdown(outcome, rules, fits_a_comment), "w"))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        room = SUMMARY_BYTES - (Path(summary).stat().st_size if Path(summary).exists() else 0)
        text = markdown(outcome, rules, lambda text: len(text.encode()) < room)
        troubles.append(
            _put(summary, text, "a") if len(text.encode()) < room else f"{summary}: is full"
        )
    if output := os.environ.get("GITHUB_OUTPUT"):
        troubles.append(
            _put(
                output,
                "".join(f"{name}={value}\n" for name, value in _outputs(outcome, rules).items()),
                "a",
            )
        )
    return [trouble for trouble in troubles if trouble]


def _facts(outcome: Outcome, rules: GateRules) -> dict[str, str | None]:
    """What JUnit says of the whole gate: where the verdict and the baseline come from, with their
    ages, and what the rules change.
    """
    return {
        "origin": origin(outcome),
        "baseline_reused": outcome.reused,
        "revision": outcome.revision or None,
        "trained": "; ".join(outcome.trained) or None,
        "url": outcome.url,
        "note": exit_code_under(outcome, rules)[1] or None,
        "earlier_answers": "; ".join(outcome.earlier) or None,
    }


def _outputs(outcome: Outcome, rules: GateRules) -> dict[str, str]:
    """One line each, whatever a server or a file put into it: a line break would be another
    output.
    """
    worst = outcome.worst
    gap, margin = (worst["gap"], worst["margin"]) if worst else (None, None)
    values = {
        "verdict": outcome.result,
        "exit_code": exit_code_under(outcome, rules)[0],
        "headline": outcome.line,
        "candidate": worst and worst["candidate"]["name"],
        "gap_nats": gap and gap["mean"],
        "ci_low": gap and gap["lo"],
        "ci_high": gap and gap["hi"],
        "margin_nats": margin and margin["nats"],
        "cached": "true" if outcome.source == "concluded" else "false",
        "accepted": "true" if outcome.is_accepted else "false",
        "job": outcome.job,
        "url": outcome.url,
    }
    return {
        name: "" if value is None else " ".join(str(value).split())
        for name, value in values.items()
    }


def _put(path: str, text: str, mode: Literal["w", "a"]) -> str | None:
    try:
        with Path(path).open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{path}: can't be written ({error.strerror})"
    return None

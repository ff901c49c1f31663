"""A narrow fail is looked at once more with one more replicate, where the job file wants it."""

import copy
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from parity.cli.gate.server_answer import GateQuestion, verdict_for
from parity.client.rest import Client, Document
from parity.gate.outcome import GateOutcome, result_of
from parity.gate.rules import GateRules
from parity.judging.codes import GAP_EXCEEDS_MARGIN
from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.deciding_interval import recorded_interval


def verdict_with_second_look(
    client: Client, question: GateQuestion, rules: GateRules, progress: Console
) -> GateOutcome:
    """The verdict, after a second look where a fail is narrow and the file wants one."""
    outcome = verdict_for(client, question, progress)
    fails = [
        position
        for position, verdict in enumerate(outcome.verdicts)
        if verdict["verdict"] == "fail"
    ]
    if (
        not rules.confirm_marginal_fail
        or not fails
        or not all(is_narrow(outcome.verdicts[position]) for position in fails)
    ):
        return outcome
    if outcome.pinned is not None and len(fails) < len(outcome.verdicts):
        return replace(
            outcome,
            unconfirmed="the operator pinned all candidates of the job, and one that has passed "
            "is not looked at again",
        )
    if not question.lookup:
        progress.print(
            f"{outcome.line}\nThis fail is narrow: one more replicate an arm is trained for a "
            "second look.",
            soft_wrap=True,
        )
    # whose runs are given: a further one can't be asked for
    named = bool(question.body.get("baseline", {}).get("name"))
    # Without the group: the first look at the same commit would cancel the second.
    larger = with_one_more_replicate(question.body["job"], fails, baseline=not named)
    second = verdict_for(
        client, replace(question, body={**question.body, "job": larger, "group": ""}), progress
    )
    # a fail that nobody could confirm is still a fail, also where trouble may pass
    if second.trouble is not None:
        return replace(outcome, unconfirmed=second.trouble)
    again = {verdict["candidate"]["name"]: verdict for verdict in second.verdicts}
    verdicts = [again.get(verdict["candidate"]["name"], verdict) for verdict in outcome.verdicts]
    first = {name: sign_off for name, sign_off in outcome.accepted.items() if name not in again}
    return replace(
        second,
        verdicts=verdicts,
        result=result_of(verdicts),
        confirms=outcome.job,
        accepted={**first, **second.accepted},
        sign_offs=[
            *(sign_off for sign_off in outcome.sign_offs if sign_off["candidate"] not in again),
            *second.sign_offs,
        ],
    )


def is_narrow(verdict: VerdictDocument) -> bool:
    """Whether the interval of a fail lies beyond the margin by less than half of its own width."""
    gap, margin = verdict["gap"], verdict["margin"]
    if verdict["codes"][0] != GAP_EXCEEDS_MARGIN.code or gap is None or margin is None:
        return False
    interval = recorded_interval(verdict, gap)
    return interval["lo"] - margin["nats"] < (interval["hi"] - interval["lo"]) / 2


def with_one_more_replicate(
    job: Document, candidates: Sequence[int], *, baseline: bool = True
) -> Document:
    """The job with these candidates alone (by position), and another replicate of them and of the
    baseline.
    """
    larger: Document = copy.deepcopy(dict(job))
    larger["candidates"] = [larger["candidates"][position] for position in candidates]
    for arm in (*([larger["baseline"]] if baseline else []), *larger["candidates"]):
        arm["replicates"] = arm.get("replicates", 1) + 1
    return larger

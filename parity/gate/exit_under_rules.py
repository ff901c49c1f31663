"""The exit code of a gate's outcome under its rules, which the operator's pin only tightens."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from parity.gate.exit_codes import EXIT_CODES
from parity.gate.outcome import STATED_ONLY, GateOutcome
from parity.gate.rules import GateRules
from parity.judging.decision import INCONCLUSIVE, PASS
from parity.judging.verdict.sign_offs import why_not_acceptable

SAME_NUMERICS = "same numerics, no verdict"
"""What a gate calls two revisions that differ by numerics only where the judge says nothing."""
_CHOICE_FIELDS: tuple[Literal["on_inconclusive", "on_infra"], ...] = ("on_inconclusive", "on_infra")


def exit_code_under(outcome: GateOutcome, rules: GateRules) -> tuple[int, str]:
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
        code, note = exit_code_under(outcome, stricter)
        loosened = [
            key
            for key in ("advisory", *_CHOICE_FIELDS)
            if getattr(stricter, key) != getattr(rules, key)
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
    if code and not rules.advisory and takes_same_numerics(outcome):
        return (
            0,
            (
                f"{SAME_NUMERICS}: the runs are too short to judge and differ by numerics "
                "only, which the operator takes (on_same_numerics: pass): the exit code is 0; "
                f"without that it would be {code} ({outcome.result})"
            ),
        )
    if rules.on_inconclusive == "pass" and outcome.result == INCONCLUSIVE:
        blocked = _why_not_acceptable(outcome)
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


def takes_same_numerics(outcome: GateOutcome) -> bool:
    """Whether the operator takes what the rule of goldens says in place of a verdict: no option
    does, and no job file.
    """
    pinned = outcome.pinned or {}
    return pinned.get("on_same_numerics") == "pass" and outcome.has_same_numerics


def tightened(rules: GateRules, pinned: Mapping[str, Any] | None) -> GateRules:
    """The rules of file and options where they are as strict as what the server pinned, else
    those.
    """
    if pinned is None:
        return rules
    advisory = rules.advisory and bool(pinned["advisory"])
    chosen: dict[str, Any] = {
        name: "pass" if getattr(rules, name) == pinned[name] == "pass" else "fail"
        for name in _CHOICE_FIELDS
    }
    return replace(rules, advisory=advisory, **chosen)


def _why_not_acceptable(outcome: GateOutcome) -> str | None:
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

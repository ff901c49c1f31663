"""Verdicts as JUnit XML for CI systems: a suite a candidate, a case a check."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from parity.judging.case import AnyDocument
from parity.judging.codes import BY_CODE
from parity.judging.decision import FAIL, PASS, POLICY_CHECK, CheckName, State
from parity.judging.precedence import WARNINGS, table
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.report.facts import reused_notes
from parity.report.sign_off_words import NOT_A_PASS, Accepted, accepted_words
from parity.report.view import EvaluationView, TrainingView, View, views_of
from parity.report.words import words

_GROUND: CheckName = "same ground"
CHECKS: tuple[CheckName, ...] = tuple(name for name in get_args(CheckName) if name != POLICY_CHECK)
# the check of a warning that decides a comparison of evaluations, such as RUNS_UNPAIRED
UNCHECKED: CheckName = "run-to-run noise"
# they need the training curve
NOT_OF_EVALUATIONS: tuple[CheckName, ...] = ("same data order", "stability", "late phase")
_DECIDED_BY: Mapping[str, State | None] = {entry.code: state for state, entry in table()}
_PASSING = {code for code, state in _DECIDED_BY.items() if state == PASS}
# a warning is an error only where its code decides
_WARNINGS = frozenset(entry.code for entry, _ in WARNINGS)


def render_junit(
    documents: Sequence[AnyDocument],
    trouble: str | None = None,
    facts: Mapping[str, str | None] | None = None,
    accepted: Accepted | None = None,
) -> str:
    """JUnit XML of verdict documents or comparisons of evaluations, with an XML declaration and a
    newline at the end.

    A check that fails the verdict is a <failure>, one that leaves it open an <error>, one that
    could not be made <skipped>. What stands beside the loss is a case of its own: one that decides
    can fail it, advice is only told in <system-out>. A baseline that was not trained, because an
    equal one had been, is told with its age in the case "same ground".

    `trouble` is why there is no verdict; `facts` become properties of every suite, those that are
    None excepted. What is open in a verdict that a person accepted is skipped, with the sign-off,
    and no <error>: it is neither passed nor broken.
    """
    root = ElementTree.Element("testsuites", name="parity")
    properties = {name: value for name, value in (facts or {}).items() if value is not None}
    root.extend(
        [
            _suite(view, properties, (accepted or {}).get(view.candidate.name))
            for view in views_of(documents)
        ]
    )
    if trouble is not None:
        suite = ElementTree.SubElement(
            root, "testsuite", name="parity", tests="1", failures="0", errors="1", skipped="0"
        )
        _tell(suite, properties)
        case = ElementTree.SubElement(suite, "testcase", name="a verdict", classname="parity")
        ElementTree.SubElement(case, "error", message=_xml(trouble))
    root.set("tests", str(len(root.findall("*/testcase"))))
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _suite(
    view: View, facts: Mapping[str, str], sign_off: SignOffDocument | None
) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_xml(f"{view.pair} ({view.profile})"))
    _tell(
        suite,
        {
            **_properties(view),
            **facts,
            **({"signed_off": accepted_words(sign_off)} if sign_off else {}),
        },
    )
    cases = [(str(check), *_outcome(view, check)) for check in CHECKS]
    if isinstance(view, TrainingView):  # evaluations have nothing beside the loss
        beside = view.document.get("checks", ())
        cases += [
            (f"beside the loss: {check['name']}", *_additional_outcome(check)) for check in beside
        ]
    if sign_off is not None:
        words = f"{NOT_A_PASS}: {accepted_words(sign_off)}"
        cases = [
            (check, "skipped", f"{words}. {text}") if outcome == "error" else (check, outcome, text)
            for check, outcome, text in cases
        ]
    outcomes = [_case(suite, view, *case) for case in cases]
    suite.set("tests", str(len(outcomes)))
    for counter, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(counter, str(outcomes.count(kind)))
    return suite


def _tell(suite: ElementTree.Element, values: Mapping[str, Any]) -> None:
    """Add properties, where there are any."""
    if values:
        properties = ElementTree.SubElement(suite, "properties")
        for key, value in values.items():
            ElementTree.SubElement(properties, "property", name=_xml(key), value=_xml(str(value)))


def _case(suite: ElementTree.Element, view: View, check: str, outcome: str, text: str) -> str:
    """Add the case of one check and say how it came out."""
    case = ElementTree.SubElement(
        suite, "testcase", name=check, classname=_xml(f"parity.{view.candidate.name}")
    )
    if outcome != "ok":
        ElementTree.SubElement(case, outcome, message=_xml(text))
    elif text:
        ElementTree.SubElement(case, "system-out").text = _xml(text)
    return outcome


def _additional_outcome(check: Mapping[str, Any]) -> tuple[str, str]:
    """Outcome and text of a check in addition to the loss: only one that decides can be a failure
    or an error.
    """
    state = check["state"]
    if check["role"] == "decides" and state != "pass":
        return ("failure" if state == "fail" else "error"), str(check["sentence"])
    if state is None:
        return "skipped", str(check["sentence"])
    return "ok", f"{check['role']}, {state}: {check['sentence']}"


def _outcome(view: View, check: CheckName) -> tuple[str, str]:
    decided = BY_CODE.get(view.code)
    if (
        check in NOT_OF_EVALUATIONS
        and isinstance(view, EvaluationView)
        and (decided is None or decided.check != check)
    ):
        return "skipped", "not checked: it needs the training loss of each step"
    deciding = view.code
    for reason in view.reasons:
        code = reason["code"]
        entry = BY_CODE.get(code)  # None: a code of another version of the judge
        if (
            entry is None
            or (entry.check or UNCHECKED) != check
            or code in _PASSING
            or (code in _WARNINGS and code != deciding)
        ):
            continue
        # nothing fails in a verdict that is open
        failed = view.state == FAIL and _DECIDED_BY[code] == FAIL
        return "failure" if failed else "error", f"{code}: {reason['sentence']}"
    if check == "gap against margin" and view.state != "pass" and not _PASSING & {*view.codes}:
        return "skipped", f"not decided: {deciding}"
    reused = []
    if check == _GROUND and isinstance(view, TrainingView):  # no evaluation is reused
        reused = reused_notes(view.document)
    return "ok", "; ".join(f"reused: {note}" for note in reused)


def _properties(view: View) -> dict[str, Any]:
    gap, margin, said = view.recorded_gap, view.margin, words(view)
    downstream: Sequence[Mapping[str, Any]] = ()
    further: dict[str, Any]
    if isinstance(view, EvaluationView):  # its judged gap, and what was not measured in steps
        target = view.document["target"]
        further = {
            "token_tax": target and target["tax"] and target["tax"]["estimate"],
            "profile": view.profile,
        }
    else:
        downstream = view.document.get("downstream", ())
        further = {
            "n_eff": view.document["noise"].get("n_eff"),
            "profile": view.profile,
            "sha256_aligned": view.document["inputs"]["sha256_aligned"],
        }
    return {
        "verdict": view.state,
        "lead": said.lead,
        "measure": said.measure,
        "interval": said.interval,
        "next": said.next,
        "codes": " ".join(view.codes),
        "gap_nats": gap and gap.mean,
        "ci_low": gap and gap.lo,
        "ci_high": gap and gap.hi,
        "ci_level": gap and view.confidence,
        "margin_nats": margin and margin["nats"],
        **further,
        "engine_version": view.judge,
        **{f"downstream.{task['task']}": task["sentence"] for task in downstream},
    }


def _xml(text: str) -> str:
    """Text without the control characters that XML forbids."""
    return "".join(
        letter if letter >= " " and letter not in "\ufffe\uffff" else " " for letter in text
    )

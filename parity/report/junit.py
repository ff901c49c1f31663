"""Verdicts as JUnit XML for CI systems: a suite a candidate, a case a check, numbers as properties.

A check that fails the verdict is a <failure>, one that leaves it open an <error>, one that could not be made <skipped>. What stands beside
the loss is a case of its own: a gate can fail it, advice is only told in <system-out>. A baseline that was not trained, because an equal
one had been, is told with its age in the case "same ground".
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast, get_args

from parity.judging.decision import FAIL, GATE, CheckName, State
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.document import EVALUATION_SCHEMA
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.reasons import BY_CODE, table
from parity.judging.sign_offs import SignOffDocument
from parity.judging.warnings import WARNING_CODES
from parity.report.evaluation_facts import answer
from parity.report.facts import reused_notes
from parity.report.headline import headline, pair_words
from parity.report.sign_offs import NOT_A_PASS, Accepted, accepted_words

AnyDocument = VerdictDocument | EvaluationDocument

_GROUND: CheckName = "same ground"
CHECKS: tuple[CheckName, ...] = tuple(name for name in get_args(CheckName) if name != GATE)
UNCHECKED: CheckName = "run noise"  # the check of a warning that decides a comparison of evaluations, such as RUNS_UNPAIRED
NOT_OF_EVALUATIONS: tuple[CheckName, ...] = ("same data order", "stability", "late phase")  # they need the training curve
_DECIDED_BY: Mapping[str, State | None] = {entry.code: state for state, entry in table()}
_WARNINGS = frozenset(entry.code for entry in WARNING_CODES)  # a warning is an error only where its code decides


def render_junit(
    documents: Sequence[AnyDocument],
    trouble: str | None = None,
    facts: Mapping[str, str | None] | None = None,
    accepted: Accepted | None = None,
) -> str:
    """JUnit XML of verdict documents or comparisons of evaluations, with an XML declaration and a newline at the end.

    `trouble` is why there is no verdict; `facts` become properties of every suite, those that are None excepted. What is open in a verdict
    that a person accepted is skipped, with the sign-off, and no <error>: it is neither passed nor broken.
    """
    root = ElementTree.Element("testsuites", name="parity")
    known = {name: value for name, value in (facts or {}).items() if value is not None}
    root.extend([_suite(document, known, (accepted or {}).get(document["candidate"]["name"])) for document in documents])
    if trouble is not None:
        suite = ElementTree.SubElement(root, "testsuite", name="parity", tests="1", failures="0", errors="1", skipped="0")
        _tell(suite, known)
        case = ElementTree.SubElement(suite, "testcase", name="a verdict", classname="parity")
        ElementTree.SubElement(case, "error", message=_xml(trouble))
    root.set("tests", str(len(root.findall("*/testcase"))))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(document: AnyDocument, facts: Mapping[str, str], sign_off: SignOffDocument | None) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_xml(f"{pair_words(document)} ({document['profile']})"))
    _tell(suite, {**_properties(document), **facts, **({"signed_off": accepted_words(sign_off)} if sign_off else {})})
    cases = [(str(check), *_outcome(document, check)) for check in CHECKS]
    if not is_evaluation(document):
        beside = cast("VerdictDocument", document).get("checks", ())
        cases += [(f"beside the loss: {check['name']}", *_beside(check)) for check in beside]
    if sign_off is not None:
        words = f"{NOT_A_PASS}: {accepted_words(sign_off)}"
        cases = [(check, "skipped", f"{words}. {text}") if outcome == "error" else (check, outcome, text) for check, outcome, text in cases]
    outcomes = [_case(suite, document, *each) for each in cases]
    suite.set("tests", str(len(outcomes)))
    for counter, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(counter, str(outcomes.count(kind)))
    return suite


def is_evaluation(document: AnyDocument) -> TypeGuard[EvaluationDocument]:
    """Whether a document compares evaluations of several runs, and not two training curves."""
    return document["schema"] == EVALUATION_SCHEMA


def _tell(suite: ElementTree.Element, values: Mapping[str, Any]) -> None:
    """Add properties, where there are any."""
    if values:
        properties = ElementTree.SubElement(suite, "properties")
        for key, value in values.items():
            ElementTree.SubElement(properties, "property", name=_xml(key), value=_xml(str(value)))


def _case(suite: ElementTree.Element, document: AnyDocument, check: str, outcome: str, text: str) -> str:
    """Add the case of one check and say how it came out."""
    case = ElementTree.SubElement(suite, "testcase", name=check, classname=_xml(f"parity.{document['candidate']['name']}"))
    if outcome != "ok":
        ElementTree.SubElement(case, outcome, message=_xml(text))
    elif text:
        ElementTree.SubElement(case, "system-out").text = _xml(text)
    return outcome


def _beside(check: Mapping[str, Any]) -> tuple[str, str]:
    """Outcome and text of a check in addition to the loss: only a gate can be a failure or an error."""
    state = check["state"]
    if check["role"] == "gate" and state != "pass":
        return ("failure" if state == "fail" else "error"), str(check["sentence"])
    if state is None:
        return "skipped", str(check["sentence"])
    return "ok", f"{check['role']}, {state}: {check['sentence']}"


def _outcome(document: AnyDocument, check: CheckName) -> tuple[str, str]:
    decided = BY_CODE.get(document["codes"][0])
    if check in NOT_OF_EVALUATIONS and is_evaluation(document) and (decided is None or decided.check != check):
        return "skipped", "not checked: it needs the training loss of each step"
    deciding = document["codes"][0]
    for reason in document["reasons"]:
        code = reason["code"]
        entry = BY_CODE.get(code)  # None: a code of another version of the judge
        if entry is None or (entry.check or UNCHECKED) != check or code == "WITHIN_MARGIN" or (code in _WARNINGS and code != deciding):
            continue
        return "failure" if _DECIDED_BY[code] == FAIL else "error", f"{code}: {reason['sentence']}"
    if check == "gap against margin" and document["verdict"] != "pass" and "WITHIN_MARGIN" not in document["codes"]:
        return "skipped", f"not decided: {deciding}"
    reused = reused_notes(cast("VerdictDocument", document)) if check == _GROUND and not is_evaluation(document) else []
    return "ok", "; ".join(f"reused: {note}" for note in reused)


def _properties(document: AnyDocument) -> dict[str, Any]:
    margin = document["margin"]
    gap: Mapping[str, Any] | None
    if is_evaluation(document):
        line, gap, target = answer(document), document["gap"]["judged"], document["target"]
        own = {"token_tax": target and target["tax"] and target["tax"]["estimate"], "profile": document["profile"]}
        downstream: Sequence[Mapping[str, Any]] = ()
    else:
        verdict = cast("VerdictDocument", document)
        line, gap, downstream = headline(verdict), verdict["gap"], verdict.get("downstream", ())
        own = {"n_eff": verdict["noise"].get("n_eff"), "profile": verdict["profile"], "sha256_aligned": verdict["inputs"]["sha256_aligned"]}
    return {
        "verdict": document["verdict"],
        "headline": line,
        "codes": " ".join(document["codes"]),
        "gap_nats": gap and gap["mean"],
        "ci_low": gap and gap["lo"],
        "ci_high": gap and gap["hi"],
        "margin_nats": margin and margin["nats"],
        **own,
        "engine_version": document["engine_version"],
        **{f"downstream.{task['task']}": task["sentence"] for task in downstream},
    }


def _xml(text: str) -> str:
    """Text without the control characters that XML forbids."""
    return "".join(letter if letter >= " " and letter not in "\ufffe\uffff" else " " for letter in text)

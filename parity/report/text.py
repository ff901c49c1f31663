"""Verdicts and comparisons of evaluations for a terminal (text, canonical JSON), a pull request (Markdown) and CI (JUnit XML)."""

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeGuard, cast, get_args

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.judging.decision import FAIL, GATE, CheckName, State
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.case import EVALUATION_SCHEMA, EvaluationDocument
from parity.judging.reasons import BY_CODE, table
from parity.judging.sign_offs import SignOffDocument
from parity.judging.warnings import WARNING_CODES
from parity.report.facts import (
    NOT_A_PASS,
    SUMMARY,
    Accepted,
    Cells,
    Detail,
    accepted_words,
    answer,
    arm_rows,
    comparison_rows,
    details,
    evaluation_details,
    judge_of,
    reused_notes,
    summary_row,
)
from parity.report.headline import MARKS, candidate_name, headline, pair_words
from parity.report.headline import answer as answer_line
from parity.structure import canonical_json
from parity.version import VERSION

# Verdicts as JUnit XML for CI systems: a suite a candidate, a case a check, numbers as properties.
#
# A check that fails the verdict is a <failure>, one that leaves it open an <error>, one that could not be made <skipped>. What stands
# beside the loss is a case of its own: a gate can fail it, advice is only told in <system-out>. A baseline that was not trained, because
# an equal one had been, is told with its age in the case "same ground".

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


# Verdict documents for a terminal, and as canonical JSON.
#
# Everything is made from the document (`Verdict.document()`), so that a verdict that came over the network reads the same.

REPORT_SCHEMA = "parity.report/1"
_STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}


def render_text(documents: Sequence[VerdictDocument], console_width: int = 80, accepted: Accepted | None = None) -> RenderableType:
    """The answer in one line per candidate, then a table, then reasons, numbers and advice; for a rich console of the given width.

    A sign-off in `accepted` follows the answer of its candidate.
    """
    parts: list[RenderableType] = []
    for document in documents:
        state = document["verdict"]
        word, _, body = answer_line(document).partition(":")
        parts.append(Text.assemble((f"{MARKS[state]} {word}", _STYLES[state]), f":{body}"))
        if accepted and (sign_off := accepted.get(candidate_name(document))):
            parts.append(Text.assemble((NOT_A_PASS, "bold"), f": {accepted_words(sign_off)}"))
    parts += [Text(""), _summary_table(documents, console_width), Text("")]
    for document, lines in zip(documents, details(documents), strict=True):
        parts += [Text(pair_words(document), style="bold"), *map(detail_text, lines), Text("")]
    return Group(*parts)


def _summary_table(documents: Sequence[VerdictDocument], width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=None, header_style="dim", padding=(0, 2, 0, 0))
    rows = [summary_row(document) for document in documents]
    for name, *cells in zip(SUMMARY, *rows, strict=True):
        whole = max(len(name), *(len(cell) for cell in cells)) if name != "candidate" and width >= 80 else None  # only a name may be folded
        left = name in ("candidate", "verdict")
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=whole is not None, min_width=whole)
    for row in rows:
        table.add_row(*row)
    return table


def detail_text(line: Detail) -> Padding:
    """A reason, a fact or an advice, indented."""
    head = ((line.name, "bold"), "  ") if line.is_code else ((f"{line.name}: ", "dim"),)
    return Padding(Text.assemble(*head, line.words), (0, 0, 0, 2))


def render_json(documents: Sequence[VerdictDocument], accepted: Accepted | None = None) -> str:
    """Canonical JSON: one object {schema, engine_version, verdicts}, sorted keys, the same bytes for the same verdicts.

    With sign-offs that hold it has `sign_offs`, too.
    """
    signed = {"sign_offs": list(accepted.values())} if accepted else {}
    return canonical_json({"schema": REPORT_SCHEMA, "engine_version": judge_of(documents), "verdicts": list(documents), **signed})


# Verdict documents as Markdown for a pull request.


def render_markdown(documents: Sequence[VerdictDocument], accepted: Accepted | None = None) -> str:
    """The answers, a table, and folded details; fit for a pull-request comment. A sign-off in `accepted` follows its answer."""
    return "\n\n".join([*markdown_sections(documents, accepted), f"parity {VERSION}\n"])


def markdown_sections(documents: Sequence[VerdictDocument], accepted: Accepted | None = None) -> list[str]:
    """The parts of `render_markdown`: answers with their table, then the details of each candidate."""
    lines = []
    for document in documents:
        lines += [marked(document["verdict"], answer_line(document)), ""]
        if accepted and (sign_off := accepted.get(candidate_name(document))):
            lines += [f"**{NOT_A_PASS}**: {escaped(accepted_words(sign_off))}", ""]
    lines.append(markdown_table([SUMMARY, *(tuple(map(escaped, summary_row(document))) for document in documents)]))
    return ["\n".join(lines), *map(folded, map(candidate_name, documents), details(documents))]


def marked(verdict: str, line: str) -> str:
    """A verdict in one line with its mark, the word in bold."""
    word, _, body = line.partition(":")
    return f"{MARKS[verdict]} **{word}**:{escaped(body)}"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells that are Markdown as a table, the first one as its heading."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def folded(candidate: str, lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice of a candidate, folded."""
    heads = ((f"`{name}`" if is_code else f"{name}:", words) for name, words, is_code in lines)
    listed = (f"- {head} {escaped(words)}" for head, words in heads)
    return "\n".join([f"<details><summary>{escaped(candidate)}: reasons and numbers</summary>", "", *listed, "", "</details>"])


# What Markdown, HTML in it, or GitHub would take for its own. As entities, which hold inside HTML too; GitHub looks for mentions,
# references and addresses after it has decoded entities, so a space of no width parts those.
_ENTITIES: dict[str, str | int | None] = {mark: f"&#{ord(mark)};" for mark in "|[]*~\\"}
_ENTITIES |= {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " ", "@": "@&#8203;"}
_PARTED = (
    (re.compile(r"(?<![^\W_])_|_(?![^\W_])"), "&#95;"),
    (re.compile(r"(?<!&)#(?=\d)"), "#&#8203;"),  # not that of an entity
    (re.compile(r"\b(GH-)(?=\d)", re.IGNORECASE), r"\1&#8203;"),
    (re.compile(r"://"), ":&#8203;//"),
    (re.compile(r"\b(www)\.", re.IGNORECASE), r"\1&#8203;."),
)


def escaped(text: str) -> str:
    """Text without markup: it mentions nobody, refers to no issue and links nowhere."""
    text = text.translate(str.maketrans(_ENTITIES))
    for pattern, replacement in _PARTED:
        text = pattern.sub(replacement, text)
    return text


# Comparisons of evaluations for a terminal and for a pull request; everything is made from the document.

WIDTH = 80


def render_evaluations_text(document: EvaluationDocument, width: int = WIDTH) -> str:
    """The answer in one line, what was compared, the arms side by side, then reasons and advice; wrapped to `width` columns."""
    parts: list[RenderableType] = [Text(f"{MARKS[document['verdict']]} {answer(document)}"), Text("")]
    for rows in _tables(document):
        parts += [_table(rows), Text("")]
    reasons, notes, advice = evaluation_details(document)
    parts += map(detail_text, [*notes, *reasons, *advice])
    page = io.StringIO()
    console = Console(file=page, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def _tables(document: EvaluationDocument) -> list[Sequence[Cells]]:
    """The tables that have a row."""
    return [rows for rows in (comparison_rows(document), arm_rows(document)) if len(rows) > 1]


def _table(rows: Sequence[Cells]) -> Table:
    """Names on the left, a last column of words on the left too where there are four, everything else on the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(rows[0]):
        left = number in (0, 3)
        table.add_column(Text(heading), justify="left" if left else "right", overflow="fold", no_wrap=number in (1, 2) and len(rows[0]) > 3)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def render_evaluations_markdown(document: EvaluationDocument) -> str:
    """The answer, two tables, then reasons, numbers and advice folded; fit for a pull-request comment."""
    tables = [markdown_table([tuple(map(escaped, row)) for row in table]) for table in _tables(document)]
    more = folded(document["candidate"]["name"], chain.from_iterable(evaluation_details(document)))
    return "\n\n".join([marked(document["verdict"], answer(document)), *tables, more, f"parity {VERSION}\n"])

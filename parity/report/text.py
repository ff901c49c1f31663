"""Verdicts and comparisons of evaluations for a terminal (text, canonical JSON), a pull request
(Markdown) and CI (JUnit XML).
"""

import io
import re
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast, get_args

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.canonical_json import canonical_json
from parity.judging.codes import BY_CODE
from parity.judging.decision import FAIL, PASS, POLICY_CHECK, CheckName, State
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.precedence import WARNINGS, table
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.report.facts import (
    NOT_A_PASS,
    SUMMARY,
    Accepted,
    Cells,
    Detail,
    accepted_words,
    arm_rows,
    comparison_rows,
    details,
    evaluation_details,
    judge_of,
    reused_notes,
    summary_row,
)
from parity.report.svg import axis_of, estimate_of
from parity.report.words import (
    MARKS,
    AnyDocument,
    Words,
    candidate_name,
    candidate_title,
    is_evaluation,
    mean_words,
    others_words,
    pair_words,
    safest_first,
    tally,
    told_gap,
    with_words,
    words,
)
from parity.version import VERSION
from parity.wording import cut, minus, signed

# Verdicts as JUnit XML for CI systems: a suite a candidate, a case a check, numbers as properties.
#
# A check that fails the verdict is a <failure>, one that leaves it open an <error>, one that could
# not be made <skipped>. What stands beside the loss is a case of its own: one that decides can fail
# it, advice is only told in <system-out>. A baseline that was not trained, because an equal one had
# been, is told with its age in the case "same ground".

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

    `trouble` is why there is no verdict; `facts` become properties of every suite, those that are
    None excepted. What is open in a verdict that a person accepted is skipped, with the sign-off,
    and no <error>: it is neither passed nor broken.
    """
    root = ElementTree.Element("testsuites", name="parity")
    known = {name: value for name, value in (facts or {}).items() if value is not None}
    root.extend(
        [
            _suite(document, known, (accepted or {}).get(document["candidate"]["name"]))
            for document in documents
        ]
    )
    if trouble is not None:
        suite = ElementTree.SubElement(
            root, "testsuite", name="parity", tests="1", failures="0", errors="1", skipped="0"
        )
        _tell(suite, known)
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
    document: AnyDocument, facts: Mapping[str, str], sign_off: SignOffDocument | None
) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite", name=_xml(f"{pair_words(document)} ({document['profile']})")
    )
    _tell(
        suite,
        {
            **_properties(document),
            **facts,
            **({"signed_off": accepted_words(sign_off)} if sign_off else {}),
        },
    )
    cases = [(str(check), *_outcome(document, check)) for check in CHECKS]
    if not is_evaluation(document):
        beside = cast("VerdictDocument", document).get("checks", ())
        cases += [(f"beside the loss: {check['name']}", *_beside(check)) for check in beside]
    if sign_off is not None:
        words = f"{NOT_A_PASS}: {accepted_words(sign_off)}"
        cases = [
            (check, "skipped", f"{words}. {text}") if outcome == "error" else (check, outcome, text)
            for check, outcome, text in cases
        ]
    outcomes = [_case(suite, document, *each) for each in cases]
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


def _case(
    suite: ElementTree.Element, document: AnyDocument, check: str, outcome: str, text: str
) -> str:
    """Add the case of one check and say how it came out."""
    case = ElementTree.SubElement(
        suite, "testcase", name=check, classname=_xml(f"parity.{document['candidate']['name']}")
    )
    if outcome != "ok":
        ElementTree.SubElement(case, outcome, message=_xml(text))
    elif text:
        ElementTree.SubElement(case, "system-out").text = _xml(text)
    return outcome


def _beside(check: Mapping[str, Any]) -> tuple[str, str]:
    """Outcome and text of a check in addition to the loss: only one that decides can be a failure
    or an error.
    """
    state = check["state"]
    if check["role"] == "decides" and state != "pass":
        return ("failure" if state == "fail" else "error"), str(check["sentence"])
    if state is None:
        return "skipped", str(check["sentence"])
    return "ok", f"{check['role']}, {state}: {check['sentence']}"


def _outcome(document: AnyDocument, check: CheckName) -> tuple[str, str]:
    decided = BY_CODE.get(document["codes"][0])
    if (
        check in NOT_OF_EVALUATIONS
        and is_evaluation(document)
        and (decided is None or decided.check != check)
    ):
        return "skipped", "not checked: it needs the training loss of each step"
    deciding = document["codes"][0]
    for reason in document["reasons"]:
        code = reason["code"]
        entry = BY_CODE.get(code)  # None: a code of another version of the judge
        if (
            entry is None
            or (entry.check or UNCHECKED) != check
            or code in _PASSING
            or (code in _WARNINGS and code != deciding)
        ):
            continue
        return "failure" if _DECIDED_BY[code] == FAIL else "error", f"{code}: {reason['sentence']}"
    if (
        check == "gap against margin"
        and document["verdict"] != "pass"
        and not _PASSING & {*document["codes"]}
    ):
        return "skipped", f"not decided: {deciding}"
    if check == _GROUND and not is_evaluation(document):
        reused = reused_notes(cast("VerdictDocument", document))
    else:
        reused = []
    return "ok", "; ".join(f"reused: {note}" for note in reused)


def _properties(document: AnyDocument) -> dict[str, Any]:
    margin = document["margin"]
    gap: Mapping[str, Any] | None
    if is_evaluation(document):
        gap, target = document["gap"]["judged"], document["target"]
        own = {
            "token_tax": target and target["tax"] and target["tax"]["estimate"],
            "profile": document["profile"],
        }
        downstream: Sequence[Mapping[str, Any]] = ()
    else:
        verdict = cast("VerdictDocument", document)
        gap, downstream = verdict["gap"], verdict.get("downstream", ())
        own = {
            "n_eff": verdict["noise"].get("n_eff"),
            "profile": verdict["profile"],
            "sha256_aligned": verdict["inputs"]["sha256_aligned"],
        }
    told = words(document)
    return {
        "verdict": document["verdict"],
        "lead": told.lead,
        "measure": told.measure,
        "interval": told.interval,
        "next": told.next,
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
    return "".join(
        letter if letter >= " " and letter not in "\ufffe\uffff" else " " for letter in text
    )


# Verdict documents for a terminal, and as canonical JSON.
#
# Everything is made from the document (`Verdict.document()`), so that a verdict that came over the
# network reads the same.

REPORT_SCHEMA = "parity.report/1"
MOST_LINES = 15  # of one candidate
STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
_LABEL = 18  # columns of the strip's names
# columns of a candidate's name at most, and of the numbers behind its interval
_NAME, _NUMBERS = 22, 30
_MORE = "(all numbers: -v)"


def render_text(
    documents: Sequence[AnyDocument],
    console_width: int = 80,
    accepted: Accepted | None = None,
    *,
    verbose: bool = False,
) -> RenderableType:
    """The answer, the intervals against the margin and the strip, in at most 15 lines for one
    candidate; for a rich console.

    `verbose` adds the numbers, reasons and advice of each candidate. A sign-off in `accepted`
    follows the answer.
    """
    first, *others = safest_first(documents)
    parts = answer_parts(documents, accepted)
    bars = [Text(line) for line in interval_bars(safest_first(documents), console_width)]
    if bars:
        parts += [Text(""), *bars]
    parts.append(Text(""))
    parts += (
        [_next_line(words(first), console_width)] if others else _strip_lines(first, console_width)
    )
    if not others and not verbose:
        parts = _fitted(parts, console_width)
    return Group(*parts, *(_numbers(documents, console_width) if verbose else ()))


def plain_text(
    documents: Sequence[AnyDocument],
    width: int = 80,
    accepted: Accepted | None = None,
    *,
    verbose: bool = False,
) -> str:
    """`render_text` without colour, for a file or a pipe: no line ends in spaces."""
    page = io.StringIO()
    console = Console(file=page, width=width, color_system=None, highlight=False)
    console.print(render_text(documents, width, accepted, verbose=verbose))
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def answer_parts(
    documents: Sequence[AnyDocument], accepted: Accepted | None = None
) -> list[RenderableType]:
    """The answer, a line each: verdict and lead, measure, interval, what became of further
    candidates, and sign-offs that hold.
    """
    first, *others = safest_first(documents)
    told = words(first)
    parts: list[RenderableType] = [
        Text.assemble((told.chip, STYLES[told.verdict]), f"  {told.lead}")
    ]
    parts += [Text(minus(line)) for line in (told.measure, told.interval) if line]
    if others:
        counted = (
            (f"{MARKS[state]} {number} {state}  ", STYLES[state])
            for state, number in tally(documents)
        )
        parts += [Text(minus(others_words(documents))), Text.assemble(*counted)]
    return parts + [
        _accepted_text(accepted[name])
        for name in map(candidate_name, (first, *others))
        if accepted and name in accepted
    ]


def _accepted_text(sign_off: SignOffDocument) -> Text:
    return Text.assemble((NOT_A_PASS, "bold"), f": {accepted_words(sign_off)}")


def interval_bars(documents: Sequence[AnyDocument], width: int = 80) -> list[str]:
    """The interval of each candidate on one axis with zero and the margin, under a heading; nothing
    where none has an interval.
    """
    estimates = [estimate_of(document) for document in documents]
    axis = axis_of([each for each in estimates if each])
    if axis is None:
        return []
    names = [cut(" ".join(candidate_title(document).split()), _NAME) for document in documents]
    left = max(10, *map(len, names)) + 1
    columns = max(20, width - left - _NUMBERS)

    def column(value: float) -> int:
        return round(
            (columns - 1) * min(1.0, max(0.0, (value - axis.low) / (axis.high - axis.low)))
        )

    margin = None if axis.margin is None else column(axis.margin)
    head = [" "] * columns
    head[column(0.0)] = "0"
    line = "".join(head)
    if margin is not None:
        line = f"{line[: max(margin - 2, column(0.0) + 2)]}margin"
    lines = [(" " * left + line).rstrip()]
    for document, name, estimate in zip(documents, names, estimates, strict=True):
        cells = [" "] * columns
        cells[column(0.0)] = "│"
        if margin is not None:
            cells[margin] = "┊"
        if estimate:
            low, middle, high = column(estimate.lo), column(estimate.mean), column(estimate.hi)
            cells[low : high + 1] = "─" * (high + 1 - low)
            cells[low] = "├" if estimate.lo >= axis.low else "◂"
            cells[high] = "┤" if estimate.hi <= axis.high else "▸"
            cells[middle] = MARKS[document["verdict"]]
        if len(documents) == 1:
            behind = _behind(document)
        else:
            behind = f"{minus(mean_words(document)):>9}  {document['verdict']}"
        lines.append(f"{name:<{left}}{''.join(cells)} {behind}".rstrip())
    return lines


def _behind(document: AnyDocument) -> str:
    """The gap in nats, and as a share of the loss."""
    gap = told_gap(document)
    if gap is None:
        return "no gap"
    share = f"  {signed(100.0 * gap['rel'], 2)} %" if isinstance(gap["rel"], float) else ""
    return minus(f"{mean_words(document)} nats{share}")


def _strip_lines(document: AnyDocument, width: int) -> list[RenderableType]:
    """The strip, a line each, what to do next, and the reason codes."""
    told = words(document)
    lines: list[RenderableType] = [
        _row(fact.name, shortened_end(minus(str(fact)), width - _LABEL), width)
        for fact in told.strip
    ]
    codes = shortened_end(", ".join(document["codes"]), width - _LABEL - len(_MORE) - 2)
    return [
        *lines,
        *([_next_line(told, width)] if told.next else []),
        _row("Reasons", f"{codes}  {_MORE}", width),
    ]


def _next_line(told: Words, width: int) -> Text:
    """The first sentence of what to do next."""
    first = re.split(r"(?<=[.:]) (?=[A-Z])", told.next, maxsplit=1)[0].rstrip(":")
    if first:
        return _row("Next", minus(first), width)
    return Text("")


def _row(name: str, line: str, width: int) -> Text:
    """A fact with its name before it, on two lines at most; the second one is indented."""
    lines = textwrap.wrap(
        line, width - _LABEL, break_on_hyphens=False, max_lines=2, placeholder="…"
    ) or [""]
    return Text.assemble((f"{name:<{_LABEL}}", "dim"), f"\n{' ' * _LABEL}".join(lines))


def shortened_end(text: str, most: int) -> str:
    """A line of so many characters at most."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rstrip()}…"


def _fitted(parts: Sequence[RenderableType], width: int) -> list[RenderableType]:
    """The parts in 15 lines: blank lines go first, then facts that say nothing."""
    console = Console(width=width, file=io.StringIO(), color_system=None)

    def height(shown: Sequence[RenderableType]) -> int:
        return sum(len(console.render_lines(part, pad=False)) for part in shown)

    kept = list(parts)
    for part in parts:
        if height(kept) <= MOST_LINES:
            break
        if isinstance(part, Text) and not part.plain:
            kept.remove(part)
    return kept


def _numbers(documents: Sequence[AnyDocument], width: int) -> list[RenderableType]:
    """A table of all candidates, then reasons, facts and advice of each."""
    if is_evaluation(documents[0]):
        return [
            part
            for document in documents
            for part in _evaluation_numbers(cast("EvaluationDocument", document))
        ]
    verdicts = cast("Sequence[VerdictDocument]", documents)
    parts: list[RenderableType] = [Text(""), _summary_table(verdicts, width), Text("")]
    for document, lines in zip(verdicts, details(verdicts), strict=True):
        parts += [Text(pair_words(document), style="bold"), *map(detail_text, lines), Text("")]
    return parts


def _summary_table(documents: Sequence[VerdictDocument], width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=None, header_style="dim", padding=(0, 2, 0, 0))
    rows = [tuple(map(minus, summary_row(document))) for document in documents]
    for name, *cells in zip(SUMMARY, *rows, strict=True):
        # only a name may be folded
        if name != "candidate" and width >= 80:
            whole = max(len(name), *(len(cell) for cell in cells))
        else:
            whole = None
        left = name in ("candidate", "verdict")
        table.add_column(
            name,
            justify="left" if left else "right",
            overflow="fold",
            no_wrap=whole is not None,
            min_width=whole,
        )
    for row in rows:
        table.add_row(*row)
    return table


def detail_text(line: Detail) -> Padding:
    """A reason, a fact or an advice, indented."""
    head = ((line.name, "bold"), "  ") if line.is_code else ((f"{line.name}: ", "dim"),)
    return Padding(Text.assemble(*head, minus(line.words)), (0, 0, 0, 2))


def render_json(documents: Sequence[AnyDocument], accepted: Accepted | None = None) -> str:
    """Canonical JSON: one object {schema, engine_version, verdicts}, sorted keys, the same bytes
    for the same verdicts.

    With sign-offs that hold it has `sign_offs`, too.
    """
    signed_off = {"sign_offs": list(accepted.values())} if accepted else {}
    return canonical_json(
        {
            "schema": REPORT_SCHEMA,
            "engine_version": judge_of(documents),
            "verdicts": list(map(with_words, documents)),
            **signed_off,
        }
    )


# Verdict documents as Markdown for a pull request.


def render_markdown(documents: Sequence[AnyDocument], accepted: Accepted | None = None) -> str:
    """The answer, the intervals, the strip, and folded details; fit for a pull-request comment. A
    sign-off follows the answer.
    """
    return "\n\n".join([*markdown_sections(documents, accepted), f"parity {VERSION}\n"])


def markdown_sections(
    documents: Sequence[AnyDocument], accepted: Accepted | None = None
) -> list[str]:
    """The parts of `render_markdown`: the answer with its figure and strip, then the details of
    each candidate.
    """
    ordered = safest_first(documents)
    told = words(ordered[0])
    sections = [f"### {MARKS[told.verdict]} {told.verdict.upper()}: {escaped(told.lead)}"]
    sentences = [
        told.measure,
        told.interval,
        *([others_words(documents)] if len(documents) > 1 else []),
    ]
    sections.append(" ".join(escaped(minus(sentence)) for sentence in sentences if sentence))
    held = [
        accepted[name] for name in map(candidate_name, ordered) if accepted and name in accepted
    ]
    sections += [f"**{NOT_A_PASS}**: {escaped(accepted_words(sign_off))}" for sign_off in held]
    if bars := interval_bars(ordered):
        sections.append("\n".join(["```", *(line.replace("`", "'") for line in bars), "```"]))
    if len(documents) == 1:
        strip = [
            (fact.name, f"**{escaped(minus(fact.value))}**", escaped(minus(fact.why)))
            for fact in told.strip
        ]
        sections.append(markdown_table([("", "", ""), *strip]))
    else:
        sections.append(
            markdown_table(
                [
                    SUMMARY,
                    *(
                        tuple(escaped(minus(cell)) for cell in _cells(document))
                        for document in ordered
                    ),
                ]
            )
        )
    if told.next:
        sections.append(f"**Next:** {escaped(minus(told.next))}")
    if is_evaluation(documents[0]):
        evaluations = cast("Sequence[EvaluationDocument]", documents)
        return ["\n\n".join(sections), *(_evaluation_section(document) for document in evaluations)]
    return [
        "\n\n".join(sections),
        *map(
            folded,
            map(candidate_title, documents),
            details(cast("Sequence[VerdictDocument]", documents)),
        ),
    ]


def _cells(document: AnyDocument) -> tuple[str, ...]:
    return summary_row(cast("VerdictDocument", document))


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells that are Markdown as a table, the first one as its heading."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def folded(candidate: str, lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice of a candidate, folded."""
    heads = (
        (f"`{name}`" if is_code else f"{name}:", sentence) for name, sentence, is_code in lines
    )
    listed = (f"- {head} {escaped(minus(sentence))}" for head, sentence in heads)
    return "\n".join(
        [
            f"<details><summary>{escaped(candidate)}: reasons and numbers</summary>",
            "",
            *listed,
            "",
            "</details>",
        ]
    )


# What Markdown, HTML in it, or GitHub would take for its own. As entities, which hold inside HTML
# too; GitHub looks for mentions, references and addresses after it has decoded entities, so a space
# of no width parts those.
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


# What a comparison of evaluations adds: its tables, its runs, and what is known of its hardware.


def _evaluation_numbers(document: EvaluationDocument) -> list[RenderableType]:
    """What was compared, the arms side by side, then reasons and advice."""
    parts: list[RenderableType] = [Text("")]
    for rows in _tables(document):
        parts += [_table(rows), Text("")]
    reasons, notes, advice = evaluation_details(document)
    return [*parts, *map(detail_text, [*notes, *reasons, *advice])]


def _tables(document: EvaluationDocument) -> list[Sequence[Cells]]:
    """The tables that have a row."""
    return [rows for rows in (comparison_rows(document), arm_rows(document)) if len(rows) > 1]


def _table(rows: Sequence[Cells]) -> Table:
    """Names on the left, a last column of words on the left too where there are four, everything
    else on the right.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(rows[0]):
        left = number in (0, 3)
        table.add_column(
            Text(heading),
            justify="left" if left else "right",
            overflow="fold",
            no_wrap=number in (1, 2) and len(rows[0]) > 3,
        )
    for row in rows[1:]:
        table.add_row(*(Text(minus(cell)) for cell in row))
    return table


def _evaluation_section(document: EvaluationDocument) -> str:
    """Two tables, then reasons, numbers and advice folded."""
    tables = [
        markdown_table([tuple(escaped(minus(cell)) for cell in row) for row in table])
        for table in _tables(document)
    ]
    return "\n\n".join(
        [
            *tables,
            folded(candidate_title(document), chain.from_iterable(evaluation_details(document))),
        ]
    )

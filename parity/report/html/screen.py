"""The first screen of a verdict as HTML: answer, next step, candidates, picture, strip, and the
details below it.

Every word of the answer comes from `parity.report.words`. Buttons, and what the details hold, are
the caller's HTML.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import NamedTuple

from parity.frozen import frozen
from parity.judging.case import AnyDocument
from parity.judging.document_types import State
from parity.report.answer import answer_words
from parity.report.candidates import safest_first, tally
from parity.report.forecast import Outlook, live_interval, live_lead, live_measure
from parity.report.html.code_words import with_code
from parity.report.picture.scene import MANY, TraceState, answer_in_words
from parity.report.sign_off_words import NOT_A_PASS, Accepted
from parity.report.strip import StripItem, candidate_items
from parity.report.view import View, views_of
from parity.report.words import MARKS, words
from parity.wording import cut, minus

KEYS = (
    ("j k", "candidate"),
    ("← →", "cursor in the picture"),
    ("+ − 0", "zoom in, out, whole run"),
    ("Enter", "the button"),
    ("/", "find a job, on the server"),
    ("Esc", "close"),
)
_NAME_CHARACTERS = 20  # characters of a candidate's name in the strip
_LONG = 80  # characters of a lead, from which its letters are smaller


class DetailsRow(NamedTuple):
    """A row of the details: the letter that opens it, its title, its answer in a line (HTML), and
    what it holds (HTML).
    """

    key: str
    title: str
    answer: str
    body: str
    is_open: bool = False


@frozen
class ScreenAnswer:
    """The answer in words; `counts` is how many candidates have each verdict, of many.

    `of_all` is the chip of all candidates together, where this is the answer of a selected one.
    `about` is whose the facts of the strip are, apart from the cost; "" of one candidate alone.
    `next_open` is what to do about the candidates that are open, where another one decides; it is
    not said while a candidate is selected.
    """

    state: TraceState
    chip: str
    lead: str
    measure: str
    interval: str
    next: str
    strip: Sequence[StripItem]
    counts: Sequence[tuple[State, int]] = ()
    about: str = ""
    of_all: str = ""
    next_open: str = ""


@frozen
class Screen:
    """A first screen: `accepted` is who signed a verdict off and until when; `table` and `chances`
    are HTML, "" without any.

    `has_keys` where the script is there.
    """

    context: Sequence[str]
    answer: ScreenAnswer
    picture: str
    buttons: Sequence[str] = ()
    table: str = ""
    chances: str = ""
    accepted: str = ""
    details: Sequence[DetailsRow] = ()
    is_dense: bool = False
    has_keys: bool = True


def answer_of(
    documents: Sequence[AnyDocument],
    cost: StripItem | None = None,
    selected: int = 0,
    accepted: Accepted | None = None,
) -> ScreenAnswer:
    """The answer of judged candidates; the strip is that of the selected one."""
    ordered = safest_first(views_of(documents))
    said, chosen = answer_words(ordered, cost, accepted), ordered[selected]
    answer = answer_in_words(said)
    return ScreenAnswer(
        state=answer.state,
        chip=answer.chip,
        lead=answer.lead,
        measure=answer.measure,
        interval=answer.interval,
        next=answer.next,
        strip=words(chosen, cost).strip,
        next_open=minus(said.next_open),
        about=chosen.candidate.title if len(ordered) > 1 else "",
        counts=tally(ordered) if len(ordered) > MANY else (),
    )


def selected_answer(everyone: ScreenAnswer, view: View) -> ScreenAnswer:
    """The answer of a selected candidate of several, `everyone` that of all."""
    said = answer_in_words(words(view))
    return replace(
        everyone,
        state=said.state,
        chip=f"{said.chip} · {cut(view.candidate.title, _NAME_CHARACTERS)}",
        lead=said.lead,
        measure=said.measure,
        interval=said.interval,
        next=said.next,
        of_all=everyone.chip,
    )


def live_answer(
    names: tuple[str, str],
    live: Outlook,
    planned_steps: int | None,
    strip: Sequence[StripItem],
    next_step: str = "",
    margin_worth: str = "",
) -> ScreenAnswer:
    """The answer of a forecast; `names` are the baseline's and the candidate's, `margin_worth` says
    what the margin is of (`forecast.margin_basis`).
    """
    share = f" · {100.0 * live.step / planned_steps:.0f} % OF THE STEPS" if planned_steps else ""
    return ScreenAnswer(
        state="live",
        chip=f"▸ NO VERDICT YET{share}",
        lead=live_lead(names[1], live),
        measure=minus(live_measure(names[0], live)),
        interval=minus(live_interval(live, margin_worth)),
        next=minus(next_step),
        strip=strip,
    )


def screen_html(screen: Screen) -> str:
    """The context line, the first screen and its details."""
    first, *rest = screen.context
    context = "".join(f"<span>{escape(part)}</span>" for part in rest)
    dense = " crowd" if screen.is_dense else ""
    return (
        f'<div class="ctx" role="region" aria-label="Job"><b>{escape(first)}</b>{context}</div>'
        "<div "
        f'class="screen{dense}">{_answer(screen)}{screen.picture}{_strip(screen.answer)}{_next(screen)}{screen.table}'
        f"{_details(screen.details)}</div>{_keys(screen) if screen.has_keys else ''}"
    )


def _answer(screen: Screen) -> str:
    answer = screen.answer
    accepted = (
        f'<p class="acc"><b>{NOT_A_PASS}:</b> {escape(screen.accepted)}</p>'
        if screen.accepted
        else ""
    )
    counts = "".join(
        f'<span class="c-{state}">{MARKS[state]} {number} {state}</span>'
        for state, number in answer.counts
    )
    counted = f'<p class="tally">{counts}</p>' if counts else ""
    interval = f'<p class="int">{escape(answer.interval)}</p>' if answer.interval else ""
    long = ' class="long"' if len(answer.lead) > _LONG else ""
    back = f'<a class="of-all" href="?">{escape(answer.of_all)} in all</a>' if answer.of_all else ""
    return (
        f'<section class="ans c-{answer.state}" aria-label="Answer"><p '
        f'class="chip"><span>{escape(answer.chip)}</span>{back}</p>'
        f"<h1{long}>{escape(answer.lead)}</h1>{accepted}<p "
        f'class="meas">{_bold_number(answer.measure)}</p>{interval}{counted}</section>'
    )


def _bold_number(measure: str) -> str:
    """The measure with its number of nats bold."""
    return re.sub(
        r"\d+\.\d+ nats", lambda match: f"<strong>{match[0]}</strong>", escape(measure), count=1
    )


def _next(screen: Screen) -> str:
    if not (screen.answer.next or screen.buttons or screen.chances):
        return ""
    step = _steps(screen.answer)
    # what a button does is the same whichever candidate is selected
    whose = '<small class="whose">For the whole job:</small>' if screen.answer.about else ""
    acts = f'<div class="acts">{whose}{"".join(screen.buttons)}</div>' if screen.buttons else ""
    # buttons that advise nothing are no next step
    head = "<h2>Next</h2>" if step or 'class="btn"' in acts else ""
    return f'<section class="next" aria-label="Next">{screen.chances}{head}{step}{acts}</section>'


def _steps(answer: ScreenAnswer) -> str:
    """The next step, and below it that of the open candidates, in one box: the script keeps room
    in it for the longest step of a candidate.
    """
    step = f"<p>{with_code(answer.next)}</p>" if answer.next else ""
    if answer.next_open:
        look = "also unsaid" if answer.of_all else "also"
        step += f'<p class="{look}">{with_code(answer.next_open)}</p>'
    return f'<div class="steps">{step}</div>' if step else ""


def button(label: str, address: str, *, is_first: bool = True) -> str:
    """A link that looks like a button; the first one answers to Enter."""
    key, look = (" <kbd>↵</kbd>", "btn") if is_first else ("", "btn q")
    return f'<a class="{look}" href="{escape(address)}">{escape(label)}{key}</a>'


def chances_html(live: Outlook) -> str:
    """The chances of each verdict as a bar with its numbers."""
    chances: Sequence[tuple[State, float]] = (
        ("pass", live.passes),
        ("inconclusive", live.inconclusive),
        ("fail", live.fails),
    )
    said = [f"{state} {100.0 * chance:.0f} %" for state, chance in chances]
    bars, left = [], 0.0
    for state, chance in chances:
        bars.append(
            f'<rect class="c-{state}" x="{100.0 * left:.2f}%" '
            f'width="{max(0.0, 100.0 * chance - 0.4):.2f}%" height="100%"/>'
        )
        left += chance
    key = "".join(
        f'<span class="c-{state}"><b>{escape(text)}</b></span>'
        for (state, _), text in zip(chances, said, strict=True)
    )
    bar = (
        '<svg class="chances" role="img" '
        f'aria-label="{escape(", ".join(said))}">{"".join(bars)}</svg>'
    )
    return f'<h2>Chances of the verdict</h2>{bar}<p class="said">{key}</p>'


def _strip(answer: ScreenAnswer) -> str:
    facts, parts = answer.strip, []
    for fact in facts:
        why = f"<small>{escape(minus(fact.why))}</small>" if fact.why else ""
        is_own = answer.about and fact in candidate_items(facts)
        about = (
            f'<span class="of"> · {escape(cut(answer.about, _NAME_CHARACTERS))}</span>'
            if is_own
            else ""
        )
        look = ' class="own"' if is_own else ""
        parts.append(
            f"<div{look}><dt>{escape(fact.name)}{about}</dt><dd>{escape(minus(fact.value))}{why}</dd></div>"
        )
    return (
        '<dl class="strip" '
        f'aria-label="{escape(", ".join(fact.name for fact in facts))}">{"".join(parts)}</dl>'
    )


def _details(rows: Sequence[DetailsRow]) -> str:
    drawn = []
    for row in rows:
        opened = " open" if row.is_open else ' name="more"'
        head = f"<summary><kbd>{escape(row.key)}</kbd><b>{escape(row.title)}</b><span>{row.answer}</span></summary>"  # noqa: E501
        drawn.append(
            f'<details data-key="{escape(row.key)}"{opened}>{head}<div '
            f'class="body">{row.body}</div></details>'
        )
    if not drawn:
        return ""
    return f'<section class="more" aria-label="Details">{"".join(drawn)}</section>'


def _keys(screen: Screen) -> str:
    keys = [*KEYS, *((row.key, row.title) for row in screen.details)]
    listed = "<br>".join(f"<kbd>{escape(key)}</kbd> {escape(what)}" for key, what in keys)
    return f'<p class="keys" role="status" hidden>{listed}</p>'

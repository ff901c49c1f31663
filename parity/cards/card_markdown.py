"""A card as Markdown, for a pull request, a model card or a paper. The YAML is folded into it, so
that this one file can be verified, too.
"""

import re
from collections.abc import Iterator, Sequence

from parity.cards.card import Card, CardArm, CardCandidate, CardStatement
from parity.cards.card_file import AnyCard, CardError, card_yaml
from parity.cards.golden_card import GoldenCard
from parity.golden.words import MARKS as GOLDEN_MARKS
from parity.inert import inert
from parity.report.formats.markdown import escaped, markdown_table
from parity.report.words import MARKS
from parity.wording import (
    count,
    interval_words,
    level_percent,
    minus,
    nats_decimals,
    short_percent,
    signed,
    tokens_words,
)

_SUMMARY = "<summary>Card, for <code>parity verify</code></summary>"
_FENCED = re.compile(
    re.escape(_SUMMARY) + r"\s*\n(?P<fence>`{3,})yaml\n(?P<yaml>.*?)\n(?P=fence)[ \t]*(?:\n|$)",
    re.DOTALL,
)


def card_markdown(card: AnyCard) -> str:
    """The Markdown of a card, all of it from its fields; names and statements have no markup."""
    if isinstance(card, GoldenCard):
        sections = _golden_sections(card)
    else:
        sections = _sections(card)
    sections.append(_folded(card_yaml(card)))
    return "\n\n".join(section for section in sections if section) + "\n"


def _shown(text: str) -> str:
    """Text without markup, in which what nobody sees is an escape."""
    return escaped(inert(text))


def _golden_sections(card: GoldenCard) -> list[str]:
    stated = [
        f"{name} {value}"
        for name in ("changed", "fork", "container", "hardware", "data")
        if (value := getattr(card, name)) is not None
    ]
    lines = (
        card.scope,
        f"{card.steps:,} steps from step {card.first_step:,}"
        + (
            f", {card.unjudged_steps:,} behind the golden's last not judged"
            * bool(card.unjudged_steps)
        ),
        f"stated, on no record: {', '.join([*stated, *card.random]) or 'nothing'}",
        *(f"{name.replace('_', ' ')}: {value:g}" for name, value in card.measured.items()),
        f"parity {card.parity}",
    )
    digests = zip((card.run, *card.goldens), (card.run_sha256, *card.goldens_sha256), strict=False)
    return [
        f"### {GOLDEN_MARKS[card.answer]} {_shown(card.headline)}",
        _shown(card.question),
        "\n".join(
            [
                *(f"- {_shown(minus(line))}" for line in lines),
                *(f"- {_shown(f'{name}: sha256 {digest}')}" for name, digest in digests),
            ]
        ),
    ]


def _sections(card: Card) -> list[str]:
    return [
        f"### {MARKS[card.state]} {_shown(card.headline)}",
        _shown(card.question),
        markdown_table([_HEADS, *(_row(candidate) for candidate in card.candidates)]),
        "\n".join(f"- {line}" for line in _lines(card)),
    ]


def yaml_of_markdown(text: str, path: str) -> str:
    """The YAML in the Markdown of a card; CardError where it has none, or several."""
    found = [match["yaml"] for match in _FENCED.finditer(text)]
    if len(found) != 1:
        raise CardError(
            f"{path}: has {count(len(found), 'card')}; expected one, in the Markdown that `parity "
            "card --markdown` prints"
        )
    return found[0] + "\n"


_HEADS = ("candidate", "verdict", "gap, nats", "interval that decided", "margin, nats", "codes")


def _row(candidate: CardCandidate) -> tuple[str, ...]:
    gap, margin = candidate.gap, candidate.margin
    decimals = nats_decimals(
        margin.nats if margin else None, *((gap.deciding.lo, gap.deciding.hi) if gap else ())
    )
    share = f" ({short_percent(margin.rel)} of the loss)" if margin and margin.rel else ""
    if gap is None:
        mean, interval = "none", "none"
    else:
        mean = signed(gap.mean, decimals)
        side = ", one end counts" if gap.deciding.one_sided else ""
        level = level_percent(gap.deciding.level)
        interval = f"{interval_words(gap.deciding.lo, gap.deciding.hi, decimals)} ({level}{side})"
    cells = (
        candidate.arm.name,
        f"{MARKS[candidate.verdict]} {candidate.verdict.upper()}",
        mean,
        interval,
        f"{margin.nats:.{decimals}f}{share}" if margin else "none",
        ", ".join(candidate.codes),
    )
    return tuple(_shown(minus(cell)) for cell in cells)


def _lines(card: Card) -> Iterator[str]:
    """One line a fact, without markup in what others wrote."""
    for arm in (card.baseline, *(candidate.arm for candidate in card.candidates)):
        yield f"{_shown(arm.name)}: {_shown(_arm_words(arm))}"
    for candidate in card.candidates:
        yield f"{_shown(candidate.arm.name)}: {_shown(_window_words(candidate))}"
    if card.planned_steps is not None:
        yield f"planned steps: {card.planned_steps:,}"
    yield f"policy: {_shown(_named(card.policy))}"
    for name in ("commits", "versions", "devices", "model"):
        if facts := getattr(card, name):
            yield f"{name}: {_shown(_named(facts))}"
    yield f"stated, on no record: {_shown(_statements(card.statements))}"
    for sign_off in card.sign_offs:
        yield _shown(
            f"accepted, not a pass: {sign_off.candidate}, by {sign_off.who}, until "
            f"{sign_off.expires_at}: {sign_off.reason}"
        )
    job = f", job {card.job}" if card.job else ""
    yield _shown(f"judge {card.judge}, parity {card.parity}{job}")
    yield f"evidence: `sha256:{card.evidence_sha256}`"


def _arm_words(arm: CardArm) -> str:
    recipe = "recipe not stated" if arm.recipe is None else f"recipe {arm.recipe}"
    if arm.effective_recipe != arm.recipe:
        recipe += f", in effect {arm.effective_recipe}"
    seeds = f", seeds {', '.join(map(str, arm.seeds))}" if arm.seeds else ", no seed stated"
    noise = (
        f", run-to-run noise {short_percent(arm.noise.rel)} of the loss ({arm.noise.source})"
        if arm.noise
        else ""
    )
    return f"{recipe}, {count(arm.runs, 'run')}{seeds}{noise}"


def _window_words(candidate: CardCandidate) -> str:
    steps = (
        "no step was judged"
        if candidate.first_step is None
        else f"judged in steps {candidate.first_step:,} to {candidate.last_step:,}"
    )
    tokens = "" if candidate.tokens is None else f", {tokens_words(candidate.tokens)}"
    end = "" if candidate.finished else ", before the end of its training"
    noise = f", noise {candidate.noise_basis}" if candidate.noise_basis else ""
    return f"against {candidate.against}, {steps}{tokens}{end}{noise}"


def _named(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _statements(statements: Sequence[CardStatement]) -> str:
    if not statements:
        return "nothing"
    return "; ".join(
        f"{one.fact}{f' of {one.arm}' if one.arm else ''} {one.value}"
        f"{f', by {one.by}' if one.by else ''}"
        for one in statements
    )


def _folded(text: str) -> str:
    """The YAML in a fence that nothing in it closes."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"<details>{_SUMMARY}\n\n{fence}yaml\n{text.rstrip()}\n{fence}\n\n</details>"

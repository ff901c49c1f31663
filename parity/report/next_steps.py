"""The next steps of a verdict as they are written where the reader stands: the command that was
typed with the options added, or the call in Python.

A document has them in options of the command line, or in the words of jobs where a server's ledger
counted its look. Here they are rewritten for one place, before anything is shown there; what is
stored, hashed and bundled stays as it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from parity.judging.case import AnyDocument
from parity.judging.codes import BY_CODE
from parity.judging.document_types import OfferDocument, VerdictDocument
from parity.judging.statements.offer import promise_words
from parity.judging.statements.statement_words import (
    PossibleStatement,
    as_arguments,
    as_options,
    for_owner,
    is_stated_on_a_page,
    python_literal,
)

Document = TypeVar("Document", bound=AnyDocument)

_ARGUMENT_FORMS: Sequence[tuple[str, Callable[[re.Match[str]], str]]] = (
    (
        r"--(column|context) (\w+):(\w+)=(\w+|\.\.\.)",
        lambda found: f"{_parameter(found[1])}={python_literal({found[2]: {found[3]: found[4]}})}",
    ),
    (
        r"--column (\w+)=(\w+)",
        lambda found: f"columns={python_literal({found[1]: found[2]})}",
    ),
    (
        r"--(recipe|rounding) (?:'([^'=]+)=(\w+)'|([^\s'=]+)=(\w+))",
        lambda found: f"{found[1]}={python_literal({found[2] or found[4]: found[3] or found[5]})}",
    ),
    (r"--seeds ([0-9,]+)", lambda found: f"seeds=[{found[1].replace(',', ', ')}]"),
    (r"--planned-steps (\w+)", lambda found: f"planned_steps={found[1]}"),
    (r"--pattern REGEX", lambda _: 'columns={"pattern": "REGEX"}'),
    (r"--loss-is validation", lambda _: "`parity compare` judges those"),
    (
        r"--(loss-is|loss-unit|pairing|schedule|start|parameters) (\w+)",
        lambda found: f'{found[1].replace("-", "_")}="{found[2]}"',
    ),
    (r"--control\b", lambda _: "controls="),
    (r"--(family|noise-table)\b", lambda found: f"{found[1].replace('-', '_')}="),
)


_ON_A_PAGE: Sequence[tuple[str, str]] = (
    (r"state it \(--recipe (?:'[^']*'|\S+)\)", "state it on the job's page"),
    (
        r"add its size, such as `--parameters (\w+)`",
        r"record it in the manifests (`parameters: \1`)",
    ),
    (r"\(--schedule decayed\)", "(`schedule: decayed` in the policy of a new job)"),
)


def _parameter(option: str) -> str:
    return "columns" if option == "column" else option


def typed(documents: Sequence[Document], command: str) -> list[Document]:
    """Documents for the one who typed `command`: it is whole in each step that adds options."""

    def written(statements: Sequence[PossibleStatement]) -> str:
        return f"type `{command} {as_options(statements)}`"

    return [_placed(document, written, str) for document in documents]


def called(document: Document, call: Callable[[Mapping[str, object]], str]) -> Document:
    """A document for the one who called `parity.compare`; `call` writes it whole, with further
    arguments.
    """

    def written(statements: Sequence[PossibleStatement]) -> str:
        return f"call `{call(as_arguments(statements))}`"

    return _placed(document, written, in_arguments)


def owner_steps(document: VerdictDocument, job: str) -> list[str]:
    """The next steps for the owner of a job of external runs: what to state on its page, and what
    needs a new job; nobody types options there.
    """
    advice = document["advice"]
    offers = advice.get("offers", ())
    first = []
    for offer in offers:
        statements = _statements(offer)
        how = for_owner(statements)
        if any(map(is_stated_on_a_page, statements)):
            how += f", and judge it again (`parity runs judge {job}`)"
        first.append(f"{offer['question']} Then {how}: {promise_words(offer, job=True)}")
    of_jobs = {entry.next_step: entry.next_step_of_job for entry in BY_CODE.values()}
    others = [of_jobs.get(step) or step for step in advice["sentences"][len(offers) :]]
    for pattern, words in _ON_A_PAGE:
        others = [re.sub(pattern, words, step) for step in others]
    return [*first, *others]


def _placed(
    document: Document,
    written: Callable[[Sequence[PossibleStatement]], str],
    rewritten: Callable[[str], str],
) -> Document:
    advice = document["advice"]
    offers = cast("Sequence[OfferDocument]", advice.get("offers", ()))
    first = [
        f"{offer['question']} Then {written(_statements(offer))}: {promise_words(offer)}"
        for offer in offers
    ]
    others = [rewritten(sentence) for sentence in advice["sentences"][len(offers) :]]
    placed: Any = {**document, "advice": {**advice, "sentences": [*first, *others]}}
    return cast("Document", placed)  # a copy of `document`, of its type


def _statements(offer: OfferDocument) -> list[PossibleStatement]:
    return [PossibleStatement(**one) for one in offer["statements"]]


def in_arguments(sentence: str) -> str:
    """A sentence with arguments of `parity.compare` in place of options."""
    for pattern, write in _ARGUMENT_FORMS:
        sentence = re.sub(pattern, write, sentence)
    return sentence

"""The card of a golden check: one recipe, two runs. It says nothing about another precision."""

import hashlib
import math
from typing import Literal

from parity.canonical_json import canonical_json
from parity.cards.make_card import shortened
from parity.frozen import frozen
from parity.golden.answers import EXIT_CODES, Answer
from parity.golden.check import Check, RunFacts
from parity.golden.formats import document
from parity.golden.golden_file import Golden
from parity.golden.measured import Change
from parity.judging.bundles.columns import pack_array
from parity.judging.curves.curve import Curve
from parity.version import VERSION


@frozen
class GoldenCard:
    """A card of a golden check.

    `answer` is that of the rule, which `headline` begins with. The digests name the run and the
    goldens with all that the rule reads of them. `changed` to `data` is what was stated of the run.
    `measured` has what the rule measured, by name as in `golden check --json`.
    """

    schema: Literal["parity.golden-card/1"]
    answer: Answer
    headline: str
    question: str
    scope: str
    parity: str
    recipe: str
    changed: Change | None
    fork: int | None
    random: list[str]
    container: str | None
    hardware: str | None
    data: str | None
    goldens: list[str]
    goldens_sha256: list[str]
    run: str
    run_sha256: str
    first_step: int
    steps: int
    unjudged_steps: int
    measured: dict[str, float]

    @property
    def exit_code(self) -> int:
        """That of `golden check`."""
        return EXIT_CODES[self.answer]

    def stated(self) -> RunFacts:
        """What was stated of the run, so that the check can be made again."""
        return RunFacts(
            recipe=self.recipe,
            random=tuple(self.random),
            container=self.container,
            hardware=self.hardware,
            data=self.data,
        )


def make_golden_card(check: Check) -> GoldenCard:
    """The card of a check."""
    checked, facts = document(check), check.facts
    goldens = [golden.curve.label for golden in check.goldens]
    numbers = {
        name: value
        for name, value in (
            *checked["measured"].items(),
            *((f"norm_ratio.{name}", ratio) for name, ratio in _norm_ratios(check)),
        )
        if isinstance(value, (int, float)) and math.isfinite(value)
    }
    return GoldenCard(
        schema="parity.golden-card/1",
        answer=check.answer,
        headline=f"{check.answer.upper()}: {check.words.lead}",
        question=f"Does {check.run.label} keep the numerics of {' and '.join(goldens)}?",
        scope=check.words.scope,
        parity=VERSION,
        recipe=check.recipe,
        changed=check.measured.stated.changed,
        fork=check.measured.stated.saved,
        random=list(facts.random),
        container=facts.container,
        hardware=facts.hardware,
        data=facts.data,
        goldens=goldens,
        goldens_sha256=[_golden_sha256(golden) for golden in check.goldens],
        run=check.run.label,
        run_sha256=_sha256(_series(check.run)),
        first_step=checked["first_step"],
        steps=checked["steps"],
        unjudged_steps=checked["unjudged_steps"],
        measured={name: shortened(value) for name, value in numbers.items()},
    )


def _norm_ratios(check: Check) -> list[tuple[str, float]]:
    return [*document(check)["measured"].get("norm_ratios", {}).items()]


def _golden_sha256(golden: Golden) -> str:
    facts = (golden.recipe, golden.random, golden.container, golden.hardware, golden.data)
    return _sha256([_series(golden.curve), facts, golden.facts])


def _series(curve: Curve) -> dict[str, str]:
    """The digest of each series of a run, and what its source recorded."""
    columns = {
        name: hashlib.sha256(pack_array(values)).hexdigest()
        for name, values in curve.columns.items()
    }
    return {**columns, "": curve.digest()}


def _sha256(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()

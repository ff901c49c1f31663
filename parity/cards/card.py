"""The fields of a verification card, schema parity.card/1."""

from typing import Literal

from parity.frozen import frozen
from parity.judging.document_types import State


@frozen
class CardInterval:
    """The interval that decided: its level (0 to 1), its ends in nats, and whether one end alone
    counted.
    """

    level: float
    lo: float
    hi: float
    one_sided: bool


@frozen
class CardGap:
    """The gap in nats, as a share of the baseline's loss, and the interval that decided."""

    mean: float
    rel: float | None
    deciding: CardInterval


@frozen
class CardMargin:
    """The largest acceptable gap: nats, share of the baseline's loss, and what set it."""

    nats: float
    rel: float | None
    source: str


@frozen
class CardNoise:
    """The run-to-run noise of an arm as a share of its loss, and what it rests on."""

    rel: float
    source: str


@frozen
class CardArm:
    """An arm: the recipe that it begins with, what it did (`effective_recipe`), its runs and their
    stated seeds.
    """

    name: str
    recipe: str | None
    effective_recipe: str | None
    runs: int
    seeds: list[int]
    noise: CardNoise | None


@frozen
class CardCandidate:
    """A candidate with its verdict against the arm `against`.

    `codes` has the deciding code first. The gap is null where nothing was measured. `first_step` to
    `last_step` is the window, with so many `common_steps`; `tokens` are those at its end.
    `noise_basis` is measured, borrowed or assumed, and "" where no interval rests on it.
    """

    arm: CardArm
    against: str
    verdict: State
    codes: list[str]
    gap: CardGap | None
    margin: CardMargin | None
    noise_basis: str
    first_step: int | None
    last_step: int | None
    common_steps: int
    tokens: float | None
    finished: bool


@frozen
class CardStatement:
    """What somebody stated and no log shows; `arm` is null for all arms, `by` null where nobody
    recorded who it was.
    """

    fact: str
    arm: str | None
    value: str
    by: str | None


@frozen
class CardSignOff:
    """A person's acceptance of an inconclusive verdict. It makes no pass."""

    candidate: str
    who: str
    expires_at: str
    reason: str


@frozen
class Card:
    """A verification card.

    `state` is the worst verdict of the candidates, which `headline` begins with, or fail where the
    job `failed_by` failed the same question. `evidence_sha256` names the curves, the policy and
    what was stated (`parity.judging.bundles.write_bundle`). `policy` has what differs from the
    default policy. `commits`, `versions`, `devices` and `model` are facts
    of the runs by name, as recorded or stated; values of several runs are separated by " | ".
    """

    schema: Literal["parity.card/1"]
    state: State
    headline: str
    question: str
    judge: str
    parity: str
    job: str | None
    failed_by: str | None
    evidence_sha256: str
    policy: dict[str, str]
    planned_steps: int | None
    baseline: CardArm
    candidates: list[CardCandidate]
    commits: dict[str, str]
    versions: dict[str, str]
    devices: dict[str, str]
    model: dict[str, str]
    statements: list[CardStatement]
    sign_offs: list[CardSignOff]

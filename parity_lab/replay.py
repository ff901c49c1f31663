"""A replay trains recorded steps of a run again, from step 0 or from a kept checkpoint, with its
own arithmetic and random numbers.

    bit-equal      every loss is that on record: what the same code, libraries, threads and device
                   class give
    within noise   a loss is not, equal bits are not expected here, and over WINDOW steps reruns
                   differ from the replay as much:
                   |record - replay| <= t(RERUNS) sqrt(mean over reruns of (rerun - replay)^2),
                   for the mean and for the first step,
                   whose loss comes before any update
    differs        all else: something outside the specification decided the record
    missing        the steps cannot be trained again here

If the whole of two runs is bit-equal, and their specifications differ in the arithmetic alone,
then so does what made their gap. Of longer runs only WINDOW steps from step 0 and from each kept
checkpoint are replayed.

Can fail: a cause that acts only in steps that are not replayed. Within noise are also causes that
change WINDOW steps less than reruns do, 8 of 22 that were planted, so nothing is named there
unless that is asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

from parity.frozen import frozen
from parity.judging import special

Role = Literal["baseline", "candidate"]
State = Literal["bit-equal", "within noise", "differs", "missing"]
CheckOutcome = Literal["not planned", "pending", "reproduced", "differs", "unchecked"]
WINDOW = 32
"""Steps that are replayed from a state."""
RERUNS = 6
LEVEL = 0.01
"""The chance that any replay of one analysis differs by noise alone, where bits are not expected to
be equal.
"""
NOT_IN_PRECISION = "NOT_IN_PRECISION"
NOT_REPLAYED = "NOT_REPLAYED"
RATE_TOLERANCE = 1e-6  # relative; two devices can round a schedule differently


@frozen
class RecordedRun:
    """A run whose steps 0 to `steps` - 1 are on record, and its kept checkpoints."""

    run: str
    arm: Role
    steps: int
    checkpoints: tuple[int, ...]


@frozen
class Replay:
    """The `steps` recorded steps from step `first` of a run, trained again from the state before
    them.
    """

    run: str
    arm: Role
    first: int
    steps: int

    @property
    def key(self) -> str:
        """The key of its result."""
        return f"replay/{self.run}/{self.first}"

    @property
    def window(self) -> int:
        """The steps over which it is compared with reruns."""
        return min(self.steps, WINDOW)


@frozen
class RatesDiffer:
    """The first step at which two runs of a pair have different learning rates on record."""

    step: int
    baseline: float
    candidate: float


class ReplayResult(TypedDict):
    """What a replay gave: the steps `compared`, the first that `departs` from the record, and `by`
    how much there (nats, null if it is not finite); the differences of the first step and of the
    mean over the window; whether equal bits are expected (`exact`).

    `missing`: why nothing was trained.
    """

    compared: int
    departs: int | None
    by: float | None
    first: float
    mean: float
    exact: bool
    missing: str | None


class RecordRequest(TypedDict):
    """What is on record of a run that is replayed: its specification, its manifest, and its losses
    (nats) from each first step.
    """

    spec: dict[str, Any]
    manifest: dict[str, str]
    losses: dict[str, list[float]]


@frozen
class WantedReplay:
    """A replay that lacks, or (from draw 1 on) a rerun of its window with other random numbers;
    `steps` is its cost.
    """

    key: str
    replay: Replay
    draw: int
    steps: int


@frozen
class Replayed:
    """A replay with its result and what that says."""

    replay: Replay
    result: ReplayResult
    state: State


@frozen
class ReplayCheck:
    """What the replays say so far, and the next one; none if nothing is to be trained."""

    outcome: CheckOutcome
    replayed: tuple[Replayed, ...] = ()
    pending: WantedReplay | None = None

    @property
    def ends_it(self) -> bool:
        """Whether nothing can be named."""
        return self.outcome in ("differs", "unchecked")

    @property
    def code(self) -> str | None:
        """The code of the job that ends here."""
        return {"differs": NOT_IN_PRECISION, "unchecked": NOT_REPLAYED}.get(self.outcome)


def planned(recorded: Sequence[RecordedRun], whole: int) -> tuple[Replay, ...]:
    """Windows from step 0 and from each kept checkpoint of every run, then all steps of the first
    `whole` runs of each arm.
    """
    windows: list[Replay] = []
    wholes: list[Replay] = []
    for arm in ("baseline", "candidate"):
        for number, run in enumerate(run for run in recorded if run.arm == arm):
            firsts = [
                first
                for first in (0, *run.checkpoints)
                if first < run.steps and (first or number >= whole)
            ]
            windows += [_replay(run, first, WINDOW) for first in firsts]
            if number < whole:
                wholes.append(_replay(run, 0, run.steps))
    return tuple(windows + wholes)


def _replay(run: RecordedRun, first: int, steps: int) -> Replay:
    return Replay(run=run.run, arm=run.arm, first=first, steps=min(steps, run.steps - first))


def replays_from(documents: Sequence[Mapping[str, Any]]) -> tuple[Replay, ...]:
    """The replays of documents: those of `asdict`."""
    return tuple(Replay(**document) for document in documents)


def check(
    replays: Sequence[Replay],
    results: Mapping[str, Any],
    rates: RatesDiffer | None = None,
    *,
    accept_noise: bool = False,
) -> ReplayCheck:
    """What the results on record say; it ends at the first replay that differs, before one where
    the learning rates do.

    `accept_noise`: whether a run that follows its record within noise only is reproduced; else it
    is unchecked.
    """
    if rates is not None:
        return ReplayCheck(outcome="differs")
    replayed: list[Replayed] = []
    for replay in replays:
        if replay.key not in results:
            pending = WantedReplay(key=replay.key, replay=replay, draw=0, steps=replay.steps)
            return ReplayCheck(outcome="pending", replayed=tuple(replayed), pending=pending)
        result: ReplayResult = results[replay.key]
        lacking = next(
            (rerun for rerun in _reruns(replay, result) if rerun.key not in results), None
        )
        if lacking is not None:
            return ReplayCheck(outcome="pending", replayed=tuple(replayed), pending=lacking)
        state = _state(replay, result, results, len(replays))
        replayed.append(Replayed(replay=replay, result=result, state=state))
        if state == "differs":
            return ReplayCheck(outcome="differs", replayed=tuple(replayed))
    if not replayed:
        return ReplayCheck(outcome="not planned")
    undecided = {"missing"} if accept_noise else {"missing", "within noise"}
    is_undecided = any(row.state in undecided for row in replayed)
    return ReplayCheck(
        outcome="unchecked" if is_undecided else "reproduced", replayed=tuple(replayed)
    )


def _reruns(replay: Replay, result: ReplayResult) -> Iterator[WantedReplay]:
    """The reruns that the result of a replay asks for."""
    if result["departs"] is not None and result["by"] is not None and not result["exact"]:
        for draw in range(1, RERUNS + 1):
            yield WantedReplay(
                key=f"rerun/{replay.run}/{replay.first}/{draw}",
                replay=replay,
                draw=draw,
                steps=replay.window,
            )


def _state(replay: Replay, result: ReplayResult, results: Mapping[str, Any], count: int) -> State:
    if result["missing"] is not None:
        return "missing"
    if result["departs"] is None:
        return "bit-equal"
    if result["exact"] or result["by"] is None:
        return "differs"
    reruns = [results[rerun.key] for rerun in _reruns(replay, result)]
    # two-sided, two tests of each replay
    limit = float(special.stdtrit(RERUNS, 1 - LEVEL / (4 * count)))
    for name in ("first", "mean"):
        value = result[name]
        spread = (sum((rerun[name] - value) ** 2 for rerun in reruns) / RERUNS) ** 0.5
        if not abs(value) <= limit * spread:
            return "differs"
    return "within noise"

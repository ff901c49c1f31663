"""The answer in words, the same on every surface: a chip, the sentence of the line that decided, a
row per measurement, what the answer does not say, and the next step.
"""

from collections.abc import Callable, Mapping, Sequence

from parity.frozen import frozen
from parity.golden.answers import ANSWERS, FINE, OPEN, Answer
from parity.golden.batches import HALF_SHARED
from parity.golden.level import UNDECIDED_PCT
from parity.golden.measured import MIN_STEPS, ComparedRun
from parity.golden.quantities import is_apart
from parity.golden.rule import RuleLine
from parity.wording import count, signed

Sentence = Callable[[ComparedRun], str]

MARKS: Mapping[Answer, str] = {
    **dict.fromkeys(ANSWERS, "■"),
    **dict.fromkeys(FINE, "●"),
    OPEN: "◇",
}
UNMEASURED = ("losses", "steps", "end", "missing steps", "identical", "fork", "steps judged")
"""The lines that decide before the curves are measured."""

_OLD_CODE = "run the old code on the new machine; if that is equal to the golden, the code did it"
_RERUNS = "rerun the golden's own code twice, and check against all of them: check RUN G1 G2 G3"
_COMPARE_START = (
    "compare the checkpoint, the initial weights, the tokenizer and the first batch; with dropout, "
    "state --random dropout"
)
_START = {
    "resume": "compare the restored weights, optimizer state and position of the data",
    "hardware": "keep a golden per hardware, or start both runs from one checkpoint",
}


@frozen
class Row:
    """One measurement: its name, its value, and its limit, "" where it has none."""

    name: str
    value: str
    limit: str


@frozen
class AnswerWords:
    """An answer in words."""

    answer: Answer
    line: str
    lead: str
    rows: Sequence[Row]
    scope: str
    next: str

    @property
    def chip(self) -> str:
        """The answer in capitals with its mark: "■ WORSE"."""
        return f"{MARKS[self.answer]} {self.answer.upper()}"


def golden_words(line: RuleLine, measured: ComparedRun, recipe: str, accept: str) -> AnswerWords:
    """The words for the line that decided; `accept` is the command that accepts the run as the new
    golden.
    """
    next_step = _NEXT[line.name](measured)
    if is_acceptable(line.answer):
        next_step = acceptance(accept)
    return AnswerWords(
        answer=line.answer,
        line=line.name,
        lead=_LEADS[line.name, line.answer](measured),
        rows=_rows(measured) if _has_rows(line, measured) else (),
        scope=f"Same recipe ({recipe}): this says nothing about another precision.",
        next=next_step,
    )


def is_acceptable(answer: str) -> bool:
    """Whether a run may be taken as the golden as it is, and says something new."""
    return answer in FINE and answer != "identical"


def acceptance(accept: str) -> str:
    """The next step after such an answer: `accept` is the command that takes the run."""
    return f"nothing. To take this run as the golden: {accept}"


def _has_rows(line: RuleLine, measured: ComparedRun) -> bool:
    """Whether there is more to measure than the line that decided."""
    return line.name not in UNMEASURED and measured.rows >= MIN_STEPS


def percent_words(value: float) -> str:
    """A difference in % with its sign and two decimals, more below 0.01 %: "+0.35 %"."""
    return f"{signed(value, 2 if abs(value) >= 0.01 or value == 0.0 else 4)} %"


def _rows(measured: ComparedRun) -> list[Row]:
    level, spike = measured.levels[0], measured.spike
    rows = [
        Row(
            name="first loss",
            value=f"{signed(measured.first_nats, 5)} nats",
            limit=f"limit {measured.first_limit:.5f}",
        ),
        Row(
            name="batches",
            value=_batch_words(measured),
            limit=f"q {measured.agreement.q:.2f}, border {HALF_SHARED:.2f}",
        ),
        Row(
            name="level",
            value=f"{percent_words(measured.gap_pct)} in the last {level.rows} logged steps",
            limit=f"limit {measured.gap_limit:.2f} %",
        ),
        Row(
            name="spike",
            value=f"{percent_words(spike.pct)} at step {spike.step:,}",
            limit=f"limit {spike.limit_pct:.1f} %",
        ),
    ]
    rows += [
        Row(
            name=ratio.name.replace("_", " "),
            value=f"{ratio.typical:.3f} of the golden's, {ratio.first:.3f} at step {ratio.step:,}",
            limit="limit 1.2 or 1/1.2",
        )
        for ratio in measured.norms
    ]
    return rows


def _batch_words(measured: ComparedRun) -> str:
    if measured.agreement.is_shared:
        return "same"
    return "unrelated" if measured.agreement.is_unrelated else "unclear"


def _level_lead(measured: ComparedRun) -> str:
    where = "above" if measured.gap_pct > 0.0 else "below"
    return (
        f"the loss is {abs(measured.gap_pct):.2f} % {where} the golden over the last "
        f"{measured.levels[0].rows} logged steps (limit {measured.gap_limit:.2f} %)"
    )


def _spike_lead(measured: ComparedRun) -> str:
    spike = measured.spike
    return (
        f"the loss rises {spike.pct:.1f} % above the golden at step {spike.step:,} and comes back "
        f"(limit {spike.limit_pct:.1f} %)"
    )


def _dip_lead(measured: ComparedRun) -> str:
    dip = measured.dip
    return (
        f"the golden is {dip.pct:.1f} % above the run at step {dip.step:,}, as if only the golden "
        f"had a spike there (limit {dip.limit_pct:.1f} %)"
    )


def _earlier_lead(measured: ComparedRun) -> str:
    earlier = measured.earlier_level
    if earlier is None:
        return ""
    where = "above" if earlier.pct > 0.0 else "below"
    return (
        f"the loss is {abs(earlier.pct):.2f} % {where} the golden over {earlier.rows} logged steps "
        f"from step {earlier.first_step:,} on (limit {measured.earlier_limit(earlier):.2f} %), and "
        "comes back before the end"
    )


def _facts_lead(measured: ComparedRun) -> str:
    return "; ".join(
        f"{name} was {before} and is {now}"
        for name, (before, now) in measured.fact_differences.items()
    )


def _rate_lead(measured: ComparedRun) -> str:
    rate = measured.rate
    if rate is None:
        return ""
    return f"the learning rate of step {rate.step:,} was {rate.golden:.6g} and is {rate.run:.6g}"


def _norm_lead(measured: ComparedRun, first: bool) -> str:
    ratio = next(one for one in measured.norms if is_apart(one.first if first else one.typical))
    value, where = (ratio.first, f" at step {ratio.step:,}") if first else (ratio.typical, "")
    return f"{ratio.name} is {value:.3f} times the golden's{where}"


def _first_lead(measured: ComparedRun) -> str:
    before = "after the resume" if measured.stated.changed == "resume" else "before any update"
    return (
        f"the first loss {before} differs by {signed(measured.first_nats, 5)} nats; rounding "
        f"explains {measured.first_limit:.5f}"
    )


def _noise_lead(measured: ComparedRun) -> str:
    kind = "does not agree" if measured.agreement.is_unrelated else "agrees only in part"
    start = "; the first losses agree" if abs(measured.first_nats) <= measured.first_limit else ""
    return f"the batch noise of the two runs {kind} (q {measured.agreement.q:.2f}){start}"


def _end_lead(measured: ComparedRun) -> str:
    return (
        f"the run ends at step {int(measured.run.steps[-1]):,}, {measured.missing_steps:,} before "
        "its golden"
    )


def _missing_lead(measured: ComparedRun) -> str:
    missing = measured.missing_between
    return (
        f"the run lacks {missing.count:,} of the golden's {missing.total:,} steps, such as "
        f"{missing.first:,} to {missing.last:,}"
    )


def _shift_lead(measured: ComparedRun) -> str:
    way = "late" if measured.shift > 0 else "early"
    return f"the run reads the golden's batches {count(abs(measured.shift), 'row')} too {way}"


_LEADS: Mapping[tuple[str, Answer], Sentence] = {
    ("losses", "worse"): lambda m: f"the loss is not finite and positive at step {m.broken_step:,}",
    ("steps", "cannot tell"): lambda m: (
        f"run and golden have {count(m.common_rows, 'step')} in common; expected at least "
        f"{MIN_STEPS}"
    ),
    ("end", "cannot tell"): _end_lead,
    ("missing steps", "cannot tell"): _missing_lead,
    ("identical", "identical"): lambda m: (
        f"all {m.common_rows:,} losses are equal to the last printed digit"
    ),
    ("fork", "cannot tell"): lambda _: "nothing shows at which step the run was resumed",
    ("steps judged", "cannot tell"): lambda m: (
        f"{count(m.rows, 'common step')} behind the resume; expected at least {MIN_STEPS}"
    ),
    ("data hash", "data changed"): lambda m: (
        f"the data's digest was {m.stated.golden_data} and is {m.stated.run_data}"
    ),
    ("recorded facts", "set-up changed"): _facts_lead,
    ("learning rate", "set-up changed"): _rate_lead,
    ("goldens", "cannot tell"): lambda m: (
        f"the goldens do not read the same batches (q {m.reruns.q:.2f}, border {HALF_SHARED:.2f}), "
        "so they are no reruns of one run"
    ),
    ("shift", "set-up changed"): _shift_lead,
    ("broken", "worse"): lambda m: (
        f"the loss is {m.agreement.noise_ratio:.1f} times as noisy as the golden's and "
        f"{percent_words(m.gap_pct)} above it at the end"
    ),
    ("batches", "data changed"): lambda m: (
        "the first loss and the batch noise are those of other batches "
        f"(q {m.agreement.q:.2f}, border {HALF_SHARED:.2f})"
    ),
    ("order", "set-up changed"): lambda m: (
        "the data's digest is the golden's, but the batches are not "
        f"(q {m.agreement.q:.2f}, border {HALF_SHARED:.2f})"
    ),
    ("noise", "cannot tell"): _noise_lead,
    ("first loss", "set-up changed"): _first_lead,
    ("first gradient norm", "set-up changed"): lambda m: _norm_lead(m, first=True),
    ("first updates", "set-up changed"): lambda m: (
        f"the first loss after the resume agrees, but losses behind the first updates differ by "
        f"{signed(m.updated_nats, 5)} nats (limit {m.updated_limit:.5f})"
    ),
    ("spike", "worse"): _spike_lead,
    ("level near its limit", "cannot tell"): lambda m: (
        f"{_level_lead(m)}, and such runs differ by up to {m.explained_pct:.2f} % by themselves"
    ),
    ("level", "worse"): _level_lead,
    ("level", "better"): _level_lead,
    ("dip", "better"): _dip_lead,
    ("earlier level", "cannot tell"): _earlier_lead,
    ("gradient norm", "set-up changed"): lambda m: _norm_lead(m, first=False),
    ("level's error", "cannot tell"): lambda m: (
        f"the level at the end is known to {m.gap_limit:.1f} % only; expected {UNDECIDED_PCT:g} %"
    ),
    ("all", "numerics only"): lambda m: f"rounding explains all differences over {m.rows:,} steps",
}

_NEXT: Mapping[str, Sentence] = {
    "losses": lambda _: "look at that step; " + _OLD_CODE,
    "steps": lambda _: f"log at the golden's steps, or train at least {MIN_STEPS} of them",
    "end": lambda m: f"train to step {int(m.goldens[0].steps[-1]):,}, or find out why it ended",
    "missing steps": lambda _: (
        "log every step of the golden, or read lines of another form with --pattern; for a test "
        "that logs every N-th step, keep a golden of these with --every N"
    ),
    "identical": lambda _: "nothing",
    "fork": lambda _: "state the last step before the resume with --fork STEP",
    "steps judged": lambda _: f"train at least {MIN_STEPS} logged steps behind the resume",
    "data hash": lambda _: "restore the data, or take the run as a new golden",
    "recorded facts": lambda _: "restore them, or take the run as a new golden",
    "learning rate": lambda _: "compare the schedules and the step at which each began",
    "goldens": lambda _: "check against goldens of one data order, or against one golden",
    "shift": lambda _: "compare the position of the data loader, and which step is logged as 1",
    "broken": lambda _: _OLD_CODE,
    "batches": lambda _: "compare the digests of the data, the seed and the order",
    "order": lambda _: "compare the data's seed, the order and the position of the loader",
    "noise": lambda _: _RERUNS,
    "first loss": lambda m: _START.get(m.stated.changed or "code", _COMPARE_START),
    "first gradient norm": lambda _: (
        "compare how gradients are averaged over micro-batches and ranks, and loss scaling"
    ),
    "first updates": lambda _: (
        "compare the restored optimizer state, its step count and the learning rate"
    ),
    "spike": lambda _: _OLD_CODE,
    "level near its limit": lambda _: _RERUNS,
    "level": lambda _: _OLD_CODE,
    "dip": lambda _: "look at the golden's step; take the run as a new golden if that was a fault",
    "earlier level": lambda _: _RERUNS,
    "gradient norm": lambda _: (
        "compare clipping, and how gradients are averaged over micro-batches and ranks"
    ),
    "level's error": lambda _: _RERUNS,
    "all": lambda _: "nothing",
}

"""The strip: what the check cost, what the candidate gains, what the verdict rests on, and what
would change it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from parity.judging.codes import (
    AS_OF,
    BY_CODE,
    CI_STRADDLES_MARGIN,
    IDENTICAL,
    MARGIN_UNDETERMINED,
    RUN_NOISE_UNKNOWN,
    WINDOW_SENSITIVE,
)
from parity.judging.document_types import ADDED, REUSED, VerdictDocument, VerdictRunDocument
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.policy import NOISE_FLOOR
from parity.report.forecast import PROBABLE
from parity.report.number_words import chance_words
from parity.report.view import INTERVAL_CODES, EvaluationView, View, number
from parity.wording import count, level_percent, likely, short_percent, signed

_RATES = "at 1 : 2 : 4 for bf16 : fp8 : fp4"  # `training.modelled_gemm_time.GB200`


class StripItem(NamedTuple):
    """One part of the strip: what it is about, its value, and a line that says why."""

    name: str
    value: str
    why: str = ""

    def __str__(self) -> str:
        """Value and reason on one line."""
        if self.why:
            return f"{self.value}: {self.why}"
        return self.value


def candidate_items(strip: Sequence[StripItem]) -> Sequence[StripItem]:
    """The facts of a strip that are a candidate's own: all but the first, the cost, which is that
    of the whole comparison.
    """
    return strip[1:]


def strip_of(view: View, cost: StripItem | None) -> tuple[StripItem, ...]:
    """The five facts of a verdict, the cost first."""
    return (
        cost or _cost(view),
        _speed(view),
        _evidence(view),
        _run_noise(view),
        _what_changes_it(view),
    )


def _cost(view: View) -> StripItem:
    """The hours of training on record in the runs themselves."""
    hours = view.run_hours
    if hours is None:
        missing = view.hours_missing or "no step times in these runs"
        return StripItem("Cost", "Not recorded", missing)
    to_target = isinstance(view, EvaluationView)
    return StripItem(
        "Cost",
        f"{hours:.3g} hours of training",
        "all runs, to the target" if to_target else "all runs together",
    )


def _speed(view: View) -> StripItem:
    if isinstance(view, EvaluationView):  # its speeds are by hardware, its tax is to a target
        return _evaluation_speed(view.document)
    verdict = view.document
    tax = verdict.get("token_tax")
    taxed = f"token tax {_taxed(tax)}" if tax else ""
    speed, reason = verdict.get("throughput"), verdict.get("speed_reason")
    modelled = verdict.get("gemm_time")
    if modelled and (reason is not None or speed is None):
        if modelled == 1.0:
            value = "GEMMs as fast, modelled"
        else:
            value = f"GEMMs {1.0 / modelled:.2f} x, modelled"
        return StripItem("Speed", value, f"{_RATES}; {taxed}" if taxed else _RATES)
    if reason is not None:
        return StripItem(
            "Speed", "Not compared", "; ".join(part for part in (reason, taxed) if part)
        )
    if speed is None or "speed_reason" not in verdict:
        return StripItem("Speed", "Unknown", taxed or "no step times in these runs")
    step = f"{speed['ratio']['value']:.3f} x"
    if net := verdict.get("net_speedup"):
        share = f"token tax {signed(100.0 * number(tax['estimate']), 1)} %" if tax else ""
        return StripItem("Speed", f"{net['value']:.3f} x net of the tax", f"step {step}, {share}")
    return StripItem("Speed", f"{step} a step", taxed or "the token tax is not known")


def _taxed(tax: Mapping[str, Any]) -> str:
    estimate, lo, hi = (signed(100.0 * number(tax[key]), 1) for key in ("estimate", "lo", "hi"))
    return f"{estimate} % ({lo} to {hi})"


def _evaluation_speed(document: EvaluationDocument) -> StripItem:
    target = document["target"]
    tax = target["tax"] if target else None
    taxed = f"tokens {_taxed(tax)}" if tax else ""
    if len(document["speed"]) != 1:
        return StripItem(
            "Speed",
            "Not compared" if document["speed"] else "Unknown",
            taxed or "no times of both arms on equal hardware",
        )
    (speed,) = document["speed"]
    step = f"step {speed['step']['value']:.3f} x" if speed["step"] else ""
    if speed["net"]:
        share = f"tokens {signed(100.0 * number(tax['estimate']), 1)} %" if tax else ""
        return StripItem(
            "Speed",
            f"{speed['net']['value']:.3f} x net of the tax",
            ", ".join(part for part in (step, share) if part),
        )
    return StripItem(
        "Speed", f"{speed['step']['value']:.3f} x a step" if speed["step"] else "Unknown", taxed
    )


def _evidence(view: View) -> StripItem:
    """How many runs and seeds, how they are paired, and how far candidates and looks share the
    error.
    """
    base, cand = view.baseline.runs, view.candidate.runs
    runs = f"{count(base, 'run')} per arm" if base == cand else f"{base} + {cand} runs"
    reasons = [_pairing(view)]
    if isinstance(view, EvaluationView):  # clusters, and no seeds on record
        clusters = view.document["gap"]["over_clusters"]
        if clusters:
            both = ", each with both arms" if clusters["crossed"] else ""
            reasons.append(view.intervals[-1].unit + both)
        return StripItem("Evidence", runs, "; ".join(reasons))
    verdict = view.document
    seeds = {run["seed"] for side in ("baseline", "candidate") for run in _runs_of(verdict, side)}
    if any(
        note.startswith(REUSED) for run in verdict["inputs"]["baseline"] for note in run["notes"]
    ):
        reasons.append("baseline reused")
    added = sum(
        note.startswith(ADDED) for run in _runs_of(verdict, "candidate") for note in run["notes"]
    )
    if added:
        reasons.append(f"{count(added, 'run')} per arm added later")
    if shared := _shared_error(verdict):
        reasons.append(shared)
    if verdict.get("layer_policy"):
        reasons.append(f"layer policy {verdict['layer_policy']}")
    return StripItem("Evidence", f"{runs}, {count(len(seeds), 'seed')}", "; ".join(reasons))


def _runs_of(document: VerdictDocument, side: str) -> Sequence[VerdictRunDocument]:
    inputs = document["inputs"]
    if side == "baseline":
        return inputs["baseline"]
    return inputs["candidate"]


def _pairing(view: View) -> str:
    if not view.is_paired:
        return "unpaired"
    if isinstance(view, EvaluationView):  # without a correlation of steps
        return "paired by seed"
    r_pair = view.document["noise"]["r_pair"]
    if not isinstance(r_pair, float):
        return "paired"
    return f"paired, r {r_pair:.3f}"


def _shared_error(document: VerdictDocument) -> str:
    """How candidates and looks share the error, and whether anybody counts them; "" of one
    candidate with one look, and of a fail, which keeps the policy's confidence.
    """
    shared = document.get("multiplicity")
    if (
        document["verdict"] == "fail"
        or shared is None
        or (shared["candidates"] == 1 and shared["looks"] == 1)
    ):
        return ""
    nominal = level_percent(document["params"]["policy"]["confidence"])
    number_of = shared["candidates"]
    all_of = f" for all {number_of}" if number_of > 1 else ""
    looks = f", look {shared['look']} of {shared['looks']}" if shared["looks"] > 1 else ""
    return f"{level_percent(shared['confidence'])} each keeps {nominal}{all_of}{looks}"


def noise_basis(view: View) -> str:
    """What the weakest arm's run-to-run noise is: measured, borrowed or assumed; "" where no
    interval rests on it, and of logs that do not fit.
    """
    if view.gap is None or view.is_identical:
        return ""
    entries = (BY_CODE[code] for code in sorted(view.codes) if code in BY_CODE)
    return next((entry.basis_of_noise for entry in entries if entry.basis_of_noise), "measured")


def _run_noise(view: View) -> StripItem:
    basis = noise_basis(view)
    if not basis:
        return StripItem(
            "Run-to-run noise",
            "Not used",
            "equal runs have none" if view.is_identical else "no gap is judged",
        )
    shares = [
        (arm.name, arm.noise) for arm in (view.baseline, view.candidate) if arm.noise is not None
    ]
    texts = [f"{short_percent(share)} {name}" for name, share in shares]
    alike = len({short_percent(share) for _, share in shares}) == 1
    if shares and alike:
        of_loss = f"{short_percent(shares[0][1])} of the loss per run"
    else:
        of_loss = ", ".join(texts)
    if RUN_NOISE_UNKNOWN.code in view.codes:
        return StripItem("Run-to-run noise", "Unknown", f"the interval takes {of_loss}")
    left = {"assumed": ", not measured", "borrowed": ", from a family of reruns"}.get(basis, "")
    return StripItem("Run-to-run noise", basis.capitalize(), f"{of_loss}{left}".lstrip(", "))


def _what_changes_it(view: View) -> StripItem:
    """What would change the verdict: one more pair of runs, where that could; else what the reason
    asks for.
    """
    name, code, verdict = "What changes it", view.code, view.state
    if view.offers and view.offers[0]["verdict"] != "inconclusive":
        return StripItem(name, "A statement", f"with a yes to it, a {view.offers[0]['verdict']}")
    if _waits_for_the_end(view):
        return StripItem(name, "A planned end", "as of a point nothing can pass")
    if code == IDENTICAL.code:
        return StripItem(name, "Nothing likely", "a further pair would have to differ")
    entry = BY_CODE.get(code)
    asks_for_runs = entry is not None and entry.asks_for_runs
    if verdict == "inconclusive" and (
        asks_for_runs or (code == MARGIN_UNDETERMINED.code and view.profile == NOISE_FLOOR)
    ):
        return StripItem(name, "More runs", "they measure the run-to-run noise")
    chances = view.chances
    if chances is None:
        if code in INTERVAL_CODES and (chance := chance_words(view)):
            return StripItem(name, "More runs", f"chance of parity {chance}")
        value = "The next step" if verdict == "inconclusive" else _nothing_likely(view)
        return StripItem(
            name,
            value,
            "more runs alone do not change it"
            if verdict == "inconclusive" or code not in INTERVAL_CODES
            else "",
        )
    stays = chances["undecided"] if verdict == "inconclusive" else chances[verdict]
    if stays >= PROBABLE:
        as_it_is = "open" if verdict == "inconclusive" else f"a {verdict}"
        pair = f"one more pair leaves it {as_it_is} ({likely(stays)})"
        if _names_runs(view):
            return StripItem(name, "More runs", pair)
        return StripItem(name, _nothing_likely(view), pair)
    outcomes = ", ".join(f"{outcome} {likely(chances[outcome])}" for outcome in ("pass", "fail"))
    return StripItem(name, f"One more pair, by {likely(1.0 - stays)}", outcomes)


def _waits_for_the_end(view: View) -> bool:
    """Whether no number of runs decides, because a gap below the margin is as of a point."""
    if view.code != CI_STRADDLES_MARGIN.code:
        return view.code == AS_OF.code
    if AS_OF.code not in view.codes or view.gap is None or view.margin is None:
        return False
    policy = (
        view.document["policy"]
        if isinstance(view, EvaluationView)
        else view.document["params"]["policy"]
    )
    return policy.get("as_of") != "accept" and view.gap.mean < view.margin["nats"]


def _nothing_likely(view: View) -> str:
    """What changes a verdict that runs hardly change; nobody chooses the window after the fact."""
    if WINDOW_SENSITIVE.code in view.codes:
        return "Only another window"
    return "Nothing likely"


def _names_runs(view: View) -> bool:
    """Whether the advice names runs that would decide."""
    if isinstance(view, EvaluationView):
        return False
    advice = view.document["advice"]
    return bool(advice["add_baseline_runs"] or advice["add_candidate_runs"])

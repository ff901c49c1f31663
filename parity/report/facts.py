"""The numbers of a verdict, or of a comparison of evaluations, in words: table rows, facts, what
the answer is worth, and sign-offs.
"""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import NamedTuple

from parity.effective_recipe import title
from parity.frozen import frozen
from parity.judging.codes import BY_CODE
from parity.judging.curves.spikes import ONE_SIDED_ALPHA
from parity.judging.document_types import (
    REUSED,
    EstimateDocument,
    FloorDocument,
    GradNormDocument,
    RunDocument,
    RunSpikesDocument,
    VerdictDocument,
)
from parity.judging.evaluations.document_types import EvaluationDocument, IntervalDocument
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.report.words import (
    baseline_name,
    candidate_name,
    candidate_title,
    chance_words,
    decimals,
    ends_words,
    evaluation_intervals,
    is_identical,
    mean_words,
    point,
)
from parity.version import JUDGE_VERSION
from parity.wording import (
    DECIMALS,
    TOKEN_UNITS,
    count,
    interval_words,
    level_percent,
    percent,
    signed,
)

# The numbers of a verdict in words: the row of a table, and the facts that the row has no room for.

NEXT = "next"  # the name of a detail that advises
SUMMARY = ("candidate", "gap, nats", "interval", "gap", "margin", "verdict")


def summary_row(document: VerdictDocument) -> tuple[str, ...]:
    """The cells of one candidate, in the order of `SUMMARY`."""
    gap, margin = document["gap"], document["margin"]
    return (
        candidate_title(document),
        mean_words(document),
        ends_words(document, gap) if gap else "none",
        f"{signed(100 * gap['rel'], 2)} %" if gap and gap["rel"] is not None else "none",
        f"{margin['nats']:.{decimals(document)}f}" if margin else "none",
        document["verdict"],
    )


class Detail(NamedTuple):
    """A line of a report's details: the code of a reason with its sentence, or the name of a fact
    with its words.
    """

    name: str
    words: str
    is_code: bool = False


def details(documents: Sequence[VerdictDocument]) -> list[list[Detail]]:
    """Reasons, facts and advice of each candidate; a sentence of an earlier candidate's reasons or
    advice is "as for NAME".
    """
    first: dict[str, str] = {}

    def once(sentence: str, name: str) -> str:
        owner = first.setdefault(sentence, name)
        return sentence if owner == name else f"as for {owner}"

    listed = []
    for document in documents:
        name = candidate_name(document)
        reasons = [
            Detail(reason["code"], once(reason["sentence"], name), is_code=True)
            for reason in document["reasons"]
        ]
        advice = dict.fromkeys(once(sentence, name) for sentence in document["advice"]["sentences"])
        listed.append(
            [
                *reasons,
                *starmap(Detail, facts(document)),
                *(Detail(NEXT, sentence) for sentence in advice),
            ]
        )
    return listed


def facts(document: VerdictDocument) -> list[tuple[str, str]]:
    """What the table has no room for: window, noises, run-to-run noise, convergence."""
    window = document["window"]
    facts = [
        (
            "window",
            (
                f"steps {window['first']:,} to {window['last']:,}, "
                f"{count(window['n'], 'common step')}, {window['rule']}"
            ),
        )
    ]
    facts += [("recipe", recipe) for recipe in _recipes(document)]
    inputs = document["inputs"]
    series = (
        _series_words(baseline_name(document), inputs["baseline"]),
        _series_words(candidate_name(document), inputs["candidate"]),
    )
    facts.append(("series", "; ".join(series)))
    facts += [("input", note) for note in read_notes(document)]
    facts += [("reused", note) for note in reused_notes(document)]
    if compares := document.get("compares"):
        facts.append(
            ("compares", f"{compares}, so that {', '.join(document['may_differ'])} may differ")
        )
    if document["gap"]:
        if not is_identical(document):
            facts += [
                ("noise", _noise_words(document)),
                ("run-to-run noise", _floor_words(document)),
            ]
            facts += _early_stops(document)
        facts.append(("margin", _margin_fact(document)))
        if chance := chance_words(document):
            basis = "if every gap is equally likely beforehand and the run-to-run noise is as above"
            facts.append(
                ("chance of parity", f"{chance} that the true gap is within the margin, {basis}")
            )
        if looks := looks_words(document):
            facts.append(("looks", looks))
    return facts + _advisory_facts(document)


def _recipes(document: VerdictDocument) -> list[str]:
    """What each arm did in full, where its name does not say that."""
    arms = (
        (str(arm["name"]), arm["recipe"]) for arm in (document["baseline"], document["candidate"])
    )
    return [f"{name}: {recipe}" for name, recipe in arms if recipe and title(name, recipe) != name]


def looks_words(document: VerdictDocument) -> str:
    """Which look at the question this is, how many candidates share the error, and who counts the
    looks; "" for older verdicts.
    """
    shared = document.get("multiplicity")
    if shared is None:
        return ""
    nominal = level_percent(document["params"]["policy"]["confidence"])
    number = f"look {shared['look']} of {shared['looks']}"
    level = ""
    if shared["looks"] > 1 or shared["candidates"] > 1:
        among = f", {shared['candidates']} candidates" if shared["candidates"] > 1 else ""
        level = (
            f"{among}: each interval has {level_percent(shared['confidence'])}, so that all "
            f"together keep {nominal}"
        )
    if shared["registered"]:
        counted = "registered"
    else:
        counted = "not registered: nobody counts further comparisons of this question"
    return f"{number}{level}; {counted}"


def read_notes(document: VerdictDocument) -> list[str]:
    """What a reader noted of the files, such as the columns it took; each note once, with its runs
    where it is not of all of them.
    """
    inputs = document["inputs"]
    early = inputs.get("short_reruns", {}).values()
    runs = [
        run
        for arm in (inputs["baseline"], inputs["candidate"], inputs["controls"], *early)
        for run in arm
    ]
    labels: dict[str, list[str]] = {}
    for run in runs:
        for note in run["notes"]:
            if not note.startswith(REUSED):
                labels.setdefault(note, []).append(run["label"] or "a run")
    return [
        note if len(own) == len(runs) else f"{', '.join(dict.fromkeys(own))}: {note}"
        for note, own in labels.items()
    ]


def reused_notes(document: VerdictDocument) -> list[str]:
    """What the server noted of baseline runs that were not trained, because equal ones had been:
    whose curve, and how old it is.
    """
    noted = [
        (run["label"], note)
        for run in document["inputs"]["baseline"]
        for note in run["notes"]
        if note.startswith(REUSED)
    ]
    return [f"{label}: {note.removeprefix(REUSED)}" for label, note in noted]


def _advisory_facts(document: VerdictDocument) -> list[tuple[str, str]]:
    """The measures in addition to the loss: the policy's checks first, then token tax, speed, net
    speed-up, gradient norms and the rest that advises.
    """
    deciding = [check for check in document.get("checks", ()) if check["role"] == "decides"]
    facts = [
        (f"check {check['name']}", f"{check['state'] or 'not measured'}: {check['sentence']}")
        for check in deciding
    ]
    if tax := document.get("token_tax"):
        ends = tax["estimate"], tax["lo"], tax["hi"]  # the string "inf" for an unbounded one
        estimate, lo, hi = (
            f"{signed(100 * share, 1)} %" if isinstance(share, float) else "unbounded"
            for share in ends
        )
        facts.append(("token tax", f"{estimate} ({lo} to {hi}), {tax['caveat']}"))
    facts += _speed(document)
    if (net := document.get("net_speedup")) and "speed_reason" in document:
        facts.append(
            (
                "net speed-up",
                f"{_ratio_words(net['value'], net)} in time to the same loss, token tax included",
            )
        )
    if validation := document.get("validation"):
        words = (
            f"{signed(validation['mean'], DECIMALS)} nats "
            f"({interval_words(validation['lo'], validation['hi'], DECIMALS)})"
        )
        facts.append(("validation loss", f"gap {words}, {count(validation['n'], 'point')}"))
    if (spikes := document.get("run_spikes")) and spikes["baseline"] + spikes["candidate"]:
        facts.append(("spikes", _spike_words(document, spikes)))
    facts += [("candidates", peer["sentence"]) for peer in document.get("other_candidates", ())]
    facts += [("downstream", task["sentence"]) for task in document.get("downstream", ())]
    if gain := document.get("worth"):
        facts.append(("worth", gain["sentence"]))
    if norm := document.get("grad_norm"):
        base, cand = norm.get("clipped_share") or (None, None)
        if base is None or cand is None:
            clipped = ""
        else:
            clipped = f", clipped {percent(cand)} of the steps against {percent(base)}"
        ratio = _ratio_words(norm["ratio"], norm)
        facts.append(
            (
                "gradient norm",
                f"{ratio}, 99th percentile {norm['p99_ratio']:.2f} x{clipped}; {norm['basis']}",
            )
        )
    return facts


def _speed(document: VerdictDocument) -> list[tuple[str, str]]:
    """The speed ratio, or why there is none; the ratio of a judge that did not check the conditions
    of both arms is not shown.
    """
    speed, reason = document.get("throughput"), document.get("speed_reason")
    if speed is not None and "speed_reason" not in document:
        reason = "this verdict is from before the conditions of both arms were checked"
    if reason is not None:
        return [("speed", f"not compared: {reason}")]
    if not speed:
        return []
    ratio = _ratio_words(speed["ratio"]["value"], speed["ratio"])
    facts = [
        (
            "speed",
            (
                f"step speed {ratio} of the baseline's, {speed['candidate_step_seconds']:.3g} s "
                "per step"
            ),
        )
    ]
    for (baseline, candidate), unit in (
        (speed["tokens_per_second"], "tokens/s/device"),
        (speed["tflops"], "TFLOP/s/device"),
    ):
        if baseline is not None and candidate is not None:
            facts.append(
                (
                    unit,
                    (
                        f"{baseline_name(document)} {_rate(baseline)}, {candidate_name(document)} "
                        f"{_rate(candidate)}"
                    ),
                )
            )
    return facts


def _spike_words(document: VerdictDocument, spikes: RunSpikesDocument) -> str:
    if spikes["p_candidate_more"] < ONE_SIDED_ALPHA:
        more = f", more than chance gives (p {spikes['p_candidate_more']:.2g})"
    else:
        more = ""
    sides = (
        f"{spikes['candidate']:,} of {candidate_name(document)} and {spikes['baseline']:,} of "
        f"{baseline_name(document)}"
    )
    return f"over the whole run {sides}{more}"


def _rate(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ratio_words(ratio: float, ends: EstimateDocument | GradNormDocument) -> str:
    return f"{ratio:.3f} x ({ends['lo']:.3f} to {ends['hi']:.3f})"


def _series_words(name: str, runs: Sequence[RunDocument]) -> str:
    """What the first run of an arm covers: the proof of completeness in short."""
    series = runs[0]["completeness"]
    if not series["count"]:
        return f"{name} empty"
    stride = f" every {series['stride']:,}" if series["stride"] else ""
    flaws = [
        count(number, word)
        for number, word in ((series["duplicates"], "repeated step"), (series["gaps"], "gap"))
        if number
    ]
    covered = f"{count(series['count'], 'step')} {series['first']:,} to {series['last']:,}{stride}"
    return f"{name} {', '.join([covered, *flaws])}"


def _noise_words(document: VerdictDocument) -> str:
    noise, parts = document["noise"], document["se_parts"]
    pairing = (
        f", pairing correlation {noise['r_pair']:.3f}" if isinstance(noise["r_pair"], float) else ""
    )
    errors = (
        f"within-pair SE {parts['within']:.4f}, between-run SE {parts['run']:.4f}" if parts else ""
    )
    multiple = noise.get("r_step")
    if isinstance(multiple, float):
        gap = f" (the gap is {round(multiple, 2) + 0.0:.2f} x of it)"
    else:
        gap = ""
    return f"step noise {noise['sigma_step']:.4f} nats{gap}, {errors}{pairing}"


def _floor_words(document: VerdictDocument) -> str:
    floors = [
        f"{name} {tau['value']:.4f} nats ({tau['source']}, df {tau['df']:g})"
        for name, tau in _floors(document)
    ]
    return ", ".join(floors) or "not measured"


def _floors(document: VerdictDocument) -> list[tuple[str, FloorDocument]]:
    floors = document["tau"]
    if not floors:
        return []
    return [
        (baseline_name(document), floors["baseline"]),
        (candidate_name(document), floors["candidate"]),
    ]


def _early_stops(document: VerdictDocument) -> list[tuple[str, str]]:
    """How many early-stopped reruns of which arm measured the run-to-run noise; nothing without
    any.
    """
    arms = [
        f"{count(early['runs'], 'rerun')} of {name} stopped at {percent(early['stop'])} (df "
        f"{early['df']:.3g})"
        for name, floor in _floors(document)
        if (early := floor.get("early_stopped"))
    ]
    if not arms:
        return []
    return [("run-to-run noise", f"from {' and '.join(arms)}")]


def _margin_fact(document: VerdictDocument) -> str:
    margin, advice = document["margin"], document["advice"]
    detectable, to_pass = advice["minimum_detectable_gap"], advice["margin_to_pass"]
    if margin is None or detectable is None or to_pass is None:
        return "undetermined"
    words = f"{margin['nats']:.4f} nats from {margin['source']}"
    if (tokens := margin.get("tokens")) is not None:
        words += f", worth {percent(tokens)} more tokens"
    if is_identical(document):
        return words
    entry = BY_CODE.get(document["codes"][0])
    if entry is not None and entry.decided_by_interval:
        words += f"; a margin of {to_pass:.4f} would pass"
    if detectable > 0.0:
        return f"{words}; with an interval of this width a gap up to {detectable:.4f} can pass"
    return f"{words}; this interval is too wide to pass"


def judge_of(documents: Sequence[VerdictDocument | EvaluationDocument]) -> str:
    """The version of the judge that made these documents; this judge's where there are none."""
    if documents:
        return documents[0]["engine_version"]
    return JUDGE_VERSION


# A comparison of evaluations in words: the rows of its tables.

AGAINST_MARGIN: Mapping[str | None, str] = {
    "WITHIN_MARGIN": "within the margin",
    "GAP_EXCEEDS_MARGIN": "above the margin",
    "CI_STRADDLES_MARGIN": "straddles the margin",
    "BETTER_THAN_BASELINE": "better by more than the margin",
}
Cells = tuple[str, ...]


def point_words(document: EvaluationDocument, before: str) -> str:
    """The points compared, after `before`; empty where there are none."""
    if not document["as_of"]:
        return ""
    return f"{before}{point(document)}"


def _side(interval: IntervalDocument) -> str:
    """Where an interval lies, in words; "no margin" without one."""
    return AGAINST_MARGIN.get(interval["against_margin"], "no margin")


def _runs(document: EvaluationDocument) -> int:
    return len(document["baseline"]["runs"]) + len(document["candidate"]["runs"])


def comparison_rows(document: EvaluationDocument) -> list[Cells]:
    """A heading and one row each for the gap over runs and over clusters, the token tax, and step
    and net speed on each hardware.
    """
    rows: list[Cells] = [
        ("", "value", f"{level_percent(document['gap']['confidence'])} CI", "over")
    ]
    for interval, unit in evaluation_intervals(document):
        rows.append(
            (
                "gap, nats",
                signed(interval["mean"], decimals(document)),
                ends_words(document, interval),
                f"{unit}: {_side(interval)}",
            )
        )
    if target := document["target"]:
        name, tax = f"token tax to {target['nats']:g}", target["tax"]
        if tax is None:
            rows.append((name, "unknown", "", "each arm needs 2 runs that reach it"))
        else:
            rows.append(
                (
                    name,
                    share(tax["estimate"]),
                    f"{share(tax['lo'])} to {share(tax['hi'])}",
                    count(_runs(document), "run"),
                )
            )
    at = f" to {target['nats']:g}" if target else " to the target"
    several = len(document["speed"]) > 1
    for number, speed in enumerate(document["speed"], 1):
        runs = (
            f"{speed['runs'][0]} and {count(speed['runs'][1], 'run')} on "
            f"{f'hardware {number}' if several else 'equal hardware'}"
        )
        for name, key in (("step speed", "step"), (f"net speed{at}", "net")):
            if ratio := speed[key]:
                rows.append(
                    (
                        name,
                        f"{ratio['value']:.3f} x",
                        f"{ratio['lo']:.3f} to {ratio['hi']:.3f}",
                        runs,
                    )
                )
    return rows


def share(value: float) -> str:
    """A share with its sign: "+9.2 %"."""
    return f"{signed(100.0 * value, 1)} %"


def arm_rows(document: EvaluationDocument) -> list[Cells]:
    """A heading and the rows that set the two arms side by side; rows without a value in either arm
    are left out.
    """
    baseline, candidate = (_arm_cells(document, number) for number in (0, 1))
    rows = [
        (name, words, candidate[name])
        for name, words in baseline.items()
        if words or candidate[name]
    ]
    return [("", document["baseline"]["name"], document["candidate"]["name"]), *rows]


def _arm_cells(document: EvaluationDocument, number: int) -> dict[str, str]:
    """What is known of the baseline (0) or the candidate (1), by name; "" for what is not."""
    arm = document["candidate" if number else "baseline"]
    spread, mean, runs, over, target = (
        arm["spread"],
        arm["mean"],
        len(arm["runs"]),
        document["gap"]["over_clusters"],
        document["target"],
    )
    clusters = (
        f" in {count(len({run['cluster'] for run in arm['runs']}), over['key'])}" if over else ""
    )
    cells = {
        "recipe": arm["recipe"] or "",
        "runs": f"{runs}{clusters}",
        f"loss{point_words(document, ' at ')}, nats": f"{mean:.{DECIMALS}f}"
        if isinstance(mean, float)
        else "",
        "spread of runs": _nats_and_share(spread["sd"], spread["rel"]) if spread else "",
        f"its {level_percent(document['gap']['confidence'])} CI": (
            f"{spread['lo']:.{DECIMALS}f} to {spread['hi']:.{DECIMALS}f}" if spread else ""
        ),
        "assumed for one run": _nats_and_share(spread["assumed_rel"] * mean, spread["assumed_rel"])
        if spread and mean
        else "",
    }
    if target:
        needed = target["candidate_samples"] if number else target["baseline_samples"]
        cells[f"reaches {target['nats']:g} at"] = steps_words(document, needed)
        cells[f"runs seen to reach {target['nats']:g}"] = f"{target['reached'][number]} of {runs}"
    return cells


def _nats_and_share(nats: float, rel: float) -> str:
    return f"{nats:.{DECIMALS}f} ({100.0 * rel:.2f} %)"


def notes(document: EvaluationDocument) -> list[tuple[str, str]]:
    """What the tables have no room for: what was read, the gap at all common points, and which
    hardware the speeds were taken on.
    """
    runs = _runs(document)
    noted = []
    for note in document["notes"]:
        some = "" if note["runs"] == runs else f"{count(note['runs'], 'run')} of {runs}: "
        noted.append(("input", f"{some}{note['note']}"))
    if (curve := document["curve"]) and len(curve["steps"]) > 1:
        ends = interval_words(min(curve["gap"]), max(curve["gap"]), DECIMALS)
        noted.append((f"gap at all {len(curve['steps'])} common points", f"{ends} nats"))
    several = len(document["speed"]) > 1
    for number, speed in enumerate(document["speed"], 1):
        noted.append((f"hardware {number}" if several else "hardware", str(speed["hardware"])))
    return noted


def tokens_per_step(document: EvaluationDocument) -> float | None:
    """Tokens a step, where the document knows them."""
    as_of = document["as_of"]
    if as_of and as_of["tokens"] and as_of["points"][-1]:
        return as_of["tokens"] / as_of["points"][-1]
    return None


def token_unit(tokens: float) -> tuple[float, str]:
    """The unit in which a number of tokens is written: its size and its letter, such as 1e9 and
    "B".
    """
    return next(((size, letter) for size, letter in TOKEN_UNITS if tokens >= size), (1.0, ""))


def steps_words(document: EvaluationDocument, steps: float | None) -> str:
    """A point between evaluations: "1.29 B tokens" where a step's tokens are known, else "step
    157,105"; empty for None.
    """
    if steps is None:
        return ""
    each = tokens_per_step(document)
    if each is None:
        return f"step {steps:,.0f}"
    size, letter = token_unit(steps * each)
    return f"{steps * each / size:.{2 if letter else 0}f} {letter}".rstrip() + " tokens"


def evaluation_details(
    document: EvaluationDocument,
) -> tuple[list[Detail], list[Detail], list[Detail]]:
    """The reasons, the notes and the advice."""
    reasons = [
        Detail(reason["code"], reason["sentence"], is_code=True) for reason in document["reasons"]
    ]
    return (
        reasons,
        list(starmap(Detail, notes(document))),
        [Detail(NEXT, sentence) for sentence in document["advice"]["sentences"]],
    )


# What the answer is worth: device hours and money that the candidate saves or costs over the
# planned full run, and what the check cost.
#
# saved = full run's device hours x (1 - 1/net speed-up), with the ends of the net speed-up's
# interval; check = run hours x devices
#
# Can fail: the net speed-up was measured at the check's length and schedule, not at the full run's.


@frozen
class FullRun:
    """The planned full run with the baseline recipe: device hours, price of a device hour, devices
    a run of the check used.
    """

    device_hours: float
    price: float | None = None
    check_devices: int = 1

    def __post_init__(self) -> None:
        if not self.device_hours > 0.0:
            raise ValueError(f"device_hours is {self.device_hours}; expected more than 0")
        if self.price is not None and not self.price >= 0.0:
            raise ValueError(f"price is {self.price}; expected 0 or more")
        if self.check_devices < 1:
            raise ValueError(f"check_devices is {self.check_devices}; expected at least 1")


@frozen
class Worth:
    """Device hours saved (negative: lost) with interval, device hours of the check, their money
    where a price is known, in words.
    """

    saved_hours: float
    lo: float
    hi: float
    check_hours: float
    saved_money: float | None
    check_money: float | None
    sentence: str


def worth(document: VerdictDocument, full: FullRun) -> Worth | None:
    """What a verdict document's net speed-up means for a full run; None without a net speed-up (it
    needs step times of all runs).
    """
    net, speed = document.get("net_speedup"), document.get("throughput")
    if not net or not speed:
        return None
    saved, lo, hi = (
        full.device_hours * (1.0 - 1.0 / ratio) for ratio in (net["value"], net["lo"], net["hi"])
    )
    check = speed["run_hours"] * full.check_devices
    word = "saves" if saved >= 0.0 else "costs"
    sentence = (
        f"{document['candidate']['name']} {word} {abs(saved):,.0f} of {full.device_hours:,.0f} "
        f"device hours ({lo:+,.0f} to {hi:+,.0f}); this check took {check:,.1f}."
    )
    saved_money = check_money = None
    if full.price is not None:
        saved_money, check_money = saved * full.price, check * full.price
        sentence += (
            f" At {full.price:g} an hour: {saved_money:+,.0f}, the check {check_money:,.0f}."
        )
    return Worth(
        saved_hours=saved,
        lo=lo,
        hi=hi,
        check_hours=check,
        saved_money=saved_money,
        check_money=check_money,
        sentence=sentence,
    )


# Sign-offs in reports: a person's acceptance stands next to the verdict, in words that nobody takes
# for a pass of the judge.

Accepted = Mapping[str, SignOffDocument]
"""The sign-off that holds, by candidate."""

NOT_A_PASS = "Accepted, not a pass"  # noqa: S105


def accepted_words(sign_off: SignOffDocument) -> str:
    """Who accepted which verdict, until when and why, in one line."""
    until = sign_off["expires_at"][:16].replace("T", " ")
    reason = " ".join(sign_off["reason"].split())
    return (
        f"{sign_off['who']} signed off the inconclusive verdict on {sign_off['candidate']} until "
        f"{until} UTC: {reason}"
    )


def lapsed_words(sign_off: SignOffDocument) -> str:
    """Why a sign-off no longer counts, in one line."""
    why = {
        "expired": f"expired on {sign_off['expires_at'][:16].replace('T', ' ')} UTC",
        "revoked": f"was revoked by {sign_off['revoked_by']}: "
        f"{' '.join((sign_off['revoke_reason'] or '').split())}",
    }.get(sign_off["state"], "was for another verdict or another policy")
    return f"the sign-off of {sign_off['candidate']} by {sign_off['who']} does not count: it {why}"

"""What the table of candidates has no room for: window, noise, speed and more."""

import math
from collections.abc import Iterator, Sequence

from parity.effective_recipe import title
from parity.judging.codes import BY_CODE, WINDOW_SENSITIVE
from parity.judging.curves.spikes import ONE_SIDED_ALPHA
from parity.judging.document_types import (
    REUSED,
    ArmNoiseDocument,
    EstimateDocument,
    GradNormDocument,
    RunSpikesDocument,
    VerdictDocument,
    VerdictRunDocument,
)
from parity.judging.gap.interval import t_quantile
from parity.report.number_words import chance_words
from parity.report.view import TrainingView
from parity.wording import DECIMALS, count, interval_words, level_percent, percent, signed

_SAME = 1e-3  # of the gap, within which two ends of an interval are one


def facts(view: TrainingView) -> list[tuple[str, str]]:
    """What the table has no room for: window, step noise, run-to-run noise, convergence."""
    document = view.document
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
        _series_words(view.baseline.name, inputs["baseline"]),
        _series_words(view.candidate.name, inputs["candidate"]),
    )
    facts.append(("series", "; ".join(series)))
    facts += [("input", note) for note in read_notes(document)]
    facts += [("reused", note) for note in reused_notes(document)]
    if compares := document.get("compares"):
        facts.append(
            ("compares", f"{compares}, so that {', '.join(document['may_differ'])} may differ")
        )
    if document["gap"]:
        if not view.is_identical:
            facts += [
                ("noise", _noise_words(document)),
                *(("interval", words) for words in _interval_words(view)),
                ("run-to-run noise", _run_noise_words(view)),
            ]
            facts += _early_stops(view)
        facts.append(("margin", _margin_fact(view)))
        if WINDOW_SENSITIVE.code in view.codes:
            facts.append(("other windows", _other_windows(view)))
        if chance := chance_words(view):
            basis = "if every gap is equally likely beforehand and the run-to-run noise is as above"
            facts.append(
                ("chance of parity", f"{chance} that the true gap is within the margin, {basis}")
            )
        if looks := looks_words(document):
            facts.append(("looks", looks))
    return facts + _advisory_facts(view)


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
            f"{among}: a pass takes each interval at {level_percent(shared['confidence'])}, so "
            f"that all together keep {nominal}, at which a fail is judged"
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
        note if len(noted_runs) == len(runs) else f"{', '.join(dict.fromkeys(noted_runs))}: {note}"
        for note, noted_runs in labels.items()
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


def _advisory_facts(view: TrainingView) -> list[tuple[str, str]]:
    """The measures in addition to the loss: the policy's checks first, then token tax, speed, net
    speed-up, gradient norms and the rest that advises.
    """
    document = view.document
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
    facts += _speed(view)
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
        facts.append(("spikes", _spike_words(view, spikes)))
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


def _speed(view: TrainingView) -> list[tuple[str, str]]:
    """The speed ratio, or why there is none; the ratio of a judge that did not check the conditions
    of both arms is not shown.
    """
    document = view.document
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
                        f"{view.baseline.name} {_rate(baseline)}, {view.candidate.name} "
                        f"{_rate(candidate)}"
                    ),
                )
            )
    return facts


def _spike_words(view: TrainingView, spikes: RunSpikesDocument) -> str:
    if spikes["p_candidate_more"] < ONE_SIDED_ALPHA:
        more = f", more than chance gives (p {spikes['p_candidate_more']:.2g})"
    else:
        more = ""
    sides = (
        f"{spikes['candidate']:,} of {view.candidate.name} and {spikes['baseline']:,} of "
        f"{view.baseline.name}"
    )
    return f"over the whole run {sides}{more}"


def _rate(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ratio_words(ratio: float, ends: EstimateDocument | GradNormDocument) -> str:
    return f"{ratio:.3f} x ({ends['lo']:.3f} to {ends['hi']:.3f})"


def _series_words(name: str, runs: Sequence[VerdictRunDocument]) -> str:
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
        f"within-pair SE {parts['within']:.3g} (df {parts['within_df']:.3g}), between-run SE "
        f"{parts['run']:.3g} (df {parts['run_df']:.3g})"
        if parts
        else ""
    )
    multiple = noise.get("r_step")
    if isinstance(multiple, float):
        gap = f" (the gap is {round(multiple, 2) + 0.0:.2f} x of it)"
    else:
        gap = ""
    return f"step noise {noise['sigma_step']:.4f} nats{gap}, {errors}{pairing}"


def _interval_words(view: TrainingView) -> Iterator[str]:
    """How the half-width follows from the two errors, where one look at one candidate has them at
    one confidence.
    """
    document, gap = view.document, view.gap
    parts, shared = document["se_parts"], document.get("multiplicity")
    if not parts or gap is None or (shared and (shared["looks"], shared["candidates"]) != (1, 1)):
        return
    terms = [
        (t_quantile(view.confidence, df), error)
        for df, error in (
            (parts["run_df"], parts["run"]),
            (parts["within_df"], parts["within"]),
        )
    ]
    half = math.hypot(*(t * error for t, error in terms))
    farther = (
        "; the ends of the whole interval are farther out, where a few points or a run decide"
        if max(gap.hi - gap.mean, gap.mean - gap.lo) > half + _SAME * abs(gap.mean)
        else ""
    )
    products = ", ".join(f"{t:.3f} x {error:.3g}" for t, error in terms)
    yield (
        f"half-width hypot({products}) = {half:.4f} nats: t of both df at "
        f"{level_percent(view.confidence)}{farther}"
    )


def _run_noise_words(view: TrainingView) -> str:
    noises = [
        f"{name} {tau['value']:.4f} nats ({tau['source']}, df {tau['df']:g})"
        for name, tau in _noises(view)
    ]
    return ", ".join(noises) or "not measured"


def _noises(view: TrainingView) -> list[tuple[str, ArmNoiseDocument]]:
    noises = view.document["tau"]
    if not noises:
        return []
    return [
        (view.baseline.name, noises["baseline"]),
        (view.candidate.name, noises["candidate"]),
    ]


def _other_windows(view: TrainingView) -> str:
    """The gap over each window that was tried in place of the registered one."""
    return "; ".join(
        f"last {percent(entry['fraction'])}: {signed(entry['mean'], view.decimals)} nats "
        f"({interval_words(entry['lo'], entry['hi'], view.decimals)})"
        for entry in view.document["window"]["sensitivity"]
    )


def _early_stops(view: TrainingView) -> list[tuple[str, str]]:
    """How many early-stopped reruns of which arm measured the run-to-run noise; nothing without
    any.
    """
    arms = [
        f"{count(early['runs'], 'rerun')} of {name} stopped at {percent(early['stop'])} (df "
        f"{early['df']:.3g})"
        for name, noise in _noises(view)
        if (early := noise.get("early_stopped"))
    ]
    if not arms:
        return []
    return [("run-to-run noise", f"from {' and '.join(arms)}")]


def _margin_fact(view: TrainingView) -> str:
    margin, advice = view.margin, view.document["advice"]
    detectable, to_pass = advice["minimum_detectable_gap"], advice["margin_to_pass"]
    if margin is None or detectable is None:
        return "undetermined"
    words = f"{margin['nats']:.4f} nats from {margin['source']}"
    if (tokens := margin.get("tokens")) is not None:
        words += f", worth {percent(tokens)} more tokens"
    if view.is_identical:
        return words
    entry = BY_CODE.get(view.code)
    if to_pass is not None and entry is not None and entry.decided_by_interval:
        up = math.ceil(to_pass * 1e4) / 1e4  # just below it nothing passes
        words += f"; a margin of {up:.4f} would pass"
    if not view.finished and view.document["params"]["policy"].get("as_of") != "accept":
        return words  # nothing passes as of a point
    if detectable > 0.0:
        return f"{words}; with an interval of this width a gap up to {detectable:.4f} can pass"
    return f"{words}; with an interval of this width only a candidate that is better can pass"

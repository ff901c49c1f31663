"""The card of a judged case."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.cards.card import (
    Card,
    CardArm,
    CardCandidate,
    CardGap,
    CardInterval,
    CardMargin,
    CardNoise,
    CardSignOff,
)
from parity.cards.statements import statements_of
from parity.effective_recipe import base_of
from parity.frozen import frozen
from parity.judging.bundles.write_bundle import evidence_sha256
from parity.judging.case import AnyCase, AnyDocument
from parity.judging.curves.context import (
    ARCHITECTURE,
    CODE_DIGEST,
    DEVICE_CLASS,
    ENGINE,
    PARAMETERS,
    WEIGHTS,
    values_of,
)
from parity.judging.curves.curve import DATA_DIGEST, Curve
from parity.judging.document_types import ArmNoiseDocument
from parity.judging.policy import NVFP4, Policy
from parity.judging.secondary.conditions import TOKENS
from parity.recipes import OTHER
from parity.report.answer import answer_words
from parity.report.candidates import state_of_all
from parity.report.strip import noise_basis
from parity.report.view import EvaluationView, View, views_of
from parity.report.words import has_one_recipe
from parity.version import VERSION

DIGITS = 12  # significant ones of a number; machines agree on these to 1e-9
_COMMITS = ("code_revision", "repository_revision", "repository", CODE_DIGEST, "code_sha256")
_DEVICES = (DEVICE_CLASS, ENGINE, "environment", "image", "processes")
_MODEL = (PARAMETERS, ARCHITECTURE, WEIGHTS, "dataset", DATA_DIGEST)
_VERSIONS = ("trainer_version", "version.", "maxtext.version.", "transformer_engine.")


@frozen
class ServerFacts:
    """What only a server knows of a job: its id, the job whose fail on the same question stands
    against its pass, and its sign-offs (`SignOffDocument`), None where they are not known.
    """

    job: str | None = None
    failed_by: str | None = None
    sign_offs: Iterable[Mapping[str, Any]] | None = None


def make_card(
    case: AnyCase,
    documents: Sequence[AnyDocument],
    by: str | None = None,
    facts: ServerFacts | None = None,
) -> Card:
    """The card of a case and its verdicts, at least one; `by` is who stated what no note names."""
    facts = facts or ServerFacts()
    views = views_of(documents)
    answer = answer_words(views)
    state = state_of_all(views)
    runs = [
        run for role, _, runs in case.arms() if role in ("baseline", "candidate") for run in runs
    ]
    names = sorted({key for run in runs for key in run.context})
    card = Card(
        schema="parity.card/1",
        state=state,
        headline=f"{state.upper()}: {answer.lead}",
        question=_question(views),
        judge=documents[0]["engine_version"],
        parity=VERSION,
        job=facts.job,
        failed_by=None,
        evidence_sha256=evidence_sha256(case),
        policy=_policy(case.policy),
        planned_steps=case.planned_steps,
        baseline=_baseline(case, views),
        candidates=[_candidate(case, view) for view in views],
        commits=_facts(runs, _COMMITS),
        versions=_facts(runs, [name for name in names if name.startswith(_VERSIONS)]),
        devices=_facts(runs, _DEVICES),
        model=_facts(runs, _MODEL),
        statements=statements_of(case, by),
        sign_offs=[
            _sign_off(sign_off)
            for sign_off in facts.sign_offs or ()
            if sign_off["state"] == "valid"
        ],
    )
    return replace(under_standing_fail(card, facts.failed_by), failed_by=facts.failed_by)


def ended_sign_offs(facts: ServerFacts) -> tuple[CardSignOff, ...]:
    """The sign-offs that are on record and no longer count: expired, revoked or void."""
    return tuple(
        _sign_off(sign_off) for sign_off in facts.sign_offs or () if sign_off["state"] != "valid"
    )


def under_standing_fail(card: Card, failed_by: str | None) -> Card:
    """A card whose pass does not count, because the job `failed_by` failed the same question."""
    if failed_by is None or card.state != "pass":
        return card
    lead = f"This pass does not count: job {failed_by} failed the same question."
    return replace(card, state="fail", headline=f"FAIL: {lead}")


def _sign_off(document: Mapping[str, Any]) -> CardSignOff:
    return CardSignOff(
        candidate=str(document["candidate"]),
        who=str(document["who"]),
        expires_at=str(document["expires_at"]),
        reason=str(document["reason"]),
    )


def _question(views: Sequence[View]) -> str:
    names = [view.candidate.title for view in views]
    *first, last = names
    several = f"{', '.join(first)} and {last}" if first else last
    verb = "Do" if first else "Does"
    baselines = {view.baseline.title for view in views}
    base = next(iter(baselines)) if len(baselines) == 1 else "what each is compared with"
    if all(has_one_recipe(view) for view in views):
        return f"{verb} {several} train as {base} does, with the same recipe?"
    return f"{verb} {several} converge as well as {base}?"


def _policy(policy: Policy) -> dict[str, str]:
    """The keys in which a policy differs from the default one, and the confidence."""
    default = Policy(profile=NVFP4).document()
    named = {"profile", "margin", "confidence"}
    return {
        key: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in policy.document().items()
        if value is not None and (key in named or value != default[key])
    }


def _baseline(case: AnyCase, views: Sequence[View]) -> CardArm:
    name = case.baseline_name or ""
    view = next((view for view in views if view.baseline.name == name), None)
    noise = None if view is None else _noise(view, "baseline")
    return _arm(
        name, case.baseline, len(case.baseline) if view is None else view.baseline.runs, noise
    )


def _arm(name: str, runs: Sequence[Curve], counted: int, noise: CardNoise | None) -> CardArm:
    recipe = runs[0].recipe if runs else None
    known = recipe is not None and not recipe.startswith(OTHER)
    return CardArm(
        name=name,
        recipe=base_of(recipe) if recipe is not None and known else recipe,
        effective_recipe=recipe,
        runs=counted,
        seeds=sorted({run.seed for run in runs if run.seed_stated}),
        noise=noise,
    )


def _candidate(case: AnyCase, view: View) -> CardCandidate:
    name, window = view.candidate.name, view.window
    runs = case.candidates[name]
    return CardCandidate(
        arm=_arm(name, runs, view.candidate.runs, _noise(view, "candidate")),
        against=view.baseline.name,
        verdict=view.state,
        codes=list(view.codes),
        gap=_gap(view),
        margin=None
        if view.margin is None
        else CardMargin(
            nats=shortened(view.margin["nats"]),
            rel=None if view.margin["rel"] is None else shortened(view.margin["rel"]),
            source=view.margin["source"],
        ),
        noise_basis=noise_basis(view),
        first_step=window[0] if window else None,
        last_step=window[1] if window else None,
        common_steps=_common_steps(view),
        tokens=_tokens(view, runs, window[1] if window else None),
        finished=view.finished,
    )


def _gap(view: View) -> CardGap | None:
    gap = view.gap
    if gap is None:
        return None
    policy = (
        view.document["policy"]
        if isinstance(view, EvaluationView)
        else view.document["params"]["policy"]
    )
    return CardGap(
        mean=shortened(gap.mean),
        rel=None if gap.rel is None else shortened(gap.rel),
        deciding=CardInterval(
            level=shortened(view.confidence),
            lo=shortened(gap.lo),
            hi=shortened(gap.hi),
            one_sided=view.state == "fail" or not policy.get("two_sided"),
        ),
    )


def _noise(view: View, side: str) -> CardNoise | None:
    """The run-to-run noise of an arm; None where a verdict rests on none."""
    if isinstance(view, EvaluationView):
        arm = view.document["baseline"] if side == "baseline" else view.document["candidate"]
        spread = arm["spread"]
        if spread is None:
            return None
        return CardNoise(rel=shortened(spread["rel"]), source="the spread of its runs")
    noises = view.document["tau"]
    if noises is None:
        return None
    noise = noises["baseline"] if side == "baseline" else noises["candidate"]
    if noise["rel"] is None:
        return None
    return CardNoise(rel=shortened(noise["rel"]), source=_noise_source(noise))


def _noise_source(noise: ArmNoiseDocument) -> str:
    if noise["source"] == "prior":
        return noise["prior_basis"]
    if borrowed := noise.get("borrowed"):
        return f"{noise['source']}, with reruns of family {borrowed['family']}"
    return noise["source"]


def _common_steps(view: View) -> int:
    if isinstance(view, EvaluationView):
        curve = view.document["curve"]
        return len(curve["steps"]) if curve else 0
    window = view.document["window"]
    return window["n"] if window else view.document["inputs"]["common_steps"]


def _tokens(view: View, runs: Sequence[Curve], last: int | None) -> float | None:
    """The tokens that a run has trained on at the end of the window; None where nobody recorded
    them.
    """
    if isinstance(view, EvaluationView):
        as_of = view.document["as_of"]
        return None if as_of is None or as_of["tokens"] is None else shortened(as_of["tokens"])
    counted = [
        float(values[-1])
        for run in runs
        if TOKENS in run.columns and last is not None
        for values in [run.columns[TOKENS][run.steps <= last]]
        if len(values) and np.isfinite(values[-1])
    ]
    return shortened(max(counted)) if counted else None


def _facts(runs: Sequence[Curve], keys: Iterable[str]) -> dict[str, str]:
    """What the runs recorded under each key, the values of several runs separated by " | "."""
    values = {key: sorted(values_of([run.context for run in runs], key)) for key in keys}
    return {key: " | ".join(found) for key, found in values.items() if found}


def shortened(value: float) -> float:
    """A number with the digits that a card has of it."""
    number = float(value)
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else number

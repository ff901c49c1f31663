"""Candidates that did not train with their recipe, and what else a record says or leaves out."""

import dataclasses
import math

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.noise.noise_table import read_noise_table
from tests.parity.attacks.case import Attack, Build, Case, Runs, kept, margin_of, raised, with_loss

FIRST = 11.0712  # not ln V of a vocabulary that is a multiple of 64


def started(run: Curve, first: float, recipe: str) -> Curve:
    """The run with another first loss and a recorded recipe."""
    loss = run.loss.copy()
    loss[0] = first
    return with_loss(run, loss, recipe=recipe)


def starts(first: float, second: float) -> Build:
    """Both arms with recorded recipes and first losses."""
    return lambda runs: Case(
        base=[started(runs[0], first, "bf16")], cand=[started(runs[1], second, "mxfp8")]
    )


def uniform_start(runs: Runs) -> Case:
    """Both arms begin at ln 50,304, as a model does whose output layer starts at zero."""
    return starts(round(math.log(50_304), 4), round(math.log(50_304), 4))(runs)


def swapped(runs: Runs) -> Case:
    """The files of baseline and candidate swapped: the record of each has the other's precision."""
    base, cand = (
        starts(FIRST, FIRST + 0.002)(runs).base[0],
        starts(FIRST, FIRST + 0.002)(runs).cand[0],
    )
    return Case(base=[cand], cand=[base], names=("bf16", "mxfp8"))


def in_place(runs: Runs) -> Case:
    """The same files in their places."""
    return dataclasses.replace(starts(FIRST, FIRST + 0.002)(runs), names=("bf16", "mxfp8"))


def loaded(share: float, steps: int) -> Build:
    """Weights are loaded, as the policy says; the candidate begins so much worse (or better) and
    recovers over so many steps.
    """

    def build(runs: Runs) -> Case:
        loss = runs[1].loss * (1.0 + share * np.exp(-np.arange(len(runs[1].loss)) / steps))
        return Case(
            base=[runs[0]],
            cand=[with_loss(runs[1], loss)],
            policy={"margin": "1%", "start": "loaded"},
        )

    return build


def restarted(height: float) -> Build:
    """The candidate went so many nats above its loss from step 600 to 1,000, then back to step 600,
    and its log has both.
    """

    def build(runs: Runs) -> Case:
        cand = runs[1]
        first = np.concatenate([cand.loss[:600], runs[2].loss[600:1000] + height])
        steps = np.concatenate([cand.steps[:1000], cand.steps[600:]])
        run = curve_from_arrays(
            steps, np.concatenate([first, cand.loss[600:]]), rounding=cand.rounding
        )
        return Case(base=[runs[0]], cand=[run])

    return build


def recorded(base: dict[str, object], cand: dict[str, object], **others: object) -> Build:
    """Both runs with facts of their records (columns as functions of the run)."""

    def made(run: Curve, facts: dict[str, object]) -> Curve:
        columns = {name: column(run) for name, column in facts.get("columns", {}).items()}  # type: ignore[attr-defined]
        return curve_from_arrays(
            run.steps,
            run.loss,
            rounding=run.rounding,
            columns=columns,
            context=facts.get("context"),
        )  # type: ignore[arg-type]

    return lambda runs: Case(base=[made(runs[0], base)], cand=[made(runs[1], cand)], **others)  # type: ignore[arg-type]


def norms(scale: float) -> dict[str, object]:
    """Gradient norms of this size, with the noise of the loss."""
    return {"columns": {"grad_norm": lambda run: scale * run.loss}}


def evaluated(worse: float, until: float = 1.0) -> dict[str, object]:
    """A validation loss every 25 steps up to a share of the run, worse by so many margins."""

    def column(run: Curve) -> np.ndarray:
        shown = (run.steps % 25 == 0) & (run.steps <= until * len(run.steps))
        return np.where(shown, run.loss + worse * margin_of(run), np.nan)

    return {"columns": {"validation_loss": column}}


def broken_yardstick(margins: float) -> Build:
    """A margin of three run-to-run noise of five baseline runs, of which one is so many margins
    off; the candidates are worse by 1.5 margins.
    """

    def build(runs: Runs) -> Case:
        base = [*runs[:4], raised(runs[4], 0.0, margins)]
        cand = [raised(run, 0.0, 1.5 if margins else 0.0) for run in runs[5:7]]
        return Case(base=base, cand=cand, policy={"profile": "noise-floor"})

    return build


def table_of(share: float) -> Build:
    """A noise table with this run-to-run noise, where assumed noise is rejected."""

    def build(runs: Runs) -> Case:
        level = float(runs[0].loss[-350:].mean())
        rows = [f"mine,g{n},9,{level},{share * level * (1 + n / 100)},nearest" for n in range(4)]
        noise_table = read_noise_table(
            "\n".join(["family,group,runs,mean_loss,sd,rounding", *rows])
        )
        options = {
            "assume_complete": True,
            "noise_table": noise_table,
            "families": {"baseline": "mine", "candidate": "mine"},
        }
        policy = {"margin": "1%", "assumed_noise": "reject"}
        return Case(base=[runs[0]], cand=[runs[1]], policy=policy, options=options)

    return build


def policy_of(**policy: object) -> Build:
    """The pair as it is, under a policy."""
    return lambda runs: Case(base=[runs[0]], cand=[runs[1]], policy={"margin": "1%", **policy})


def of_model(runs_an_arm: int, **context: str) -> Build:
    """Runs of a model that its record describes."""

    def build(runs: Runs) -> Case:
        made = [
            curve_from_arrays(run.steps, run.loss, rounding=run.rounding, context=context)
            for run in runs
        ]
        return Case(base=made[:runs_an_arm], cand=made[runs_an_arm : 2 * runs_an_arm])

    return build


def cut_without_rates(runs: Runs) -> Case:
    """Both runs cut at 80 % of their plan, said to be complete; nobody says anything of the
    learning rate.
    """
    n = round(0.8 * len(runs[0].loss))
    return Case(
        base=[kept(runs[0], slice(0, n))],
        cand=[kept(runs[1], slice(0, n))],
        policy={"margin": "1%", "schedule": "unstated"},
    )


H100 = {"context": {"engine": "torchtitan", "device_class": "H100", "data_digest": "d"}}

ATTACKS = (
    Attack(
        what="a candidate at 8 nats for 400 steps, rolled back and overwritten",
        build=restarted(5.0),
        codes=("ROLLED_BACK",),
        twin="400 steps repeated after a restart",
        honest=restarted(0.0),
    ),
    Attack(
        what="a candidate without a number for 400 steps, rolled back and overwritten",
        build=restarted(math.nan),
        codes=("ROLLED_BACK",),
        twin="400 steps repeated after a restart",
        honest=restarted(0.0),
    ),
    Attack(
        what="gradient norms 100 times the baseline's",
        build=recorded(norms(1.0), norms(100.0)),
        codes=("GRAD_NORM_APART",),
        twin="gradient norms 1.5 times the baseline's",
        honest=recorded(norms(1.0), norms(1.5)),
    ),
    Attack(
        what="validation 3 margins worse, and none in the window",
        build=recorded(evaluated(0.0, 0.7), evaluated(3.0, 0.7)),
        codes=("VALIDATION_LOSS_WORSE",),
        twin="validation equal, and none in the window",
        honest=recorded(evaluated(0.0, 0.7), evaluated(0.0, 0.7)),
    ),
    Attack(
        what="validation in the baseline alone",
        build=recorded(evaluated(0.0), {}),
        codes=("VALIDATION_NOT_COMPARED",),
        may_pass=True,
        twin="validation equal",
        honest=recorded(evaluated(0.0), evaluated(0.0)),
    ),
    Attack(
        what="engine and data recorded in one arm",
        build=recorded(H100, {}),
        codes=("CONTEXT_IN_ONE_ARM",),
        may_pass=True,
        twin="engine and data recorded in both",
        honest=recorded(
            H100,
            {
                "context": {
                    "engine": "TorchTitan",
                    "device_class": "NVIDIA H100 80GB HBM3",
                    "data_digest": "d",
                }
            },
        ),
    ),
    Attack(
        what="a noise-floor margin from five baseline runs, one of them 4 margins off",
        build=broken_yardstick(4.0),
        codes=("MARGIN_UNDETERMINED",),
    ),
    Attack(
        what="a noise table with noise of 0.001 %, assumed noise rejected",
        build=table_of(1e-5),
        codes=("RUN_NOISE_ASSUMED",),
        twin="a noise table with noise of 0.04 %",
        honest=table_of(4e-4),
    ),
    Attack(
        what="run-to-run noise of 0.02 % on 1,000,000 degrees of freedom and a confidence of 90 %",
        build=policy_of(
            baseline_run_noise="0.02%",
            candidate_run_noise="0.02%",
            run_noise_df=1e6,
            confidence=0.9,
        ),
        codes=("POLICY_UNUSUAL",),
        may_pass=True,
    ),
    Attack(
        what="assumed noise on 1,000 degrees of freedom",
        build=policy_of(run_noise_df=1000),
        codes=("POLICY_UNUSUAL",),
        may_pass=True,
    ),
    *(
        Attack(
            what=f"one run an arm of {words}",
            build=of_model(1, **context),
            codes=("RUN_NOISE_UNKNOWN",),
            twin="three runs an arm of a model of 4 million parameters",
            honest=of_model(3, parameters="4M"),
        )
        for words, context in (
            ("a model of 4 million parameters", {"parameters": "4M"}),
            ("an encoder", {"architecture": "BertForMaskedLM"}),
            ("a model with binary weights", {"weights": "binary"}),
        )
    ),
    Attack(
        what="both cut at 80 %, said to be complete, without rates",
        build=cut_without_rates,
        codes=("AS_OF",),
        twin="the pair as it is",
    ),
    Attack(
        what="all losses divided by 1.05, weights loaded",
        build=loaded(-0.05, 10**9),
        codes=("START_DIFFERS",),
        twin="loaded weights that begin 5.6 % worse in another precision and recover",
        honest=loaded(0.056, 40),
    ),
    Attack(
        what="a rerun of the baseline under another recipe",
        build=starts(FIRST, FIRST),
        codes=("TREATMENT_UNSHOWN",),
        twin="first losses 0.002 nats apart",
        honest=starts(FIRST, FIRST + 0.002),
    ),
    Attack(
        what="a rerun of the baseline under another recipe, in single precision",
        build=starts(float(np.float32(math.pi)), float(np.float32(math.pi))),
        codes=("TREATMENT_UNSHOWN",),
        twin="both begin at ln V",
        honest=uniform_start,
    ),
    Attack(
        what="baseline and candidate swapped",
        build=swapped,
        codes=("RECIPE_CONTRADICTED",),
        twin="in their places",
        honest=in_place,
    ),
)

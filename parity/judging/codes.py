"""Every code that a verdict can have, once: what it means, what to do next, and what follows from
it.

docs/codes.md is generated from these entries. Which rule gives a code, and which rule comes before
which, is in `precedence`.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from parity.judging.decision import POLICY_CHECK, CheckName


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """A code, the one line that documents it, what a user does next, and the check that reports
    name it under (None: a warning only).

    `detail` adds what only the tables in the docs say. `next_step` is None where nothing needs
    doing next to the verdict, or where `advice` computes it; `remedy` is what the docs say in its
    place.
    `next_step_of_job` takes the place of `next_step` for the job of a server, where nobody types
    options.

    What follows from a code:

    suppresses_others: everything else that holds follows from this misfit, and is not told.
    gap_means_nothing: a gap may be on record, and says nothing: the runs were not compared.
    may_explain_a_fail: fails that hold next to it are listed, because it could explain them.
    explains_a_fail: next to a fail it is told in the first lines, and its step comes first.
    decided_by_interval: the interval alone decides, so another margin would change the verdict.
    says_its_interval: its sentence is about the interval, so no other reason is told next to it.
    keeps_back_a_pass: a pass that the interval would give, whatever pairs of runs are added.
    shows_chance: only evidence is missing, so the chance of parity is shown.
    skipped_for_identical: decides on a gap that noise and digits leave open, not on equal runs.
    about_run_noise: a warning about run-to-run noise, which equal runs do not need, and a gap that
        means nothing neither.
    asks_for_runs: its step is to add runs.
    more_runs_can_undo: a fail that a further look with more runs may take back.
    rests_on: what a pass rests on, told in its first lines.
    basis_of_noise: what the run-to-run noise is then; it is measured else.
    """

    code: str
    check: CheckName | None = None
    _: KW_ONLY
    means: str
    detail: str | None = None
    next_step: str | None = None
    next_step_of_job: str | None = None
    remedy: str | None = None
    suppresses_others: bool = False
    gap_means_nothing: bool = False
    may_explain_a_fail: bool = False
    explains_a_fail: bool = False
    decided_by_interval: bool = False
    says_its_interval: bool = False
    keeps_back_a_pass: bool = False
    shows_chance: bool = False
    skipped_for_identical: bool = False
    about_run_noise: bool = False
    asks_for_runs: bool = False
    more_runs_can_undo: bool = False
    rests_on: bool = False
    basis_of_noise: Literal["assumed", "borrowed"] | None = None

    def next_for(self, *, job: bool) -> str | None:
        """What a user does next, in the words of a server's job or of the command line."""
        if job and self.next_step_of_job is not None:
            return self.next_step_of_job
        return self.next_step

    @property
    def what_to_do(self) -> str | None:
        """What the docs say to do: the next step, or its remedy where the judge computes that."""
        return self.next_step or self.remedy

    @property
    def meaning(self) -> str:
        """`means` with its detail."""
        if self.detail:
            return f"{self.means}; {self.detail}"
        return self.means


EMPTY = ReasonCode(
    "EMPTY",
    "input",
    means="a run has no steps",
    next_step="Check that the file holds the training loss and that the right column was read.",
)
WINDOW_OTHER_RECIPE = ReasonCode(
    "WINDOW_OTHER_RECIPE",
    "same ground",
    means="an arm did not train with the recipe that its name claims in some of the judged steps",
    detail="a switch to another precision, or an override, has taken its place there",
    next_step="Name the arm after what it did, such as nvfp4-then-bf16 (or leave the name out), "
    "or train with that recipe to the end.",
)
LOSSES_DIFFER = ReasonCode(
    "LOSSES_DIFFER",
    "input",
    means="the arms were read from columns of different quantities, such as a total loss and a "
    "language-model loss, or of two names although the file of one has both; or a file has a "
    "second training loss that differs from the one that was read, or is NaN",
    next_step="Name the column of one quantity in both files (--column ARM:loss=NAME). If both are "
    "one quantity, state it: --loss-is training.",
    next_step_of_job="Report one quantity in both arms: the cross-entropy per token in nats, "
    "without auxiliary terms.",
    suppresses_others=True,
    gap_means_nothing=True,
)
STEPS_SHIFTED = ReasonCode(
    "STEPS_SHIFTED",
    "same data order",
    means="the arms number the same steps differently",
    next_step="Renumber the steps of one arm, so that equal numbers mean the same batch: many "
    "tools count from 0, others from 1.",
    suppresses_others=True,
    gap_means_nothing=True,
)
STEPS_SCALED = ReasonCode(
    "STEPS_SCALED",
    "same data order",
    means="the arms count their steps in different units, such as tokens or samples",
    next_step="Divide the step column that counts tokens or samples by the tokens or samples of "
    "one step.",
    suppresses_others=True,
    gap_means_nothing=True,
)
LOSS_SCALED = ReasonCode(
    "LOSS_SCALED",
    "input",
    means="the losses of the arms are in different units, such as bits and nats",
    next_step="Give both arms the cross-entropy per token in nats (bits x 0.6931).",
    suppresses_others=True,
    gap_means_nothing=True,
)
NO_COMMON_STEPS = ReasonCode(
    "NO_COMMON_STEPS",
    "input",
    means="no step was logged by every run",
    next_step="Log both arms on the same steps, or check that both count steps and not tokens or "
    "samples.",
)
SEEDS_UNSTATED = ReasonCode(
    "SEEDS_UNSTATED",
    "same data order",
    means="the runs have no stated seeds, and their batches do not show which runs belong together",
    next_step="State the seed of each run (--seeds 0,1,2): runs of both arms with one seed read "
    "the same batches.",
    next_step_of_job="State the seeds of each arm on the job's page, in the order of its runs: "
    "runs of both arms with one seed read the same batches.",
    suppresses_others=True,
    gap_means_nothing=True,
)
DATA_ORDER_MISMATCH = ReasonCode(
    "DATA_ORDER_MISMATCH",
    "same data order",
    means="the arms read other data, or the same data in another order, or it is not shown that "
    "they did not",
    next_step="Train both arms with the same seed and data order, or declare the arms unpaired "
    "(--pairing unpaired).",
    next_step_of_job="Train both arms with the same seed and data order, or declare the arms "
    "unpaired (pairing: unpaired in the policy of a new job).",
)
ORDER_UNSHOWN = ReasonCode(
    "ORDER_UNSHOWN",
    "same data order",
    means="the batch noise is too small against the runs' own noise to show whether the arms read "
    "the same data in the same order",
    detail="as with very large batches; equal data digests, or pairing: stated in the policy, "
    "settle it",
    next_step="If both arms read the same data in the same order, state it: --pairing stated, or "
    "equal data digests (--context ARM:data_digest=...). Else declare the arms unpaired "
    "(--pairing unpaired).",
    next_step_of_job="If both arms read the same data in the same order, report equal data digests "
    "in the manifests, or write "
    "pairing: stated into the policy of a new job. Else declare the arms unpaired.",
)
ROUNDED = ReasonCode(
    "ROUNDED",
    "input",
    means="losses are coarsely rounded",
    detail="where that could carry the interval across the margin it blocks a pass",
    remedy="Log the loss with more digits.",
)
ARM_AVERAGED = ReasonCode(
    "ARM_AVERAGED",
    "input",
    means="the batch noise of one arm is less than half or more than twice that of the other",
    detail="then one log holds averages and the other single steps, or an arm is unstable",
    next_step="Log the raw loss of single steps in both arms, or means over the same steps in "
    "both.",
)
BASELINE_INVALID = ReasonCode(
    "BASELINE_INVALID",
    "finite losses",
    means="the baseline has NaN or infinite losses at its end, or at 3 points and 1 % of them or "
    "more; of held-out losses, any",
    next_step="Fix the baseline first: nothing can be compared with it.",
    gap_means_nothing=True,
)
LOSS_NOT_NATS = ReasonCode(
    "LOSS_NOT_NATS",
    "input",
    means="the loss is not a cross-entropy in nats, so relative margins and run-to-run noise mean "
    "nothing",
    next_step="Give the cross-entropy per token in nats, state --loss-unit bits for losses in "
    "bits or --loss-unit other for a loss such as a mean squared error, or state the "
    "margin and the run-to-run noise of both arms in absolute units.",
    next_step_of_job="Report the cross-entropy per token in nats, or write loss_unit: other for a "
    "loss such as a mean squared error, or the margin and the run-to-run noise of both arms in "
    "absolute units, into the policy of a new job.",
    gap_means_nothing=True,
)
LOSS_CONSTANT = ReasonCode(
    "LOSS_CONSTANT",
    "input",
    means="a run's loss is one value over the whole window",
    next_step="Check that the right column was read: a training loss varies from step to step.",
    gap_means_nothing=True,
)
STEPS_TOO_LARGE = ReasonCode(
    "STEPS_TOO_LARGE",
    "input",
    means="the steps of a run exceed what any training counts",
    detail="so they are neither steps nor tokens",
    next_step="Name the column that counts optimizer steps, with --column step=NAME.",
    next_step_of_job="Report optimizer steps, counted alike in both arms.",
)
NONFINITE_CAND = ReasonCode(
    "NONFINITE_CAND",
    "finite losses",
    means="the candidate has NaN or infinite losses at its end, or at 3 points and 1 % of them or "
    "more; of held-out losses, any",
    remedy="Look at the first step with NaN: lower the learning rate, or keep the layers that "
    "overflow in bf16.",
    gap_means_nothing=True,
)
DIVERGED = ReasonCode(
    "DIVERGED",
    "stability",
    means="the gap ends far above the margin and above its own first half",
    remedy="Keep the first or last blocks in bf16, or lower the learning rate; more steps will "
    "not help.",
)
CANDIDATE_UNSTABLE = ReasonCode(
    "CANDIDATE_UNSTABLE",
    "stability",
    means="the candidate alone spikes, over more than a tenth of the window, and with its spikes "
    "the interval is above the margin",
    remedy="Keep the layers where the spikes start in bf16, or lower the learning rate.",
)
LEARNING_RATES_DIFFER = ReasonCode(
    "LEARNING_RATES_DIFFER",
    "same ground",
    means="the recorded learning rates of two runs differ by more than their rounding",
    detail="after the warm-up and by more than 1 % of the peak it decides before a gap does",
    next_step="Train all runs with one schedule, or list learning_rate in the policy's may_differ "
    "where it is part of the recipe.",
    may_explain_a_fail=True,
    explains_a_fail=True,
)
CONFOUNDED = ReasonCode(
    "CONFOUNDED",
    "same ground",
    means="the arms differ in more than the recipe",
    detail="where it is the data, the model, its start, batches or schedule, which could explain "
    "a gap, it decides before the gap does",
    next_step="Train all runs on the same engine, device class, data and code, so that only the "
    "recipe differs.",
    may_explain_a_fail=True,
    explains_a_fail=True,
)
START_DIFFERS = ReasonCode(
    "START_DIFFERS",
    "same ground",
    means="the first losses differ by more than 1.5 %, although both logs begin with the first "
    "step",
    detail="a candidate that begins worse on the same batches from loaded weights (start: loaded) "
    "is no such case",
    next_step="Check that both arms start from the same initialization and batch, and log the "
    "same loss.",
    may_explain_a_fail=True,
)
MARGIN_UNDETERMINED = ReasonCode(
    "MARGIN_UNDETERMINED",
    "run-to-run noise",
    means="the noise-floor margin has no measured run-to-run noise, or one baseline run lies "
    "apart, or a margin in tokens has no slope",
    next_step="Add baseline reruns as replicates or with --control, look at a run that lies apart, "
    "state the slope of a margin in tokens, or choose another margin.",
    next_step_of_job="Add replicates or controls of the baseline, look at a run that lies apart, "
    "state the slope of a margin in tokens, or choose another margin.",
    skipped_for_identical=True,
)
RUN_NOISE_UNKNOWN = ReasonCode(
    "RUN_NOISE_UNKNOWN",
    "run-to-run noise",
    means="nothing is assumed about the run-to-run noise of such a model, and it is neither "
    "measured nor borrowed",
    detail="on record are a model below 10 million parameters, an encoder (BERT, T5), binary "
    "weights, or engine emulated",
    next_step="Add replicates to both arms, or controls of the baseline, until 4 degrees of "
    "freedom are measured; or name a family of "
    "reruns that is like these runs (--family, with --noise-table for a table of your own).",
    next_step_of_job="Add replicates to both arms, or controls of the baseline, until 4 degrees of "
    "freedom are measured; or name a "
    "family of reruns that is like these runs (family in the job file).",
    skipped_for_identical=True,
    asks_for_runs=True,
)
GAP_EXCEEDS_MARGIN = ReasonCode(
    "GAP_EXCEEDS_MARGIN",
    "gap against margin",
    means="the lower end of the interval is above the margin",
    remedy="Follow the report's advice: which layers or steps to keep in bf16, cheapest first.",
    decided_by_interval=True,
    says_its_interval=True,
    more_runs_can_undo=True,
)
ENDS_ABOVE_MARGIN = ReasonCode(
    "ENDS_ABOVE_MARGIN",
    "gap against margin",
    means="the last quarter or half of the window lies above the margin",
    detail="the interval of its mean gap does",
    remedy="Look at the gap's chart over the last steps: the candidate gets worse late, often as "
    "the learning rate decays.",
)
UNSTABLE = ReasonCode(
    "UNSTABLE",
    "stability",
    means="spikes cover more than a tenth of the window",
    next_step="Find the cause of the spikes in both arms, or train with a lower learning rate.",
)
TOO_FEW_STEPS = ReasonCode(
    "TOO_FEW_STEPS",
    "plan and window",
    means="too few common steps in the window",
    detail="of training losses a pass needs 12, a fail 8",
    next_step="Log the loss more often: at every step where the run is short. Held-out losses "
    "need fewer: --loss-is validation.",
    next_step_of_job="Log the loss more often: at every step where the run is short.",
    keeps_back_a_pass=True,
    shows_chance=True,
    skipped_for_identical=True,
)
ARMS_IDENTICAL = ReasonCode(
    "ARMS_IDENTICAL",
    "input",
    means="the candidate's curve is a copy of the baseline's",
    detail="with other digits, thinned out, scaled, averaged, with little noise added, or equal "
    "at 10 points in a row",
    next_step="Check that one file was not given twice, and that the candidate really trained "
    "with its recipe.",
)
RECIPE_CONTRADICTED = ReasonCode(
    "RECIPE_CONTRADICTED",
    "same ground",
    means="an arm is named after one precision, or stated to have it, and its runs recorded "
    "another one",
    next_step="Check that the arms are not swapped, and correct the arm's name or its recipe.",
)
TREATMENT_UNSHOWN = ReasonCode(
    "TREATMENT_UNSHOWN",
    "same ground",
    means="the arms begin with equal losses, as reruns of one recipe do, although their recipes "
    "differ",
    detail="where the first step is logged with four decimals or more, and the loss is not ln V "
    "of a model that starts at zero",
    next_step="Check that the candidate trained with its recipe from the first step on. If its "
    "first steps are meant to run in another "
    "precision, record that: --context NAME:start_precision=bf16.",
    next_step_of_job="Check that the candidate trained with its recipe from the first step on. If "
    "its first steps are meant to run in "
    "another precision, record that in the run's manifest (start_precision: bf16).",
)
END_DIFFERS = ReasonCode(
    "END_DIFFERS",
    "stability",
    means="the last steps depart from the rest of the window, far enough to cross the margin",
    next_step="Train on until it is clear whether the last steps are a spike or a divergence.",
)
ARMS_SHARE_START = ReasonCode(
    "ARMS_SHARE_START",
    "same ground",
    means="a run of the candidate went on from a run of the baseline",
    detail="equal losses over the first tenth of the plan or more",
    next_step="Train the candidate from step 0: a run that began in the baseline's precision does "
    "not show that its own converges.",
)
BETTER_THAN_BASELINE = ReasonCode(
    "BETTER_THAN_BASELINE",
    "gap against margin",
    means="the candidate is better by the margin or more",
    detail="a lower precision seldom is: the arms may be swapped, or differ in data, model or loss",
    next_step="Check that the arms are not swapped, and that data, model and evaluation are the "
    "same; a rerun of each arm tells whether the gain stays.",
)
START_OFFSET = ReasonCode(
    "START_OFFSET",
    "same ground",
    means="the candidate's first loss is lower than recipes explain, by half the margin or more",
    detail="by 0.6 % of the loss; a further term in the baseline's loss does that, and hides a "
    "gap of its size",
    next_step="Check that both arms log the same terms: the cross-entropy per token alone, "
    "without z-loss or router losses.",
)
RUN_ABOVE_MARGIN = ReasonCode(
    "RUN_ABOVE_MARGIN",
    "stability",
    means="one run of the candidate alone is above the margin by more than noise",
    detail="against the baseline's run of its seed, over the window or its last half",
    next_step="Find out what happened in that run: a recipe that sometimes diverges is not at "
    "parity on average.",
)
ROLLED_BACK = ReasonCode(
    "ROLLED_BACK",
    "stability",
    means="a run of the candidate had risen by more than 5 % of the loss before it went back to "
    "an earlier step",
    detail="the log has the steps that were overwritten",
    next_step="Find out why that run rose: a recipe that has to be rolled back is not at parity, "
    "whatever it reaches afterwards.",
)
GRAD_NORM_APART = ReasonCode(
    "GRAD_NORM_APART",
    "stability",
    means="the gradient norms of the arms differ by a factor of 10 or more over the window",
    detail="unless the policy's may_differ lists grad_norm",
    next_step="Check what each arm logs (before clipping, over all ranks); if it is the same, the "
    "candidate's gradients are not "
    "those of the baseline. List grad_norm in may_differ where the arms log different norms.",
)
SHORT_RERUN_DIVERGED = ReasonCode(
    "SHORT_RERUN_DIVERGED",
    "finite losses",
    means="a rerun that was stopped early ends more than 3 % above its arm, or has NaN or infinite "
    "losses at its end, or at 3 points and 1 % of them or more",
    next_step="Find out why that rerun diverged: a recipe that sometimes diverges is not at "
    "parity on average.",
)
GAP_GROWING = ReasonCode(
    "GAP_GROWING",
    "late phase",
    means="the gap rises, and would reach the margin if it went on",
    next_step="See in the picture of the report from which step on the gap grows, and train the "
    "candidate again with a change from there on: more steps of the same kind do not close a gap "
    "that still grows.",
)
BEYOND_PLAN = ReasonCode(
    "BEYOND_PLAN",
    "plan and window",
    means="a run goes on after the planned last step",
    detail="by more than 5 % of the plan, or where the candidate is worse there, it blocks a pass",
    next_step="State the planned length of the runs, these steps included. Steps that "
    "are worse can't be left out: a longer run would begin with them.",
)
DOWNSAMPLED = ReasonCode(
    "DOWNSAMPLED",
    "input",
    means="a series is a sample of its run, or has a hole in the window",
    next_step="Give the full series: exports of dashboards are samples of the run.",
)
POINTS_IN_ONE_ARM = ReasonCode(
    "POINTS_IN_ONE_ARM",
    "input",
    means="one arm alone lacks 3 % of the window's points, or 1.5 % that follow each other, or 5 % "
    "of the run's that follow each other before the window",
    detail="three at least; what was not logged there may be spikes, NaN or a divergence",
    next_step="Give the steps that the log lacks: export the run again, or train it again from "
    "the checkpoint before them.",
)
LOSSES_NOT_LOGGED = ReasonCode(
    "LOSSES_NOT_LOGGED",
    "input",
    means="the source of an arm has steps of training without a loss, where the other arm has "
    "losses",
    next_step="Export the loss at every step at which it was logged; a loss that is NaN is "
    "written as nan.",
)
LINES_UNREAD = ReasonCode(
    "LINES_UNREAD",
    "input",
    means="more than 0.1 % of a log's lines look like those that were read, and were not read, or "
    "its last line is cut where its loss may be any",
    detail="three lines at least; a last line without its end counts where nothing is missing of "
    "it, and matters where the other arm goes on",
    next_step="Give a pattern that finds all of them (--pattern REGEX), such as one that allows "
    "blanks before a number, or export CSV; of a file that ends in half a line, give the whole "
    "one, or remove that line if the run was stopped there.",
    next_step_of_job="Report the losses with parity.Run, or print every step in one form.",
)
LOG_STARTS_LATE = ReasonCode(
    "LOG_STARTS_LATE",
    "plan and window",
    means="the log of a run begins after the first 5 % of the plan",
    detail="nothing before it was judged; where it begins near the window, or where both logs "
    "begin late and part from equal losses, it blocks a pass",
    next_step="Give the logs from the first step on.",
)
NONFINITE_DROPPED = ReasonCode(
    "NONFINITE_DROPPED",
    "finite losses",
    means="single NaN or infinite losses were left out",
    detail="two in a run of the candidate, where they are 1 % of its points, block a pass, as does "
    "a log that says in words that a loss was NaN where no step has one, and a held-out or further "
    "loss that is NaN more than twice as often as that of the baseline",
    next_step="Look at the steps with NaN or infinite losses: few enough not to decide, but not "
    "normal.",
)
SMOOTHED = ReasonCode(
    "SMOOTHED",
    "input",
    means="a series is smoothed",
    detail="over more than 5 % of the window it blocks a pass",
    remedy="Export the raw losses, without a moving average.",
    skipped_for_identical=True,
)
SPIKES_HIDE_GAP = ReasonCode(
    "SPIKES_HIDE_GAP",
    "stability",
    means="only without the candidate's spikes is the interval below the margin",
    next_step="Find the cause of the candidate's spikes: with them the gap may be above the "
    "margin.",
)
VALIDATION_LOSS_WORSE = ReasonCode(
    "VALIDATION_LOSS_WORSE",
    "gap against margin",
    means="the validation gap is above the margin, although the training gap is below it",
    next_step="Find out why the model is worse on held-out data; `validation: advise` in the "
    "policy lets the training loss alone decide.",
)
TOO_FEW_RUNS = ReasonCode(
    "TOO_FEW_RUNS",
    "run-to-run noise",
    means="an arm has a single run, and the loss is no cross-entropy in nats (`loss_unit: other`), "
    "so that its run-to-run noise cannot be assumed; it takes back what would be a pass",
    next_step="Add runs, so that each arm has at least two; five or more give a useful interval.",
    skipped_for_identical=True,
    asks_for_runs=True,
)
RUN_NOISE_ASSUMED = ReasonCode(
    "RUN_NOISE_ASSUMED",
    "run-to-run noise",
    means="the run-to-run noise is assumed, or rests on fewer than 4 degrees of freedom of data",
    detail="blocks a pass where the policy rejects that",
    remedy="Add replicates or controls, so that the run-to-run noise is measured.",
    keeps_back_a_pass=True,
    shows_chance=True,
    skipped_for_identical=True,
    about_run_noise=True,
    asks_for_runs=True,
    basis_of_noise="assumed",
)
MARGIN_WIDE = ReasonCode(
    "MARGIN_WIDE",
    "gap against margin",
    means="the margin is above 5 % of the loss, and the policy does not say that this is meant",
    next_step='State a smaller margin, such as "1%", or wide_margin: accept in the policy.',
    skipped_for_identical=True,
)
AS_OF = ReasonCode(
    "AS_OF",
    "plan and window",
    means="the gap is known as of a point before the training's end",
    detail="a plan that is not reached or not known, a learning rate that has not decayed, or "
    "nothing that says that it has; blocks a pass unless the policy accepts it (as_of: accept)",
    next_step="Train both arms to the end of their schedule, log the learning rate and state the "
    "plan (--planned-steps N), or state "
    "--schedule decayed if the rate had decayed; until then read the gap as of this point.",
    says_its_interval=True,
    keeps_back_a_pass=True,
    shows_chance=True,
)
IDENTICAL = ReasonCode(
    "IDENTICAL",
    "gap against margin",
    means="arms of one recipe, which differ in revision or environment, are equal at every logged "
    "step",
    detail="run by run, bit for bit, with digits that show it; then no run-to-run noise and no "
    "number of points counts",
    remedy="Nothing.",
    says_its_interval=True,
)
WITHIN_MARGIN = ReasonCode(
    "WITHIN_MARGIN",
    "gap against margin",
    means="the upper end of the interval is below the margin",
    remedy="Nothing.",
    decided_by_interval=True,
    says_its_interval=True,
)
CI_STRADDLES_MARGIN = ReasonCode(
    "CI_STRADDLES_MARGIN",
    "gap against margin",
    means="the interval contains the margin",
    detail="the advice says which runs or steps would decide",
    remedy="Follow the report's advice: it has the number of runs or steps that would decide.",
    decided_by_interval=True,
    says_its_interval=True,
    shows_chance=True,
)
GRAD_NORM_FAILS = ReasonCode(
    "GRAD_NORM_FAILS",
    POLICY_CHECK,
    means="check grad_norm: the gradient norms surely differ by more than 10 %",
    next_step="Look at the gradients by layer: the first layers to keep in bf16 are those "
    "whose norms differ.",
)
GRAD_NORM_OPEN = ReasonCode(
    "GRAD_NORM_OPEN",
    POLICY_CHECK,
    means="check grad_norm: inconclusive, or gradient norms were not recorded",
    next_step="Record grad_norm in every run, before clipping; if it is recorded already, "
    "add runs.",
)
SPIKES_FAILS = ReasonCode(
    "SPIKES_FAILS",
    POLICY_CHECK,
    means="check spikes: the candidate spikes more often than by chance",
    next_step="Look at the candidate's spikes: keep the layers that start them in bf16, "
    "or lower the learning rate.",
)
SPIKES_OPEN = ReasonCode(
    "SPIKES_OPEN",
    POLICY_CHECK,
    means="check spikes: inconclusive, or too few common steps to count spikes",
    next_step="Look at the candidate's spikes: another run of both arms shows whether "
    "they are chance.",
)
VALIDATION_LOSS_FAILS = ReasonCode(
    "VALIDATION_LOSS_FAILS",
    POLICY_CHECK,
    means="check validation_loss: the validation gap is above the margin",
    remedy="Treat it like a gap in the training loss: keep more layers or steps in bf16.",
)
VALIDATION_LOSS_OPEN = ReasonCode(
    "VALIDATION_LOSS_OPEN",
    POLICY_CHECK,
    means="check validation_loss: inconclusive, or validation losses were not recorded",
    next_step="Evaluate all runs on the same steps of the window; if they are, add runs.",
)
ACCURACY_FAILS = ReasonCode(
    "ACCURACY_FAILS",
    POLICY_CHECK,
    means="check accuracy: a downstream task is worse by more than its margin",
    next_step="Evaluate another run of both arms before you give up the recipe: the run-to-run "
    "noise of an accuracy is assumed, not measured.",
)
ACCURACY_OPEN = ReasonCode(
    "ACCURACY_OPEN",
    POLICY_CHECK,
    means="check accuracy: inconclusive, or no downstream accuracy was given",
    next_step="Give both arms' results by item on the same items, or evaluate more items.",
)
NET_SPEEDUP_FAILS = ReasonCode(
    "NET_SPEEDUP_FAILS",
    POLICY_CHECK,
    means="check net_speedup: slower to the same loss than the baseline",
    next_step="The token tax cancels the speed-up: quantize fewer layers, or look for "
    "what slows the step.",
)
NET_SPEEDUP_OPEN = ReasonCode(
    "NET_SPEEDUP_OPEN",
    POLICY_CHECK,
    means="check net_speedup: inconclusive, or step times were not recorded or cannot be compared",
    next_step="Train both arms at the same time on one machine, or in turns with two runs "
    "each, and record step_seconds.",
)
RUNS_TRUNCATED = ReasonCode(
    "RUNS_TRUNCATED",
    means="runs end at different points, so the comparison is made at the last one that all "
    "reached",
    remedy="Nothing for the gap; train all runs to one length if you want it later in the "
    "training.",
)
CLUSTERS_WIDEN = ReasonCode(
    "CLUSTERS_WIDEN",
    means="over clusters of runs the interval decides otherwise than over runs",
    next_step="Run both arms on the same systems, or on more of them.",
)
CLUSTERS_UNUSABLE = ReasonCode(
    "CLUSTERS_UNUSABLE",
    "same ground",
    means="each arm has one cluster, so what is the cluster's and what the recipe's cannot be "
    "told apart",
    next_step="Run both arms on the same systems, or each on at least two.",
)
NUMBERS_ALONE = ReasonCode(
    "NUMBERS_ALONE",
    "same ground",
    means="the losses are numbers without their curves: pairing, software and schedule of the "
    "runs are not known",
    detail="a gap above the margin fails, no number passes",
    next_step="Give the logs of both runs in place of the numbers, with the same data order, and "
    "state their plan and schedule.",
    shows_chance=True,
)
RUN_NOISE_BORROWED = ReasonCode(
    "RUN_NOISE_BORROWED",
    means="the run-to-run noise is that of a named family of reruns",
    detail="it counts as data, unless the comparison's own runs contradict it",
    remedy="Check that the family is like your runs: model shape, data, batch, length, engine. "
    "Replicates replace it.",
    about_run_noise=True,
    basis_of_noise="borrowed",
)
RUN_NOISE_CONTRADICTED = ReasonCode(
    "RUN_NOISE_CONTRADICTED",
    means="the comparison's own runs differ more than the family whose run-to-run noise is "
    "borrowed",
    detail="the family then counts less",
    next_step="Do not borrow from this family: these runs are noisier than its groups. Add "
    "replicates to both arms instead.",
    about_run_noise=True,
)
FAMILY_UNUSED = ReasonCode(
    "FAMILY_UNUSED",
    means="a family of reruns was named, and nothing could be borrowed from it",
    detail="the sentence has the reason; the run-to-run noise is what it would be without the "
    "family",
    next_step="Name a family of reruns that is like these runs (`parity noise list`), or name no "
    "family.",
    about_run_noise=True,
)
REPLICATES_IDENTICAL = ReasonCode(
    "REPLICATES_IDENTICAL",
    means="runs are made from another run's log and do not count",
    detail="named only where that is proven: scaled, averaged, changed smoothly, or with little "
    "noise added",
    next_step="Give the log that the trainer wrote for each run.",
)
REPLICATES_EQUAL = ReasonCode(
    "REPLICATES_EQUAL",
    means="runs are equal as printed and count once",
    detail="a deterministic rerun and a coarsely printed log can be so: no error, but equal runs "
    "show no run-to-run noise",
    next_step="Log more digits. Where runs are equal bit for bit, train replicates with another "
    "seed for what may differ between runs.",
)
REPLICATES_DEPENDENT = ReasonCode(
    "REPLICATES_DEPENDENT",
    means="runs are forks of another run, or could be, and do not count",
    detail="a run's offset is settled early, so a late fork shows too little noise",
    next_step="Train replicates from step 0, and log them from there.",
)
SPIKES_MASKED = ReasonCode(
    "SPIKES_MASKED",
    means="spikes in the window were left out of the gap",
    remedy="Look at the spikes in the chart; `checks: [loss, spikes]` makes them decide.",
)
VALIDATION_NOT_COMPARED = ReasonCode(
    "VALIDATION_NOT_COMPARED",
    means="validation losses are on record and were not compared",
    detail="one arm has none, or the arms evaluated at no common step of the window",
    next_step="Evaluate all runs at the same steps: then the validation loss is judged, too.",
)
CONTEXT_IN_ONE_ARM = ReasonCode(
    "CONTEXT_IN_ONE_ARM",
    means="the engine, the device class or the data digest is on record for one arm only, so "
    "nothing shows that the arms share it",
    next_step="Record the same facts of both arms (--context NAME:KEY=VALUE).",
    next_step_of_job="Record the same facts in the manifests of both arms.",
)
STEPS_MISSING = ReasonCode(
    "STEPS_MISSING",
    means="a log lacks more than 1 % of its steps in the window",
    remedy="Look for what the missing steps have in common: a logger may leave out what it cannot "
    "write, such as NaN.",
)
POLICY_UNUSUAL = ReasonCode(
    "POLICY_UNUSUAL",
    means="the policy makes passing easier than usual",
    detail="a confidence below 95 %, a window below 10 % of the plan, run-to-run noise below 0.03 "
    "% of the loss, or run_noise_df above 30 (above 4 where an arm's run-to-run noise is not "
    "stated)",
    next_step="Check the policy: with these values a pass says less than it seems to.",
)
BETTER_THAN_NOISE = ReasonCode(
    "BETTER_THAN_NOISE",
    means="the candidate is better than the baseline by more than noise explains",
    next_step="Check that the arms are not swapped, and that data, model and evaluation are the "
    "same; a rerun of each arm tells whether the gain stays.",
)
PAIRING_UNPROVEN = ReasonCode(
    "PAIRING_UNPROVEN",
    means="the data digests agree, or the order of the data is stated, but the batch noise does "
    "not show it",
    remedy="Check the data digests on record: the losses do not look like the same batches.",
)
PAIRING_WEAK = ReasonCode(
    "PAIRING_WEAK",
    means="the batch noise of the arms agrees less than usual",
    remedy="Check that both arms read the same batches; a noisy candidate can also cause this.",
)
WINDOW_SENSITIVE = ReasonCode(
    "WINDOW_SENSITIVE",
    means="another window would decide otherwise",
    remedy="Read the gap over the other windows in the report before you rely on the verdict.",
)
RUNS_UNPAIRED = ReasonCode(
    "RUNS_UNPAIRED",
    means="runs of a seed that the other arm lacks were left out",
    remedy="Train the missing runs, so that every seed is in both arms.",
)
CONTROLS_LEFT_OUT = ReasonCode(
    "CONTROLS_LEFT_OUT",
    means="controls that are not reruns of the baseline were left out",
    remedy="Use reruns of the baseline as controls: same specification, seed and manifest.",
)
SHORT_RERUNS_LEFT_OUT = ReasonCode(
    "SHORT_RERUNS_LEFT_OUT",
    means="early-stopped reruns were left out, because they are no reruns of their arm, or depend "
    "on another run",
    next_step="Train short reruns from step 0 as the arm's runs, under the full schedule, to "
    "between 40 and 95 % of the planned steps.",
)
SCHEDULE_STATED = ReasonCode(
    "SCHEDULE_STATED",
    means="that the learning rate had decayed is stated, not recorded",
    detail="no recorded rate contradicts it",
    remedy="Log the learning rate: then the end of the schedule is on record.",
    rests_on=True,
)
LEARNING_RATE_IN_ONE_ARM = ReasonCode(
    "LEARNING_RATE_IN_ONE_ARM",
    means="only one arm recorded its learning rate, so nothing shows that the arms share a "
    "schedule",
    remedy="Record the learning rate in both arms, or name its column with --column "
    "learning_rate=NAME.",
)

BY_CODE: Mapping[str, ReasonCode] = {
    entry.code: entry for entry in tuple(globals().values()) if isinstance(entry, ReasonCode)
}
"""The entries of this file by their code."""

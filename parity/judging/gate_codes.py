"""Reason codes of the checks in addition to the loss: gates that a policy names, and the validation veto. `gates` applies them."""

from collections.abc import Mapping

from parity.judging.decision import GATE, ReasonCode

# The checks that a policy can let decide in addition to the loss (`gates`): the code if one fails, and if it is open or could not be made.
GATE_CODES: Mapping[str, tuple[ReasonCode, ReasonCode]] = {
    "grad_norm": (
        ReasonCode(
            "GRAD_NORM_FAILS",
            GATE,
            means="gate grad_norm: the gradient norms differ by more than 10 %",
            next_step="Look at the gradients by layer: the first layers to keep in bf16 are those whose norms differ.",
        ),
        ReasonCode(
            "GRAD_NORM_OPEN",
            GATE,
            means="gate grad_norm: undecided, or gradient norms were not recorded",
            next_step="Record grad_norm in every run, before clipping; if it is recorded already, add runs.",
        ),
    ),
    "spikes": (
        ReasonCode(
            "SPIKES_FAILS",
            GATE,
            means="gate spikes: the candidate spikes more often than by chance",
            next_step="Look at the candidate's spikes: keep the layers that start them in bf16, or lower the learning rate.",
        ),
        ReasonCode(
            "SPIKES_OPEN",
            GATE,
            means="gate spikes: undecided, or too few common steps to count spikes",
            next_step="Look at the candidate's spikes: another run of both arms shows whether they are chance.",
        ),
    ),
    "validation_loss": (
        ReasonCode(
            "VALIDATION_LOSS_FAILS",
            GATE,
            means="gate validation_loss: the validation gap is above the margin",
        ),
        ReasonCode(
            "VALIDATION_LOSS_OPEN",
            GATE,
            means="gate validation_loss: undecided, or validation losses were not recorded",
            next_step="Evaluate all runs on the same steps of the window; if they are, add runs.",
        ),
    ),
    "accuracy": (
        ReasonCode(
            "ACCURACY_FAILS",
            GATE,
            means="gate accuracy: a downstream task is worse by more than its margin",
            next_step="Evaluate another run of both arms before you give up the recipe: a single evaluation does not include run noise.",
        ),
        ReasonCode(
            "ACCURACY_OPEN",
            GATE,
            means="gate accuracy: undecided, or no downstream accuracy was given",
            next_step="Give both arms' results by item on the same items, or evaluate more items.",
        ),
    ),
    "net_speedup": (
        ReasonCode(
            "NET_SPEEDUP_FAILS",
            GATE,
            means="gate net_speedup: slower to the same loss than the baseline",
            next_step="The token tax cancels the speed-up: quantize fewer layers, or look for what slows the step.",
        ),
        ReasonCode(
            "NET_SPEEDUP_OPEN",
            GATE,
            means="gate net_speedup: undecided, or step times were not recorded or cannot be compared",
            next_step="Train both arms at the same time on one machine, or in turns with two runs each, and record step_seconds.",
        ),
    ),
}


VALIDATION_LOSS_WORSE = ReasonCode(
    "VALIDATION_LOSS_WORSE",
    "gap against margin",
    means="the validation gap is above the margin, although the training gap is below it",
    next_step="Find out why the model is worse on held-out data; `validation: advise` in the policy lets the training loss alone decide.",
)

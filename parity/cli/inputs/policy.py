"""The policy: a file with `policy:`, and options over it."""

from dataclasses import asdict

from parity.cli.terminal.option_words import ALL_PROFILES, POLICY
from parity.cli.terminal.options import Options, option, repeatable
from parity.cli.terminal.wrong_calls import UsageError, wrong_value
from parity.comparing.policy_file import read_policy, stated_policy
from parity.judging.policy import NVFP4, POLICY_CHECKS, Policy, PolicyError, has_no_unit
from parity.wording import did_you_mean


class PolicyOptions(Options, panel=POLICY):
    """The policy: a file with `policy:`, and options over it. `schedule`, `start`, `pairing` and
    `loss_unit` are options of the arms.
    """

    margin: str | None = option(
        None,
        'Set the largest acceptable gap: "1.0%" of the loss, "0.01 nats", or what "5% tokens" '
        "would gain.",
        "AMOUNT",
    )
    profile: str | None = option(
        None, f"Set the margin by name: {ALL_PROFILES}. [default without a margin: {NVFP4}]", "NAME"
    )
    policy: str | None = option(
        None,
        "Read the policy from the `policy:` part of this file; options override it.",
        "parity.yaml",
    )
    checks: list[str] = repeatable(
        f"Let a further check decide, in addition to the loss: {', '.join(POLICY_CHECKS[1:])}. "
        "Repeatable.",
        "CHECK",
        "--check",
    )
    accuracy_margin: float | None = option(
        None, "Set the acceptable loss of accuracy in percentage points. [default: 2.0]", "POINTS"
    )
    looks: int | None = option(
        None,
        "Register how often this question is judged at most, with runs added in between; the "
        "looks share the error. [default: 1]",
        "N",
    )
    schedule: str | None = None
    start: str | None = None
    pairing: str | None = None
    loss_unit: str | None = None


def load_policy(options: PolicyOptions) -> Policy:
    """The policy from a file's `policy:` part, options over it; the nvfp4 profile where nothing
    states a margin.
    """
    flags = asdict(options)
    file = flags.pop("policy")
    stated = read_policy(file) if file else {}
    if has_no_unit(text := options.margin):
        raise UsageError(
            f"--margin is {text!r}, without a unit; type --margin {text}% for a share of the loss, "
            f'or --margin "{text} nats"'
        )
    for check in options.checks:
        if check not in POLICY_CHECKS:
            raise UsageError(
                f"--check is {check!r}; expected one of "
                f"{', '.join(POLICY_CHECKS[1:])}{did_you_mean(check, POLICY_CHECKS)}"
            )
    try:
        return stated_policy(stated, **flags)
    except PolicyError as error:
        typed_options = options.given()
        if "accuracy_margin" in typed_options:
            typed_options["accuracy_margin_points"] = typed_options.pop("accuracy_margin")
        raise UsageError(wrong_value(error, typed_options, file)) from None

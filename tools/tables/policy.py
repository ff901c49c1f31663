"""The tables of docs/policy.md, from `Policy`, `GateRules` and the profiles of margins."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from parity.gate.rules import MAX_AGE_DAYS, GateRules
from parity.judging.policy import (
    NOISE_FLOOR_DF,
    POLICY_CHECKS,
    POLICY_RANGES,
    PROFILES,
    Amount,
    Policy,
)
from tools.tables.generated import DOCS, GeneratedTable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# What each key does, and the option of `parity compare` or `parity gate` that sets it.
POLICY: Mapping[str, str] = {
    "profile": "a margin by name, from the profiles above; `--profile`",
    "margin": "the largest gap that is acceptable, with its unit; with `profile` the smaller one "
    "decides; `--margin`",
    "confidence": "the confidence of the interval for one candidate and one analysis",
    "window_fraction": "the share of the planned steps, at their end, that is judged",
    "min_points": "how many logged steps of that window both arms must have; a smaller number "
    "than the default is refused",
    "assumed_noise": "`reject`: run-to-run noise must be measured, at least 4 degrees of freedom "
    "of reruns over both arms",
    "two_sided": "a pass needs the whole interval within plus and minus the margin",
    "pairing": "`unpaired`: the arms did not read the same batches, so that batch noise stays in "
    "the interval; `stated`: they read the same data in the same order, which batch noise cannot "
    "show; `--pairing`",
    "baseline_run_noise": "the run-to-run noise of the baseline, stated by you: it replaces what "
    "is assumed or borrowed",
    "candidate_run_noise": "the same of the candidate",
    "run_noise_df": "the degrees of freedom that this statement is worth",
    "run_noise_evidence": "where it comes from; shown in the report",
    "may_differ": "keys of the context in which the arms may differ, such as `learning_rate`",
    "checks": "the checks that decide in addition to the loss, which always does; `--check`",
    "accuracy_margin_points": "how much worse a downstream accuracy may be, percentage points; "
    "`--accuracy-margin`",
    "early_stop": "`stop`: a server ends a candidate that will surely fail; `advise`: it says so",
    "validation": "`advise`: a validation gap above the margin is a warning and does not hold a "
    "pass back",
    "looks": "how often the question may be judged, with runs added in between; registered before "
    "the first time; `--looks`",
    "question": "a name for a comparison that is made for another reason; after a verdict that is "
    "no pass, another name is a further look",
    "schedule": "`decayed`: the learning rate of all runs had decayed at their end; a recorded "
    "rate may contradict it; `--schedule`",
    "start": "`loaded`: all runs began with trained weights; `--start`",
    "as_of": "`accept`: a gap may pass that is known only as of a point before the training's end",
    "wide_margin": "`accept`: a margin above 5 % of the loss may pass",
    "loss_unit": "`other`: the loss is no cross-entropy in nats per token; `--loss-unit`",
}
GATE: Mapping[str, str] = {
    "max_age_days": "how long a verdict is served again for the same question; 0: never; "
    "`--max-age-days`",
    "on_inconclusive": "what an inconclusive verdict does to CI; `--on-inconclusive`",
    "on_infra": "what a server or a job that broke does to CI; `--on-infra`",
    "advisory": "exit 0 whatever the verdict, and say so in the log; `--advisory`",
    "confirm_marginal_fail": "train one more replicate per arm before a narrow fail counts",
    "timeout_seconds": "how long to wait for the verdict; `--timeout`",
}
# Where the margins of the profiles come from.
ORIGINS: Mapping[str, str] = {
    "nvfp4": "NVFP4 pre-training report, stable phase",
    "nvfp4-decay": "the same, decay phase; never chosen automatically",
    "fp8-grade": "DeepSeek-V3's relative loss error of FP8 against BF16",
    "bf16-bar": "bar used in marin's FP8 work",
    "noise-floor": "no worse than a rerun; needs run-to-run noise tau measured on "
    f"{NOISE_FLOOR_DF} degrees of freedom",
}


def profile_table() -> str:
    """One row per profile: its margin and where that comes from."""
    amounts = {
        name: "3 sqrt(2) tau of the baseline" if amount is None else str(amount)
        for name, amount in PROFILES.items()
    }
    rows = (f"| `{name}` | {amounts[name]} | {origin} |" for name, origin in ORIGINS.items())
    return "\n".join(["| profile | margin | origin |", "| --- | --- | --- |", *rows])


def policy_table() -> str:
    """One row per key of `policy:`."""
    return _table(Policy, POLICY, POLICY_RANGES)


def gate_table() -> str:
    """One row per key of `gate:`."""
    return _table(
        GateRules, GATE, {"max_age_days": (0.0, MAX_AGE_DAYS), "timeout_seconds": (0.0, 1e9)}
    )


def _table(
    kind: type["DataclassInstance"],
    meanings: Mapping[str, str],
    ranges: Mapping[str, tuple[float, float]],
) -> str:
    hints, rows = get_type_hints(kind), []
    for field in fields(kind):
        default = "" if field.default in (None, "", (), MISSING) else f"`{_written(field.default)}`"
        rows.append(
            f"| `{field.name}` | {default} | {_allowed(field.name, hints[field.name], ranges)} | "
            f"{meanings[field.name]} |"
        )
    return "\n".join(
        ["| key | default | values | what it does |", "| --- | --- | --- | --- |", *rows]
    )


def _written(default: object) -> str:
    """A default as YAML has it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return f"[{', '.join(default)}]"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _allowed(name: str, hint: Any, ranges: Mapping[str, tuple[float, float]]) -> str:
    """The values of a key, from its type and its range."""
    if name in ranges:
        low, high = ranges[name]
        return f"{low:g} to {high:,.10g}"
    if name == "profile":
        return ", ".join(f"`{choice}`" for choice in PROFILES)
    if name == "checks":
        return "a list of " + ", ".join(f"`{check}`" for check in POLICY_CHECKS)
    kind = get_args(hint)[0] if get_origin(hint) is UnionType else hint
    if get_origin(kind) is Literal:
        return " or ".join(f"`{word}`" for word in get_args(kind))
    tokens = ", `5% tokens`" if name == "margin" else ""
    words = {
        Amount: f"`1%`, `0.01 nats`{tokens}",
        bool: "`true` or `false`",
        tuple: "a list",
        str: "text",
    }
    return words[get_origin(kind) or kind]


TABLE = GeneratedTable(
    name="policy",
    parts={
        DOCS / "policy.md": {
            "profiles": profile_table,
            "policy": policy_table,
            "gate": gate_table,
        }
    },
)

"""The comparisons that a call of `compare` asks for: the one that is typed, or those of a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.kept_options import filled, resolved_file
from parity.cli.inputs.policy import PolicyOptions
from parity.cli.inputs.table_arms import TableOptions
from parity.cli.terminal.option_words import EVIDENCE
from parity.cli.terminal.options import Options, option, repeatable
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.policy_file import read_yaml
from parity.frozen import frozen
from parity.wording import did_you_mean

_KEPT = re.compile(r"(.+\.ya?ml)(?::(.+))?")
_COMPARE = "expected `compare:` with `runs:` and options below it, or names with these below each"


class Evidence(Options, panel=EVIDENCE):
    """What else is known of the arms, and of the full run that they stand for."""

    evaluation: list[str] = repeatable(
        "Read the downstream accuracy of an arm, one file per arm: CSV or JSON with task,correct "
        "or task,accuracy,n; "
        "or results_*.json of lm-evaluation-harness, with samples_*.jsonl in the same folder.",
        "NAME=FILE",
    )
    layer_snr: list[str] = repeatable(
        "Read the quantization SNR per layer of a candidate, CSV or JSON with "
        "layer,operand,snr_db, or the statistics log of Transformer Engine's debug tool (file or "
        "folder); used for advice after a fail.",
        "[NAME=]FILE",
    )
    family: list[str] = repeatable(
        "Borrow the run-to-run noise of both arms, or of ARM, from this family of reruns (`parity "
        "noise list`), or any-decoder if yours is not there. Repeatable.",
        "[ARM=]NAME",
    )
    noise_table: str | None = option(
        None,
        "Read the families from this table (CSV). [default: the public reruns shipped here]",
        "FILE",
    )
    full_run_hours: float | None = option(
        None, "Report what the full run saves; it takes HOURS device hours.", "HOURS"
    )
    hour_price: float | None = option(None, "Set the price of a device hour.", "PRICE")
    devices: int = option(1, "Set the number of devices that a run of this check used.")


@frozen
class ComparisonRequest:
    """One comparison: what is typed of it, or kept in a file."""

    runs: Sequence[str]
    stated: ArmOptions
    table: TableOptions
    policy_options: PolicyOptions
    evidence: Evidence
    look: int

    def given(self) -> dict[str, str]:
        """The options that were given, as they are typed, by field."""
        groups = (self.stated, self.table, self.policy_options, self.evidence)
        typed = {name: option for group in groups for name, option in group.given().items()}
        return typed if self.look == 1 else {**typed, "look": "--look"}


def comparison_requests(typed: ComparisonRequest) -> Mapping[str, ComparisonRequest]:
    """The comparisons that a call asks for, by name: the one that is typed, or those below
    `compare:` of a file, options typed over them.

    Raises UsageError and InputError for a file of another shape.
    """
    match = _KEPT.fullmatch(typed.runs[0]) if len(typed.runs) == 1 else None
    if match is None:
        return {"": typed}
    file, name = match.groups()
    content = read_yaml(file)
    if (
        not isinstance(content, dict)
        or not isinstance(section := content.get("compare"), dict)
        or not section
    ):
        raise UsageError(f"{file}: has no comparison; {_COMPARE}")
    named = (
        {"": section} if "runs" in section else {str(key): value for key, value in section.items()}
    )
    if name is not None and name not in named:
        raise UsageError(
            f"{file}: no comparison is called {name!r}; expected one of "
            f"{', '.join(named)}{did_you_mean(name, named)}"
        )
    shared = typed
    if typed.policy_options.policy is None and "policy" in content:
        shared = replace(typed, policy_options=replace(typed.policy_options, policy=file))
    # a comparison's own policy counts
    with_policy = {
        key
        for key, comparison in named.items()
        if isinstance(comparison, dict) and "policy" in comparison
    }
    return {
        key: _kept(file, key, named[key], typed if key in with_policy else shared)
        for key in (named if name is None else (name,))
    }


def _kept(file: str, name: str, section: object, typed: ComparisonRequest) -> ComparisonRequest:
    """One comparison of a file; its files are named from the folder of that file."""
    where = f"{file}: compare{f'.{name}' if name else ''}"
    if not isinstance(section, dict) or not section.get("runs"):
        raise UsageError(f"{where}: has no runs; {_COMPARE}")
    groups: dict[str, Options] = {
        key: getattr(typed, key) for key in ("stated", "table", "policy_options", "evidence")
    }
    option_names = [option_name for group in groups.values() for option_name in group.options()]
    if unknown := [str(key) for key in section if key not in ("runs", *option_names)]:
        near = did_you_mean(unknown[0], option_names)
        raise UsageError(
            f"{where}: unknown key {unknown[0]!r}; expected runs, or an option of `parity compare` "
            f"with _ for -{near}"
        )
    folder = Path(file).parent
    runs = section["runs"] if isinstance(section["runs"], list) else [section["runs"]]
    made: dict[str, Any] = {
        key: filled(group, section, folder, where) for key, group in groups.items()
    }
    return replace(typed, runs=[resolved_file(str(run), folder) for run in runs], **made)

"""The file of a golden: JSON lines, a header with its history and then one line per step, for
people to read in a difference.

    {"golden":1,"recipe":"bf16","container":"26.04","digits":5,"steps":100,"updates":[…]}
    {"step":1,"loss":10.83281,"grad_norm":2.31}
"""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.golden.answers import ANSWERS
from parity.golden.common_steps import MOST_DECIMALS, decimals
from parity.golden.missing_steps import first_gap
from parity.golden.quantities import QUANTITIES
from parity.judging.curves.curve import Curve, CurveError, curve_from_arrays, usable
from parity.readers.files.text import os_words
from parity.recipes import RecipeError, check_recipe
from parity.typed_json import shown

VERSION = 1
MARK = "golden"  # the first key of the first line
SIGNIFICANT = 6  # digits of quantities other than the loss
MIN_ROWS, MOST_ROWS = 8, 5_000
MOST_BYTES = 20_000_000
_STEP, _LOSS = "step", "loss"
_DIGITS, _STEPS = "digits", "steps"


class GoldenError(ValueError):
    """A golden, or a run for one, that cannot be used; the message says why and what to do."""


@frozen
class GoldenUpdate:
    """One entry of a golden's history: its `date`, the `answer` that was accepted (None for the
    first), the gap in % of the loss, the `reason`, and the `commit` if one is known.
    """

    date: str
    answer: str | None
    gap_pct: float
    reason: str
    commit: str | None = None
    accepted: bool = False


@frozen(eq=False)
class Golden:
    """A golden: its curve (losses in nats), the recipe, what drew random numbers (`random`, such as
    dropout), the container, the hardware, the digest of the data, recorded facts, and its history.
    """

    curve: Curve
    recipe: str
    random: tuple[str, ...] = ()
    container: str | None = None
    hardware: str | None = None
    data: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    updates: tuple[GoldenUpdate, ...] = ()


def is_golden(path: str) -> bool:
    """Whether a path is a file that begins as a golden does."""
    try:
        with Path(path).open("rb") as file:
            return file.read(12).replace(b" ", b"").startswith(b'{"golden"')
    except (OSError, ValueError):
        return False


def golden_of(curve: Curve, name: str, recipe: str, every: int = 1, **more: Any) -> Golden:
    """The golden of a run: its losses with at most 6 decimals, learning rates and gradient norms;
    every `every`-th step. `more` are fields of the golden.

    Raises GoldenError for fewer than 8 rows, for losses that are not finite and positive, and for a
    run that lacks steps in between.
    """
    _check_losses(curve, name)
    gap = first_gap(curve.steps)
    if gap is not None:
        raise GoldenError(
            f"{name} has no step between {gap[0]:,} and {gap[1]:,}; expected a golden without such "
            "a gap: give the whole log, or train these steps again"
        )
    rows = np.arange(0, len(curve.steps), every)
    if rows[-1] != len(curve.steps) - 1:
        rows = np.append(rows, len(curve.steps) - 1)
    if not MIN_ROWS <= len(rows) <= MOST_ROWS:
        raise GoldenError(
            f"{name} has {len(rows):,} steps; expected {MIN_ROWS} to {MOST_ROWS:,}: "
            + ("keep fewer with --every" if len(rows) > MOST_ROWS else "train more steps")
        )
    kept = curve_from_arrays(
        curve.steps[rows],
        np.round(curve.loss[rows], decimals(curve.loss)),
        columns={name: curve.columns[name][rows] for name in QUANTITIES if name in curve.columns},
        label=curve.label,
        recipe=recipe,
    )
    return Golden(curve=kept, recipe=recipe, **more)


def golden_text(golden: Golden) -> str:
    """The file of a golden."""
    digits = decimals(golden.curve.loss)
    header: dict[str, Any] = {MARK: VERSION, "recipe": golden.recipe}
    for name in ("container", "hardware", "data"):
        if (value := getattr(golden, name)) is not None:
            header[name] = value
    if golden.random:
        header["random"] = list(golden.random)
    if golden.facts:
        header["facts"] = dict(sorted(golden.facts.items()))
    header[_DIGITS] = digits
    header[_STEPS] = len(golden.curve.steps)
    header["updates"] = [_entry(update) for update in golden.updates]
    lines = [json.dumps(header, separators=(",", ":"))]
    columns = {
        name: golden.curve.columns[name] for name in QUANTITIES if name in golden.curve.columns
    }
    for row, (step, loss) in enumerate(zip(golden.curve.steps, golden.curve.loss, strict=True)):
        parts = [f'"{_STEP}":{step}', f'"{_LOSS}":{loss:.{digits}f}']
        parts += [
            f'"{name}":{values[row]:.{SIGNIFICANT}g}'
            for name, values in columns.items()
            if np.isfinite(values[row])
        ]
        lines.append("{" + ",".join(parts) + "}")
    return "\n".join(lines) + "\n"


def write_golden(path: str, golden: Golden) -> None:
    """Write a golden's file, whole or not at all. Raises GoldenError where that fails."""
    target = Path(path)
    written: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="ascii", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            written = Path(file.name)
            file.write(golden_text(golden))
        mode = target.stat().st_mode if target.exists() else 0o644
        written.chmod(mode & 0o777)
        written.replace(target)
    except OSError as error:
        if written is not None:
            written.unlink(missing_ok=True)
        raise GoldenError(f"{path}: cannot be written ({os_words(error)})") from None


def read_golden(path: str) -> Golden:
    """The golden of a file. Raises GoldenError: one line with the file, the line and what is
    wrong.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise GoldenError(
            f"{path}: cannot be read ({os_words(error)}); `parity golden update {path} RUN` writes "
            "a golden of a run"
        ) from None
    if len(data) > MOST_BYTES:
        raise GoldenError(f"{path}: is larger than {MOST_BYTES:,} bytes; expected a golden's file")
    return parsed_golden(data.decode("utf-8", "replace"), path)


def parsed_golden(text: str, path: str) -> Golden:
    """The golden of a text; `path` is what errors and answers call it. Raises GoldenError."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    rows = [_parsed(line, f"{path}: line {number}") for number, line in lines]
    if not rows or MARK not in rows[0]:
        raise GoldenError(
            f'{path}: is not a golden; expected {{"golden":1,…}} in its first line: `parity golden '
            f"update GOLDEN {path}` writes one of a run"
        )
    if rows[0][MARK] != VERSION:
        raise GoldenError(
            f"{path}: line 1: golden is {shown(rows[0][MARK])}; expected {VERSION}, the version "
            "that this parity reads"
        )
    places = [f"{path}: line {number}" for number, _ in lines]
    steps = [_number(row, _STEP, place) for row, place in zip(rows[1:], places[1:], strict=True)]
    loss = [_number(row, _LOSS, place) for row, place in zip(rows[1:], places[1:], strict=True)]
    columns = {
        name: [
            _number(row, name, place) if name in row else np.nan
            for row, place in zip(rows[1:], places[1:], strict=True)
        ]
        for name in QUANTITIES
        if any(name in row for row in rows[1:])
    }
    return _golden(path, rows[0], steps, loss, columns)


def _golden(
    path: str,
    header: Mapping[str, Any],
    steps: Sequence[float],
    loss: Sequence[float],
    columns: Mapping[str, Sequence[float]],
) -> Golden:
    recipe = _text(header, "recipe", path)
    if recipe is None:
        raise GoldenError(f'{path}: line 1: has no recipe; expected one such as "recipe":"bf16"')
    try:
        check_recipe(recipe, f"{path}: line 1: recipe")
        curve = curve_from_arrays(steps, loss, columns=columns, label=path, recipe=recipe)
    except (CurveError, RecipeError) as error:
        raise GoldenError(str(error)) from None
    if curve.completeness.duplicates:
        raise GoldenError(f"{path}: has a step twice; expected one line per step: remove one")
    if len(curve.steps) < MIN_ROWS:
        raise GoldenError(f"{path}: has {len(curve.steps)} steps; expected at least {MIN_ROWS}")
    _check_losses(curve, path)
    _check_counts(header, len(curve.steps), path)
    random, facts = header.get("random", []), header.get("facts", {})
    if not (isinstance(random, list) and all(isinstance(word, str) for word in random)):
        raise GoldenError(f'{path}: line 1: random is {shown(random)}; expected ["dropout"] or []')
    if not (isinstance(facts, dict) and all(isinstance(value, str) for value in facts.values())):
        raise GoldenError(f"{path}: line 1: facts is {shown(facts)}; expected texts by name")
    return Golden(
        curve=curve,
        recipe=recipe,
        random=tuple(random),
        container=_text(header, "container", path),
        hardware=_text(header, "hardware", path),
        data=_text(header, "data", path),
        facts=facts,
        updates=_updates(header.get("updates", []), path),
    )


def _updates(entries: Any, path: str) -> tuple[GoldenUpdate, ...]:
    fields = {one.name: one for one in dataclasses.fields(GoldenUpdate)}
    updates = []
    for entry in entries if isinstance(entries, list) else [entries]:
        good = (
            isinstance(entry, dict)
            and {"date", "reason"} <= entry.keys() <= fields.keys()
            and all(isinstance(entry[name], str) for name in ("date", "reason"))
            and isinstance(entry.get("commit"), str | None)
            and entry.get("answer") in (None, *ANSWERS)
            and isinstance(entry.get("accepted", False), bool)
            and isinstance(gap := entry.get("gap_pct", 0.0), int | float)
            and np.isfinite(gap)
        )
        if not good:
            raise GoldenError(
                f"{path}: line 1: updates has {shown(entry)}; expected entries with date, reason, "
                "answer and gap_pct"
            )
        values: dict[str, Any] = {"answer": None, "gap_pct": 0.0, **entry}
        updates.append(GoldenUpdate(**values))
    return tuple(updates)


def _entry(update: GoldenUpdate) -> dict[str, Any]:
    """An entry of the history, without what it does not have."""
    values = dataclasses.asdict(update)
    return {name: value for name, value in values.items() if value not in (None, False)}


def _check_counts(header: Mapping[str, Any], rows: int, path: str) -> None:
    """Check what a header counts, where it does: older files have no `steps`."""
    digits, steps = header.get(_DIGITS, MOST_DECIMALS), header.get(_STEPS, rows)
    if isinstance(digits, bool) or digits not in range(MOST_DECIMALS + 1):
        raise GoldenError(
            f"{path}: line 1: digits is {shown(digits)}; expected an integer from 0 to "
            f"{MOST_DECIMALS}"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps != rows:
        raise GoldenError(
            f"{path}: line 1: steps is {shown(steps)}, but the file has {rows:,}; expected a line "
            "for each of them: restore the file as `parity golden update` wrote it"
        )


def _check_losses(curve: Curve, name: str) -> None:
    wrong = ~usable(curve.loss) | (curve.loss <= 0.0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise GoldenError(
            f"{name}: the loss of step {curve.steps[row]} is {curve.loss[row]:g}; expected a "
            "finite loss above 0 at every step of a golden: take a run that trained well"
        )


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise GoldenError(f"{place}: is {shown(line)}; expected a JSON object")
    return value


def _number(row: Mapping[str, Any], name: str, place: str) -> float:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GoldenError(f"{place}: {name} is {shown(value)}; expected a number")
    return value


def _text(header: Mapping[str, Any], name: str, path: str) -> str | None:
    value = header.get(name)
    if value is not None and not (isinstance(value, str) and value):
        raise GoldenError(f"{path}: line 1: {name} is {shown(value)}; expected text")
    return value

"""The question that an operator pins for the gates of a repository: a job file, or its digest, and
what of a request differs from it.

A request is compared field by field as its classes have them, after defaults are filled in, so that
a default which is written out, a preset and its shape, or another order of keys are no difference.
`server.jobs.pinned_fields` says which fields a gate may choose.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from parity.canonical_json import canonical_json, json_value
from parity.comparing.policy_file import read_yaml
from parity.comparing.statements import InputError
from parity.frozen import frozen
from parity.judging.policy import PROFILES, Amount, Policy, PolicyError, policy_from_mapping
from server.errors import ServiceError
from server.jobs.baselines import BaselineChoice
from server.jobs.pinned_fields import PARTS, choice
from server.jobs.submit import stated_of
from training.command import ENGINE as COMMAND
from training.rules import SpecError
from training.spec import ArmSpec, JobSpec

# for which a gate serves a verdict again, unless the operator's file has `gate: {max_age_days: …}`
MAX_AGE_DAYS = 7.0
SHA256 = "sha256:"
_KEYS = ("job", "policy", "baseline", "priority", "max_run_seconds", "tags", "branch", "gate")
_JOB = TypeAdapter(JobSpec)
_CHOICE = TypeAdapter(BaselineChoice)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PART_OF = {kind: part for part, kind in PARTS.items()}
_MOST_SHOWN = 100  # characters of a value


class PinnedFileError(ValueError):
    """An operator's job file that cannot be read: the file, what is wrong with it and what was
    expected.
    """


@frozen
class AskedQuestion:
    """What a gate asks, or what a job was asked for: the question itself, and what else of the
    request could loosen it.

    `stated` are the parts of a job of engine external that its sender stated: a default of ours is
    no statement. None where they do not matter. `version` of the baseline is None at a job that has
    one, where the newest was asked for.
    """

    spec: JobSpec
    policy: Policy
    baseline: BaselineChoice = BaselineChoice()
    max_run_seconds: float | None = None
    max_age_days: float = 0.0
    stated: Mapping[str, Any] | None = None


def asked_by(
    spec: JobSpec,
    policy: Policy,
    sent: Mapping[str, Any] | None,
    baseline: BaselineChoice | None,
    max_run_seconds: float | None = None,
    max_age_days: float = 0.0,
) -> AskedQuestion:
    """What a request asks; `sent` is its specification as it came, without defaults."""
    stated = (
        stated_of(spec.document(), sent) if sent is not None and spec.engine == "external" else None
    )
    return AskedQuestion(
        spec=spec,
        policy=policy,
        baseline=baseline or BaselineChoice(),
        max_run_seconds=max_run_seconds,
        max_age_days=max_age_days,
        stated=stated,
    )


def read_question(path: Path) -> AskedQuestion:
    """The question of an operator's job file. Raises PinnedFileError."""
    try:
        content = read_yaml(str(path))
    except InputError as error:
        raise PinnedFileError(str(error)) from None
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("job"), dict)
        or not isinstance(content.get("policy"), dict)
    ):
        raise PinnedFileError(f"{path}: expected a job file with `job:` and `policy:`")
    if unknown := [key for key in content if key not in _KEYS]:
        raise PinnedFileError(
            f"{path}: has {str(unknown[0])[:_MOST_SHOWN]!r}; expected {', '.join(_KEYS)}"
        )
    job, gate = _identified_commits(content["job"]), content.get("gate") or {}
    try:
        spec = _JOB.validate_json(json.dumps(job))
        return asked_by(
            spec,
            policy_from_mapping(content["policy"]),
            job,
            _CHOICE.validate_python(content.get("baseline") or {}),
            content.get("max_run_seconds"),
            float(gate.get("max_age_days", MAX_AGE_DAYS)),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PinnedFileError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
    except (SpecError, PolicyError, ServiceError, TypeError, ValueError, AttributeError) as error:
        raise PinnedFileError(f"{path}: {error}") from None


def _identified_commits(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with an id in place of each word for a commit, such as `base` and `head`: equal words
    are equal commits.
    """
    if job.get("engine") != COMMAND:
        return {**job}

    def filled(arm: Any) -> Any:
        word = arm.get("revision") if isinstance(arm, dict) else None
        if not isinstance(word, str) or _COMMIT.fullmatch(word):
            return arm
        return {**arm, "revision": placeholder(word)}

    candidates = job.get("candidates")
    return {
        **job,
        "baseline": filled(job.get("baseline")),
        "candidates": [filled(arm) for arm in candidates]
        if isinstance(candidates, list)
        else candidates,
    }


def placeholder(word: str) -> str:
    """The id that stands for a word for a commit in an operator's file; no commit has it."""
    return "0" * 24 + hashlib.sha256(word.encode()).hexdigest()[:40]


def digest_of(asked: AskedQuestion) -> str:
    """`sha256:` of all of a question that a gate may not choose; commits count by which arms share
    them.
    """
    commits = {arm.revision: str(number) for number, arm in reversed([*enumerate(asked.spec.arms)])}
    arms = [
        {**_pinned_of("arm", arm, {"replicates"}), "revision": commits[arm.revision]}
        for arm in asked.spec.arms
    ]
    question = {
        "job": {**_pinned_of("job", asked.spec), "baseline": arms[0], "candidates": arms[1:]},
        "policy": _pinned_of("policy", asked.policy, {"margin", "profile", "looks", "checks"}),
        "baseline": asked.baseline,
        "max_run_seconds": asked.max_run_seconds,
        "stated": sorted(_leaves(asked.stated)) if asked.stated is not None else None,
    }
    return SHA256 + hashlib.sha256(canonical_json(question).encode()).hexdigest()


def _pinned_of(part: str, value: Any, also: Collection[str] = ()) -> dict[str, Any]:
    """The fields that are pinned, and some more."""
    names = [
        field.name
        for field in fields(value)
        if field.name in also or choice(part, field.name).kind == "pinned"
    ]
    return {name: json_value(getattr(value, name)) for name in names}


def differences(
    pinned: AskedQuestion, asked: AskedQuestion, allowed: Collection[str] | None = None
) -> list[str]:
    """What of a request differs from the pinned question, a phrase each: the field, its value and
    what was expected.

    `allowed` names the fields that a gate may choose; None: all that can't help a worse candidate.
    """
    found = [
        *_differing("job", pinned.spec, asked.spec, "job", allowed),
        *_differing_arms(pinned.spec, asked.spec, allowed),
        *_stated(pinned.stated, asked.stated),
        *_differing("policy", pinned.policy, asked.policy, "policy", allowed),
        *_margins(pinned.policy, asked.policy, allowed),
        *_differing_baseline(pinned.baseline, asked.baseline),
    ]
    if pinned.max_run_seconds != asked.max_run_seconds:
        found.append(_phrase("max_run_seconds", asked.max_run_seconds, pinned.max_run_seconds))
    if asked.max_age_days > pinned.max_age_days:
        found.append(
            f"max_age_days is {asked.max_age_days:g}, expected at most {pinned.max_age_days:g}"
        )
    return found


def _kind(part: str, name: str, allowed: Collection[str] | None) -> str:
    kind = choice(part, name).kind
    return kind if allowed is None or f"{part}.{name}" in allowed else "pinned"


def _differing(
    part: str, pinned: Any, asked: Any, place: str, allowed: Collection[str] | None
) -> Iterator[str]:
    """The fields of one part that differ, those of its own parts by their places; arms and margins
    are compared elsewhere.
    """
    for field in fields(pinned):
        name, then, now = field.name, getattr(pinned, field.name), getattr(asked, field.name)
        where = f"{place}.{name}"
        if (
            then == now
            or (part == "job" and name in ("baseline", "candidates"))
            or (part == "policy" and name in ("margin", "profile"))
        ):
            continue
        kind = _kind(part, name, allowed)
        if kind in ("free", "base and head"):
            continue
        if kind == "at least":
            if now < then:
                yield f"{where} is {_shown(now)}, expected at least {_shown(then)}"
        elif kind == "at most":
            if now > then:
                yield f"{where} is {_shown(now)}, expected at most {_shown(then)}"
        elif kind == "these or more":
            if not set(then) <= set(now):
                yield f"{where} is {_shown(now)}, expected {_shown(then)} or more"
        else:
            own_part = _PART_OF.get(type(then))
            if own_part is not None and type(now) is type(then):
                yield from _differing(own_part, then, now, where, allowed)
            else:
                yield _phrase(where, now, then)


def _differing_arms(
    pinned: JobSpec, asked: JobSpec, allowed: Collection[str] | None
) -> Iterator[str]:
    """How the arms differ, by position: an arm that is missing, one more, and their fields; commits
    by which arms share them.
    """
    if len(pinned.candidates) != len(asked.candidates):
        names = [", ".join(arm.name for arm in spec.candidates) for spec in (asked, pinned)]
        yield f"job.candidates are {names[0]:.200}, expected {names[1]:.200}"
        return
    places = [
        "job.baseline",
        *(f"job.candidates.{number}" for number in range(len(pinned.candidates))),
    ]
    for place, then, now in zip(places, pinned.arms, asked.arms, strict=True):
        yield from _differing("arm", then, now, place, allowed)
    if pinned.engine == COMMAND:
        yield from _other_commits(places, pinned.arms, asked.arms, allowed)


def _other_commits(
    places: Sequence[str],
    pinned: Sequence[ArmSpec],
    asked: Sequence[ArmSpec],
    allowed: Collection[str] | None,
) -> Iterator[str]:
    """Arms whose commits do not have the roles of the operator's file: one commit for each of its
    words, and another for another.
    """
    by_word: dict[str, str] = {}
    literal = "arm.revision" not in (allowed if allowed is not None else ("arm.revision",))
    for place, then, now in zip(places, pinned, asked, strict=True):
        is_word = then.revision.startswith("0" * 24) and not literal
        expected = by_word.setdefault(then.revision, now.revision) if is_word else then.revision
        if now.revision != expected:
            yield (
                f"{place}.revision is {now.revision[:12]}, expected {expected[:12]}, as of the "
                "other arm with this commit"
            )
    if len(set(by_word.values())) < len(by_word):
        yield (
            f"job: {len(by_word)} commits are compared in the pinned file, and "
            f"{len(set(by_word.values()))} here; expected base and head"
        )


def _stated(pinned: Mapping[str, Any] | None, asked: Mapping[str, Any] | None) -> Iterator[str]:
    """What is stated of a user's own runs and is not in the operator's file, or the other way
    round.
    """
    if pinned is None or asked is None:
        return
    then, now = _leaves(pinned), _leaves(asked)
    for name in sorted(now - then):
        yield f"job.{name} is stated, and the pinned file leaves it out; leave it out"
    for name in sorted(then - now):
        yield f"job.{name} is left out, and the pinned file states it; state it"


def _leaves(stated: Mapping[str, Any] | None, place: str = "") -> set[str]:
    """The places of what is stated, arms apart, which have no default of which nobody knows."""
    found = set()
    for name, value in (stated or {}).items():
        if not place and name in ("baseline", "candidates", "name", "engine"):
            continue
        if isinstance(value, Mapping) and value:
            found |= _leaves(value, f"{place}{name}.")
        else:
            found.add(f"{place}{name}")
    return found


def _margins(pinned: Policy, asked: Policy, allowed: Collection[str] | None) -> Iterator[str]:
    """A margin that is not surely as small as the pinned one; the smallest of several decides."""
    if (pinned.margin, pinned.profile) == (asked.margin, asked.profile):
        return
    if _kind("policy", "margin", allowed) == "pinned":
        yield _phrase("policy.margin", _limits(asked), _limits(pinned))
        return
    if (
        pinned.profile is not None
        and PROFILES[pinned.profile] is None
        and asked.profile != pinned.profile
    ):
        yield _phrase("policy.profile", asked.profile, pinned.profile)
    for limit in _limits(pinned):
        if not any(_is_at_most(amount, limit) for amount in _limits(asked)):
            stated = " and ".join(map(str, _limits(asked))) or "none"
            yield f"policy.margin is {stated}, expected at most {limit}"


def _limits(policy: Policy) -> list[Amount]:
    return [
        amount
        for amount in (policy.margin, PROFILES.get(policy.profile or ""))
        if amount is not None
    ]


def _is_at_most(amount: Amount, limit: Amount) -> bool:
    """Whether a margin is surely as small as another one: in the same unit and, in tokens, at the
    same slope.
    """
    return (amount.unit, amount.slope) == (limit.unit, limit.slope) and amount.value <= limit.value


def _differing_baseline(pinned: BaselineChoice, asked: BaselineChoice) -> Iterator[str]:
    for field in fields(BaselineChoice):
        then, now = getattr(pinned, field.name), getattr(asked, field.name)
        if then != now:
            yield _phrase(f"baseline.{field.name}", now, then)


def _phrase(place: str, now: object, then: object) -> str:
    return f"{place} is {_shown(now)}, expected {_shown(then)}"


def _shown(value: object) -> str:
    """A value as a person reads it, on one line."""
    if isinstance(value, Amount):
        return str(value)
    if isinstance(value, tuple | list):
        text = ", ".join(map(_shown, value)) or "none"
    elif is_dataclass(value) and not isinstance(value, type):
        set_ones = {
            name: setting
            for name, setting in dataclasses.asdict(value).items()
            if setting not in (None, (), "")
        }
        text = json.dumps(json_value(set_ones), sort_keys=True)
    else:
        text = "none" if value is None or value == "" else str(value)
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"

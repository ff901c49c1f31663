"""Job files: what `parity.yaml` contains, and the options that replace parts of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import ClientError, Document
from parity.comparing.policy_file import place_in, read_yaml
from parity.wording import did_you_mean, first_few

_JOB_KEYS = ("job", "policy", "baseline", "gate", "tags")
_INVALID, _MOST_TOLD = 422, 3
UNSENDABLE = (
    "contains a value that JSON cannot hold, such as a date or .inf; quote dates and use finite "
    "numbers"
)


def job_file(path: str) -> Document:
    """The content of `parity.yaml`; the server checks the part below `job:`."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: is not a job file; expected the keys `job:` and `policy:`")
    unknown = sorted(str(key) for key in content.keys() - set(_JOB_KEYS))
    if unknown:
        place = place_in(path, [unknown[0]])
        expected = f"{', '.join(_JOB_KEYS[:-1])} or {_JOB_KEYS[-1]}"
        raise UsageError(
            f"{place}: unknown key {unknown[0]!r}; expected "
            f"{expected}{did_you_mean(unknown[0], _JOB_KEYS)}"
        )
    if not isinstance(content.get("baseline") or {}, dict):
        raise UsageError(
            f"{place_in(path, ['baseline'])}: `baseline:` is {content['baseline']!r}; expected a "
            "mapping such as baseline: {name: fp8}"
        )
    for key in ("job", "policy"):
        if not isinstance(content.get(key), dict):
            raise UsageError(
                f"{path}: `{key}:` is missing or has no keys below it; compare with "
                "examples/demo.yaml"
            )
    return content


def baseline_of(content: Document, reuse: bool | None) -> Document | None:
    """The file's `baseline:`, overridden by the option; None if neither is given."""
    baseline = dict(content.get("baseline") or {})
    return baseline | ({} if reuse is None else {"reuse": reuse}) or None


def with_short_reruns(content: Document, runs: int | None, stop_at: float | None) -> Document:
    """The job file with the options in place of its `short_reruns:`; the server checks the
    values.
    """
    if runs is None and stop_at is None:
        return content
    job = dict(content["job"])
    noise = job.pop("short_reruns", None)
    if runs == 0 or (runs is None and not isinstance(noise, Mapping)):
        if stop_at is not None:
            raise UsageError(
                f"--stop-at is {stop_at:g}, but the job has no short reruns; state their number "
                "with --short-reruns"
            )
        return {**content, "job": job}
    stated = {
        name: value for name, value in (("runs", runs), ("stop_at", stop_at)) if value is not None
    }
    return {
        **content,
        "job": job | {"short_reruns": (dict(noise) if isinstance(noise, Mapping) else {}) | stated},
    }


@contextmanager
def lines_named(file: str, *below: str) -> Iterator[None]:
    """Within it, what the server refuses of a file (or of its part `below` these keys) is a
    UsageError that names the file and the line.
    """
    try:
        yield
    except ClientError as error:
        if error.status != _INVALID:
            raise
        findings = error.findings
        # the sentence of the whole request also says which candidate is meant
        if len(findings) < 2:
            findings = [(findings[0][0] if findings else (), str(error))]
        first, *others = [_sentence_with_line(file, keys, words, below) for keys, words in findings]
        sentences = [first, *(sentence.removeprefix(f"{file}, ") for sentence in others)]
        raise UsageError(first_few(sentences, _MOST_TOLD, "; ")) from None


def _sentence_with_line(file: str, keys: Sequence[str], words: str, below: Sequence[str]) -> str:
    """The sentence with the line of its keys, else of those that it begins with ("schedule.steps is
    0").
    """
    first_keys = words.split(" ", 1)[0].rstrip(":").split(".")
    places = ([*below, *keys] if keys else first_keys, first_keys)
    place = place_in(file, *places, [*below, *first_keys], ["job", *first_keys])
    return f"{place}: {words}"

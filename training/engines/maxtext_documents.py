"""Documents that MaxText cuts, counted before anything trains.

What it answers: how much of the data will a run never see, and do they last for its steps?

MaxText keeps the first `data.sequence_length` tokens of a document, with the marks of its beginning
and end, and drops the rest: `packing` puts several documents into a sequence, and never one into
several. MaxText's own Python reads and tokenizes (`maxtext_count`), since this one has neither its
tokenizers nor its formats.

The assumption that can fail: of more than MOST documents a sample stands for all.

Source: MaxText 0.2.5, `use_truncation` of configs/base.yml.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.engines.maxtext_process import process_environment
from training.environment.maxtext_errors import MaxTextError
from training.environment.maxtext_installed import installed
from training.environment.maxtext_options import MaxTextOptions
from training.frozen import frozen
from training.spec import Data, JobSpec, RunSpec

MOST = 2000
_SCRIPT = Path(__file__).with_name("maxtext_count.py")
_SECONDS = 120.0  # less than jax waits for the first of several processes


class NotCountedError(Exception):
    """The documents are not at hand here, or could not be read; the message says why."""


@frozen
class DocumentCounts:
    """Of the documents that were read: how many, of how many in all (None: not known), how many are
    cut, their tokens, and those that are left.
    """

    documents: int
    in_all: int | None
    cut: int
    tokens: int
    kept: int


def counted(spec: JobSpec | RunSpec, environment: Mapping[str, str]) -> DocumentCounts:
    """Counts of a job's training data; raises NotCountedError and, without a MaxText of its own, a
    MaxTextError.
    """
    request = _request(spec.data, spec.maxtext)
    python = installed(environment).python
    try:
        answer = subprocess.run(
            # -P: beside the script are modules of ours that are named as MaxText's
            [python, "-P", str(_SCRIPT)],
            input=json.dumps(request),
            env=process_environment(environment) | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"},
            check=True,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        return DocumentCounts(**json.loads(answer.stdout))
    except subprocess.TimeoutExpired:
        raise NotCountedError(f"counting took longer than {_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"status {error.returncode}"]
        raise NotCountedError(f"MaxText's Python could not read them: {lines[-1]}") from None
    except (OSError, ValueError, TypeError) as error:
        raise NotCountedError(f"MaxText's Python gave no counts: {error}") from None


def sentences(spec: JobSpec | RunSpec, counts: DocumentCounts) -> Iterator[str]:
    """What the counts say of a job, for readers."""
    length = f"{spec.data.sequence_length:,} tokens"
    read = f"{counts.documents:,} documents"
    if counts.in_all is None:
        read = f"the first {read}"
    elif counts.in_all > counts.documents:
        read += f", a sample of {counts.in_all:,},"
    if counts.cut:
        yield (
            f"MaxText cuts {counts.cut:,} of {read} to their first {length}: "
            f"{100 * (1 - counts.kept / counts.tokens):.3g} % of the tokens are not trained on. "
            "Split longer documents beforehand to train on all of them."
        )
    else:
        yield f"MaxText cuts none of {read}: none has more than {length}."
    lasts = _lasts(spec, counts)
    if lasts is not None and lasts < spec.schedule.steps:
        yield (
            f"The data last for about {lasts:,} of the {spec.schedule.steps:,} steps at most, and "
            "the run ends there: raise maxtext.num_epoch, use more data, or plan fewer steps."
        )


def in_words(spec: RunSpec, environment: Mapping[str, str]) -> str | None:
    """The sentences as one text; None where nothing could be counted, which stops no run."""
    try:
        return " ".join(sentences(spec, counted(spec, environment)))
    except (NotCountedError, MaxTextError):
        return None


def _request(data: Data, options: MaxTextOptions) -> dict[str, Any]:
    kind = options.grain_file_type if data.source == "grain" else data.source
    if kind not in ("parquet", "arrayrecord", "hf"):
        raise NotCountedError(
            f"the data are of kind {kind}; documents are counted in parquet, arrayrecord and hf"
        )
    path = data.path or ""
    if not any(text.startswith("/") for text in (path, options.hf_train_files)):
        raise NotCountedError(f"data.path is {path!r}, which is no file or folder of this machine")
    return {
        "kind": kind,
        "path": path,
        "hf_name": options.hf_name,
        "hf_data_dir": options.hf_data_dir,
        "hf_train_files": options.hf_train_files,
        "train_split": options.train_split,
        "tokenizer_path": options.tokenizer_path,
        "tokenizer_type": options.tokenizer_type,
        "sequence_length": data.sequence_length,
        "most": MOST,
    }


def _lasts(spec: JobSpec | RunSpec, counts: DocumentCounts) -> int | None:
    """The most steps that the data last for: packing leaves gaps, so there may be fewer."""
    if counts.in_all is None or spec.maxtext.num_epoch < 1 or not counts.documents:
        return None
    if not spec.maxtext.packing:
        return counts.in_all * spec.maxtext.num_epoch // spec.data.batch_size
    tokens = counts.kept * counts.in_all // counts.documents * spec.maxtext.num_epoch
    return tokens // spec.data.tokens_per_step

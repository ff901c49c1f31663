"""Files that a request brings, as curves: read by the readers of `parity compare`, in a process with limits (`upload_reader`).

Nothing in a request names a place: a file is written under a name of ours into a folder of its own, which goes with the request.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from parity import Curve, curve_from_arrays
from server.errors import FieldProblem, InvalidError, UnavailableError
from server.settings import CHECKOUT

_log = logging.getLogger(__name__)
MAX_FILES = 200
_SECONDS = 120.0
# What a reader may take of memory is limited for each; so is how many there are.
_AT_ONCE = threading.BoundedSemaphore(2)
# Those that are read or wait for it, each in one of the threads that serve every other request too: the rest are for trainers and pages.
_PLACES = threading.BoundedSemaphore(8)
_ENDINGS = {"csv": ".csv", "jsonl": ".jsonl", "tensorboard": ".tfevents", "parquet": ".parquet"}
_GZIP = b"\x1f\x8b"
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR")  # no setting, and so no secret
_Name = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file with one run, as `parity compare` reads it. Tables (csv) and JSON lines may be compressed by gzip.

    `columns` names columns (or TensorBoard's tags) by what they hold, such as {"loss": "train/ce"}; without it known names are looked for.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    format: Literal["csv", "jsonl", "tensorboard", "parquet"]
    base64: Annotated[str, Field(description="the file's bytes in base64", json_schema_extra={"contentEncoding": "base64"})]
    columns: Annotated[dict[_Name, _Name], Field(max_length=20)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A file of a request: where it stands there (a JSON Pointer), the file, and the label of its run."""

    pointer: str
    upload: Upload
    label: str


def read_uploads(files: Sequence[Brought]) -> list[Curve]:
    """The run in each file. InvalidError points to the one that can't be read, and says why."""
    if not files:
        return []
    if len(files) > MAX_FILES:
        raise _refused(files[MAX_FILES].pointer, f"the request brings {len(files)} files, expected at most {MAX_FILES}")
    contents = [_content(one) for one in files]
    names = [f"upload-{number:03}{_ending(one.upload, content)}" for number, (one, content) in enumerate(zip(files, contents, strict=True))]
    if not _PLACES.acquire(blocking=False):
        raise UnavailableError("the files of other requests are waiting to be read; send the request again in a minute")
    try:
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            for name, content in zip(names, contents, strict=True):
                Path(folder, name).write_bytes(content)
            asked: list[dict[str, Any]] = [
                {"name": name, "columns": one.upload.columns, "label": one.label} for name, one in zip(names, files, strict=True)
            ]
            answers = _answers(folder, asked, files)
            return [
                _curve(Path(folder, f"{asked['name']}.npz"), asked["label"], answer) for asked, answer in zip(asked, answers, strict=True)
            ]
    except OSError as error:
        raise UnavailableError(f"files can't be read at the moment: {error.strerror}; send the request again later") from error
    finally:
        _PLACES.release()


def _content(one: Brought) -> bytes:
    try:
        content = base64.b64decode("".join(one.upload.base64.split()).encode("ascii"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused(f"{one.pointer}/base64", f"no base64 ({error}); expected what `base64 FILE` prints") from error
    if one.upload.format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise _refused(one.pointer, "this server can't read Parquet, because pyarrow is not installed where it runs; send csv")
    return content


def _ending(upload: Upload, content: bytes) -> str:
    packed = upload.format in ("csv", "jsonl") and content.startswith(_GZIP)
    return _ENDINGS[upload.format] + (".gz" if packed else "")


def _answers(folder: str, asked: Sequence[Mapping[str, Any]], files: Sequence[Brought]) -> list[dict[str, Any]]:
    """What the reader says of each file; InvalidError for the first that it refuses or does not survive."""
    if not _AT_ONCE.acquire(timeout=_SECONDS):
        raise UnavailableError("other requests' files are being read; send the request again in a minute")
    command = [sys.executable, "-m", "server.upload_reader", folder]
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    try:
        ended = subprocess.run(
            command, cwd=CHECKOUT, env=environment, input=json.dumps(asked).encode(), capture_output=True, check=False, timeout=_SECONDS
        )
        said, how = ended.stdout, f"the process ended with {ended.returncode}"
        if ended.returncode:
            _log.error("the reader of uploaded files broke off (%d): %s", ended.returncode, ended.stderr[-2000:].decode(errors="replace"))
    except subprocess.TimeoutExpired as error:
        said, how = error.stdout or b"", f"it takes longer than {_SECONDS:g} s"
    finally:
        _AT_ONCE.release()
    answers: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
    for answer, name, one in zip(answers, asked, files, strict=False):
        if "refused" in answer:
            raise _refused(one.pointer, _in_our_words(answer["refused"], name["name"]))
    if len(answers) < len(files):
        raise _refused(files[len(answers)].pointer, f"reading it broke off ({how}); send fewer rows, or another format")
    return answers


def _in_our_words(refusal: str, name: str) -> str:
    """A reader's sentence without the name that we gave the file, and with the request's words for the command line's."""
    told = refusal.removeprefix(f"{name}: ").replace(name, "the file").encode(errors="backslashreplace").decode()
    return re.sub(r"--column (\w+)=NAME", r'"columns": {"\1": "NAME"}', told).replace("--column", '"columns"')[:1000]


def _curve(path: Path, label: str, answer: Mapping[str, Any]) -> Curve:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return curve_from_arrays(
            arrays["steps"],
            arrays["loss"],
            columns={name: arrays[str(number)] for number, name in enumerate(answer["columns"])},
            label=label,
            notes=answer["notes"],
            overwritten=answer["duplicates"],
        )


def _refused(pointer: str, detail: str) -> InvalidError:
    return InvalidError(f"{pointer}: {detail}", [FieldProblem(pointer=pointer, detail=detail)])

"""The parts of an evidence bundle, whose author is unknown: zip members, columns, JSON and a
manifest are read within limits or refused.
"""

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from parity.judging.curves.context import COMPARISONS, Comparison
from parity.judging.curves.curve import (
    MAX_LOSS,
    Curve,
    FloatArray,
    IntArray,
    Rounding,
    curve_from_arrays,
)
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.secondary.accuracy import TaskResult
from parity.judging.verdict.advice import LayerSnr
from parity.names_once import NameTwiceError, object_of_pairs
from parity.recipes import OTHER, RecipeError, check_recipe, check_rounding
from parity.typed_json import ManifestError, optional, record, shown, typed

# Parse JSON of an unknown author: no NaN or infinity, no name twice in one object, no nesting or
# number beyond Python's own limits.

MAX_INTEGER = 2**63  # beyond it no count, step or seed of a run lies


class JsonError(ValueError):
    """A text that is refused; the message says why, without quoting it at length."""


def parse_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises JsonError for everything that the standard or the
    limits above exclude.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=object_of_pairs,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start:,} is not UTF-8; expected JSON in UTF-8") from None
    except RecursionError:
        raise JsonError("it is nested too deeply; expected a few levels") from None
    except NameTwiceError as error:
        raise JsonError(str(error)) from None
    except json.JSONDecodeError as error:
        raise JsonError(
            f"it is not JSON at line {error.lineno:,}, column {error.colno:,}"
        ) from None


def _no_constant(word: str) -> NoReturn:
    raise JsonError(
        f"it holds {word}, which is not JSON; expected finite numbers, or the text 'nan', 'inf' or "
        "'-inf'"
    )


def _integer(text: str) -> int:
    if len(text) > len(str(-MAX_INTEGER)) or abs(number := int(text)) > MAX_INTEGER:
        raise JsonError(
            f"it holds a whole number of {len(text.lstrip('-')):,} digits; expected at most 2^63"
        )
    return number


# Read the members of an untrusted zip file within fixed limits of size, number and names.
#
# The directory at the end of the file is checked before anything is inflated: its size, the number
# of members, their names, their declared sizes and the ratio of those to the file. Then each member
# is inflated in pieces and refused at its declared size. So a file that lies about its content
# costs little more memory than its own size.

MAX_MEMBERS = 10_000
MAX_DIRECTORY_BYTES = 4 << 20
# of all members together: two runs of 10,000,000 steps with nine columns have 1.4 GiB
MAX_BYTES = 2 << 30
MAX_MANIFEST_BYTES, MAX_JSON_BYTES = 4 << 20, 16 << 20
# steps deflate 5-fold, losses of one decimal 14-fold; more than 50-fold are blanks
FREE_BYTES, MAX_RATIO = 64 << 20, 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}(/[a-z0-9][a-z0-9_.-]{0,79})?")
_PIECE_BYTES = 1 << 20
# end of the central directory: signature, 2 disks, 2 counts, size, offset, comment
_END = struct.Struct("<4s4H2LH")
_END64 = b"PK\x06\x07"
_END64_BYTES = 20
_ENCRYPTED = 0x1

UNREADABLE = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    struct.error,
    ValueError,
)


class ArchiveError(ValueError):
    """A zip file that is refused: what is wrong, its value and the limit, without the file's
    name.
    """


def read_members(path: str | Path) -> dict[str, bytes]:
    """The members of a zip file by name. Raises ArchiveError beyond a limit, one of `UNREADABLE`
    where it is no sound zip file.
    """
    with Path(path).open("rb") as stream:
        file_bytes = _check_end(stream)
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            _check_directory(members, file_bytes)
            return {info.filename: _inflate(archive, info) for info in members}


def _check_end(stream: BinaryIO) -> int:
    """Check the record at the end of the file, and return the file's size in bytes."""
    size = stream.seek(0, 2)
    tail = min(size, _END.size + _END64_BYTES)
    stream.seek(size - tail)
    end = stream.read(tail)
    if tail < _END.size:
        raise zipfile.BadZipFile("File is not a zip file")
    signature, _, _, _, count, directory_bytes, _, comment = _END.unpack(end[-_END.size :])
    if signature != b"PK\x05\x06":
        raise zipfile.BadZipFile("File is not a zip file, or has a comment")
    if end.startswith(_END64) and tail == _END.size + _END64_BYTES:
        raise ArchiveError("it is a ZIP64 file; expected a plain zip file")
    if count > MAX_MEMBERS or directory_bytes > MAX_DIRECTORY_BYTES or comment:
        raise ArchiveError(
            f"it has {count:,} members, a directory of {directory_bytes:,} bytes and a comment of "
            f"{comment:,}; expected at most {MAX_MEMBERS:,} members and {MAX_DIRECTORY_BYTES:,} "
            "bytes, and no comment"
        )
    return size


def _check_directory(members: list[zipfile.ZipInfo], file_bytes: int) -> None:
    names: set[str] = set()
    if len(members) > MAX_MEMBERS:
        raise ArchiveError(f"it has {len(members):,} members; expected at most {MAX_MEMBERS:,}")
    for info in members:
        _check_member(info)
        if info.filename in names:
            raise ArchiveError(f"{info.filename} is in it twice; expected each name once")
        names.add(info.filename)
    total = sum(info.file_size for info in members)
    if total > MAX_BYTES:
        raise ArchiveError(f"its members have {total:,} bytes; expected at most {MAX_BYTES:,}")
    if total > FREE_BYTES and total > MAX_RATIO * file_bytes:
        raise ArchiveError(
            f"{file_bytes:,} bytes inflate to {total:,}; expected at most {MAX_RATIO} times its "
            "size"
        )


def _check_member(info: zipfile.ZipInfo) -> None:
    if not _NAME.fullmatch(info.filename) or info.orig_filename != info.filename:
        raise ArchiveError(
            f"a member is named {info.filename[:80]!a}; expected names such as "
            "series/000-000-00.npy"
        )
    if info.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{info.filename} is encrypted; expected a zip file without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(
            f"{info.filename} is compressed by method {info.compress_type}; expected stored (0) or "
            "deflated (8)"
        )
    limit = _member_limit(info.filename)
    if info.file_size > limit:
        raise ArchiveError(
            f"{info.filename} has {info.file_size:,} bytes; expected at most {limit:,}"
        )


def _member_limit(name: str) -> int:
    if name == "manifest.json":
        return MAX_MANIFEST_BYTES
    if name.endswith(".npy"):
        return MAX_BYTES
    return MAX_JSON_BYTES


def _inflate(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The content of one member, refused as soon as it is longer than declared."""
    pieces, length = [], 0
    with archive.open(info) as stream:
        while piece := stream.read(_PIECE_BYTES):
            pieces.append(piece)
            length += len(piece)
    if length != info.file_size:  # zipfile itself stops at the declared size
        raise ArchiveError(
            f"{info.filename} has {length:,} bytes, but {info.file_size:,} are declared; expected "
            "both to agree"
        )
    return b"".join(pieces)


# Columns of numbers as bytes: NumPy's .npy format, one dimension, 64-bit integers or floats, and
# nothing else.

_TYPES = ("<i8", "<f8")
_MAX_HEADER = 1024


def pack_array(array: NDArray[Any]) -> bytes:
    """The bytes of a column (n,)."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpack_array(data: bytes, name: str) -> IntArray | FloatArray:
    """The column (n,) in some bytes, read-only and without a copy. Raises ValueError where the
    header promises anything else.
    """
    stream = io.BytesIO(data[: 12 + _MAX_HEADER])  # magic, version, length
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("another version of the format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_MAX_HEADER)
    except Exception:  # noqa: BLE001
        raise ValueError(f"{name} is not a NumPy array of version 1.0") from None
    content = len(data) - stream.tell()
    if dtype.str not in _TYPES or len(shape) != 1 or shape[0] * 8 != content:
        header = f"type {dtype.str} and shape {shape}"
        raise ValueError(
            f"{name} has {header} in {content:,} bytes; expected one dimension of "
            f"{' or '.join(_TYPES)}"
        )
    return np.frombuffer(data, dtype=dtype, offset=stream.tell())


# Read the parts of a bundle's manifest, whose author is unknown: every value has its type, or the
# part is refused by its place.
#
# An array file belongs to one column of one run, so that a small manifest can't ask for a thousand
# copies of a large file.

# Short reruns have a limit per arm. Every candidate is compared with every other, every run of an
# arm with every other.
MAX_RUNS, MAX_CANDIDATES = 256, 64
BASELINE, CANDIDATE, CONTROL, SHORTER, SHORT_RERUN = (
    "baseline",
    "candidate",
    "control",
    "shorter",
    "short_rerun",
)
_SHORT_RERUNS = (SHORT_RERUN, "noise")  # the second word is that of judges before 0.6.0


class Arms:
    """The runs of a manifest's `arms` by role: `baseline_name`, `baseline`, `candidates` by name,
    `controls`, `shorter`, `short_reruns` by arm.

    Judge 0.1.0 took any word for a recipe: unless the `same_judge` made the bundle, an unknown one
    is read as `other:WORD`.
    """

    def __init__(self, arms: object, files: Mapping[str, bytes], *, same_judge: bool) -> None:
        remaining = dict(files)
        self.baseline_name: str | None = None
        self.baseline: list[Curve] = []
        self.candidates: dict[str, list[Curve]] = {}
        self.controls: list[Curve] = []
        self.shorter: list[Curve] = []
        self.short_reruns: dict[str, list[Curve]] = {}
        listed = typed(arms, list, "arms", "a list of arms")
        self._check_size(listed)
        for number, arm in enumerate(listed):
            where = f"arms[{number}]"
            role, name = (typed(arm[key], str, f"{where}.{key}") for key in ("role", "name"))
            role = SHORT_RERUN if role in _SHORT_RERUNS else role
            runs = [
                _run(entry, remaining, f"{where}.runs[{index}]", same_judge=same_judge)
                for index, entry in enumerate(arm["runs"])
            ]
            self._add(role, name, runs, where)

    @staticmethod
    def _check_size(arms: list[Any]) -> None:
        for number, arm in enumerate(arms):
            typed(
                typed(arm, dict, f"arms[{number}]", "an object").get("runs"),
                list,
                f"arms[{number}].runs",
                "a list of runs",
            )
            if arm.get("role") in _SHORT_RERUNS and len(arm["runs"]) > MAX_SHORT_RERUNS:
                raise ManifestError(
                    f"arms[{number}].runs are {len(arm['runs']):,} short reruns; expected at most "
                    f"{MAX_SHORT_RERUNS} per arm"
                )
        judged = [arm for arm in arms if arm.get("role") not in _SHORT_RERUNS]
        runs = sum(len(arm["runs"]) for arm in judged)
        if (
            runs > MAX_RUNS
            or len(judged) > MAX_CANDIDATES + 3
            or len(arms) > 2 * (MAX_CANDIDATES + 3)
        ):
            raise ManifestError(
                f"{len(arms):,} arms with {runs:,} runs; expected at most {MAX_CANDIDATES} "
                f"candidates and {MAX_RUNS} runs in all"
            )

    def _add(self, role: str, name: str, runs: list[Curve], where: str) -> None:
        if (role == BASELINE) == bool(self.baseline) or role not in (
            BASELINE,
            CANDIDATE,
            CONTROL,
            SHORTER,
            SHORT_RERUN,
        ):
            raise ManifestError(
                f"{where}.role is {shown(role)}; expected role 'baseline' once, first, then "
                "candidate, control, shorter and short_rerun"
            )
        if role == BASELINE:
            self.baseline_name, self.baseline = name or None, runs
        elif role == CONTROL:
            self.controls += runs
        elif role == SHORTER:
            self.shorter += runs
        else:
            by_name = self.short_reruns if role == SHORT_RERUN else self.candidates
            if name in by_name:
                raise ManifestError(
                    f"{where}.name is {shown(name)} again; expected another name for each {role} "
                    "arm"
                )
            by_name[name] = runs


_EARLIER_KEYS = {
    "gates": "checks",
    "baseline_run_floor": "baseline_run_noise",
    "candidate_run_floor": "candidate_run_noise",
    "run_floor_df": "run_noise_df",
    "run_floor_evidence": "run_noise_evidence",
}


def policy_of(manifest: Mapping[str, Any]) -> Policy:
    """The policy of a manifest; judges before 0.6.0 called it `criteria`, and some of its keys
    otherwise.
    """
    if "criteria" not in manifest:
        return policy_from_mapping(manifest["policy"])
    return policy_from_mapping(
        {_EARLIER_KEYS.get(key, key): value for key, value in manifest["criteria"].items()}
    )


def families_of(value: object) -> dict[str, str]:
    """The family of reruns by arm."""
    families: dict[str, str] = typed(value, dict, "families", "an object by arm")
    return {arm: typed(family, str, f"families[{shown(arm)}]") for arm, family in families.items()}


def compares_of(value: object) -> dict[str, Comparison]:
    """In what each candidate is meant to differ from the arm that it is judged against."""
    compares: dict[str, Comparison] = typed(value, dict, "compares", "an object by candidate")
    for candidate, comparison in compares.items():
        if comparison not in COMPARISONS:
            raise ManifestError(
                f"compares[{shown(candidate)}] is {shown(comparison)}; expected "
                f"{' or '.join(COMPARISONS)}"
            )
    return compares


def against_of(value: object) -> dict[str, str]:
    """The candidate that each candidate is judged against, where that is not the baseline."""
    against: dict[str, str] = typed(value, dict, "against", "an object by candidate")
    return {
        candidate: typed(other, str, f"against[{shown(candidate)}]")
        for candidate, other in against.items()
    }


def multiplicity_of(value: object) -> Multiplicity | None:
    """Which look a case is and how many candidates share its error; None where the manifest leaves
    that to the judge.
    """
    if value is None:
        return None
    return record(
        Multiplicity, value, "multiplicity", "an object with look, looks, candidates and registered"
    )


def layer_snrs(value: object) -> dict[str, LayerSnr]:
    """SNR (dB) by candidate, then by layer and operand, from lists of [layer, operand, snr]."""
    by_candidate: dict[str, LayerSnr] = {}
    for candidate, entries in typed(value, dict, "layer_snr_db", "an object by candidate").items():
        where = f"layer_snr_db[{shown(candidate)}]"
        snrs: dict[tuple[str, str], float] = {}
        for entry in typed(entries, list, where, "a list of [layer, operand, SNR]"):
            layer, operand, snr = typed(entry, list, where, "lists of layer, operand, SNR")
            snrs[typed(layer, str, where), typed(operand, str, where)] = float(snr)
        by_candidate[candidate] = snrs
    return by_candidate


def task_results(value: object) -> dict[str, dict[str, TaskResult]]:
    """Downstream results by arm and task."""
    by_arm = {}
    for arm, tasks in typed(value, dict, "evaluations", "an object by arm").items():
        where = f"evaluations[{shown(arm)}]"
        by_arm[arm] = {
            task: _task_result(result, where)
            for task, result in typed(tasks, dict, where, "an object by task").items()
        }
    return by_arm


def _task_result(value: object, where: str) -> TaskResult:
    fields = typed(value, dict, where, "an object with correct, items and by_item")
    by_item = typed(fields.get("by_item", {}), dict, f"{where}.by_item", "an object by item")
    if not all(isinstance(correct, bool) for correct in by_item.values()):
        raise ManifestError(
            f"{where}.by_item holds other values than true and false; expected those"
        )
    correct, items = (typed(fields.get(key), int, f"{where}.{key}") for key in ("correct", "items"))
    choices = fields.get("choices")
    stated = None if choices is None else typed(choices, int, f"{where}.choices")
    return TaskResult(correct=correct, items=items, by_item=by_item, choices=stated)


def _run(entry: object, remaining: dict[str, bytes], where: str, *, same_judge: bool) -> Curve:
    """The curve of one run; takes its array files out of `remaining`."""
    run = typed(entry, dict, where, "an object")
    columns = {}
    for column, file in typed(run["arrays"], dict, f"{where}.arrays", "files by column").items():
        if not isinstance(file, str) or file not in remaining:
            raise ManifestError(
                f"{where}.arrays[{shown(column)}] is {shown(file)}; expected a file of the bundle, "
                "named once"
            )
        columns[column] = unpack_array(remaining.pop(file), file)
    context = typed(run["context"], dict, f"{where}.context", "texts by key")
    notes = typed(run["notes"], list, f"{where}.notes", "a list of texts")
    for value in (*context.values(), *notes):
        typed(value, str, where, "texts in context and notes")
    duplicates = typed(run["duplicates"], int, f"{where}.duplicates")
    if duplicates < 0:
        raise ManifestError(f"{where}.duplicates is {duplicates}; expected 0 or more")
    rolled_back = typed(
        run.get("rolled_back", 0.0), float, f"{where}.rolled_back", "a number of nats"
    )
    if not 0.0 <= rolled_back <= MAX_LOSS * 2.0:
        raise ManifestError(f"{where}.rolled_back is {rolled_back}; expected nats, 0 or more")
    recipe = optional(run["recipe"], str, f"{where}.recipe")
    # bundles before 2026-11-22 have none; the curve refuses any other word
    rounding: Rounding | None = run.get("rounding")
    seed = typed(run["seed"], int, f"{where}.seed")
    stated = typed(run.get("seed_stated", True), bool, f"{where}.seed_stated")
    return curve_from_arrays(
        columns.pop("steps"),
        columns.pop("loss"),
        columns={name.removeprefix("columns/"): column for name, column in columns.items()},
        label=typed(run["label"], str, f"{where}.label"),
        seed=seed if stated else None,
        replicate=typed(run["replicate"], int, f"{where}.replicate"),
        recipe=recipe if same_judge else _known_or_other(recipe, rounding),
        rounding=rounding,
        context=context,
        notes=notes,
        overwritten=duplicates,
        rolled_back=rolled_back,
    )


def _known_or_other(recipe: str | None, rounding: Rounding | None) -> str | None:
    """A recipe that an earlier judge accepted with this rounding, as a word that this one does."""
    try:
        check_recipe(recipe)
        check_rounding(recipe, rounding)
    except RecipeError:
        return f"{OTHER}{recipe or 'unnamed'}"
    return recipe

"""The evidence bundle: series, evaluations, groups of reruns that noise is borrowed from, policy,
manifest and verdict in a zip, from which another person recomputes it offline.

manifest.json names every file with its sha256; series are .npy arrays (no pickles); times in the
zip are fixed, so equal cases give equal bytes. `verify` checks the digests, judges again and
compares: words and counts exactly, numbers to 1e-9 relative. A bundle of another version of the
judge is judged again and shown next to what it records, but never called identical. What `verify`
cannot see is a bundle in which series, digests and verdict were all replaced consistently: keep the
bundle's own sha256 where you trust it.
"""

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import islice
from typing import Any

from parity.canonical_json import canonical_json, fields_of, json_value
from parity.frozen import frozen
from parity.judging.bundles.columns import pack_array
from parity.judging.bundles.evaluation_manifest import KIND, evaluation_case, manifest_of
from parity.judging.bundles.manifest import (
    BASELINE,
    CANDIDATE,
    CONTROL,
    SHORT_RERUN,
    SHORTER,
    ManifestArms,
    against_of,
    compares_of,
    families_of,
    layer_snrs,
    multiplicity_of,
    policy_of,
    task_results,
)
from parity.judging.bundles.server_record import (
    JOB,
    SIGN_OFFS,
    BundleJob,
    printable,
    read_job,
    read_sign_offs,
    sign_off_words,
    strangers,
)
from parity.judging.bundles.strict_json import JsonError, parse_json
from parity.judging.bundles.zip_members import (
    UNREADABLE,
    ArchiveError,
    members_of,
    read_members,
)
from parity.judging.curves.context import Comparison
from parity.judging.curves.curve import Curve
from parity.judging.decision import WORST_FIRST, State
from parity.judging.document_types import STATED_LATER, VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_table import NoiseTable, read_noise_table
from parity.judging.policy import Policy
from parity.judging.secondary.tasks import Evaluations
from parity.judging.verdict.layer_statistics import LayerSnr
from parity.judging.verdict.sign_offs import without_shown
from parity.judging.verdict.verdict import Verdict, judge
from parity.typed_json import optional, shown, typed
from parity.version import JUDGE_VERSION

AnyDocument = VerdictDocument | EvaluationDocument

BUNDLE_SCHEMA = "parity.bundle/1"
MANIFEST, VERDICT, EVALUATIONS, NOISE_TABLE = (
    "manifest.json",
    "verdict.json",
    "evaluations.json",
    "noise_table.csv",
)
_EARLIER_TABLE = "floors.csv"  # of judges before 0.6.0
RELATIVE_TOLERANCE = 1e-9
_MAX_WORDS = 300
MAX_DIFFERENCES = 1000  # lines; a document that differs in more is another document
_NUMBER = (int, float)
_EPOCH = (1980, 1, 1, 0, 0, 0)


class EvidenceError(ValueError):
    """A bundle that can't be read at all; the message names the file and what was expected."""


@frozen(eq=False)
class Case:
    """Everything that `judge` was given, by the names of its parameters."""

    baseline: Sequence[Curve]
    candidates: Mapping[str, Sequence[Curve]]
    policy: Policy
    controls: Sequence[Curve] = ()
    planned_steps: int | None = None
    assume_complete: bool = False
    layer_policy: str | None = None
    baseline_name: str | None = None
    layer_snr_db: Mapping[str, LayerSnr] = field(default_factory=dict)
    evaluations: Evaluations = field(default_factory=dict)
    noise_table: NoiseTable | None = None
    families: Mapping[str, str] = field(default_factory=dict)
    short_reruns: Mapping[str, Sequence[Curve]] = field(default_factory=dict)
    multiplicity: Multiplicity | None = None
    shorter: Sequence[Curve] = ()
    compares: Mapping[str, Comparison] = field(default_factory=dict)
    against: Mapping[str, str] = field(default_factory=dict)

    def judged_against(self, candidate: str) -> Sequence[Curve]:
        """The runs that a candidate is judged against: those of the baseline, or of another
        candidate.
        """
        if candidate in self.against:
            return self.candidates[self.against[candidate]]
        return self.baseline

    def documents(self) -> list[VerdictDocument]:
        """Judge the case: one document a candidate."""
        return [verdict.document() for verdict in self.verdicts()]

    def verdicts(self) -> tuple[Verdict, ...]:
        """Judge the case: one verdict a candidate, with what was measured."""
        return judge(**fields_of(self))

    def arms(self) -> Iterator[tuple[str, str, Sequence[Curve]]]:
        """Role, name and runs of each arm, then controls and shorter runs, then short reruns."""
        yield BASELINE, self.baseline_name or "", self.baseline
        for name, runs in self.candidates.items():
            yield CANDIDATE, name, runs
        if self.controls:
            yield CONTROL, "", self.controls
        if self.shorter:
            yield SHORTER, "", self.shorter
        for name, runs in self.short_reruns.items():
            yield SHORT_RERUN, name, runs


def bundle_bytes(
    case: Case | EvaluationCase,
    documents: Sequence[AnyDocument],
    sign_offs: Sequence[Mapping[str, Any]] = (),
    job: BundleJob | None = None,
) -> bytes:
    """The bundle of a judged case as the bytes of a zip file, with the sign-offs of its verdicts
    (`SignOffDocument`), if any, and the job that they are of.
    """
    files, described = _described(case)
    files[VERDICT] = canonical_json(
        {"verdicts": [without_shown(document) for document in documents]}
    ).encode()
    if sign_offs:
        files[SIGN_OFFS] = canonical_json({"sign_offs": list(sign_offs)}).encode()
    if job is not None:
        files[JOB] = canonical_json(job).encode()
    manifest = {
        "schema": BUNDLE_SCHEMA,
        # a stored verdict's judge may be an earlier one
        "engine_version": documents[0]["engine_version"] if documents else JUDGE_VERSION,
        **described,
        "sha256": _sha256_by_name(files),
    }
    files[MANIFEST] = canonical_json(manifest).encode()
    return _zipped(files)


def evidence_sha256(case: Case | EvaluationCase) -> str:
    """SHA-256 (hex) of what a case is judged by: its curves, its policy and what was stated, and
    neither verdict nor judge.

    The same for a bundle, the job that it came from, and the files that it was made of. Labels of
    runs and what their readers noted are not part of it: they change with the name of a file.
    """
    files, described = _described(case)
    digests = _sha256_by_name(files)
    for arm in described["arms"]:
        for run in arm["runs"]:
            del run["label"]
            run["notes"] = [note for note in run["notes"] if note.startswith(STATED_LATER)]
            # by the names of their columns: the numbers of files follow the order of these
            run["arrays"] = {name: digests.pop(file) for name, file in run["arrays"].items()}
    named = canonical_json({**described, "sha256": digests})
    return hashlib.sha256(named.encode()).hexdigest()


def _described(case: Case | EvaluationCase) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of a case by name, and its part of the manifest."""
    files: dict[str, bytes] = {}
    arms = []
    for number, (role, name, runs) in enumerate(case.arms()):
        described = [
            _store_run(run, f"series/{number:03}-{index:03}", files)
            for index, run in enumerate(runs)
        ]
        arms.append({"role": role, "name": name, "runs": described})
    if isinstance(case, Case) and case.evaluations:
        files[EVALUATIONS] = canonical_json(case.evaluations).encode()
    if isinstance(case, Case) and case.families and case.noise_table is not None:
        files[NOISE_TABLE] = case.noise_table.only(set(case.families.values())).csv().encode()
    return files, {
        "policy": case.policy.document(),
        "planned_steps": case.planned_steps,
        **(_manifest_of(case) if isinstance(case, Case) else manifest_of(case)),
        "arms": arms,
    }


def _sha256_by_name(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _manifest_of(case: Case) -> dict[str, Any]:
    return {
        "assume_complete": case.assume_complete,
        "layer_policy": case.layer_policy,
        "layer_snr_db": {
            name: [[*key, snr] for key, snr in sorted(snrs.items())]
            for name, snrs in case.layer_snr_db.items()
        },
        **({"families": case.families} if case.families else {}),
        **({"multiplicity": case.multiplicity} if case.multiplicity else {}),
        **({"compares": case.compares} if case.compares else {}),
        **({"against": case.against} if case.against else {}),
    }


@frozen
class Rejudged:
    """What a bundle records of one candidate, and what this judge says of the same curves."""

    candidate: str
    recorded: State
    today: State
    codes: tuple[str, ...]


@frozen
class Verification:
    """What a bundle's recomputation gave.

    `made_by` is the version of the judge that made the bundle, safe to print. `differences` has one
    line for each file that does not match the manifest and each value that does not match its
    recomputation. Where another judge made the bundle the values cannot be compared: `rejudged`,
    which is empty where something differs, has both verdicts of each candidate. `sign_offs` are the
    sign-offs in the bundle, one sentence each, and `job` the job that it was made of, as its server
    stated them when it was made: nobody can verify those offline.
    """

    made_by: str
    differences: tuple[str, ...]
    rejudged: tuple[Rejudged, ...] = ()
    sign_offs: tuple[str, ...] = ()
    job: BundleJob | None = None

    @property
    def same_judge(self) -> bool:
        """Whether this version of the judge made the bundle."""
        return self.made_by == JUDGE_VERSION


def verify(path: str) -> Verification:
    """Judge the case in a bundle again. Raises EvidenceError where the file cannot be read as a
    bundle.
    """
    files = _members(path)
    manifest = _json(files, MANIFEST, path)
    made_by = printable(manifest.get("engine_version"))
    differences = _digest_differences(files, manifest)
    if differences:
        return Verification(made_by=made_by, differences=differences)
    try:
        today: Sequence[AnyDocument] = _case(files, manifest).documents()
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        MemoryError,
    ) as error:
        if made_by == JUDGE_VERSION:
            judges = ""
        else:
            judges = f"; it was made by judge {made_by}, this is judge {JUDGE_VERSION}"
        raise EvidenceError(
            f"{path}: the manifest does not describe a case ({type(error).__name__}: "
            f"{_short(error)}){judges}"
        ) from None
    recorded: Any = _json(files, VERDICT, path).get("verdicts")
    if made_by == JUDGE_VERSION:
        wrong = tuple(
            islice(compare_documents(recorded, json_value(today), "verdicts"), MAX_DIFFERENCES)
        )
    else:
        wrong = tuple(_not_of_another_judge(recorded, today, made_by))
    stated, job = _sign_offs(files, path), _job(files, path)
    wrong += tuple(strangers(stated, recorded))
    both = () if wrong else zip(recorded, today, strict=True)
    rejudged = tuple(
        Rejudged(
            candidate=new["candidate"]["name"],
            recorded=old["verdict"],
            today=new["verdict"],
            codes=tuple(new["codes"]),
        )
        for old, new in both
    )
    sentences = () if wrong else tuple(sign_off_words(sign_off) for sign_off in stated)
    return Verification(
        made_by=made_by,
        differences=wrong,
        rejudged=rejudged,
        sign_offs=sentences,
        job=None if wrong else job,
    )


def case_of(path: str) -> Case | EvaluationCase:
    """The case in a bundle, without a check of its digests. Raises EvidenceError where the file
    cannot be read as a bundle.
    """
    files = _members(path)
    return _case(files, _json(files, MANIFEST, path))


@frozen(eq=False)
class Bundle:
    """The content of a bundle, without a check of its digests: the case, the verdicts as recorded,
    the sign-offs, None where it has no such file, and the job that it was made of, if any.
    """

    case: Case | EvaluationCase
    made_by: str
    documents: Sequence[AnyDocument]
    sign_offs: Sequence[Mapping[str, Any]] | None
    job: BundleJob | None


def read_bundle(path: str) -> Bundle:
    """The content of a bundle that `verify` has found whole. Raises EvidenceError where the file
    cannot be read as a bundle.
    """
    files = _members(path)
    manifest = _json(files, MANIFEST, path)
    return Bundle(
        case=_case(files, manifest),
        made_by=printable(manifest.get("engine_version")),
        documents=_json(files, VERDICT, path)["verdicts"],
        sign_offs=_sign_offs(files, path) if SIGN_OFFS in files else None,
        job=_job(files, path),
    )


def case_in(bundle: bytes) -> Case | EvaluationCase:
    """The case in the bytes of a bundle, without a check of its digests. Raises ValueError,
    LookupError or TypeError for a manifest that describes none.
    """
    files = members_of(io.BytesIO(bundle))
    return _case(files, _json(files, MANIFEST, "the bundle"))


def _not_of_another_judge(
    recorded: object, today: Sequence[AnyDocument], made_by: str
) -> Iterator[str]:
    """Why these cannot be another judge's verdicts on the case: another candidate, no verdict, or
    another judge than the manifest names.
    """
    if not isinstance(recorded, list) or len(recorded) != len(today):
        yield f"verdicts: expected a list of {len(today)}, one for each candidate of the manifest"
        return
    for index, (document, expected) in enumerate(zip(recorded, today, strict=True)):
        stated = document if isinstance(document, dict) else {}
        candidate = stated.get("candidate")
        facts = (
            (
                "candidate.name",
                candidate.get("name") if isinstance(candidate, dict) else None,
                (expected["candidate"]["name"],),
            ),
            ("verdict", stated.get("verdict"), WORST_FIRST),
            ("engine_version", stated.get("engine_version"), (made_by,)),
        )
        for key, value, accepted in facts:
            if value not in accepted:
                choices = " or ".join(ascii(choice) for choice in accepted)
                yield f"verdicts[{index}].{key}: {shown(value)} in the bundle, expected {choices}"


def _job(files: Mapping[str, bytes], path: str) -> BundleJob | None:
    """The job that a bundle was made of, None where it has no such file. EvidenceError for anything
    else in it.
    """
    if JOB not in files:
        return None
    document = _json(files, JOB, path)
    with _made_by_server(path):
        return read_job(document)


def _sign_offs(files: Mapping[str, bytes], path: str) -> list[dict[str, Any]]:
    """The sign-offs in a bundle; none where it has no such file. EvidenceError for anything else in
    it.
    """
    if SIGN_OFFS not in files:
        return []
    document = _json(files, SIGN_OFFS, path)
    with _made_by_server(path):
        return read_sign_offs(document)


@contextmanager
def _made_by_server(path: str) -> Iterator[None]:
    """What a server adds to a bundle, read; a ValueError of it names the file."""
    try:
        yield
    except ValueError as error:
        raise EvidenceError(f"{path}: {error}; expected a bundle made by a parity server") from None


def _short(error: Exception) -> str:
    """What an error says, as printable ASCII of some 300 characters: its values are those of the
    bundle.
    """
    words = ascii(str(error))[1:-1]
    if len(words) <= _MAX_WORDS:
        return words
    return f"{words[:_MAX_WORDS]}..."


def compare_documents(stored: object, computed: object, where: str) -> Iterator[str]:
    """Lines that name every difference between two JSON values; floats agree to 1e-9 relative, all
    else exactly.
    """
    if isinstance(stored, dict) and isinstance(computed, dict):
        for key in sorted({*stored, *computed}):
            if key not in stored or key not in computed:
                yield (
                    f"{where}.{printable(key[:80])}: only in the "
                    f"{'bundle' if key in stored else 'recomputation'}"
                )
            else:
                yield from compare_documents(stored[key], computed[key], f"{where}.{key}")
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (left, right) in enumerate(zip(stored, computed, strict=True)):
            yield from compare_documents(left, right, f"{where}[{index}]")
    elif (
        isinstance(stored, _NUMBER)
        and isinstance(computed, _NUMBER)
        and float in (type(stored), type(computed))
    ):
        if not math.isclose(stored, computed, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12):
            yield f"{where}: {shown(stored)} in the bundle, {shown(computed)} recomputed"
    elif stored != computed or type(stored) is not type(computed):
        yield f"{where}: {shown(stored)} in the bundle, {shown(computed)} recomputed"


def _store_run(run: Curve, prefix: str, files: dict[str, bytes]) -> dict[str, Any]:
    arrays = {
        "steps": run.steps,
        "loss": run.loss,
        **{f"columns/{name}": value for name, value in run.columns.items()},
    }
    names = {}
    for index, (name, array) in enumerate(arrays.items()):
        names[name] = f"{prefix}-{index:02}.npy"
        files[names[name]] = pack_array(array)
    return {
        "label": run.label,
        "seed": run.seed,
        "replicate": run.replicate,
        "recipe": run.recipe,
        "rounding": run.rounding,
        "context": run.context,
        "notes": run.notes,
        **({} if run.seed_stated or run.seed else {"seed_stated": False}),
        "duplicates": run.completeness.duplicates,
        **({"rolled_back": run.completeness.rolled_back} if run.completeness.rolled_back else {}),
        "arrays": names,
    }


def _case(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Case | EvaluationCase:
    arms = ManifestArms(
        manifest["arms"], files, same_judge=manifest.get("engine_version") == JUDGE_VERSION
    )
    if manifest.get("kind") == KIND:
        return evaluation_case(manifest, arms)
    return Case(
        baseline=arms.baseline,
        candidates=arms.candidates,
        controls=arms.controls,
        shorter=arms.shorter,
        short_reruns=arms.short_reruns,
        baseline_name=arms.baseline_name,
        policy=policy_of(manifest),
        planned_steps=optional(manifest["planned_steps"], int, "planned_steps"),
        assume_complete=typed(manifest["assume_complete"], bool, "assume_complete"),
        layer_policy=optional(manifest["layer_policy"], str, "layer_policy"),
        layer_snr_db=layer_snrs(manifest.get("layer_snr_db", {})),
        evaluations=task_results(parse_json(files.get(EVALUATIONS, b"{}"))),
        noise_table=read_noise_table(table.decode())
        if (table := files.get(NOISE_TABLE, files.get(_EARLIER_TABLE))) is not None
        else None,
        families=families_of(manifest.get("families", {})),
        multiplicity=multiplicity_of(manifest.get("multiplicity")),
        compares=compares_of(manifest.get("compares", {})),
        against=against_of(manifest.get("against", {})),
    )


def _digest_differences(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> tuple[str, ...]:
    expected = manifest.get("sha256")
    if not isinstance(expected, dict):
        return (f"{MANIFEST}: no sha256 of the files",)
    actual = _sha256_by_name({name: data for name, data in files.items() if name != MANIFEST})
    lines = [
        f"{printable(name[:80])}: missing in the bundle"
        for name in sorted(expected.keys() - actual.keys())
    ]
    lines += [f"{name}: not in the manifest" for name in sorted(actual.keys() - expected.keys())]
    lines += [
        f"{name}: sha256 differs from the manifest's"
        for name in sorted(actual)
        if name in expected and actual[name] != expected[name]
    ]
    return tuple(lines[:MAX_DIFFERENCES])


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return buffer.getvalue()


def _members(path: str) -> dict[str, bytes]:
    try:
        return read_members(path)
    except ArchiveError as error:
        raise EvidenceError(
            f"{path}: {error}; use a bundle made by parity compare --bundle"
        ) from None
    except UNREADABLE as error:
        raise EvidenceError(
            f"{path}: no bundle ({error}); expected a zip made by parity compare --bundle"
        ) from None


def _json(files: Mapping[str, bytes], name: str, path: str) -> dict[str, Any]:
    try:
        value = parse_json(files[name])
    except KeyError:
        raise EvidenceError(
            f"{path}: no {name} in it; expected a bundle made by parity compare --bundle"
        ) from None
    except JsonError as error:
        raise EvidenceError(
            f"{path}: {name} is not readable: {error}; use a bundle made by parity compare --bundle"
        ) from None
    if not isinstance(value, dict):
        raise EvidenceError(
            f"{path}: {name} is not an object; expected a bundle made by parity compare --bundle"
        )
    return value

"""The evidence bundle, written: series, evaluations, groups of reruns that noise is borrowed from,
policy, manifest and verdict in a zip, from which another person recomputes it offline.

manifest.json names every file with its sha256; series are .npy arrays (no pickles); times in the
zip are fixed, so equal cases give equal bytes.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from parity.canonical_json import canonical_json
from parity.judging.bundles.columns import pack_array
from parity.judging.bundles.evaluation_manifest import manifest_of
from parity.judging.bundles.server_record import JOB, SIGN_OFFS, BundleJob
from parity.judging.case import AnyCase, AnyDocument, Case
from parity.judging.curves.curve import Curve
from parity.judging.document_types import STATED_LATER
from parity.judging.verdict.sign_offs import without_shown
from parity.version import JUDGE_VERSION

BUNDLE_SCHEMA = "parity.bundle/1"
MANIFEST, VERDICT, EVALUATIONS, NOISE_TABLE = (
    "manifest.json",
    "verdict.json",
    "evaluations.json",
    "noise_table.csv",
)
_EPOCH = (1980, 1, 1, 0, 0, 0)


def bundle_bytes(
    case: AnyCase,
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
        "sha256": sha256_by_name(files),
    }
    files[MANIFEST] = canonical_json(manifest).encode()
    return _zipped(files)


def evidence_sha256(case: AnyCase) -> str:
    """SHA-256 (hex) of what a case is judged by: its curves, its policy and what was stated, and
    neither verdict nor judge.

    The same for a bundle, the job that it came from, and the files that it was made of. Labels of
    runs and what their readers noted are not part of it: they change with the name of a file.
    """
    files, described = _described(case)
    digests = sha256_by_name(files)
    for arm in described["arms"]:
        for run in arm["runs"]:
            del run["label"]
            run["notes"] = [note for note in run["notes"] if note.startswith(STATED_LATER)]
            # by the names of their columns: the numbers of files follow the order of these
            run["arrays"] = {name: digests.pop(file) for name, file in run["arrays"].items()}
    named = canonical_json({**described, "sha256": digests})
    return hashlib.sha256(named.encode()).hexdigest()


def _described(case: AnyCase) -> tuple[dict[str, bytes], dict[str, Any]]:
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


def sha256_by_name(files: Mapping[str, bytes]) -> dict[str, str]:
    """The SHA-256 (hex) of each file."""
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


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return buffer.getvalue()

"""The evidence bundle, read: its files, the case in them, the verdicts and what a server added."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from parity.frozen import frozen
from parity.judging.bundles.evaluation_manifest import KIND, evaluation_case
from parity.judging.bundles.manifest import (
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
)
from parity.judging.bundles.strict_json import JsonError, parse_json
from parity.judging.bundles.write_bundle import EVALUATIONS, MANIFEST, NOISE_TABLE, VERDICT
from parity.judging.bundles.zip_members import (
    UNREADABLE,
    ArchiveError,
    members_of,
    read_members,
)
from parity.judging.case import AnyCase, AnyDocument, Case
from parity.judging.noise.noise_table import read_noise_table
from parity.typed_json import optional, typed
from parity.version import JUDGE_VERSION

_EARLIER_TABLE = "floors.csv"  # of judges before 0.6.0


class EvidenceError(ValueError):
    """A bundle that can't be read at all; the message names the file and what was expected."""


def case_of(path: str) -> AnyCase:
    """The case in a bundle, without a check of its digests. Raises EvidenceError where the file
    cannot be read as a bundle.
    """
    files = bundle_files(path)
    return case_of_files(files, json_file(files, MANIFEST, path))


@frozen(eq=False)
class Bundle:
    """The content of a bundle, without a check of its digests: the case, the verdicts as recorded,
    the sign-offs, None where it has no such file, and the job that it was made of, if any.
    """

    case: AnyCase
    made_by: str
    documents: Sequence[AnyDocument]
    sign_offs: Sequence[Mapping[str, Any]] | None
    job: BundleJob | None


def read_bundle(path: str) -> Bundle:
    """The content of a bundle that `verify` has found whole. Raises EvidenceError where the file
    cannot be read as a bundle.
    """
    files = bundle_files(path)
    manifest = json_file(files, MANIFEST, path)
    return Bundle(
        case=case_of_files(files, manifest),
        made_by=printable(manifest.get("engine_version")),
        documents=json_file(files, VERDICT, path)["verdicts"],
        sign_offs=sign_offs_of(files, path) if SIGN_OFFS in files else None,
        job=job_of(files, path),
    )


def case_in(bundle: bytes) -> AnyCase:
    """The case in the bytes of a bundle, without a check of its digests. Raises ValueError,
    LookupError or TypeError for a manifest that describes none.
    """
    files = members_of(io.BytesIO(bundle))
    return case_of_files(files, json_file(files, MANIFEST, "the bundle"))


def job_of(files: Mapping[str, bytes], path: str) -> BundleJob | None:
    """The job that a bundle was made of, None where it has no such file. EvidenceError for anything
    else in it.
    """
    if JOB not in files:
        return None
    document = json_file(files, JOB, path)
    with _made_by_server(path):
        return read_job(document)


def sign_offs_of(files: Mapping[str, bytes], path: str) -> list[dict[str, Any]]:
    """The sign-offs in a bundle; none where it has no such file. EvidenceError for anything else in
    it.
    """
    if SIGN_OFFS not in files:
        return []
    document = json_file(files, SIGN_OFFS, path)
    with _made_by_server(path):
        return read_sign_offs(document)


@contextmanager
def _made_by_server(path: str) -> Iterator[None]:
    """What a server adds to a bundle, read; a ValueError of it names the file."""
    try:
        yield
    except ValueError as error:
        raise EvidenceError(f"{path}: {error}; expected a bundle made by a parity server") from None


def case_of_files(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> AnyCase:
    """The case that files and their manifest describe. Raises KeyError, ValueError or TypeError for
    a manifest that describes none.
    """
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


def bundle_files(path: str) -> dict[str, bytes]:
    """The files of a bundle by name, within the limits of `zip_members`."""
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


def json_file(files: Mapping[str, bytes], name: str, path: str) -> dict[str, Any]:
    """The object in a JSON file of a bundle."""
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

"""A bundle verified: its digests checked, its case judged again, both compared.

Words and counts have to agree exactly, numbers to 1e-9 relative. A bundle of another version of the
judge is judged again and shown next to what it records, but never called identical. What `verify`
cannot see is a bundle in which series, digests and verdict were all replaced consistently: keep the
bundle's own sha256 where you trust it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from parity.canonical_json import json_value
from parity.frozen import frozen
from parity.judging.bundles.compare_documents import compare_documents
from parity.judging.bundles.read_bundle import (
    EvidenceError,
    bundle_files,
    case_of_files,
    job_of,
    json_file,
    sign_offs_of,
)
from parity.judging.bundles.server_record import (
    BundleJob,
    printable,
    sign_off_words,
    sign_offs_of_no_verdict,
)
from parity.judging.bundles.write_bundle import MANIFEST, VERDICT, sha256_by_name
from parity.judging.case import AnyDocument
from parity.judging.decision import WORST_FIRST, State
from parity.typed_json import shown
from parity.version import JUDGE_VERSION

_MAX_WORDS = 300
MAX_DIFFERENCES = 1000  # lines; a document that differs in more is another document


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
    files = bundle_files(path)
    manifest = json_file(files, MANIFEST, path)
    made_by = printable(manifest.get("engine_version"))
    differences = _digest_differences(files, manifest)
    if differences:
        return Verification(made_by=made_by, differences=differences)
    try:
        today: Sequence[AnyDocument] = case_of_files(files, manifest).documents()
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
    recorded: Any = json_file(files, VERDICT, path).get("verdicts")
    if made_by == JUDGE_VERSION:
        wrong = tuple(
            islice(compare_documents(recorded, json_value(today), "verdicts"), MAX_DIFFERENCES)
        )
    else:
        wrong = tuple(_not_of_another_judge(recorded, today, made_by))
    stated, job = sign_offs_of(files, path), job_of(files, path)
    wrong += tuple(sign_offs_of_no_verdict(stated, recorded))
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


def _short(error: Exception) -> str:
    """What an error says, as printable ASCII of some 300 characters: its values are those of the
    bundle.
    """
    words = ascii(str(error))[1:-1]
    if len(words) <= _MAX_WORDS:
        return words
    return f"{words[:_MAX_WORDS]}..."


def _digest_differences(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> tuple[str, ...]:
    expected = manifest.get("sha256")
    if not isinstance(expected, dict):
        return (f"{MANIFEST}: no sha256 of the files",)
    actual = sha256_by_name({name: data for name, data in files.items() if name != MANIFEST})
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

"""What a server says in a bundle belongs to its verdicts, or the bundle is refused."""

from dataclasses import replace

import pytest

from parity.judging.bundles.read_bundle import EvidenceError, read_bundle
from parity.judging.bundles.server_record import BundleJob, job_words, read_job
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.verdict.sign_offs import sha256_of
from tests.parity.cards.cases import case

JOB = BundleJob(id="j0123456789ab-0000000002")
FAILED = replace(JOB, failed_by="j0123456789ab-0000000001")


@pytest.fixture(scope="module")
def made():
    return case({"mxfp8": 0.0, "nvfp4": 0.1})


@pytest.fixture(scope="module")
def documents(made):
    return made.documents()


def test_a_bundle_shows_the_sign_offs_of_its_own_verdicts_only(made, documents, tmp_path):
    signed = {
        "candidate": "nvfp4",
        "who": "ann",
        "state": "valid",
        "expires_at": "2026-12-07",
        "reason": "reruns\x1b[31m are queued",
    }
    path = tmp_path / "signed.zip"
    path.write_bytes(
        bundle_bytes(made, documents, [signed | {"verdict_sha256": sha256_of(documents[1])}])
    )
    verification = verify(str(path))
    assert verification.differences == ()
    (sentence,) = verification.sign_offs
    assert "sign-off of nvfp4 by ann, valid when the bundle was made, until 2026-12-07:" in sentence
    assert "\x1b" not in sentence
    for change in (
        {"verdict_sha256": sha256_of(documents[0])},
        {"verdict_sha256": "0" * 64},
        {"verdict_sha256": None},
    ):
        path.write_bytes(bundle_bytes(made, documents, [signed | change]))
        (line,) = verify(str(path)).differences
        assert line.startswith("sign_offs[0]: of no verdict on 'nvfp4'")
        assert verify(str(path)).sign_offs == ()
    for wrong in ({"candidate": "nvfp4"}, "text"):
        path.write_bytes(bundle_bytes(made, documents, [wrong]))  # type: ignore[list-item]
        with pytest.raises(EvidenceError, match=r"sign_offs\.json"):
            verify(str(path))


@pytest.mark.parametrize("job", [JOB, FAILED])
def test_a_bundle_records_its_job_and_the_fail_that_stood_against_it(
    job, made, documents, tmp_path
):
    path = tmp_path / "job.zip"
    path.write_bytes(bundle_bytes(made, documents, job=job))
    assert (verify(str(path)).differences, verify(str(path)).job) == ((), job)
    assert read_bundle(str(path)).job == job
    assert ("did not count" in job_words(job)) == (job.failed_by is not None)
    path.write_bytes(bundle_bytes(made, documents))
    assert (verify(str(path)).job, read_bundle(str(path)).job) == (None, None)


@pytest.mark.parametrize(
    "record",
    [
        {"id": JOB.id},
        {"id": JOB.id, "failed_by": None, "verdict": "pass"},
        {"id": None, "failed_by": None},
        {"id": "j1", "failed_by": None},
        {"id": JOB.id, "failed_by": f"{FAILED.failed_by}. It was a flaky node"},
        {"id": JOB.id, "failed_by": ["j0123456789ab-0000000001"]},
        {"id": JOB.id, "failed_by": ""},
    ],
)
def test_a_record_that_no_server_writes_is_refused(record):
    with pytest.raises(ValueError, match=r"job\.json"):
        read_job(record)


def test_a_bundle_with_the_record_of_no_job_is_refused(made, documents, tmp_path):
    path = tmp_path / "job.zip"
    path.write_bytes(bundle_bytes(made, documents, job=BundleJob(id="j1")))
    for read in (verify, read_bundle):
        with pytest.raises(EvidenceError, match=r"job\.json"):
            read(str(path))

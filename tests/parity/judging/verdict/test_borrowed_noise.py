"""Verdicts with a borrowed run-to-run noise: the word in the headline, the codes, the policy, the
bundle.
"""

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judging.bundles.read_bundle import EvidenceError
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import Curve
from parity.judging.noise.noise_table import NoiseTable, RerunGroup, read_noise_table
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.report.strip import noise_basis
from parity.report.view import view_of
from parity.report.words import words

MakeRun = Callable[..., Curve]
FAMILY = "f"
POLICY = policy_from_mapping({"schedule": "decayed", "margin": "1%"})
REJECT = policy_from_mapping({"schedule": "decayed", "margin": "1%", "assumed_noise": "reject"})
QUIET = [
    (f"g{number}", 10, 0.0008 * factor)
    for number, factor in enumerate((0.8, 0.9, 1.0, 1.01, 1.1, 1.2))
]


@pytest.fixture
def noise_table() -> NoiseTable:
    return table(QUIET)


def table(
    rows: list[tuple[str, int, float]], rounding: str = "nearest", level: float = 2.7
) -> NoiseTable:
    lines = [
        f"{FAMILY},{group},{runs},{level},{sd},nats,{rounding},seed,here,MIT"
        for group, runs, sd in rows
    ]
    return read_noise_table(
        "\n".join(["family,group,runs,mean_loss,sd,unit,rounding,varies,source,licence", *lines])
    )


def verdict_of(
    base: list[Curve],
    cand: list[Curve],
    noise_table: NoiseTable | None,
    families: dict[str, str] | None = None,
    policy: Policy = POLICY,
) -> Verdict:
    named = {"base": FAMILY, "cand": FAMILY} if families is None else families
    return judge(
        base,
        {"cand": cand},
        policy,
        planned_steps=2000,
        baseline_name="base",
        noise_table=noise_table,
        families=named,
    )[0]


def arm(
    make_run: MakeRun, seed: int, count: int = 1, spread: float = 0.0, recipe: str = "fp8"
) -> list[Curve]:
    """Runs of one arm, whose window means differ by `spread` (sd, nats)."""
    offsets = spread * np.random.default_rng(seed).normal(size=count)
    return [
        make_run(seed=seed + number, gap=float(offset), recipe=recipe)
        for number, offset in enumerate(offsets)
    ]


def test_one_pair_with_a_family_rests_on_borrowed_noise(
    make_run: MakeRun, noise_table: NoiseTable
) -> None:
    pair = arm(make_run, 10), arm(make_run, 20)
    with_family, without = verdict_of(*pair, noise_table), verdict_of(*pair, None, {})
    document = with_family.document()
    assert "RUN_NOISE_BORROWED" in with_family.codes
    assert "RUN_NOISE_ASSUMED" not in with_family.codes
    assert noise_basis(view_of(document)) == "borrowed"
    assert words(view_of(document)).strip[3].value == "Borrowed"
    assert document["tau"]["candidate"]["source"] == "borrowed"
    assert document["tau"]["candidate"]["borrowed"]["groups"] == 6
    assert with_family.gap.half_width(0.95) < without.gap.half_width(0.95)


def test_without_a_family_nothing_changes(make_run: MakeRun, noise_table: NoiseTable) -> None:
    pair = arm(make_run, 10), arm(make_run, 20)
    assert verdict_of(*pair, noise_table, {}).document() == verdict_of(*pair, None, {}).document()
    assert noise_basis(view_of(verdict_of(*pair, None, {}).document())) == "assumed"


def test_the_weakest_arm_gives_the_word(make_run: MakeRun, noise_table: NoiseTable) -> None:
    pair = arm(make_run, 10), arm(make_run, 20)
    assert (
        noise_basis(view_of(verdict_of(*pair, noise_table, {"base": FAMILY}).document()))
        == "assumed"
    )
    many = arm(make_run, 10, 4, 0.0008), arm(make_run, 20, 4, 0.0008)
    assert noise_basis(view_of(verdict_of(*many, noise_table).document())) == "measured"
    half = arm(make_run, 10, 5, 0.0008), arm(make_run, 20)
    assert noise_basis(view_of(verdict_of(*half, noise_table).document())) == "borrowed"


def test_borrowed_noise_counts_as_data_where_assumed_noise_is_rejected(
    make_run: MakeRun, noise_table: NoiseTable
) -> None:
    pair = arm(make_run, 10), arm(make_run, 20)
    assert verdict_of(*pair, noise_table, policy=REJECT).verdict == "pass"
    assert verdict_of(*pair, None, {}, policy=REJECT).codes[0] == "RUN_NOISE_ASSUMED"
    one_sided = verdict_of(*pair, noise_table, {"cand": FAMILY}, policy=REJECT)
    assert (one_sided.verdict, one_sided.codes[0]) == ("inconclusive", "RUN_NOISE_ASSUMED")


def test_a_family_that_the_runs_contradict_is_named_and_the_interval_widens(
    make_run: MakeRun, noise_table: NoiseTable
) -> None:
    noisy = arm(make_run, 10, 5, 0.008), arm(make_run, 20, 5, 0.008)
    verdict = verdict_of(*noisy, noise_table)
    assert "RUN_NOISE_CONTRADICTED" in verdict.codes
    borrowed = verdict.document()["tau"]["baseline"]["borrowed"]
    assert borrowed["weight"] < 0.05
    assert borrowed["own_over_family"] > 3
    assert verdict.gap.half_width(0.95) > 0.9 * verdict_of(*noisy, None, {}).gap.half_width(0.95)
    agreed = arm(make_run, 10, 5, 0.0008), arm(make_run, 20, 5, 0.0008)
    assert "RUN_NOISE_CONTRADICTED" not in verdict_of(*agreed, noise_table).codes


def test_reruns_of_one_arm_warn_about_the_family_of_the_other_arm(
    make_run: MakeRun, noise_table: NoiseTable
) -> None:
    verdict = verdict_of(arm(make_run, 10, 5, 0.01), arm(make_run, 20), noise_table, policy=REJECT)
    assert "RUN_NOISE_CONTRADICTED" in verdict.codes
    assert verdict.codes[0] == "RUN_NOISE_ASSUMED"  # what is left of the family is not data


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: table(QUIET, "stochastic"), "nearest rounding"),
        (lambda: table([("g", 20, 0.001)]), "1 usable group;"),
        (lambda: table([*QUIET, ("bad", 5, -1.0)]), "'-1.0'"),
        (lambda: table([("a", 9, 0.0), ("b", 9, 0.0)]), "bit for bit"),
        (lambda: table(QUIET, level=3.2), "3.200 nats"),
    ],
)
def test_a_family_that_is_not_usable_is_named_and_the_verdict_goes_on(
    make_run: MakeRun, make: Callable[[], NoiseTable], word: str
) -> None:
    pair = arm(make_run, 10), arm(make_run, 20)
    verdict, without = verdict_of(*pair, make()), verdict_of(*pair, None, {})
    (sentence,) = [
        reason["sentence"]
        for reason in verdict.document()["reasons"]
        if reason["code"] == "FAMILY_UNUSED"
    ]
    assert word in sentence
    assert (verdict.verdict, verdict.gap, verdict.margin) == (
        without.verdict,
        without.gap,
        without.margin,
    )
    assert [code for code in verdict.codes if code != "FAMILY_UNUSED"] == list(without.codes)


def test_only_groups_of_the_arms_own_rounding_count(
    make_run: MakeRun, noise_table: NoiseTable
) -> None:
    verdict = verdict_of(arm(make_run, 10), arm(make_run, 20, recipe="nvfp4"), noise_table)
    assert "FAMILY_UNUSED" in verdict.codes
    assert noise_basis(view_of(verdict.document())) == "assumed"
    stated = [
        dataclasses.replace(run, rounding="nearest", recipe=None) for run in arm(make_run, 20)
    ]
    assert "FAMILY_UNUSED" not in verdict_of(arm(make_run, 10), stated, noise_table).codes
    unstated = [dataclasses.replace(run, recipe=None) for run in arm(make_run, 20)]
    assert "FAMILY_UNUSED" in verdict_of(arm(make_run, 10), unstated, noise_table).codes


def test_noise_that_the_policy_declares_counts_more(
    make_run: MakeRun, noise_table: NoiseTable
) -> None:
    declared = policy_from_mapping(
        {"schedule": "decayed", "margin": "1%", "candidate_run_noise": "0.2%"}
    )
    verdict = verdict_of(arm(make_run, 10), arm(make_run, 20), noise_table, policy=declared)
    assert "FAMILY_UNUSED" in verdict.codes
    assert verdict.document()["tau"]["candidate"]["prior_basis"].startswith(
        "declared by the policy"
    )


def test_several_seeds_borrow_too(make_run: MakeRun, noise_table: NoiseTable) -> None:
    arms = [
        [make_run(seed=seed + 7 * number, recipe="fp8") for number in range(2)] for seed in (10, 30)
    ]
    seeded = [
        [dataclasses.replace(run, seed=number) for number, run in enumerate(runs)] for runs in arms
    ]
    verdict = verdict_of(seeded[0], seeded[1], noise_table)
    assert noise_basis(view_of(verdict.document())) == "borrowed"
    assert verdict.document()["se_parts"]["seeds"] == 2


@pytest.mark.parametrize(
    ("families", "word"), [({"other": FAMILY}, "'other'"), ({"cand": FAMILY}, "noise table")]
)
def test_wrong_calls_are_refused(
    make_run: MakeRun, noise_table: NoiseTable, families: dict[str, str], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        verdict_of(
            arm(make_run, 10),
            arm(make_run, 20),
            noise_table if word == "'other'" else None,
            families,
        )


@pytest.fixture
def bundle(make_run: MakeRun, noise_table: NoiseTable, tmp_path: Path) -> Path:
    other = RerunGroup(
        family="other",
        group="x",
        runs=9,
        mean_loss=2.0,
        sd=0.1,
        rounding="nearest",
        varies="",
        source="",
        licence="",
    )
    row = {
        "family": other.family,
        "group": other.group,
        "runs": "9",
        "mean_loss": "2.0",
        "sd": "0.1",
        "unit": "nats",
    }
    rows = (*noise_table.rows, {**dict.fromkeys(noise_table.rows[0], ""), **row})
    case = Case(
        baseline=arm(make_run, 10),
        candidates={"cand": arm(make_run, 20)},
        policy=POLICY,
        planned_steps=2000,
        baseline_name="base",
        noise_table=NoiseTable(rows),
        families={"base": FAMILY, "cand": FAMILY},
    )
    path = tmp_path / "out.zip"
    path.write_bytes(bundle_bytes(case, case.documents()))
    return path


def forged(path: Path, change: Callable[[dict[str, bytes]], object], *, with_digest: bool) -> str:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    if with_digest:
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"] = {
            name: hashlib.sha256(data).hexdigest()
            for name, data in files.items()
            if name != "manifest.json"
        }
        files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return str(path)


def smaller(files: dict[str, bytes]) -> None:
    files["noise_table.csv"] = files["noise_table.csv"].replace(b"0.00096", b"0.00009")


def test_the_bundle_has_the_named_groups_alone_and_verifies(bundle: Path) -> None:
    assert verify(str(bundle)).differences == ()
    with zipfile.ZipFile(bundle) as archive:
        borrowed = read_noise_table(archive.read("noise_table.csv").decode())
    assert list(borrowed.families) == [FAMILY]


def test_a_forged_group_changes_the_digest_and_with_it_the_recomputation(bundle: Path) -> None:
    (line,) = verify(forged(bundle, smaller, with_digest=False)).differences
    assert line.startswith("noise_table.csv: sha256")
    differences = verify(forged(bundle, dict.copy, with_digest=True)).differences
    assert any("tau" in line for line in differences)


@pytest.mark.parametrize("data", [b"", b"family\n", b"\xff"])
def test_a_broken_table_in_a_bundle_is_one_error(bundle: Path, data: bytes) -> None:
    path = forged(bundle, lambda files: files.update({"noise_table.csv": data}), with_digest=True)
    with pytest.raises(EvidenceError, match="does not describe a case"):
        verify(path)


def test_a_manifest_that_names_a_family_without_its_table_is_refused(bundle: Path) -> None:
    path = forged(bundle, lambda files: files.pop("noise_table.csv"), with_digest=True)
    with pytest.raises(EvidenceError, match="noise table"):
        verify(path)

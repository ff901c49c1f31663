"""`parity card` and `parity verify CARD` on files and bundles: what they print, write and exit
with.
"""

import hashlib
import io
import json
import os
import shlex
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.version import JUDGE_VERSION

Run = Callable[..., tuple[int, str, str]]
OPTIONS = ("--recipe", "fp8=fp8", "--planned-steps", "1500", "--schedule", "decayed")
STATED = {
    "pass": ("mxfp8", 0),
    "fail": ("nvfp4", 1),
    "inconclusive": ("edge", 3),
}


@pytest.fixture
def bundle(tmp_path: Path, files: dict[str, str], run: Run) -> Callable[..., str]:
    def made(*candidates: str) -> str:
        path = str(tmp_path / f"{'-'.join(candidates)}.zip")
        runs = [files[name] for name in ("fp8", *candidates)]
        run("compare", *runs, *OPTIONS, "--bundle", path)
        return path

    return made


@pytest.mark.parametrize("state", STATED)
def test_a_card_of_files_is_verified_by_their_bundle_and_by_the_files(
    state: str, tmp_path: Path, files: dict[str, str], bundle: Callable[..., str], run: Run
) -> None:
    name, exit_code = STATED[state]
    card, runs = str(tmp_path / "card.yaml"), (files["fp8"], files[name])
    code, out, _ = run("card", *runs, *OPTIONS, "--to", card, "--by", "jane")
    assert (code, out.split(":")[0]) == (exit_code, state.upper())
    for written in (card, str(tmp_path / "card.md")):
        for evidence in ((bundle(name),), (*runs, *OPTIONS)):
            code, out, _ = run("verify", written, *evidence)
            assert (code, out.startswith("verified: ")) == (0, True)
            assert out.splitlines()[-1].startswith(f"{state.upper()}: ")
            assert "not verified: statements.planned_steps.by: " in out


def test_a_card_of_a_bundle_is_that_of_its_files_and_has_each_candidate(
    tmp_path: Path, files: dict[str, str], bundle: Callable[..., str], run: Run
) -> None:
    names = ("mxfp8", "nvfp4", "edge")
    code, of_bundle, _ = run("card", bundle(*names))
    of_files = run("card", *(files[name] for name in ("fp8", *names)), *OPTIONS)
    assert of_files == (code, of_bundle, "")
    assert code == 1
    document = json.loads(run("card", bundle(*names), "--json")[1])
    assert [one["arm"]["name"] for one in document["candidates"]] == [*names]


def test_a_card_differs_from_another_bundle_and_from_other_options(
    tmp_path: Path, files: dict[str, str], bundle: Callable[..., str], run: Run
) -> None:
    card = str(tmp_path / "card.yaml")
    run("card", bundle("mxfp8"), "--to", card)
    code, out, _ = run("verify", card, bundle("nvfp4"))
    assert (code, out.startswith("differs: ")) == (1, True)
    assert "  evidence_sha256: " in out
    code, out, _ = run(
        "verify", card, files["fp8"], files["mxfp8"], *OPTIONS, "--margin", "5%", "--json"
    )
    assert code == 1
    named = {line.partition(": ")[0] for line in json.loads(out)["differences"]}
    assert {"policy.margin", "evidence_sha256", "candidates.mxfp8.margin.nats"} <= named


@pytest.mark.parametrize(
    "options",
    [
        ("--margin", "50%"),
        ("--recipe", "mxfp8=bf16"),
        ("--planned-steps", "9"),
        ("--full-run-hours", "9"),
        ("--at", "1400"),
        ("--devices", "8"),
        ("--look", "2", "--looks", "2"),
    ],
)
@pytest.mark.parametrize(
    "command", ["card BUNDLE", "verify CARD BUNDLE", "verify BUNDLE", "verify CARD"]
)
def test_an_option_that_a_bundle_does_not_use_is_refused(
    command: str,
    options: tuple[str, ...],
    tmp_path: Path,
    bundle: Callable[..., str],
    run: Run,
) -> None:
    card, evidence = str(tmp_path / "card.yaml"), bundle("mxfp8")
    run("card", evidence, "--to", card)
    words = command.replace("CARD", card).replace("BUNDLE", evidence).split()
    code, out, err = run(*words, *options)
    assert (code, out) == (2, "")
    assert any(f"{option} is not used with" in err for option in options)


def test_an_option_beside_the_id_of_a_job_is_refused_before_the_server_is_asked(run: Run) -> None:
    code, _, err = run(
        "card", "j0000000000001-0000000001", "--margin", "50%", "--server", "http://nowhere.invalid"
    )
    assert (code, "--margin is not used with a job" in err) == (2, True)


def test_a_card_without_evidence_is_not_verified(
    tmp_path: Path, bundle: Callable[..., str], run: Run
) -> None:
    card = str(tmp_path / "card.yaml")
    run("card", bundle("mxfp8"), "--to", card)
    code, out, _ = run("verify", card)
    assert (code, out.startswith("not verified: ")) == (3, True)
    assert out.splitlines()[-1].startswith("what the card claims: PASS: ")


def test_the_statements_that_the_files_lack_are_named_as_options_that_verify_the_card(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    card, runs = str(tmp_path / "card.yaml"), (files["fp8"], files["mxfp8"])
    run("card", *runs, *OPTIONS, "--to", card)
    code, out, _ = run("verify", card, *runs)
    assert (code, out.splitlines()[-1].startswith("what the card claims: ")) == (1, True)
    options = out.partition("rests on statements; add ")[2].splitlines()[0]
    assert run("verify", card, *runs, *shlex.split(options))[0] == 0


def test_a_changed_headline_in_the_markdown_alone_is_found(
    tmp_path: Path, bundle: Callable[..., str], run: Run
) -> None:
    evidence = bundle("nvfp4")
    run("card", evidence, "--to", str(tmp_path / "card.yaml"))
    page = tmp_path / "card.md"
    text = page.read_text()
    page.write_text(text.replace("FAIL", "PASS", 1))
    code, out, _ = run("verify", str(page), evidence)
    assert (code, "  Markdown: " in out) == (1, True)
    page.write_text(text.replace("\n", "\r\n"), newline="")
    assert run("verify", str(page), evidence)[0] == 0


def test_a_bundle_that_was_changed_gives_no_card_and_verifies_none(
    tmp_path: Path, bundle: Callable[..., str], run: Run, changed_bundle: Callable[[str], str]
) -> None:
    card, evidence = str(tmp_path / "card.yaml"), bundle("nvfp4")
    run("card", evidence, "--to", card)
    changed = changed_bundle(evidence)
    code, _, err = run("card", changed)
    assert (code, "verdict.json" in err) == (2, True)
    code, out, _ = run("verify", card, changed)
    assert (code, "verdict.json: sha256 differs" in out) == (1, True)


def test_a_card_of_another_judge_is_not_judged_again(
    tmp_path: Path, files: dict[str, str], bundle: Callable[..., str], run: Run
) -> None:
    card = tmp_path / "card.yaml"
    run("card", bundle("mxfp8"), "--to", str(card))
    card.write_text(card.read_text().replace(f"judge: {JUDGE_VERSION}", "judge: 99.0.0"))
    code, out, _ = run("verify", str(card), bundle("mxfp8"))
    assert (code, "judge '99.0.0' made the verdicts" in out) == (6, True)


def test_files_under_other_names_than_the_cards_are_named_first(
    tmp_path: Path, files: dict[str, str], bundle: Callable[..., str], run: Run
) -> None:
    card = str(tmp_path / "card.yaml")
    run("card", bundle("mxfp8"), "--to", card)
    named = [f"{name}={files[name]}" for name in ("fp8", "mxfp8")]
    assert run("verify", card, *named, *OPTIONS)[0] == 0
    copies = [
        str(shutil.copy(files[name], tmp_path / f"{name}_b.csv")) for name in ("fp8", "mxfp8")
    ]
    code, out, _ = run("verify", card, *copies, *OPTIONS[2:], "--json")
    assert code == 1
    (line,) = json.loads(out)["differences"]
    assert "'fp8', 'mxfp8'" in line
    assert "fp8=FILE" in line


def test_a_bundle_of_another_judge_is_judged_again_for_a_card_of_this_one(
    tmp_path: Path, files: dict[str, str], bundle: Callable[..., str], run: Run
) -> None:
    card, older = tmp_path / "card.yaml", tmp_path / "older.zip"
    run("card", bundle("mxfp8"), "--to", str(card))
    older.write_bytes(_bundle_by_judge(bundle("mxfp8"), "0.7.0"))
    assert run("verify", str(older))[0] == 6
    assert run("verify", str(card), str(older))[0] == 0
    card.write_text(card.read_text().replace("verdict: pass", "verdict: fail"))
    assert run("verify", str(card), str(older))[0] == 1
    of_older = tmp_path / "of-older.yaml"
    run("card", str(older), "--to", str(of_older))
    assert "judge: 0.7.0" in of_older.read_text()
    assert run("verify", str(of_older), str(older))[0] == 6


def _bundle_by_judge(path: str, judge: str) -> bytes:
    """A bundle as another judge made it, with its digests."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    named = (f'"engine_version":"{name}"'.encode() for name in (JUDGE_VERSION, judge))
    spaced = (f'"engine_version": "{name}"'.encode() for name in (JUDGE_VERSION, judge))
    for old, new in (tuple(named), tuple(spaced)):
        for name in ("manifest.json", "verdict.json"):
            files[name] = files[name].replace(old, new)
    manifest = json.loads(files["manifest.json"])
    manifest["sha256"]["verdict.json"] = hashlib.sha256(files["verdict.json"]).hexdigest()
    files["manifest.json"] = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("card", "nowhere.zip"), "no such file"),
        (("card", "{bundle}", "--to", "card.md"), "expected a name such as card.yaml"),
        (("card", "{bundle}", "--markdown", "--json"), "exclude each other"),
        (("card", "{bundle}", "--by", ""), "expected a name"),
        (("card", "{bundle}", "--by", "x; recipe of nvfp4 bf16"), "expected a name"),
        (("verify", "{bundle}", "{bundle}"), "expected a bundle alone"),
        (("verify", "nowhere.yaml"), "cannot be read"),
        (("verify", "{empty}"), "is no card"),
    ],
)
def test_a_wrong_call_says_what_was_expected(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    bundle: Callable[..., str],
    run: Run,
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    filled = [word.format(bundle=bundle("mxfp8"), empty=empty) for word in arguments]
    code, out, err = run(*filled)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize("suffix", [".YAML", ".Yml", ".MD", ".json"])
def test_the_suffix_of_a_card_says_its_format_in_any_case(
    suffix: str, tmp_path: Path, bundle: Callable[..., str], run: Run
) -> None:
    evidence, card = bundle("mxfp8"), tmp_path / f"card{suffix}"
    option = {".MD": ["--markdown"], ".json": ["--json"]}.get(suffix, [])
    card.write_text(run("card", evidence, *option)[1])
    assert run("verify", str(card), evidence)[0] == 0
    assert run("verify", str(card), bundle("nvfp4"))[0] == 1


@pytest.mark.parametrize("names", [("null", "~"), ("Null", "true"), ("a\u202e", "1e3")])
def test_a_card_of_arms_with_odd_names_is_verified(
    names: tuple[str, str], tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    one, other = names
    runs = [f"{one}={files['fp8']}", f"{other}={files['mxfp8']}"]
    options = ("--recipe", f"{one}=fp8", "--recipe", f"{other}=mxfp8", *OPTIONS[2:])
    run("card", *runs, *options, "--to", str(tmp_path / "card.YML"), "--by", "null")
    for written in ("card.YML", "card.md"):
        assert run("verify", str(tmp_path / written), *runs, *options)[0] == 0


def test_a_file_whose_name_is_no_utf8_has_a_card_and_a_bundle(
    tmp_path: Path, files: dict[str, str], run: Run
) -> None:
    folder = tmp_path / os.fsdecode(b"runs\xfe")
    folder.mkdir()
    odd = [folder / os.fsdecode(name) for name in (b"a\xff.csv", b"b\xff.csv")]
    for path, name in zip(odd, ("fp8", "nvfp4"), strict=True):
        shutil.copy(files[name], path)
    same_name = tmp_path / odd[0].name
    shutil.copy(files["nvfp4"], same_name)
    card, evidence = str(tmp_path / "card.yaml"), str(tmp_path / "evidence.zip")
    for runs in ((str(odd[0]), str(odd[1])), (str(odd[0]), str(same_name))):
        assert run("card", *runs, *OPTIONS[2:], "--to", card)[0] in (1, 3)
        run("compare", *runs, *OPTIONS[2:], "--bundle", evidence)
        for written in (card, str(tmp_path / "card.md")):
            assert run("verify", written, evidence)[0] == 0
            assert run("verify", written, *runs, *OPTIONS[2:])[0] == 0


def test_the_name_of_an_arm_that_is_no_utf8_is_refused(files: dict[str, str], run: Run) -> None:
    odd = os.fsdecode(b"a\xff")
    code, _, err = run("card", f"{odd}={files['fp8']}", files["nvfp4"])
    assert (code, "not UTF-8" in err) == (2, True)


def test_markdown_on_stdout_is_that_of_the_file(
    tmp_path: Path, bundle: Callable[..., str], run: Run
) -> None:
    evidence = bundle("mxfp8")
    run("card", evidence, "--to", str(tmp_path / "card.yaml"))
    assert run("card", evidence, "--markdown")[1] == (tmp_path / "card.md").read_text()

"""Mutants: what is drawn and changed, what becomes of it, and the lists beside the tests."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tools.mutant_runs import CheckoutCopy, Mutant
from tools.mutants import ROOT, drawn, equivalents, files_that_test, main, modules_of
from tools.mutations import mutations

BROKEN = "from pkg import numbers\n\n\ndef test_it():\n    assert not numbers\n"
NUMBERS = "NOTICED = 1\nFORGOTTEN = 1\nARGUED = True\n"
EQUIVALENT = (
    '[[mutant]]\nmodule = "pkg/numbers.py"\nline = "ARGUED = True"\nchange = "True -> False"\n'
)
WHY = 'why = "nothing reads it"\n'
TESTS = "from pkg import numbers\n\n\ndef test_it():\n    assert numbers.NOTICED == 1\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one module, a test that holds one of its numbers, and one that fails."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # their imports take seconds
    root = tmp_path / "checkout"
    files = {
        "pkg/numbers.py": NUMBERS,
        "tests/pkg/test_numbers.py": TESTS,
        "tests/pkg/test_broken.py": BROKEN,
        "tests/equivalent_mutants.toml": EQUIVALENT + WHY,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def changes(source: str) -> dict[str, str]:
    """The text with each mistake, by what changes."""
    every = mutations(source.encode())
    return {mutation.change: mutation.applied(source.encode()).decode() for mutation in every}


def test_what_a_test_notices_is_killed_and_the_rest_is_told(checkout, capsys):
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files_of(checkout)}
    assert (
        main(["pkg", "--count", "9", "--jobs", "1"], checkout) == 1
    )  # half of the mutants survived
    printed = capsys.readouterr().out
    lines = [
        line
        for line in printed.splitlines()
        if line[:10].strip() in ("killed", "survived", "equivalent", "unusable")
    ]
    by_place = {line.split()[1]: line for line in lines}
    assert by_place["pkg/numbers.py:1"].startswith("killed ")
    assert by_place["pkg/numbers.py:1"].endswith("tests/pkg/test_numbers.py::test_it")
    assert by_place["pkg/numbers.py:2"].startswith("survived ")
    assert by_place["pkg/numbers.py:3"].startswith("equivalent ")
    assert by_place["pkg/numbers.py:3"].endswith("nothing reads it")
    assert by_place["tests/pkg/test_broken.py"].startswith("unusable ")
    assert "3 mutants: 1 killed, 1 survived, 1 equivalent, 0 undecided" in printed
    assert {
        path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files_of(checkout)
    } == before


def files_of(checkout: Path) -> list[Path]:
    return [
        path
        for path in checkout.rglob("*")
        if path.is_file() and ".git" not in path.parts and "build" not in path.parts
    ]


def test_an_endless_loop_is_undecided(checkout, tmp_path):
    source = b"def down(n):\n    while n > 0:\n        n -= 1\n    return n\n"
    (checkout / "pkg/numbers.py").write_bytes(source)
    (checkout / "tests/pkg/test_numbers.py").write_text(
        TESTS.replace("NOTICED == 1", "down(3) == 0")
    )
    (endless,) = [mutation for mutation in mutations(source) if mutation.change == "-= -> +="]
    copy = CheckoutCopy(checkout, tmp_path / "copy")
    outcome = copy.judge(
        Mutant("pkg/numbers.py", source, endless), ["tests/pkg/test_numbers.py"], 5.0
    )
    assert outcome.status == "undecided"
    assert (copy.folder / "pkg/numbers.py").read_bytes() == source
    assert copy.run(["tests/pkg/test_numbers.py"])[0] == 0


def test_a_test_that_fails_now_and_then_kills_nothing(checkout, tmp_path):
    source = NUMBERS.encode()
    name = "tests/pkg/test_broken.py"
    outcome = CheckoutCopy(checkout, tmp_path / "copy").judge(
        Mutant("pkg/numbers.py", source, mutations(source)[1]), [name], 600.0
    )
    assert (outcome.status, outcome.why) == (
        "undecided",
        f"{name}::test_it fails without the mistake too",
    )


def test_a_seed_draws_the_same_mutants_and_none_twice():
    areas = ["tools/mutations.py", "tools/size.py"]
    first, again, other = (drawn(ROOT, areas, 30, seed) for seed in ("67", "67", "68"))
    assert first == again
    assert first != other
    assert len(set(first)) == 30
    assert {mutant.module for mutant in first} == set(areas)
    for mutant in first:
        compile(mutant.mutation.applied(mutant.source), mutant.module, "exec")


def test_a_draw_does_not_depend_on_the_format(checkout):
    short = 'def f(a, b):\n    return max(a, b["x"]) < 3 and not b["y"] + 1\n'
    long = "def f(a, b):\n    return (\n        max(a,\n            b['x'],\n        )\n"
    long += "        < 3\n        and not b['y'] + 1\n    )\n"
    draws = []
    for text in (short, long):
        (checkout / "pkg/numbers.py").write_text(text)
        found = [mutant.mutation for mutant in drawn(checkout, ["pkg"], 4, "1")]
        draws.append([(mutant.statement, mutant.change) for mutant in found])
    assert draws[0] == draws[1]
    assert len(draws[0]) == 4


def test_an_area_without_a_module_is_refused(checkout):
    with pytest.raises(ValueError, match="no module under 'nowhere'"):
        modules_of(checkout, ["nowhere"])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (EQUIVALENT.replace("ARGUED", "GONE") + WHY, "correct or drop the entry"),
        (EQUIVALENT.replace("False", "None") + WHY, "correct or drop the entry"),
        (EQUIVALENT.replace("pkg/", "gone/") + WHY, "correct or drop the entry"),
        (EQUIVALENT, "lacks `why`"),
    ],
)
def test_an_equivalent_that_fits_no_place_or_has_no_argument_is_an_error(checkout, entry, words):
    (checkout / "tests/equivalent_mutants.toml").write_text(entry)
    with pytest.raises(ValueError, match=words):
        equivalents(checkout)


def test_the_lists_of_this_checkout_fit_its_sources():
    equivalents(ROOT)
    for area in ("parity", "parity_lab", "server", "training", "workers"):
        for module in modules_of(ROOT, [area]):
            files_that_test(ROOT, module)


def test_the_mirror_runs_first_then_what_imports_the_module_then_what_is_named(checkout):
    beside = checkout / "tests/pkg"
    (beside / "test_large.py").write_text("from pkg.numbers import NOTICED\n" + "#\n" * 99)
    (beside / "test_small.py").write_text("import pkg.numbers\n")
    (beside / "test_other.py").write_text("from pkg import letters\n")
    (checkout / "tests/test_all.py").write_text("")
    (checkout / "tests/mutant_tests.toml").write_text('"pkg/numbers.py" = ["tests/test_all.py"]\n')
    names = [Path(file).name for file in files_that_test(checkout, "pkg/numbers.py")]
    assert names == [
        "test_numbers.py",
        "test_small.py",
        "test_broken.py",
        "test_large.py",
        "test_all.py",
    ]


def test_a_module_that_nothing_mirrors_has_the_tests_above_that_import_it(checkout):
    for name in ("pkg/deep/letters.py", "tests/pkg/deep/test_other.py"):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text("")
    above = checkout / "tests/pkg/wide/test_all.py"
    above.parent.mkdir()
    above.write_text("from pkg.deep import letters\n")
    assert files_that_test(checkout, "pkg/deep/letters.py") == ["tests/pkg/wide/test_all.py"]


@pytest.mark.parametrize(
    "files", ['["tests/gone.py"]', '["tests/pkg/test_numbers.py", "a", "b", "c"]']
)
def test_four_further_files_or_one_that_is_gone_are_refused(checkout, files):
    (checkout / "tests/mutant_tests.toml").write_text(f'"pkg/numbers.py" = {files}\n')
    with pytest.raises(ValueError, match="at most 3 files that exist"):
        files_that_test(checkout, "pkg/numbers.py")


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b", ["a <= b"]),
        ("a is not b", ["a is b"]),
        ("(a) not in (b)", ["(a) in (b)"]),
        ("a == b != c", ["a != b != c", "a == b == c"]),
        ("a and b and c", ["a or b and c", "a and b or c"]),
        ("not (a)", [" (a)"]),
        ("x = 3", ["x = 4"]),
        ("x = 2.0", ["x = 2.2"]),
        ("x = 0.0", ["x = 1"]),
        ("f(a=True)", ["f(a=False)"]),
        ("min(a, b)", ["max(a, b)"]),
        ("a - b", ["a + b"]),
        ("a += b", ["a -= b"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("rows.with_for_update()", ["rows"]),
        ("hold_lock(session)", ["pass"]),
        ("with self.lock:\n    a()", ['with __import__("contextlib").nullcontext():\n    a()']),
        ("sort(key=(a, b))", ["sort(key=(b,))", "sort(key=(a,))"]),
        ("key = (a, b, c)", ["key = (b, c)", "key = (a, c)", "key = (a, b)"]),
        ("keys = {'a': a, 'b': b}", ["keys = {'b': b}", "keys = {'a': a}"]),
        ("def _key():\n    (c, d)", ["def _key():\n    (d,)", "def _key():\n    (c,)"]),
        ("yield a\nyield b", ["yield b\nyield a"]),
        ("if a:\n    x()\nelif b:\n    y()", ["if b:\n    y()\nelif a:\n    x()"]),
    ],
)  # fmt: skip
def test_each_kind_of_mistake(source, changed):
    assert list(changes(source).values()) == changed


def test_conditions_that_return_change_places_unless_they_return_the_same():
    source = "def f():\n    if a:\n        return b\n    # why\n    if c:\n        return {}\n"
    swapped = "def f():\n    if c:\n        return d\n    # why\n    if a:\n        return b\n"
    assert swapped in changes(source.format("d")).values()
    assert "swap with the next branch" not in changes(source.format("b"))


@pytest.mark.parametrize(
    "source",
    [
        '"""Text 1 < 2."""',
        "x: Literal[1, 2]",
        "def f(a: Annotated[int, 3]) -> Literal[True]: ...",
        "__all__ = [a + b]",
        "if TYPE_CHECKING:\n    import a\n    x = 1",
        'if __name__ == "__main__":\n    main(1)',
        "assert a < 3",
        'raise Error(f"{a + 1} of {b}")',
        "_log.warning(a, 3)",
        "@dataclass(frozen=True)\nclass A: ...",
        "zip(a, b, strict=True)",
        "x = 'a' + b",
        "def f():\n    return",
    ],
)
def test_what_no_behaviour_depends_on_is_left_alone(source):
    assert changes(source) == {}


def test_a_text_that_is_not_ascii_is_spliced_where_it_changes():
    assert list(changes('x = "−µ", 1').values()) == ['x = "−µ", 2']


def test_equal_changes_of_one_statement_are_numbered():
    assert list(changes("x = 0, 0")) == ["0 -> 1", "0 -> 1 #2"]

"""Reading YAML that a stranger wrote, as CI does for a pull request."""

from typing import Any, cast

import pytest

from parity.comparing.policy_file import place_in, read_policy, read_yaml
from parity.comparing.statements import InputError

NESTED = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10)
)


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "parity.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize(
    "text",
    [NESTED, MERGED, "a: &a [*a]\n", "a: &a {b: *a}\n"],
    ids=["lists", "merges", "itself", "its-own-value"],
)
def test_aliases_that_stand_for_more_than_fits_are_refused(written, text):
    with pytest.raises(InputError, match=r"parity\.yaml: its aliases .* 50,000 values"):
        read_yaml(
            written(text + "policy: {margin: 1%, may_differ: *a9}\n" if "a9" in text else text)
        )


def test_a_few_aliases_are_an_honest_file(written):
    text = """
x-late: &late {recipe: bf16, blocks: [last 2], from_step: 900}
job:
  baseline: {recipe: fp8_current, overrides: [*late]}
  candidates:
    - {recipe: nvfp4, overrides: [*late, {<<: *late, blocks: [0]}]}
policy: {margin: 1%}
"""
    late = {"recipe": "bf16", "blocks": ["last 2"], "from_step": 900}
    content = cast("dict[str, Any]", read_yaml(written(text)))
    assert content["job"]["baseline"]["overrides"] == [late]
    assert content["job"]["candidates"][0]["overrides"] == [late, late | {"blocks": [0]}]
    assert read_policy(written(text)) == {"margin": "1%"}


@pytest.mark.parametrize(
    "text", ["a: 1" + ":1" * 1000, "a: " + "9" * 5000, "[" * 5000, "a: *b", "a: [", "a: \x00"]
)
def test_what_takes_long_to_read_is_not_read(written, text):
    with pytest.raises(InputError, match="not valid YAML"):
        read_yaml(written(text))


def test_a_file_that_is_no_job_file_is_not_read_to_its_end(written):
    with pytest.raises(InputError, match="262,144 bytes"):
        read_yaml(written("a: b\n" * 60_000))


@pytest.mark.parametrize(
    ("text", "content"),
    [("", None), ("# nothing\n", None), ("a: 1\n", {"a": 1}), ("\ufeffa: 1\r\n", {"a": 1})],
)
def test_small_files_are_read_as_they_are(written, text, content):
    assert read_yaml(written(text)) == content


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("compare:\n  one: {runs: a.csv}\n  one: {runs: b.csv}\n", 3),
        ("policy: {margin: 1%, margin: 50%}\n", 1),
        ("policy: {margin: 1%}\npolicy: {margin: 50%}\n", 2),
        ("compare:\n  1: {runs: a.csv}\n  '1': {runs: b.csv}\n", 3),
    ],
)
def test_a_key_that_stands_twice_is_refused_and_not_dropped(written, text, line):
    with pytest.raises(InputError, match=rf"parity\.yaml, line {line}: key .* twice"):
        read_yaml(written(text))
    assert read_yaml(written("a: {one: 1, two: {one: 1}}\nb: &b {one: 1}\nc: {<<: *b, one: 2}\n"))


@pytest.mark.parametrize(
    ("keys", "otherwise", "line"),
    [
        (["job", "candidates", "1", "recipe"], (), 7),
        (["job", "candidates", "1", "replicates"], (), 6),  # not there: the part above it
        (["job", "candidates", "9"], (), 4),
        (["policy", "margin"], (), 8),
        (["nothing"], (), None),
        (["steps"], (["job", "steps"],), 2),
        (["steps"], (["job", "nothing"],), None),  # another way counts only to its end
    ],
)
def test_a_value_is_found_by_its_keys(written, keys, otherwise, line):
    arms = (
        "  baseline: {recipe: a}\n  candidates:\n    - {recipe: b}\n    - name: c\n      recipe: "
        "d\n"
    )
    path = written(f"job:\n  steps: 3\n{arms}policy: {{margin: 1%}}\n")
    assert place_in(path, keys, *otherwise) == (path if line is None else f"{path}, line {line}")


def test_a_file_that_has_gone_is_named_alone(tmp_path):
    assert place_in(str(tmp_path / "gone.yaml"), ["job"]) == str(tmp_path / "gone.yaml")

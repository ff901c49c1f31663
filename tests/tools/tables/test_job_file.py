import re

from server.api.service.job_schema import job_file_schema
from tools.tables.generated import DOCS
from tools.tables.job_file import PARTS, keys, presets
from training.model_shapes import PRESETS


def test_every_key_of_every_part_has_a_meaning() -> None:
    definitions = job_file_schema()["$defs"]
    for name, (_, meanings) in PARTS.items():
        assert list(meanings) == list(definitions[name]["properties"]), name
    elsewhere = {
        "Amount",
        "Command",
        "Compared",
        "GateRules",
        "MaxTextOptions",
        "Policy",
        "Projections",
    }
    assert set(definitions) - PARTS.keys() <= elsewhere | {"Switches"}, "a new part needs a table"


def test_the_page_names_keys_and_values_that_a_job_file_has() -> None:
    """Words in code type outside of blocks, such as `optimizer: muon`; yaml blocks are read by
    tests/server/test_code_blocks.py.
    """
    words: set[str] = set()

    def collect(part: object) -> None:
        if isinstance(part, dict):
            words.update(part.get("properties", {}), map(str, part.get("enum", ())))
            list(map(collect, part.values()))
        elif isinstance(part, list):
            list(map(collect, part))

    collect(job_file_schema())
    assert {"short_reruns", "muon"} <= words
    page = (DOCS / "job-file.md").read_text()
    named = re.findall(
        r"`([a-z][a-z_.]*)(?:: ?[^`]*)?`", re.sub(r"```.*?```", "", page, flags=re.S)
    )
    parts = {part for name in named for part in name.split(".")}
    others = {"compare", "submit", "gate", "other", "parity", "yaml", "demo", "true", "false"}
    assert parts - words - others == set()


def test_defaults_and_values_are_those_of_the_schema() -> None:
    assert "| `steps` | `1500` | whole number |" in keys()
    assert "| `remat` | `false` | `true`, `false` |" in keys()
    assert "| `layer_policy` | `all_linears` | `all_linears`, `mlp_only` |" in keys()
    assert presets().count("\n| `") == len(PRESETS)

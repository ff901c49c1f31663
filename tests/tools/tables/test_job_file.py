from server.api.service.job_schema import job_file_schema
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


def test_defaults_and_values_are_those_of_the_schema() -> None:
    assert "| `steps` | `1500` | whole number |" in keys()
    assert "| `remat` | `false` | `true`, `false` |" in keys()
    assert "| `layer_policy` | `all_linears` | `all_linears`, `mlp_only` |" in keys()
    assert presets().count("\n| `") == len(PRESETS)

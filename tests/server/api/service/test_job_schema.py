"""The schema of job files, and the examples that it must accept."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from server.settings import CHECKOUT

pytestmark = pytest.mark.both_databases


EXAMPLES = sorted((CHECKOUT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_fits_the_schema_and_is_accepted(api, path: Path):
    content = yaml.safe_load(path.read_text())
    jsonschema.validate(content, api.get("/api/v1/schemas/parity.json").json())
    answer = api.post("/api/v1/jobs", json={key: content[key] for key in ("job", "policy")})
    assert answer.status_code == 202, answer.text


def test_the_schema_refuses_what_the_server_refuses(api):
    schema = api.get("/api/v1/schemas/parity.json").json()
    content = yaml.safe_load(EXAMPLES[0].read_text())
    for change in (
        {"jobs": {}},
        {"job": content["job"] | {"typo": 1}},
        {"policy": {"margn": "1%"}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(content | change, schema)

"""Settings as people write them: lists in plain text, empty variables, and one line for a wrong
value in every command that reads them.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.process_settings import SettingsError, misspelt_variables, read_settings
from server.setting_lists import is_list
from server.settings import CHECKOUT, SECRET_SETTINGS, Settings
from tests.faults.matrix import git

COMMANDS = {
    "server": ("uvicorn", "--factory", "server.app:from_environment", "--port", "1"),
    "worker": ("celery", "-A", "workers.app", "worker"),
    "standalone": ("workers.standalone", "serve"),
    "check": ("server.check",),
    "tokens": ("server.tokens", "list"),
    "retention": ("server.retention",),
    "roles": ("server.roles",),
    "alembic": ("alembic", "upgrade", "head"),
    "health": ("workers.health",),
}
WRONG = {"PARITY_DATA_ROOTS": '["/a", ', "PARITY_PORT": "abc"}
SECRETS = {
    "PARITY_DATABASE_URL": "mysql://me:T0K3N@db/parity",
    "PARITY_REDIS_URL": "redis://:T0K3N@broker:T0K3N/0",
    "PARITY_WEBHOOKS": "https://hooks.example/T0K3N",
}


@pytest.fixture
def problems(monkeypatch):
    """A function that reads the settings from these variables alone, which must be refused; returns
    the lines.
    """
    for name in [name for name in os.environ if name.startswith("PARITY_")]:
        monkeypatch.delenv(name)

    def read(**variables: str) -> list[str]:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            with pytest.raises(SettingsError) as refused:
                read_settings()
        return str(refused.value).splitlines()

    return read


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_wrong_value_is_one_line_in_every_command(command, tmp_path):
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PARITY_")
    }
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=CHECKOUT,
        env=inherited | {"PARITY_STATE_DIR": str(tmp_path), "NO_COLOR": "1"} | WRONG | SECRETS,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert lines[0].startswith("refused: PARITY_DATABASE_URL: begins with mysql://; expected")
    named = [line.removeprefix("refused: ").split()[0].rstrip(":") for line in lines]
    assert sorted(named) == sorted([*WRONG, *SECRETS])
    assert "T0K3N" not in ended.stderr
    assert "PARITY_PORT is 'abc'; expected a whole number" in lines


def test_every_command_reads_its_settings_at_the_one_place():
    """Settings() elsewhere would show pydantic's traceback."""
    bare = [
        str(path.relative_to(CHECKOUT))
        for folder in ("server", "workers", "migrations", "tools")
        for path in (CHECKOUT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node) == "Settings()"
    ]
    assert bare == ["server/process_settings.py"]


@pytest.mark.parametrize("field", [n for n, f in Settings.model_fields.items() if is_list(f)])
def test_every_list_can_be_json(field, monkeypatch):
    entry = {"url": "https://a.example/b", "secret": "whsec_" + 43 * "A" + "=", "events": []}
    entry["events"] = ["job.ended"]
    values = [entry] if field == "webhooks" else ["/a", "/b,c"]
    monkeypatch.setenv(f"PARITY_{field.upper()}", json.dumps(values))
    read = getattr(Settings(), field)
    assert len(read) == len(values)
    assert field == "webhooks" or read == tuple(values)


@pytest.mark.parametrize(
    ("variable", "text", "values"),
    [
        ("PARITY_DATA_ROOTS", "/a,/b", ("/a", "/b")),
        ("PARITY_DATA_ROOTS", " /a b , gs://corpus/c,", ("/a b", "gs://corpus/c")),
        ("PARITY_DATA_ROOTS", "/a", ("/a",)),
        ("PARITY_DATA_ROOTS", ' ["/a,b"] ', ("/a,b",)),
        ("PARITY_DATA_ROOTS", "[]", ()),
        ("PARITY_DATA_ROOTS", "", ()),
        ("PARITY_WRAPPER", "srun --ntasks=8", ("srun", "--ntasks=8")),
        (
            "PARITY_WRAPPER",
            "srun --cpu-bind=map_cpu:0,1 --comment='two words'",
            ("srun", "--cpu-bind=map_cpu:0,1", "--comment=two words"),
        ),
        ("PARITY_WRAPPER", "/opt/mpirun", ("/opt/mpirun",)),
    ],
)
def test_a_list_is_plain_text_or_json(monkeypatch, variable, text, values):
    monkeypatch.setenv(variable, text)
    assert getattr(read_settings(), variable.removeprefix("PARITY_").lower()) == values


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        (
            "PARITY_DATA_ROOTS",
            '["/a", ',
            "expected a JSON list (wrong at character 7), such as /a,/b or",
        ),
        ("PARITY_DATA_ROOTS", '["/a", ""]', "expected no empty text in the list"),
        ("PARITY_DATA_ROOTS", "[1]", ", entry 1 is 1; expected a text"),
        ("PARITY_DATA_ROOTS", "'/a,/b'", "expected no quotes around it, such as /a,/b"),
        ("PARITY_WRAPPER", "srun '--ntasks=8", "a command whose quotes are closed"),
        (
            "PARITY_WRAPPER",
            "srun,--ntasks=8",
            "blanks between the words of a command, such as srun",
        ),
        ("PARITY_PORT", "70000", "is '70000'; expected at most 65,535"),
        ("PARITY_LOG", "jsn", "is 'jsn'; did you mean json?"),
        ("PARITY_REQUIRE_TOKENS", "maybe", "is 'maybe'; expected true or false"),
        ("PARITY_CURRENCY", "usd", "expected a currency of three capital letters"),
        ("PARITY_LEASE_SECONDS", "a\nb", r"is 'a\nb'; expected a number"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(problems, variable, text, reason):
    (line,) = problems(**{variable: text})
    assert line.startswith(variable)
    assert reason in line


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("PARITY_DATABASE_URL", "T0K3N", "does not begin with a scheme"),
        ("PARITY_DATABASE_URL", "postgresql+psycopg2://me:T0K3N@h/d", "postgresql+psycopg2://"),
        ("PARITY_DATABASE_URL", "postgresql://me:T0K3N@h:T0K3N/d", "cannot be parsed as a URL"),
        ("PARITY_REDIS_URL", "T0K3N", "does not begin with a scheme"),
        ("PARITY_REDIS_URL", "http://:T0K3N@h/0", "begins with http://; expected redis://"),
        ("PARITY_REDIS_URL", "redis://:T0K3N@h:port/0", "has a port that is not a number"),
        ("PARITY_REDIS_URL", "redis://h/T0K3N", "wrong port or number of a database"),
        ("PARITY_WEBHOOKS", "T0K3N", "expected a JSON list (wrong at character 1)"),
        ("PARITY_WEBHOOKS", '{"url": "T0K3N"}', "expected a JSON list"),
        ("PARITY_WEBHOOKS", '[{"secret": "T0K3N"}]', "PARITY_WEBHOOKS, entry 1, url is missing"),
    ],
)
def test_the_value_of_a_secret_is_not_shown(problems, variable, text, reason):
    assert variable.removeprefix("PARITY_").lower() in SECRET_SETTINGS
    (line,) = problems(**{variable: text})
    assert line.startswith(variable)
    assert reason in line
    assert "T0K3N" not in line


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PARITY_DATABASE_URL", "postgresql+psycopg://me:a%40b@db:5432/parity?sslmode=verify-full"),
        ("PARITY_DATABASE_URL", "postgresql://me@/parity?host=/run/postgresql"),
        ("PARITY_DATABASE_URL", "sqlite:////srv/parity.db"),
        ("PARITY_REDIS_URL", "rediss://:a%40b@broker:6379/0"),
        ("PARITY_REDIS_URL", "redis://broker"),
        ("PARITY_REDIS_URL", "redis+socket:///run/redis.sock"),
    ],
)
def test_an_address_that_can_be_used_is_taken_as_it_is(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    assert getattr(read_settings(), variable.removeprefix("PARITY_").lower()) == text


def test_an_empty_variable_is_unset(monkeypatch):
    """As compose passes what `.env` does not have."""
    for name in Settings.model_fields:
        monkeypatch.setenv(f"PARITY_{name.upper()}", "")
    read = read_settings()
    assert read == Settings.model_construct()
    assert read.launchers is None


def test_what_is_wrong_in_several_variables_is_said_at_once(problems):
    lines = problems(PARITY_PORT="0", PARITY_SLOTS="0", PARITY_DATA_ROOTS="[", PARITY_HOST="::1")
    assert [line.split()[0] for line in lines] == [
        "PARITY_PORT",
        "PARITY_SLOTS",
        "PARITY_DATA_ROOTS",
    ]
    assert Path(Settings().state_dir) == CHECKOUT / ".state"


@pytest.mark.parametrize("command", ["server", "standalone"])
@pytest.mark.parametrize("kind", ["missing", "no TOML", "a folder"])
def test_gate_rules_that_cannot_be_read_end_the_start_in_one_line(command, kind, tmp_path):
    path = tmp_path / "gates.toml"
    if kind == "no TOML":
        path.write_text("[repository", encoding="utf-8")
    elif kind == "a folder":
        path.mkdir()
    ended = _run(command, tmp_path, PARITY_GATE_RULES=str(path))
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("refused: ")
    assert str(path) in line


def test_a_misspelt_setting_is_named_with_the_closest_one(tmp_path):
    names = {"PARITY_RETENTON_DAYS": "3", "PARITY_TOKEN": "t", "PARITY_PUBLIC_RUNS": "1"}
    lines = _run("retention", tmp_path, **names).stderr.splitlines()
    assert [line for line in lines if line.startswith("warning: ")] == [
        (
            "warning: PARITY_RETENTON_DAYS is no setting and changes nothing; did you mean "
            "PARITY_RETENTION_DAYS?"
        )
    ]


def test_no_variable_that_the_project_names_counts_as_misspelt():
    files = git("grep", "-hIoE", "PARITY_[A-Z_]*[A-Z]", "--", ".", ":!tests").stdout.decode()
    # An example of a misspelt one, the beginning of several, and a setting of an earlier version.
    names = set(files.split()) - {"PARITY_RETENTON_DAYS", "PARITY_RETENTION", "PARITY_WEBHOOK_KEYS"}
    assert len(names) > 60
    assert misspelt_variables(names) == []


def _run(command, folder, **variables):
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PARITY_")
    }
    return subprocess.run(
        [sys.executable, "-m", *COMMANDS[command]],
        cwd=CHECKOUT,
        env=inherited | {"PARITY_STATE_DIR": str(folder), "NO_COLOR": "1"} | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )

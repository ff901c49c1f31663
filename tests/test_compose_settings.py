"""Each setting reaches the containers that read it, and no other, through docker-compose.yml and
`.env`; .env.example lists them.
"""

import re

import pytest

from server.settings import CHECKOUT, Settings
from tests.compose import PASSWORD, PASSWORDS, services
from tests.setting_readers import settings_read, variable, variables_named

SERVER = (
    "server.app",
    "server.check",
    "server.retention.__main__",
    "server.roles",
    "server.tokens",
)
WORKER = ("workers.app", "workers.health", "workers.child", "workers.commands.commit_trainer")
# What each container runs, its health check and the operator's commands included.
ENTRIES = {
    "migrate": ("server.roles", "server.retention.__main__"),
    "server": SERVER,
    "worker-cpu": WORKER,
    "worker-gpu": WORKER,
}
# The image or docker-compose.yml sets them: they belong to the container's own folders and network.
FIXED = {
    "assets_dir": "/app/node_modules, in the image",
    "docs_dir": "/app/build/docs, in the image",
    "host": "0.0.0.0, what uvicorn listens on",
    "port": "8321, the container's; PARITY_PUBLISH is the machine's",
    "require_tokens": "true",
    "state_dir": "/state, a volume",
}
# A container's name for a variable, where `.env` has another one, because two containers differ.
OTHER_NAMES = {
    ("server", "PARITY_DATABASE_URL"): "PARITY_API_DATABASE_URL",
    ("worker-cpu", "PARITY_DATABASE_URL"): "PARITY_WORKER_DATABASE_URL",
    ("worker-gpu", "PARITY_DATABASE_URL"): "PARITY_WORKER_DATABASE_URL",
    ("worker-gpu", "PARITY_CAPABILITY"): "PARITY_GPU_CAPABILITY",
    ("worker-gpu", "PARITY_SLOTS"): "PARITY_GPU_SLOTS",
}
# Variables that are no settings, and why no container gets them from `.env`.
NOT_PASSED = {
    "PARITY_PROCESS": "how the next two begin",
    "PARITY_PROCESS_ID": "another one in each process of a wrapper, which sets it",
    "PARITY_PROCESSES": "set next to it",
}
EXAMPLE = (CHECKOUT / ".env.example").read_text(encoding="utf-8")
LISTED = re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE)


def _read(container: str) -> set[str]:
    """The variables that this container's processes read and that `.env` can set."""
    entries = ENTRIES[container]
    names = {variable(name) for name in settings_read(*entries) - FIXED.keys()}
    others = variables_named(*entries) - NOT_PASSED.keys()
    if container == "worker-cpu":
        others -= {"PARITY_MAXTEXT_PYTHON"}  # its image has none
    return names | (others if container.startswith("worker") else set())


def _reaches(container: str) -> set[str]:
    """The variables of this container that have the value of `.env` when all are set there."""
    marked = {name: f"marker-{name}" for name in LISTED} | PASSWORDS
    return {
        name
        for name, value in services(marked)[container]["environment"].items()
        if name.startswith("PARITY_")
        and value == f"marker-{OTHER_NAMES.get((container, name), name)}"
    }


@pytest.mark.parametrize("container", ENTRIES)
def test_a_setting_of_env_reaches_the_containers_that_read_it_and_no_other(container):
    reaches, read = _reaches(container), _read(container)
    assert sorted(read - reaches) == []
    assert sorted(reaches - read) == []


def test_every_setting_is_read_by_a_container_or_fixed():
    read = settings_read(*SERVER) | settings_read(*WORKER)
    assert set(Settings.model_fields) - read <= FIXED.keys()
    assert set(FIXED) <= set(Settings.model_fields)


@pytest.mark.parametrize("container", ENTRIES)
def test_what_is_not_in_env_keeps_its_default(container):
    """None of the variables is passed as an empty text, which no number can be."""
    environment = services(PASSWORDS)[container]["environment"]
    assert "" not in environment.values()
    kept = {name for name in environment if name.startswith("PARITY_")}
    assert not {variable(name) for name in ("lease_seconds", "retention_days", "wrapper")} & kept


def test_the_example_lists_what_compose_reads_and_nothing_else():
    text = (CHECKOUT / "docker-compose.yml").read_text(encoding="utf-8")
    published = (CHECKOUT / "docker" / "published.yml").read_text(encoding="utf-8")
    read = set(re.findall(r"\$\{(\w+)", text + published))
    read |= set(re.findall(r"^ +(PARITY_\w+):$", text, re.MULTILINE))
    # compose's own: which files it reads
    assert sorted(set(LISTED) - read) == ["COMPOSE_FILE"]
    assert sorted(read - set(LISTED)) == []
    assert len(LISTED) == len(set(LISTED))


def test_the_defaults_that_the_example_shows_are_those_of_the_settings(monkeypatch):
    shown = EXAMPLE.partition("# Defaults")[2]
    values = dict(re.findall(r"^#(PARITY_\w+)=(.+)$", shown, re.MULTILINE))
    assert len(values) >= 15
    for name, value in values.items():
        monkeypatch.setenv(name, value)
        field = name.removeprefix("PARITY_").lower()
        assert getattr(Settings(), field) == Settings.model_fields[field].default, name


SECRETS = {
    "POSTGRES_PASSWORD": {"postgres", "migrate", "server", "worker-cpu", "worker-gpu"},
    "REDIS_PASSWORD": {"redis", "server", "worker-cpu", "worker-gpu"},
    "PARITY_WEBHOOKS": {"server"},
    "PARITY_API_DATABASE_URL": {"server"},
    "PARITY_WORKER_DATABASE_URL": {"worker-cpu", "worker-gpu"},
}


@pytest.mark.parametrize(("secret", "containers"), SECRETS.items())
def test_a_secret_goes_where_it_is_used(secret, containers):
    marked = PASSWORDS | {secret: "the-secret"}
    assert {
        name for name, service in services(marked).items() if "the-secret" in str(service)
    } == containers


def test_with_roles_only_the_migration_has_the_owner_of_the_tables():
    """The owner's password is that of the database's own container too."""
    own = {
        "PARITY_API_DATABASE_URL": "postgresql+psycopg://parity_api:a@postgres/parity",
        "PARITY_WORKER_DATABASE_URL": "postgresql+psycopg://parity_worker:w@postgres/parity",
    }
    owner = PASSWORD[::-1]
    found = services(PASSWORDS | {"POSTGRES_PASSWORD": owner} | own)
    assert {name for name, service in found.items() if owner in str(service)} == {
        "postgres",
        "migrate",
    }

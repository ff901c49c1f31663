"""The migrations make the tables that the models describe, and can be taken back."""

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from server.database.models import Base
from server.readiness import alembic_config

pytestmark = pytest.mark.both_databases


def test_the_schema_is_what_the_models_say(database):
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_down_and_up_again(database):
    config = alembic_config(database.url)
    command.downgrade(config, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    command.upgrade(config, "head")
    assert "chunks" in inspect(database.engine).get_table_names()

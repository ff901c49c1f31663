"""The migrations make the tables that the models describe, and can be taken back."""

import numpy as np
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from server.database import store
from server.database.models import Base, Job, Run
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


@pytest.mark.parametrize("oldest", ["0001", "0003"])
def test_jobs_and_curves_survive_the_way_down_and_up(database, recorded, oldest):
    config = alembic_config(database.url)
    job = recorded({"nvfp4": 0.01}, steps=300)
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job).first().id
        store.append(session, run, "validation", 1, np.array([3, 7, 8]), {"loss": np.array([1.0, np.nan, -np.inf])})

    def curves() -> list[bytes]:
        with database.read() as session:
            found = [store.read(session, run, kind) for kind in ("train", "validation")]
        return [part.tobytes() for steps, columns in found for part in (steps, *columns.values())]

    before = curves()
    assert len(before) == 8
    command.downgrade(config, oldest)
    assert "chunk_columns" not in inspect(database.engine).get_table_names()
    command.upgrade(config, "head")
    assert curves() == before
    with database.read() as session:
        assert [(found.id, len(found.arms), len(found.runs)) for found in session.query(Job)] == [(job, 2, 4)]

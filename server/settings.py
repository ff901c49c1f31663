"""The settings: one frozen object, read from the environment (`PARITY_…`) at the entry points and
passed down.
"""

import hashlib
from base64 import b64decode
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from server.setting_lists import is_list, items_of
from server.setting_urls import check_broker_url, check_database_url

CHECKOUT = Path(__file__).resolve().parents[1]

# sockaddr_un holds 108 bytes, including the terminating zero.
_LONGEST_SOCKET_PATH = 107
SECRET_PREFIX = "whsec_"  # noqa: S105
SECRET_SETTINGS = frozenset({"database_url", "redis_url", "webhooks"})
"""Whose values no message shows."""
_COMMANDS = ("wrapper",)  # settings that are the words of a command
_OBJECTS = ("webhooks",)  # settings whose entries are objects

WebhookEvent = Literal["job.ended", "verdict.given", "job.will_fail", "job.futile"]


class WebhookSetting(BaseModel):
    """A receiver of events. Its repr shows neither the secret nor the URL, whose path may be a
    secret too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: HttpUrl = Field(repr=False)
    secret: SecretStr
    events: tuple[WebhookEvent, ...] = Field(min_length=1)

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: HttpUrl) -> HttpUrl:
        if url.username or url.password or url.fragment:
            raise PydanticCustomError(
                "webhook_url",
                "has a user, a password or a fragment (#), expected https://HOST/PATH",
            )
        if url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "[::1]"):
            raise PydanticCustomError(
                "webhook_url", "begins with http://, expected https:// for another machine"
            )
        return url

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, secret: SecretStr) -> SecretStr:
        try:
            size = len(
                b64decode(secret.get_secret_value().removeprefix(SECRET_PREFIX), validate=True)
            )
        except ValueError:
            size = 0
        if not 24 <= size <= 64:
            raise PydanticCustomError(
                "webhook_secret",
                "is not 24 to 64 bytes in base64; make one with: {how}",
                {"how": f'echo "{SECRET_PREFIX}$(openssl rand -base64 32)"'},
            )
        return secret

    @property
    def id(self) -> str:
        """What the record and the log call it: its host, and a digest that tells two paths of one
        host apart.
        """
        digest = hashlib.sha256(str(self.url).encode()).hexdigest()
        return f"{(self.url.host or '')[:200]}#{digest[:12]}"


class Settings(BaseSettings):
    """Settings of the server and its workers. Each field is set as `PARITY_<NAME>`; an empty
    variable counts as unset.

    An entry point reads them with `server.process_settings`, which puts a wrong value in one line.
    """

    model_config = SettingsConfigDict(
        env_prefix="PARITY_",
        env_ignore_empty=True,
        enable_decoding=False,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    state_dir: Path = Field(
        default=CHECKOUT / ".state",
        description="folder for the database, the broker's socket, logs and caches",
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL; default: SQLite in the state folder"
    )
    database_connections: int = Field(
        default=15,
        ge=2,
        description="database connections that a process opens at most; every API process and "
        "every worker has its own",
    )
    redis_url: str = Field(
        default="", description="broker URL; default: the unix socket of the standalone stack"
    )
    host: str = Field(default="127.0.0.1", description="address on which the server listens")
    port: int = Field(default=8321, ge=1, le=65535, description="port on which the server listens")
    require_tokens: bool = Field(
        default=False,
        description="require a token on loopback too; on other addresses it is always required",
    )
    max_body_bytes: int = Field(
        default=16 * 2**20, ge=1024, description="largest accepted request body, in bytes"
    )
    max_runs_per_job: int = Field(
        default=512, ge=2, description="most runs of one job, short reruns included"
    )
    max_steps: int = Field(default=10_000_000, ge=1, description="most steps of a run")
    max_queued_runs: int = Field(
        default=5000, ge=1, description="most runs that one token may have in the queue"
    )
    requests_per_minute: int = Field(default=600, ge=1, description="requests per minute and token")
    log: Literal["auto", "json", "text"] = Field(
        default="auto", description="format of log lines; auto: text on a terminal, else JSON"
    )
    assets_dir: Path = Field(
        default=CHECKOUT / "node_modules",
        description="folder with the chart library and Swagger UI, installed by npm",
    )
    docs_dir: Path = Field(
        default=CHECKOUT / "build" / "docs",
        description="folder with the documentation, built by `make docs`",
    )
    capability: str = Field(
        default="cpu",
        pattern="^(cpu|gpu|sm90|sm100|command)$",
        description="what this worker trains: cpu or gpu (engine emulated, on the processor or on "
        "an NVIDIA GPU), sm90 or sm100 (the other "
        "engines, on GPUs); command: by the launchers of PARITY_LAUNCHERS",
    )
    launchers: Path | None = Field(
        default=None,
        description="TOML file of launchers, which start trainers of your own at a commit "
        "(docs/launchers.md); unset: none",
    )
    slots: int = Field(
        default=2,
        ge=1,
        description="runs that a worker trains at once, each pinned to one core or GPU",
    )
    wrapper: tuple[str, ...] = Field(
        default=(),
        description="command under which a run starts, such as srun --ntasks=8, or a JSON list of "
        "its words (docs/operate.md); unset: none",
    )
    wrapper_python: str = Field(
        default="", description="Python that the wrapper starts; default: the worker's own"
    )
    data_roots: tuple[str, ...] = Field(
        default=(),
        description="folders and URL prefixes that jobs may read on this worker, such as "
        "/data,gs://corpus, or a JSON list; unset: state folder and examples",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        description="seconds after which a run of a silent worker is given to another worker",
    )
    heartbeat_seconds: float = Field(
        default=5.0, gt=0, description="seconds between two renewals of a worker's leases"
    )
    flush_seconds: float = Field(
        default=1.0, gt=0, description="seconds between two writes of a run's steps"
    )
    reconcile_seconds: float = Field(
        default=10.0,
        gt=0,
        description="seconds between two searches for lost messages and dead workers",
    )
    max_attempts: int = Field(
        default=3, ge=1, description="attempts at a run before a crash is final"
    )
    checkpoint_dir: Path | None = Field(
        default=None,
        description="folder for checkpoints; workers that share it continue each other's runs; "
        "default: `checkpoints` in the state folder",
    )
    profile_steps: int = Field(
        default=0,
        ge=0,
        description="steps of each run to trace with jax.profiler; 0: none (docs/operate.md)",
    )
    checkpoint_seconds: float = Field(
        default=60.0, gt=0, description="seconds between two checkpoints of a run"
    )
    max_run_seconds: float | None = Field(
        default=None,
        gt=0,
        description="seconds of training above which a run is failed; unset: none",
    )
    max_run_memory_bytes: int | None = Field(
        default=None,
        gt=0,
        description="bytes of memory above which a run is failed; unset: no limit",
    )
    database_patience_seconds: float = Field(
        default=600.0,
        gt=0,
        description="seconds that a run goes on while the database is unreachable",
    )
    silence_seconds: float = Field(
        default=1800.0,
        gt=0,
        description="seconds of silence after which a trainer is killed as hung",
    )
    external_stale_seconds: float = Field(
        default=900.0,
        gt=0,
        description="seconds without data until an external run is shown as stale",
    )
    external_silence_seconds: float = Field(
        default=86_400.0,
        gt=0,
        description="seconds without data after which an attached external run is failed",
    )

    retention_days: float | None = Field(
        default=None,
        gt=0,
        description="days after a job's end until curves that no verdict needs, logs and "
        "checkpoints are deleted; unset: never",
    )
    retention_job_days: float | None = Field(
        default=None,
        gt=0,
        description="days after a job's end until it is deleted with its verdicts and curves; "
        "unset: never",
    )
    retention_event_days: float = Field(
        default=7.0,
        gt=0,
        description="days for which the events of jobs are kept, from which open pages are updated",
    )
    retention_key_days: float = Field(
        default=30.0,
        gt=0,
        description="days for which idempotency keys, sent deliveries, workers that are gone and "
        "compiled programs are kept",
    )
    retention_mirror_days: float = Field(
        default=30.0,
        gt=0,
        description="days without a run after which a worker removes its mirror of a launcher's "
        "repository",
    )

    device_hour_price: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="price of an hour of one device, from which jobs show what they cost; unset: "
        "none",
    )
    currency: str = Field(
        default="", pattern="^([A-Z]{3})?$", description="currency of that price, such as USD"
    )

    gate_rules: Path | None = Field(
        default=None,
        description="TOML file of what is pinned for the gates of each repository (docs/gate.md); "
        "unset: none",
    )
    public_url: str = Field(
        default="",
        pattern="^(https?://.+)?$",
        description="public URL of the server; links in webhooks begin with it",
    )
    webhooks: tuple[WebhookSetting, ...] = Field(
        default=(),
        description="receivers of signed events, a JSON list of objects with url, secret and "
        "events (docs/operate.md); unset: none",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _read_list(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if not isinstance(value, str) or not is_list(cls.model_fields[name]):
            return value
        return items_of(value, command=name in _COMMANDS, objects=name in _OBJECTS)

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, url: str) -> str:
        if url:
            check_database_url(url)
        return url

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, url: str) -> str:
        if url:
            check_broker_url(url)
        return url

    @field_validator("webhooks")
    @classmethod
    def _check_webhooks(cls, hooks: tuple[WebhookSetting, ...]) -> tuple[WebhookSetting, ...]:
        if len({hook.url for hook in hooks}) < len(hooks):
            raise PydanticCustomError(
                "webhooks", "two webhooks have the same url, expected one with the events of both"
            )
        return hooks

    @property
    def database(self) -> str:
        """The SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.state_dir.resolve() / 'parity.db'}"

    @property
    def serves(self) -> str:
        """The capability of the jobs that this worker trains: those of engine emulated run on any
        device, and ask for a cpu.
        """
        return "cpu" if self.capability == "gpu" else self.capability

    @property
    def redis_socket(self) -> Path:
        """Where the standalone stack's Redis listens."""
        return self.state_dir.resolve() / "redis.sock"

    @property
    def redis(self) -> str:
        """The broker URL in force."""
        return self.redis_url or f"redis+socket://{self.redis_socket}"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints, with one folder per run, named by its id."""
        return (self.checkpoint_dir or self.state_dir / "checkpoints").resolve()

    @property
    def artifacts(self) -> Path:
        """Folder of profiles, with one folder per attempt, named RUN-ATTEMPT."""
        return (self.state_dir / "artifacts").resolve()

    @property
    def repositories(self) -> Path:
        """Folder of the mirrors of launchers' repositories (`workers.commands.checkout`)."""
        return (self.state_dir / "repositories").resolve()

    @property
    def processes(self) -> Path:
        """Folder of the records of running training processes (`workers.leftovers`)."""
        return (self.state_dir / "processes").resolve()

    def socket_problem(self) -> str | None:
        """Why the state folder cannot hold a unix socket, or None."""
        path = str(self.redis_socket)
        if len(path.encode()) <= _LONGEST_SOCKET_PATH:
            return None
        return (
            f"state folder {self.state_dir.resolve()} is too long for a unix socket "
            f"({len(path.encode())} bytes, "
            f"at most {_LONGEST_SOCKET_PATH}): set PARITY_STATE_DIR to a shorter path"
        )

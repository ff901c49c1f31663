"""What can be set: one frozen object, read from the environment (`PARITY_…`) at the edge and passed down."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

CHECKOUT = Path(__file__).resolve().parents[1]

# sockaddr_un holds 108 bytes, the closing zero included.
_LONGEST_SOCKET_PATH = 107


class Settings(BaseSettings):
    """Settings of the service; every field can be set as `PARITY_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix="PARITY_", frozen=True, extra="ignore")

    state_dir: Path = Field(default=CHECKOUT / ".state", description="folder of the database, the broker's socket, logs and caches")
    database_url: str = Field(default="", description="SQLAlchemy URL; default: SQLite in the state folder")
    redis_url: str = Field(default="", description="broker URL; default: the unix socket that the standalone stack starts")
    host: str = Field(default="127.0.0.1", description="address that the API listens on")
    port: int = Field(default=8321, ge=1, le=65535, description="port that the API listens on")
    require_tokens: bool = Field(default=False, description="require a token on loopback too; elsewhere one is always required")
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024, description="largest request body that is read")
    requests_per_minute: int = Field(default=600, ge=1, description="requests that one token may make in a minute")
    log: Literal["auto", "json", "text"] = Field(default="auto", description="form of log lines; auto: text on a terminal, else JSON")
    assets_dir: Path = Field(default=CHECKOUT / "node_modules", description="folder into which npm installed the chart library")
    capability: str = Field(default="cpu", pattern="^(cpu|sm90|sm100)$", description="what a worker can run: cpu (emulated), sm90 or sm100")
    slots: int = Field(default=2, ge=1, description="how many runs a worker trains at once, each pinned to one core")
    launcher: tuple[str, ...] = Field(
        default=(),
        description='command that a run\'s process starts under, a JSON list: ["srun", "--ntasks=8"] (docs/operations.md); unset: none',
    )
    launcher_python: str = Field(default="", description="the Python that the launcher starts; default: the worker's own")
    data_roots: tuple[str, ...] = Field(
        default=(),
        description='folders, or beginnings of URLs, inside which jobs may read on this worker, a JSON list: ["/data"]; '
        "unset: wherever its user may read",
    )
    lease_seconds: float = Field(default=30.0, gt=0, description="a run whose worker was silent for this long is given to another")
    heartbeat_seconds: float = Field(default=5.0, gt=0, description="how often a worker renews its leases")
    flush_seconds: float = Field(default=1.0, gt=0, description="how often a live run's steps are written")
    reconcile_seconds: float = Field(default=10.0, gt=0, description="how often lost messages and dead workers are looked for")
    max_attempts: int = Field(default=3, ge=1, description="how often a run is started before its crash is final")
    checkpoint_dir: Path | None = Field(
        default=None, description="folder of the checkpoints that broken runs go on from; workers that share it can take over from another"
    )
    profile_steps: int = Field(
        default=0, ge=0, description="how many steps of each run are traced with jax.profiler; 0: none (docs/profiles.md)"
    )
    checkpoint_seconds: float = Field(default=60.0, gt=0, description="how often a run writes a checkpoint")
    max_run_seconds: float | None = Field(default=None, gt=0, description="a run that trains for longer is failed; unset: no limit")
    max_run_memory_bytes: int | None = Field(default=None, gt=0, description="a run that takes more memory is failed; unset: no limit")
    database_patience_seconds: float = Field(default=600.0, gt=0, description="how long a run trains on while its database is away")
    silence_seconds: float = Field(default=1800.0, gt=0, description="a training process that says nothing for this long is killed as hung")
    external_stale_seconds: float = Field(default=900.0, gt=0, description="an external run without data for this long is shown as stale")
    external_silence_seconds: float = Field(
        default=86_400.0, gt=0, description="an external run that was attached and then brought no data for this long is failed"
    )

    retention_days: float | None = Field(
        default=None, gt=0, description="days after which what no verdict needs is dropped (server/jobs/retention.py); unset: all is kept"
    )

    public_url: str = Field(
        default="", pattern="^(https?://.+)?$", description="address under which people reach the server; links in webhooks begin with it"
    )
    webhooks_to_private_addresses: bool = Field(
        default=False, description="webhooks may go to loopback and private addresses, as inside a company's network"
    )

    @property
    def database(self) -> str:
        """The SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.state_dir.resolve() / 'parity.db'}"

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
        """Where each run has a folder of checkpoints, named by its id."""
        return (self.checkpoint_dir or self.state_dir / "checkpoints").resolve()

    @property
    def artifacts(self) -> Path:
        """Where each attempt at a run has a folder of its profiles, named RUN-ATTEMPT."""
        return (self.state_dir / "artifacts").resolve()

    def socket_problem(self) -> str | None:
        """Why the state folder can't hold a unix socket, or None."""
        path = str(self.redis_socket)
        if len(path.encode()) <= _LONGEST_SOCKET_PATH:
            return None
        return (
            f"state folder {self.state_dir.resolve()} is too long for a unix socket ({len(path.encode())} bytes, "
            f"at most {_LONGEST_SOCKET_PATH}): set PARITY_STATE_DIR to a shorter path"
        )

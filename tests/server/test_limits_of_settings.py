"""The least and the largest value of each setting: allowed there, refused beyond it."""

import annotated_types
import pytest
from pydantic import ValidationError

from server.settings import Settings

# The least value, and the largest one if there is one.
FROM: dict[str, tuple[int, int | None]] = {
    "database_connections": (2, None),
    "port": (1, 65_535),
    "max_body_bytes": (1024, None),
    "max_runs_per_job": (2, None),
    "max_steps": (1, None),
    "max_queued_runs": (1, None),
    "requests_per_minute": (1, None),
    "slots": (1, None),
    "max_attempts": (1, None),
    "profile_steps": (0, None),
}
ABOVE_0 = (
    "lease_seconds",
    "heartbeat_seconds",
    "flush_seconds",
    "reconcile_seconds",
    "checkpoint_seconds",
    "max_run_seconds",
    "database_patience_seconds",
    "silence_seconds",
    "external_stale_seconds",
    "external_silence_seconds",
    "retention_days",
    "retention_job_days",
    "retention_event_days",
    "retention_key_days",
    "retention_mirror_days",
    "device_hour_price",
)


def _is_refused(name: str, value: float) -> bool:
    try:
        Settings(**{name: value})
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("name", FROM)
def test_a_whole_number_is_allowed_at_its_limits(name: str) -> None:
    least, most = FROM[name]
    assert (_is_refused(name, least), _is_refused(name, least - 1)) == (False, True)
    if most is not None:
        assert (_is_refused(name, most), _is_refused(name, most + 1)) == (False, True)


@pytest.mark.parametrize("name", ABOVE_0)
def test_an_amount_is_above_0(name: str) -> None:
    assert [_is_refused(name, value) for value in (1e-9, 0.0, -1.0)] == [False, True, True]


def test_bytes_of_memory_are_above_0() -> None:
    refused = [_is_refused("max_run_memory_bytes", value) for value in (1, 0)]
    assert refused == [False, True]


def test_every_setting_with_a_limit_is_here() -> None:
    limits = (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt)
    limited = {
        name
        for name, field in Settings.model_fields.items()
        if any(isinstance(each, limits) for each in field.metadata)
    }
    assert limited == {*FROM, *ABOVE_0, "max_run_memory_bytes"}


@pytest.mark.parametrize(("size", "is_fit"), [(107, True), (108, False)])
def test_the_path_of_the_socket_has_107_bytes(size: int, is_fit: bool) -> None:
    """Bytes, not characters."""
    folder = "/é" + "x" * (size - len("/é/redis.sock".encode()))
    assert (Settings(state_dir=folder).socket_problem() is None) == is_fit

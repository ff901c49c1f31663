"""The service over REST: a thin client that turns every refusal into one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx2

_TIMEOUT_SECONDS = 30.0
_LOOPBACK = ("127.", "localhost", "[::1]")


class ClientError(Exception):
    """The server refused: `status` is the HTTP status, the message the server's own sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class UnreachableError(Exception):
    """No answer from the server: the request may or may not have been served."""


class Client:
    """A connection to one parity server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        # A proxy of the company can't reach this machine's own loopback.
        trust_env = not any(f"://{name}" in self.url for name in _LOOPBACK)
        self._http = httpx2.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=trust_env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def submit(self, job: Mapping[str, Any], criteria: Mapping[str, Any]) -> dict[str, Any]:
        """Queue a job; the document of the new job. The job is sent as it stands: the server checks it.

        Raises TypeError or ValueError for what JSON can't say (a date, an infinity).
        """
        body = json.dumps({"job": job, "criteria": criteria}, allow_nan=False)
        document: dict[str, Any] = self._call("POST", "/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        return document

    def job(self, job_id: str) -> dict[str, Any]:
        """A job with its arms, runs, progress and verdicts."""
        document: dict[str, Any] = self._call("GET", f"/api/v1/jobs/{job_id}")
        return document

    def jobs(self, limit: int = 20, cursor: str | None = None) -> dict[str, Any]:
        """A page of jobs, newest first: `items` and `next_cursor`."""
        document: dict[str, Any] = self._call("GET", "/api/v1/jobs", params={"limit": limit} | ({"cursor": cursor} if cursor else {}))
        return document

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job; no error when it has ended already."""
        document: dict[str, Any] = self._call("POST", f"/api/v1/jobs/{job_id}:cancel")
        return document

    def verdict(self, job_id: str) -> dict[str, Any]:
        """The job's status and the verdict of each candidate (none before its end)."""
        document: dict[str, Any] = self._call("GET", f"/api/v1/jobs/{job_id}/verdict")
        return document

    def workers(self) -> list[dict[str, Any]]:
        """Every worker that registered, newest first."""
        found: list[dict[str, Any]] = self._call("GET", "/api/v1/workers")
        return found

    def gap(self, job_id: str, candidate: str, bins: int) -> dict[str, Any]:
        """The gap of a candidate against the baseline in bins."""
        document: dict[str, Any] = self._call("GET", f"/api/v1/jobs/{job_id}/gap", params={"candidate": candidate, "bins": bins})
        return document

    def ready(self) -> bool:
        """Whether the server and everything that it needs are up."""
        try:
            self._call("GET", "/readyz")
        except (ClientError, UnreachableError):
            return False
        return True

    def page(self, job_id: str) -> str:
        """The address of the job's page."""
        return f"{self.url}/jobs/{job_id}"

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._http.request(method, path, **options)
        except httpx2.HTTPError as error:
            raise UnreachableError(f"no answer from {self.url}: {error}; is the server running, and is PARITY_URL right?") from error
        except httpx2.InvalidURL as error:
            raise UnreachableError(f"server address {self.url!r} is not one: {error}; expected such as http://127.0.0.1:8321") from error
        if answer.is_success:
            try:
                return answer.json()
            except ValueError:
                raise UnreachableError(f"{self.url} answered {path} with something that is no JSON; is it a parity server?") from None
        raise ClientError(answer.status_code, _sentence(answer))


def _sentence(answer: httpx2.Response) -> str:
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        detail: str = answer.json()["detail"]
        return detail
    return f"{answer.request.method} {answer.request.url} answered {answer.status_code} without an explanation; is it a parity server?"

"""A thin client of the REST API: every error becomes one sentence."""

import json
import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import quote

import httpx2
import numpy as np
from numpy.typing import NDArray

from parity.client import DEFAULT_URL
from parity.inert import inert_value
from parity.judging.verdict.layer_statistics import LayerColumns

_TIMEOUT_SECONDS, _CONNECT_SECONDS = 30.0, 5.0
_JUDGING_SECONDS = 120.0  # of an answer that waits for the judge
_PLAN_SECONDS = 10.0  # of an answer that the caller can do without
_API = "/api/v1/"
_LOOPBACK = ("127.", "localhost", "[::1]")

Document: TypeAlias = dict[str, Any]  # what the server takes and answers, as its API describes it


class ClientError(Exception):
    """The server refused: `status` is the HTTP status, the message the server's own sentence.

    `kind` is the last part of the problem's type (such as `stale-attempt`); `retry_after` the
    seconds that the server asks for. `findings` are the wrong places of the body, where the server
    names them: the keys from the top, and a sentence.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        kind: str = "",
        retry_after: float | None = None,
        findings: Sequence[tuple[Sequence[str], str]] = (),
    ) -> None:
        super().__init__(detail)
        self.findings = findings
        self.status = status
        self.kind = kind
        self.retry_after = retry_after


class UnreachableError(Exception):
    """No answer from the server: the request may or may not have been served."""


class Client:
    """A connection to one parity server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        # A proxy of the company can't reach this machine's own loopback.
        trust_env = not any(f"://{name}" in self.url for name in _LOOPBACK)
        try:
            self._http = httpx2.Client(
                base_url=self.url,
                headers=_bearer(token),
                timeout=httpx2.Timeout(_TIMEOUT_SECONDS, connect=_CONNECT_SECONDS),
                trust_env=trust_env,
            )
        except httpx2.InvalidURL as error:
            raise self._no_url() from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def submit(
        self,
        job: Mapping[str, Any],
        policy: Mapping[str, Any],
        *,
        order: Document | None = None,
        key: str | None = None,
    ) -> Document:
        """Queue a job; the document of the new job. The job is sent as it stands: the server checks
        it.

        `order` may hold `priority`, `max_run_seconds`, `baseline`, `tags` and `branch`; with a
        `key` the same call may be made again and gives the same job. Raises TypeError or ValueError
        for what JSON can't say (a date, an infinity).
        """
        return self._post(
            "jobs", {"job": job, "policy": policy, **(order or {})}, headers=_idempotent(key)
        )

    def push_evaluations(self, body: Mapping[str, Any], key: str) -> Document:
        """Record held-out losses as a job that the server judges; the document of the job. With the
        same `key` the same call gives the same job.
        """
        return self._post(
            "jobs:evaluations",
            dict(body),
            headers=_idempotent(key),
            timeout=httpx2.Timeout(_JUDGING_SECONDS, connect=_CONNECT_SECONDS),
        )

    def again(self, job_id: str, patch: Mapping[str, Any], key: str | None = None) -> Document:
        """Queue a new job with the specification of one that has ended, changed by a JSON merge
        patch; the document of the new job.

        The patch has the keys of a submission, such as `{"job": {"schedule": {"steps": 3000}}}`.
        With a `key` as in `submit`.
        """
        return self._post(f"jobs/{job_id}:again", {"patch": patch}, headers=_idempotent(key))

    def add_run(self, job_id: str, runs: int | None = None) -> Document:
        """Add a run to each arm of a job without a verdict; refused if it has another number of
        `runs` than stated.
        """
        return self._post(f"jobs/{job_id}:add-run", {"runs": runs})

    def plan(
        self, job: Mapping[str, Any], policy: Mapping[str, Any], *, baseline: Document | None = None
    ) -> Document:
        """What a job could decide before it trains: `known` of an equal earlier run, and a line and
        a plan per candidate.

        Raises TypeError or ValueError for what JSON can't say.
        """
        body = {"job": job, "policy": policy} | ({"baseline": baseline} if baseline else {})
        return self._post(
            "jobs:plan", body, timeout=httpx2.Timeout(_PLAN_SECONDS, connect=_CONNECT_SECONDS)
        )

    def gate(self, question: Document, key: str) -> Document:
        """The job that answers this question, found or queued: `found`, `reason`, `age_seconds`,
        `expires_at` and `job`.

        A question has `job`, `policy`, `revision`, `max_age_days` and `fresh`, and may have the
        `baseline`, `tags` and `branch` of a new job. With `lookup` nothing is queued: without a
        recorded verdict `found` is "none" and `job` None. `group` names what asks, such as a pull
        request: the open jobs of its earlier questions are cancelled.

        The same call with the same `key` may be made again. Raises TypeError or ValueError for what
        JSON can't say.
        """
        return self._post("jobs:gate", question, headers=_idempotent(key))

    def gate_exit(self, job_id: str) -> Document:
        """How a gate of the token's repository leaves for a job under the pinned rules:
        `exit_code`, `result` and `note`.
        """
        return self._get(f"jobs/{job_id}/gate")

    def job(self, job_id: str) -> Document:
        """A job with its arms, runs, progress and verdicts."""
        return self._get(f"jobs/{job_id}")

    def jobs(
        self, limit: int = 20, cursor: str | None = None, filters: Document | None = None
    ) -> Document:
        """A page of jobs, newest first unless `filters` has a `sort`: `items` and `next_cursor`. A
        filter may be a list, as of tags.
        """
        return self._get(
            "jobs", {"limit": limit} | ({"cursor": cursor} if cursor else {}) | (filters or {})
        )

    def compare_jobs(self, job_ids: Sequence[str], by: str) -> Document:
        """Jobs side by side: `columns`, `rows` with `cells`, and what keeps them from being
        compared.
        """
        return self._get("jobs:compare", {"job": list(job_ids), "by": by})

    def trend(self, filters: Document) -> Document:
        """The gap of a candidate over commits or days: `answer`, `points` and `moves`."""
        return self._get("trend", filters)

    def set_tags(self, job_id: str, tags: Sequence[str]) -> Document:
        """Give a job these tags in place of its own; its tags, notes and sign-offs."""
        return self._document("PUT", f"jobs/{job_id}/tags", json={"tags": list(tags)})

    def add_note(self, job_id: str, text: str) -> Document:
        """Add a note to a job; its tags, notes and sign-offs."""
        return self._post(f"jobs/{job_id}/notes", {"text": text})

    def sign_off(self, job_id: str, candidate: str, reason: str, days: float) -> Document:
        """Accept the inconclusive verdict on a candidate for some days; the job's tags, notes and
        sign-offs.
        """
        return self._post(
            f"jobs/{job_id}/sign-offs", {"candidate": candidate, "reason": reason, "days": days}
        )

    def revoke_sign_off(self, job_id: str, sign_off_id: str, reason: str) -> Document:
        """End a sign-off now; the job's tags, notes and sign-offs."""
        return self._post(
            f"jobs/{job_id}/sign-offs/{quote(sign_off_id, safe='')}:revoke", {"reason": reason}
        )

    def new_question(self, job_id: str, reason: str) -> Document:
        """Register that what a job answered may be asked again, with scope admin; the job's tags,
        notes and sign-offs.
        """
        return self._post(f"jobs/{job_id}:new-question", {"reason": reason})

    def state(self, job_id: str, facts: Mapping[str, Any]) -> Document:
        """State facts of a job's external runs that no record holds; the job's tags, notes,
        sign-offs and statements.
        """
        return self._post(f"jobs/{job_id}/statements", dict(facts))

    def rejudge(self, job_id: str) -> Document:
        """The verdicts on a job's finished runs as of now; its recorded verdicts do not change."""
        return self._post(f"jobs/{job_id}:rejudge", {})

    def conclude(self, job_id: str) -> Document:
        """Close a project, so that its finished runs are judged."""
        return self._post(f"jobs/{job_id}:conclude")

    def cancel(self, job_id: str) -> Document:
        """Cancel a job; no error when it has ended already."""
        return self._post(f"jobs/{job_id}:cancel")

    def verdict(self, job_id: str) -> Document:
        """The job's status and the verdict of each candidate (none before its end)."""
        return self._get(f"jobs/{job_id}/verdict")

    def figure(self, job_id: str, candidate: str) -> str:
        """The figure of a candidate's verdict as SVG."""
        return self._send(
            "GET", f"{_API}jobs/{job_id}/verdict.svg", params={"candidate": candidate}
        ).text

    def evidence(self, job_id: str) -> bytes:
        """The evidence bundle of a job that has a verdict, a zip."""
        return self._send("GET", f"{_API}jobs/{job_id}/evidence.zip").content

    def workers(self) -> list[Document]:
        """Every worker that registered, newest first."""
        workers: list[Document] = self._call("GET", f"{_API}workers")
        return workers

    def noise_table(self, of: Literal["record", "imported"] = "record") -> str:
        """The reruns on record, or those that were imported, as a table (CSV)."""
        return self._send("GET", f"{_API}noise-tables", params={"of": of}).text

    def import_noise_table(self, table: str, family: str | None = None) -> Document:
        """Import a noise table (CSV), or one family of it: `families`, `new_groups` and
        `known_groups`.
        """
        return self._post("noise-tables", {"table": table, "family": family})

    def baselines(self, name: str | None = None, limit: int = 50) -> Document:
        """A page of baselines' versions, promoted last first: `items` and `next_cursor`."""
        return self._get("baselines", {"limit": limit} | ({"name": name} if name else {}))

    def baseline(self, name: str, version: int | None = None) -> Document:
        """A version of a baseline (the newest where none is given): runs, specification, manifest,
        run-to-run noise, audit trail.
        """
        return self._get(_baseline_path(name, version))

    def promote(
        self,
        name: str,
        job_id: str,
        reason: str,
        *,
        arm: str | None = None,
        days: float | None = None,
    ) -> Document:
        """Make a finished arm of a job the next version of a baseline; that version."""
        return self._post(
            "baselines", {"name": name, "job": job_id, "reason": reason, "arm": arm, "days": days}
        )

    def attach_controls(self, name: str, version: int, runs_of: str, reason: str) -> Document:
        """Attach reruns (a run's id, or a job's) to a version of a baseline; that version."""
        return self._post(
            f"{_baseline_path(name, version)}/controls", {"runs_of": runs_of, "reason": reason}
        )

    def expire(self, name: str, version: int, reason: str) -> Document:
        """End a version of a baseline: no later job may name it."""
        return self._post(f"{_baseline_path(name, version)}:expire", {"reason": reason})

    def baseline_diff(self, name: str, version: int, other: str) -> Document:
        """What differs between a version of a baseline and another (`NAME`, `NAME@VERSION`) or a
        job (its id).
        """
        return self._get(f"{_baseline_path(name, version)}/diff", {"other": other})

    def goldens(self, name: str | None = None, limit: int = 50) -> Document:
        """A page of goldens' versions, taken last first: `items` and `next_cursor`."""
        return self._get("goldens", {"limit": limit} | ({"name": name} if name else {}))

    def golden(self, name: str, version: int | None = None) -> Document:
        """A version of a golden (the newest where none is given): its file and its history."""
        path = f"goldens/{quote(name, safe='')}"
        return self._get(path if version is None else f"{path}/versions/{version}")

    def check_golden(self, body: Document) -> Document:
        """A run (`parity.golden.sent_run`) judged by goldens of the server: `check`, and which
        versions counted. Nothing is stored.
        """
        return self._post("goldens:check", body)

    def take_golden(self, name: str, body: Document) -> Document:
        """A run as the next version of a golden: `written`, `refused`, `check` and `golden`."""
        return self._post(f"goldens/{quote(name, safe='')}/versions", body)

    def remove_golden(self, name: str, version: int, reason: str) -> Document:
        """Remove a version of a golden: nothing is judged by it any more; that version."""
        path = f"goldens/{quote(name, safe='')}/versions/{version}:remove"
        return self._post(path, {"reason": reason})

    def gap(self, job_id: str, candidate: str, bins: int) -> Document:
        """The gap of a candidate against the baseline in bins."""
        return self._get(f"jobs/{job_id}/gap", {"candidate": candidate, "bins": bins})

    def run(self, run_id: str) -> Document:
        """A run: its state, its newest attempt, and which of its steps have come."""
        return self._get(f"runs/{run_id}")

    def run_of(self, facts: Mapping[str, Any], key: str | None = None) -> Document:
        """The run of a project's arm, which is made where it is not there: `project`, `arm`, and
        what is known of the rest.

        The rest is `baseline`, `seed`, `recipe` and `planned_steps`. The same key means the same
        run.
        """
        return self._post("runs", dict(facts), headers=_idempotent(key))

    def attach(
        self,
        run_id: str,
        manifest: Mapping[str, str],
        recipe: str | None = None,
        after: int | None = None,
        key: str | None = None,
        rounding: str | None = None,
    ) -> Document:
        """Begin an attempt of a run of engine external; the run, whose `attempt` goes with all that
        is sent, and its `token`.

        With the `key` of an attach whose answer was lost it is that attempt with another token,
        unless a newer trainer has attached. An earlier server returns no token.
        """
        body = {
            "manifest": {name: _sendable(value) for name, value in manifest.items()},
            "recipe": recipe,
            "after": after,
        }
        # which an earlier server does not know
        body |= {} if rounding is None else {"rounding": rounding}
        return self._post(f"runs/{run_id}:attach", body, headers=_idempotent(key))

    def append(
        self,
        run_id: str,
        attempt_number: int,
        kind: str,
        names: Sequence[str],
        table: NDArray[np.float64],
        token: str | None = None,
    ) -> Document:
        """Record a batch of steps; table is (len(names), n), its first row the steps. Sending it
        again changes nothing.

        `token` is the one that attach returned; without it the client's own token must be the job
        owner's.
        """
        return self._post(
            f"runs/{run_id}/steps",
            params={"attempt": attempt_number, "kind": kind, "names": ",".join(names)},
            content=np.ascontiguousarray(table, "<f8").tobytes(),
            headers={"Content-Type": "application/octet-stream"} | _bearer(token),
        )

    def append_layers(
        self, run_id: str, attempt_number: int, table: LayerColumns, token: str | None = None
    ) -> Document:
        """Record statistics by layer (`parity.client.layer_tables.pieces`). Sending them again
        changes nothing; `token` as in `append`.
        """
        body = {
            "steps": table.steps.tolist(),
            "columns": {
                "/".join(column): [
                    value if math.isfinite(value) else str(value) for value in values.tolist()
                ]
                for column, values in table.columns.items()
            },
        }
        return self._post(
            f"runs/{run_id}/layers",
            body,
            params={"attempt": attempt_number},
            headers=_bearer(token),
        )

    def finish(
        self,
        run_id: str,
        attempt_number: int,
        outcome: str,
        message: str | None = None,
        token: str | None = None,
    ) -> Document:
        """Say how an attempt ended: `finished`, `failed`, or `broke_off` (another attach goes on).
        `token` as in `append`.
        """
        body = {
            "attempt": attempt_number,
            "outcome": outcome,
            "message": message and _sendable(message),
        }
        return self._post(f"runs/{run_id}:finish", body, headers=_bearer(token))

    def ready(self) -> bool:
        """Whether the server and everything that it needs are up."""
        try:
            self.check_ready()
        except (ClientError, UnreachableError):
            return False
        return True

    def check_ready(self) -> None:
        """Raises ClientError with what a server that answers still lacks, or UnreachableError."""
        self._call("GET", "/readyz")

    def page(self, job_id: str) -> str:
        """The address of the job's page."""
        return f"{self.url}/jobs/{job_id}"

    def _get(self, path: str, params: Document | None = None) -> Document:
        return self._document("GET", path, params=params)

    def _post(self, path: str, body: Document | None = None, **options: Any) -> Document:
        return self._document(
            "POST", path, **(options if body is None else {"json": body, **options})
        )

    def _document(self, method: str, path: str, **options: Any) -> Document:
        document: Document = self._call(method, _API + path, **options)
        return document

    def _call(self, method: str, path: str, **options: Any) -> Any:
        # in ASCII, which spells half a character, as an argument may have it, so that the server
        # names the field
        if "json" in options:
            options["content"] = json.dumps(options.pop("json"), allow_nan=False)
            options["headers"] = {"Content-Type": "application/json", **options.get("headers", {})}
        answer = self._send(method, path, **options)
        try:
            return inert_value(answer.json())
        except ValueError:
            raise UnreachableError(
                f"{self.url} did not answer {path} with JSON; check that PARITY_URL is a parity "
                "server"
            ) from None

    def _no_url(self) -> UnreachableError:
        return UnreachableError(
            f"server address {self.url!r} is not a URL; expected one such as {DEFAULT_URL}"
        )

    def _send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        try:
            answer = self._http.request(method, path, **options)
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, UnicodeError) as error:
            raise self._no_url() from error
        except httpx2.HTTPError as error:
            raise UnreachableError(
                f"no answer from {self.url} ({_cause(error)}); check that the server runs and that "
                "PARITY_URL is right"
            ) from error
        if answer.is_success:
            return answer
        if answer.headers.get("content-type", "").startswith("application/problem+json"):
            problem = inert_value(answer.json())
        else:
            problem = {}
        detail = problem.get("detail") or _unexplained(answer)
        findings = [
            (_keys(finding["pointer"]), finding["detail"]) for finding in problem.get("errors", ())
        ]
        raise ClientError(
            answer.status_code,
            detail,
            problem.get("type", "").rpartition(":")[2],
            _retry_after(answer),
            findings,
        )


def _keys(pointer: str) -> Sequence[str]:
    """The keys of a JSON Pointer (RFC 6901)."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _cause(error: httpx2.HTTPError) -> str:
    """What happened, without the operating system's error numbers."""
    if isinstance(error, httpx2.TimeoutException):
        limits = error.request.extensions["timeout"]  # seconds of this call
        if isinstance(error, httpx2.ConnectTimeout):
            return f"no connection within {limits['connect']:g} s"
        return f"timed out after {limits['read']:g} s"
    text = " ".join(str(error).split()).lower()
    causes = {
        "refused": "connection refused",
        "name or service not known": "unknown host name",
        "name resolution": "unknown host name",
        "getaddrinfo": "unknown host name",
        "unreachable": "network unreachable",
        "certificate": "its TLS certificate is not trusted",
        "reset by peer": "connection lost",
        "disconnected": "connection lost",
    }
    return next((words for part, words in causes.items() if part in text), "connection failed")


def _baseline_path(name: str, version: int | None) -> str:
    path = f"baselines/{quote(name, safe='')}"
    if version is None:
        return path
    return f"{path}/versions/{version}"


def _idempotent(key: str | None) -> dict[str, str]:
    """The header with which a request may be made again."""
    if key is None:
        return {}
    return {"Idempotency-Key": key}


def _bearer(token: str | None) -> dict[str, str]:
    """The header of a token that replaces the client's own; none without one. The value of one that
    no header can have is not shown.
    """
    token = (token or "").strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise UnreachableError(
            "the token has blanks or characters that no token has; expected one such as "
            "parity_t...: check PARITY_TOKEN or --token"
        )
    return {"Authorization": f"Bearer {token}"}


def _sendable(text: str) -> str:
    """A text without what UTF-8 or a database can't hold: half characters, as names of files may
    have in Python, and NUL.
    """
    return text.encode(errors="replace").decode().replace("\0", "?")


def _retry_after(answer: httpx2.Response) -> float | None:
    seconds = answer.headers.get("retry-after", "")
    if not seconds.isdigit():
        return None
    return float(seconds)


def _unexplained(answer: httpx2.Response) -> str:
    return (
        f"{answer.request.method} {answer.request.url} answered {answer.status_code} without a "
        "reason; check that PARITY_URL is right"
    )

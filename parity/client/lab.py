"""Analyses and searches over REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.client.rest import Client


class LabClient(Client):
    """A connection to one parity server, with what the lab adds to it."""

    def plan_why(self, job_id: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """What an analysis of a job would measure and cost; nothing is queued. `question` as in `why`."""
        return self._document("POST", f"/api/v1/jobs/{job_id}/why:plan", json=dict(question))

    def why(self, job_id: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Queue an analysis: `candidate`, `against`, `step`, `fork_steps`, `budget` and `anyway`, each optional."""
        return self._document("POST", f"/api/v1/jobs/{job_id}/why", json=dict(question))

    def analysis(self, job_id: str) -> dict[str, Any]:
        """An analysis by its own job, or the newest of an explained job: `plan` and `answer`."""
        return self._document("GET", f"/api/v1/jobs/{job_id}/why")

    def ablations(self, job_id: str, candidate: str | None, names: Sequence[str] = ()) -> dict[str, Any]:
        """The gap of a candidate in parts, from other candidates of the job (`names`; none: all others) that leave a part out."""
        params = {"ablation": list(names)} | ({"candidate": candidate} if candidate else {})
        return self._document("GET", f"/api/v1/jobs/{job_id}/why/ablations", params=params)

    def plan_search(self, job_id: str, wish: Mapping[str, Any]) -> dict[str, Any]:
        """What a search from a job would run and cost; nothing is queued. `wish` as in `search`."""
        return self._document("POST", f"/api/v1/jobs/{job_id}/searches:plan", json=dict(wish))

    def search(self, job_id: str, wish: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a search: `candidate`, `switches`, `step`, `fork_steps`, `speed`, `pairs`, `pilots`, `confirmations`, `budget`."""
        return self._document("POST", f"/api/v1/jobs/{job_id}/searches", json=dict(wish))

    def find_search(self, search_id: str) -> dict[str, Any]:
        """A search: its state, plan, steps and policies."""
        return self._document("GET", f"/api/v1/searches/{search_id}")

    def cancel_search(self, search_id: str) -> dict[str, Any]:
        """Cancel a search; one that has ended is unchanged."""
        return self._document("POST", f"/api/v1/searches/{search_id}:cancel")

    def resume_search(self, search_id: str) -> dict[str, Any]:
        """Let a cancelled or failed search go on."""
        return self._document("POST", f"/api/v1/searches/{search_id}:resume")

"""Analyses and searches over REST."""

from __future__ import annotations

from collections.abc import Sequence

from parity.client.rest import Client, Document


class LabClient(Client):
    """A connection to one parity server, with what the lab adds to it."""

    def plan_why(self, job_id: str, question: Document) -> Document:
        """What an analysis of a job would measure and cost; nothing is queued. `question` as in `why`."""
        return self._post(f"jobs/{job_id}/why:plan", question)

    def why(self, job_id: str, question: Document) -> Document:
        """Queue an analysis: `candidate`, `against`, `step`, `fork_steps`, `budget` and `anyway`, each optional."""
        return self._post(f"jobs/{job_id}/why", question)

    def analysis(self, job_id: str) -> Document:
        """An analysis by its own job, or the newest of an explained job: `plan` and `answer`."""
        return self._get(f"jobs/{job_id}/why")

    def ablations(self, job_id: str, candidate: str | None, names: Sequence[str] = ()) -> Document:
        """The gap of a candidate in parts, from other candidates of the job (`names`; none: all others) that leave a part out."""
        params = {"ablation": list(names)} | ({"candidate": candidate} if candidate else {})
        return self._get(f"jobs/{job_id}/why/ablations", params)

    def plan_search(self, job_id: str, wish: Document) -> Document:
        """What a search from a job would run and cost; nothing is queued. `wish` as in `search`."""
        return self._post(f"jobs/{job_id}/searches:plan", wish)

    def search(self, job_id: str, wish: Document) -> Document:
        """Begin a search: `candidate`, `switches`, `step`, `fork_steps`, `speed`, `pairs`, `pilots`, `confirmations`, `budget`."""
        return self._post(f"jobs/{job_id}/searches", wish)

    def find_search(self, search_id: str) -> Document:
        """A search: its state, plan, steps and policies."""
        return self._get(f"searches/{search_id}")

    def cancel_search(self, search_id: str) -> Document:
        """Cancel a search; one that has ended is unchanged."""
        return self._post(f"searches/{search_id}:cancel")

    def resume_search(self, search_id: str) -> Document:
        """Let a cancelled or failed search go on."""
        return self._post(f"searches/{search_id}:resume")

"""Analyses and healings over REST."""

from collections.abc import Callable, Sequence

from parity.client.rest import Client, ClientError, Document


class LabClient(Client):
    """A connection to one parity server, with what the lab adds to it."""

    def plan_of(self, job_id: str, question: Document) -> Document:
        """What an analysis of a job would measure and cost; nothing is queued. `question` as in
        `begin`.
        """
        return self._post(f"jobs/{job_id}/why:plan", question)

    def begin(self, job_id: str, question: Document) -> Document:
        """Queue an analysis. Each key of a question is optional: `candidate`, `step`, `fork_steps`,
        `budget`, `against`, `origin`, `whole`, `anyway`.
        """
        return self._post(f"jobs/{job_id}/why", question)

    def analysis(self, job_id: str) -> Document:
        """An analysis by its own job, or the newest of an explained job: `plan` and `answer`."""
        return self._get(f"jobs/{job_id}/why")

    def healing_plan(self, job_id: str, question: Document) -> Document:
        """What a healing of a candidate would look at and cost; nothing is queued. `question` as in
        `heal`.
        """
        return self._post(f"jobs/{job_id}/heal:plan", question)

    def heal(self, job_id: str, question: Document) -> Document:
        """Queue a healing. Each key of a question is optional: `candidate`, `to`, `gemms`,
        `budget` (device hours).
        """
        return self._post(f"jobs/{job_id}/heal", question)

    def healing(self, job_id: str) -> Document:
        """A healing by its own job, or the newest of a job's candidates: `plan`, `answer` and
        `proposal`.
        """
        return self._get(f"jobs/{job_id}/heal")

    def ablations(self, job_id: str, candidate: str | None, names: Sequence[str] = ()) -> Document:
        """The gap of a candidate in parts, from other candidates of the job (`names`; none: all
        others) that leave a part out.
        """
        params = {"ablation": list(names)} | ({"candidate": candidate} if candidate else {})
        return self._get(f"jobs/{job_id}/why/ablations", params)


def is_of_job(fetch: Callable[[str], Document], job: str) -> bool:
    """Whether what is fetched for a job is that job, and not one about it or none."""
    try:
        return bool(fetch(job)["job"] == job)
    except ClientError as error:
        if error.status != 404:
            raise
        return False

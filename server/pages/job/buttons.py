"""What the visitor can do next: forms that work without a script, and links."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

from parity.frozen import frozen
from parity.judging.verdict.sign_offs import LEAST_REASON, MOST_DAYS
from parity.report.html.screen import button
from server.documents.jobs import JobDocument
from server.jobs.proposal import Proposal
from server.jobs.sign_offs import MOST_REASON

# a script shows it: without one there is nothing to copy with
_COPY = '<button type="button" class="btn q" data-do="copy-link" hidden>Copy link</button>'


@frozen
class Actions:
    """What the visitor may do: a new job that the next step names, one more run of each arm, and
    which verdicts can be accepted.

    `add_run` is what adding a run now means, "" where it cannot be added. `key` and `runs`, how
    many the job has, make a second press of a button harmless.
    """

    key: str = ""
    runs: int = 0
    proposal: Proposal | None = None
    add_run: str = ""
    acceptable: Sequence[str] = ()


def buttons_of(job: JobDocument, actions: Actions) -> list[str]:
    """What the visitor can do next as HTML. The step that the verdict advises is the one filled
    button; what else there is stands under "More", and a sign-off, which lets a gate through, last.
    """
    made, more = list[str](), list[str]()
    if actions.proposal is not None:
        fields = {"patch": json.dumps(actions.proposal.patch), "key": actions.key}
        made.append(_form(f"/jobs/{job.id}/again", actions.proposal.label, fields))
    if actions.add_run:
        (more if made else made).append(
            _form(
                f"/jobs/{job.id}/add-run",
                "Add a run to each arm",
                {"runs": str(actions.runs)},
                "btn q",
                actions.add_run,
            )
        )
    if job.verdicts:
        made.append(button("Evidence", job.links["evidence"], is_first=False))
    made.append(_COPY)
    if actions.acceptable:
        more.append(_accept_form(job.id, actions.acceptable))
    if more:
        made.append(
            f'<details class="more-acts"><summary class="btn q">More</summary>{"".join(more)}'
            "</details>"
        )
    return made


def _form(
    address: str, label: str, fields: Mapping[str, str], look: str = "btn", why: str = ""
) -> str:
    """A button that sends a form; it does not answer to Enter, because a training that nobody
    wanted costs more than a key saves.
    """
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in fields.items()
    )
    reason = f"<small>{escape(why)}</small>" if why else ""
    return (
        f'<form method="post" action="{escape(address)}">{hidden}<button '
        f'class="{look}">{escape(label)}</button>{reason}</form>'
    )


def _accept_form(job_id: str, names: Sequence[str]) -> str:
    """A button that opens the form in which a person accepts an undecided verdict for some days,
    with the reason.
    """
    what = names[0] if len(names) == 1 else "a candidate"
    options = "".join(f"<option>{escape(name)}</option>" for name in names)
    chosen = f'<input type="hidden" name="candidate" value="{escape(names[0])}">'
    if len(names) > 1:
        chosen = f'<label>candidate <select name="candidate">{options}</select></label>'
    return (
        f'<details class="accept"><summary class="btn q">Accept {escape(what)} for N days</summary>'
        f'<form method="post" action="/jobs/{escape(job_id)}/sign-offs">'
        "<p>A gate then lets the verdict through until that ends, and says that you accepted it. "
        "The verdict stays inconclusive.</p>"
        f"{chosen}"
        f'<label>reason <input type="text" name="reason" required minlength="{LEAST_REASON}" '
        f'maxlength="{MOST_REASON}" autocomplete="off">'
        f'</label><label>days, at most {MOST_DAYS:.0f} <input type="number" name="days" min="0.1" '
        f'max="{MOST_DAYS:.0f}" step="any" '
        'value="14" required></label><button class="btn">Accept</button></form></details>'
    )

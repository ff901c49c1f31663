"""The report: verdicts as one HTML file that works without a server, without a network and, as CI
attaches it, without scripts.

It is the page of a verdict with its details open. What a browser may run and load is in the file's
own policy: at most the one script in it, by its digest.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, NotRequired, TypedDict

from parity.judging.case import AnyDocument, Case
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.verdict.path import with_evaluation_paths
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.judging.verdict.sign_offs import accepted as accepted_now
from parity.report.candidates import deciding, safest_first
from parity.report.html.assets import verdict_script, verdict_style
from parity.report.html.candidates_table import candidates_table
from parity.report.html.page_details import (
    code_row,
    curves_row,
    evidence_row,
    numbers_row,
    reasons_row,
)
from parity.report.html.screen import DetailsRow, Screen, answer_of, screen_html
from parity.report.picture.case_scene import case_scene
from parity.report.picture.picture import picture
from parity.report.picture.scene import Scene, scene_of
from parity.report.sign_off_words import Accepted, accepted_words
from parity.report.view import view_of, views_of


class ConcludedJob(TypedDict):
    """What the report needs of a job's document (`GET /api/v1/jobs/JOB`)."""

    id: str
    name: str
    finished_at: str
    verdicts: Sequence[VerdictDocument]
    sign_offs: NotRequired[Sequence[SignOffDocument]]
    policy: Mapping[str, Any]
    spec: Mapping[str, Any]


def case_report(case: Case, documents: Sequence[VerdictDocument]) -> str:
    """The report of a judged case, its documents with paths, with the script: `parity compare
    --html` and `--open`.
    """
    rows = [
        code_row(
            "p",
            "Policy",
            "margin, confidence and checks of this comparison",
            case.policy.document(),
        )
    ]
    context = [
        *_context(documents),
        *([f"{case.planned_steps:,} steps planned"] if case.planned_steps else []),
    ]
    return report_page(
        documents, case_scene(case, documents), ["parity compare", *context], rows, with_script=True
    )


def evaluation_report(case: EvaluationCase, documents: Sequence[EvaluationDocument]) -> str:
    """The report of a comparison of evaluations, with the script."""
    drawn = with_evaluation_paths(case, documents)
    rows = [
        code_row(
            "p",
            "Policy",
            "margin, confidence and checks of this comparison",
            case.policy.document(),
        )
    ]
    return report_page(
        drawn, scene_of(drawn), ["parity compare", *_context(drawn)], rows, with_script=True
    )


def job_report(job: ConcludedJob, url: str) -> str:
    """The report of a concluded job, without a script; `url` is where the job's own page is."""
    documents = job["verdicts"]
    holding = accepted_now(documents, job["policy"], job.get("sign_offs", ()))
    rows = [
        code_row("p", "Policy", "margin, confidence and checks of this job", job["policy"]),
        code_row("s", "Specification", f"what was {_done(job['spec'])}", job["spec"]),
        DetailsRow(
            "j",
            "Job",
            escape(job["id"]),
            f'<p>The job’s page: <a href="{escape(url)}">{escape(url)}</a></p>',
            is_open=True,
        ),
    ]
    when = job["finished_at"][:16].replace("T", ", ")
    context = [job["name"], *_context(documents), f"{when} UTC", job["id"]]
    return report_page(documents, scene_of(documents), context, rows, holding)


def _done(spec: Mapping[str, Any]) -> str:
    """What became of a job's arms: held-out losses are sent."""
    return "sent" if spec.get("engine") == "evaluations" else "trained"


def _context(documents: Sequence[AnyDocument]) -> list[str]:
    if len(documents) == 1:
        return [view_of(documents[0]).pair]
    bases = {document["baseline"]["name"] for document in documents}
    return [
        (
            f"{len(documents)} candidates against "
            f"{bases.pop() if len(bases) == 1 else 'their own baselines'}"
        )
    ]


def report_page(
    documents: Sequence[AnyDocument],
    scene: Scene,
    context: Sequence[str],
    rows: Sequence[DetailsRow] = (),
    accepted: Accepted | None = None,
    *,
    with_script: bool = False,
) -> str:
    """The page of these verdicts: one file, details open. `rows` stand behind its own details,
    `accepted` are the sign-offs that hold.
    """
    ordered = safest_first(views_of(documents))
    selected = ordered.index(deciding(ordered))
    answer = answer_of(documents, selected=selected, accepted=accepted)
    screen = Screen(
        context=context,
        answer=answer,
        picture=picture(replace(scene, selected=selected), with_points=with_script),
        table=candidates_table(documents, selected),
        accepted="; ".join(accepted_words(sign_off) for sign_off in (accepted or {}).values()),
        details=[
            reasons_row(ordered, answer.next),
            numbers_row(ordered, context[0]),
            *curves_row(scene),
            *rows,
            evidence_row(ordered),
        ],
        is_dense=scene.is_dense,
        has_keys=with_script,
    )
    allowed = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    script = ""
    if with_script:
        digest = base64.b64encode(hashlib.sha256(verdict_script().encode()).digest()).decode()
        allowed += f"; script-src 'sha256-{digest}'"
        script = f"<script>{verdict_script()}</script>"
    plain = "" if with_script else " plain"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta '
        f'http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta '
        'name="color-scheme" content="light dark">'
        '<link rel="icon" '
        f'href="data:,"><title>{escape(f"{answer.state.upper()}: {answer.lead}")}</title>'
        f"<style>{verdict_style()}body{{margin:0}}</style></head>\n"
        '<body class="v"><main class="v '
        f'wrap{plain}">{screen_html(screen)}</main>{script}</body></html>\n'
    )

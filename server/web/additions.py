"""What the lab adds to the web application: routes, pages, threads, the owners of what it keeps, and what a job's page says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import APIRouter
from sqlalchemy.orm import Session

from parity.extensions import lab
from server.database.tables import Job
from server.repeating import Repeating
from server.web.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """What is added; nothing where the lab is taken away.

    `routes` are the routers of the API, `pages` those of pages. `owners`: what an id in a path names and the
    principal that submitted it, by the parameter's name. `about_job`: what the template of a job's page says of a job; None for nothing.
    """

    routes: Sequence[APIRouter] = ()
    pages: Sequence[APIRouter] = ()
    owners: Mapping[str, Callable[[Session, str], tuple[str, str | None]]] = field(default_factory=dict)
    threads: Sequence[Callable[[Context], Repeating]] = ()
    about_job: Callable[[Session, Job], Mapping[str, object] | None] = lambda _session, _job: None


def additions() -> Additions:
    """The additions of this installation."""
    web = lab().part("web")
    if web is None:
        return Additions()
    own: Additions = web.ADDITIONS
    return own

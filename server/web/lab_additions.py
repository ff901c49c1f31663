"""What the lab adds to the web application: routes, pages, and what a job's page says of it."""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter
from sqlalchemy.orm import Session

from parity.extensions import lab
from parity.frozen import frozen
from server.database.tables import Job


@frozen
class Additions:
    """What is added; nothing where the lab is taken away.

    `routes` are the routers of the API, `pages` those of pages. `about_job`: what the template of a
    job's page says of a job; None for nothing.
    """

    routes: Sequence[APIRouter] = ()
    pages: Sequence[APIRouter] = ()
    about_job: Callable[[Session, Job], Mapping[str, object] | None] = lambda _session, _job: None


def additions() -> Additions:
    """The additions of this installation."""
    web = lab().part("web")
    if web is None:
        return Additions()
    lab_additions: Additions = web.ADDITIONS
    return lab_additions

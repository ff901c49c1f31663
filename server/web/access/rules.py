"""Who may call which operation of the API: one rule for each operation of the OpenAPI description,
and no operation without one.

`server.web.access.authorization` enforces these rules, and docs/rights.md shows them as a table. A
new route needs a line here: without one the application does not start.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.routing import BaseRoute

from parity.extensions import lab
from parity.frozen import frozen

Scope = Literal["view", "submit", "worker", "approve", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@frozen
class Rule:
    """What an operation requires. Scope `admin` is always enough; `submit` and `approve` include
    `view`.

    `scopes`: the token must have one of them; empty: no token is needed. `owner_only`: the token
    must also belong to the principal that submitted the job in the path, or that of the run in the
    path; `another_person`: it must not, nor have asked for the job in a gate, with scope admin
    neither. `trainer`: that run's own token is enough instead, if its attempt is live; `any`: also
    if it has ended, for the caller to learn that from the response. `gates_refused`: a token of a
    repository's gates is refused, unless it has scope approve or admin: a pull request has it, and
    its own verdict would rest on what it writes.
    """

    scopes: tuple[Scope, ...] = ()
    owner_only: bool = False
    another_person: bool = False
    trainer: Literal["no", "live", "any"] = "no"
    gates_refused: bool = False

    @property
    def is_public(self) -> bool:
        """Whether no token is needed."""
        return not self.scopes

    @property
    def words(self) -> str:
        """What is needed, for an error."""
        return f"scope {' or '.join(self.scopes)}" + (
            "" if self.trainer == "no" else ", or the token of this run"
        )


_PUBLIC = Rule()
_READ = Rule(scopes=("view",))
_SUBMIT = Rule(scopes=("submit",))
_OWN_JOB = Rule(scopes=("submit",), owner_only=True)
_ATTACH = Rule(scopes=("submit", "worker"), owner_only=True, trainer="live")
_WRITE_RUN = Rule(scopes=("submit",), owner_only=True, trainer="any")
_NOTE = Rule(scopes=("submit", "approve"))
# `server.jobs.baselines` and `server.jobs.goldens` say whose a name is
_OWN_NAME = Rule(scopes=("submit", "approve"), gates_refused=True)
_IMPORT = Rule(scopes=("submit",), gates_refused=True)
_APPROVE = Rule(scopes=("approve",))
_APPROVE_ANOTHERS = Rule(scopes=("approve",), another_person=True)
_ADMIN = Rule(scopes=("admin",))

RULES: Mapping[str, Rule] = {
    "GET /healthz": _PUBLIC,
    "GET /readyz": _PUBLIC,
    "GET /metrics": _READ,
    "GET /api/v1/schemas/parity.json": _PUBLIC,
    "GET /api/v1/workers": _READ,
    "POST /api/v1/evaluations": _READ,
    # Jobs.
    "GET /api/v1/jobs": _READ,
    "POST /api/v1/jobs": _SUBMIT,
    "POST /api/v1/jobs:evaluations": _SUBMIT,
    "POST /api/v1/jobs:gate": _SUBMIT,
    "POST /api/v1/jobs:plan": _READ,
    "GET /api/v1/jobs:compare": _READ,
    "GET /api/v1/trend": _READ,
    "GET /api/v1/trend.csv": _READ,
    "GET /api/v1/jobs/{job_id}": _READ,
    "GET /api/v1/jobs/{job_id}/gate": _SUBMIT,
    "POST /api/v1/jobs/{job_id}:again": _SUBMIT,
    "POST /api/v1/jobs/{job_id}:add-run": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:cancel": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:conclude": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:rejudge": _READ,
    "GET /api/v1/jobs/{job_id}/runs": _READ,
    "GET /api/v1/jobs/{job_id}/events": _READ,
    "GET /api/v1/jobs/{job_id}/verdict": _READ,
    "GET /api/v1/jobs/{job_id}/verdict.svg": _READ,
    "GET /api/v1/jobs/{job_id}/evidence.zip": _READ,
    "GET /api/v1/jobs/{job_id}/card.yaml": _READ,
    "GET /api/v1/jobs/{job_id}/card.md": _READ,
    "GET /api/v1/jobs/{job_id}/gap": _READ,
    "GET /api/v1/jobs/{job_id}/gaps": _READ,
    "GET /api/v1/jobs/{job_id}/columns": _READ,
    "GET /api/v1/jobs/{job_id}/live": _READ,
    "GET /api/v1/jobs/{job_id}/overlay": _READ,
    # What people add to a job.
    "GET /api/v1/jobs/{job_id}/remarks": _READ,
    "PUT /api/v1/jobs/{job_id}/tags": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}/notes": _NOTE,
    "POST /api/v1/jobs/{job_id}/statements": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:new-question": _ADMIN,
    "POST /api/v1/jobs/{job_id}/sign-offs": _APPROVE_ANOTHERS,
    "POST /api/v1/jobs/{job_id}/sign-offs/{sign_off_id}:revoke": _APPROVE,
    "GET /api/v1/badges/{named}.json": _READ,
    # Runs.
    "GET /api/v1/runs/{run_id}": Rule(scopes=("view", "worker"), trainer="live"),
    "POST /api/v1/runs": _SUBMIT,
    "POST /api/v1/runs/{run_id}:attach": _ATTACH,
    "POST /api/v1/runs/{run_id}/steps": _WRITE_RUN,
    "POST /api/v1/runs/{run_id}/layers": _WRITE_RUN,
    "POST /api/v1/runs/{run_id}:finish": _WRITE_RUN,
    "GET /api/v1/runs/{run_id}/steps": _READ,
    "GET /api/v1/runs/{run_id}/metrics": _READ,
    "GET /api/v1/runs/{run_id}/layers": _READ,
    "GET /api/v1/runs/{run_id}/log": _READ,
    "GET /api/v1/runs/{run_id}/artifacts/{attempt}/{name}": _READ,
    # What a team shares. Each change keeps who made it and why.
    "GET /api/v1/baselines": _READ,
    "POST /api/v1/baselines": _OWN_NAME,
    "GET /api/v1/baselines/{name}": _READ,
    "GET /api/v1/baselines/{name}/versions/{version}": _READ,
    "GET /api/v1/baselines/{name}/versions/{version}/diff": _READ,
    "POST /api/v1/baselines/{name}/versions/{version}/controls": _OWN_NAME,
    "POST /api/v1/baselines/{name}/versions/{version}:expire": _OWN_NAME,
    "GET /api/v1/goldens": _READ,
    "POST /api/v1/goldens:check": _READ,
    "GET /api/v1/goldens/{golden}": _READ,
    "GET /api/v1/goldens/{golden}/versions/{version}": _READ,
    "POST /api/v1/goldens/{golden}/versions": _OWN_NAME,
    "POST /api/v1/goldens/{golden}/versions/{version}:remove": _OWN_NAME,
    "GET /api/v1/noise-tables": _READ,
    "POST /api/v1/noise-tables": _IMPORT,
    # Tokens.
    "GET /api/v1/tokens": _ADMIN,
    "POST /api/v1/tokens": _ADMIN,
    "POST /api/v1/tokens/{token_id}:rotate": _ADMIN,
    "POST /api/v1/tokens/{token_id}:revoke": _ADMIN,
    **{
        operation: {"read": _READ, "submit": _SUBMIT}[name]
        for operation, name in lab().rules.items()
    },
}


def operations(openapi: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The operations of an OpenAPI document, by `METHOD PATH`."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }


def check(routes: Sequence[BaseRoute | RouteContext]) -> None:
    """RuntimeError unless each operation of an application's routes has a rule and each rule an
    operation.
    """
    described = [
        route
        for route in iter_route_contexts(routes)
        if isinstance(route.original_route, APIRoute) and route.include_in_schema
    ]
    operation_names = {
        f"{method} {route.path_format}" for route in described for method in route.methods or ()
    }
    if operation_names != RULES.keys():
        without, unused = (
            sorted(operation_names - RULES.keys()),
            sorted(RULES.keys() - operation_names),
        )
        raise RuntimeError(
            "server/web/access/rules.py must have one rule for each operation: "
            f"{without} have none, {unused} do not exist"
        )


def mark(openapi: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with `security` for the operations that need a token, and only for
    those.
    """
    for name, operation in operations(openapi).items():
        if RULES[name].is_public and isinstance(operation, dict):
            operation.pop("security", None)
    return openapi

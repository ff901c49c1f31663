"""The rules of the API against the application: each operation, called with each kind of token,
refuses exactly whom its rule refuses.
"""

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute, iter_route_contexts

from parity.judging.policy import policy_from_mapping
from server.database import run_tokens
from server.database.states import begin_attempt
from server.database.tables import Run
from server.errors import ForbiddenError
from server.jobs.submit import submit_job
from server.web.access import api_tokens, authorization, rules
from server.web.access import principals as principals_module
from server.web.access.rules import RULES, Rule, Scope, operations
from training.spec import ArmSpec

# In the order in which the test calls them: those that may change a job come last.
CALLERS = (
    "no token",
    "stranger: view",
    "stranger: worker",
    "stranger: approve",
    "stranger: submit",
    "other run's token",
    "run token",
    "owner: view",
    "owner: worker",
    "owner: approve",
    "owner: submit",
    "admin",
)
INCLUDES: dict[str, frozenset[Scope]] = {
    "submit": frozenset({"view", "submit"}),
    "approve": frozenset({"view", "approve"}),
    "view": frozenset({"view"}),
    "worker": frozenset({"worker"}),
}


def allows(rule: Rule, caller: str) -> bool:
    """Whether a rule lets a caller through; the run's token is that of its live attempt."""
    if rule.is_public or caller == "admin":
        return True
    if caller in ("no token", "other run's token", "run token"):
        return caller == "run token" and rule.trainer != "no"
    who, _, scope = caller.partition(": ")
    return bool(INCLUDES[scope].intersection(rule.scopes)) and not (
        rule.owner_only if who != "owner" else rule.another_person
    )


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 100_000})


@pytest.fixture
def job(database, make_job):
    """A function that makes a job of a principal whose first run has a trainer: the ids of the job
    and the run, and the run's token.
    """

    def make(principal):
        spec = make_job(
            40,
            engine="external",
            baseline=ArmSpec(recipe="fp8_current"),
            candidates=(ArmSpec(recipe="nvfp4"),),
        )
        with database.write() as session:
            made = submit_job(session, spec, policy_from_mapping({"margin": "1%"}), principal)
            run = session.get_one(Run, made.runs[0].id)
            run.state, run.attempt_number, made.status = "running", 1, "running"
            begin_attempt(session, run.id, 1, None)
            return made.id, run.id, run_tokens.issue(session, run.id, 1)

    return make


@pytest.mark.postgresql  # the rules ask no database, but PostgreSQL has rights besides
def test_each_operation_refuses_whom_its_rule_refuses(api, database, job):
    texts, principals = {}, {}
    with database.write() as session:
        for name in ("owner", "stranger"):
            first, texts[f"{name}: submit"] = api_tokens.create_token(
                session, name, ["submit"], None
            )
            principals[name] = first.id
            for scope in ("view", "worker", "approve"):
                _, texts[f"{name}: {scope}"] = api_tokens.create_token(
                    session, name, [scope], None, principal_id=first.id
                )
        _, texts["admin"] = api_tokens.create_token(session, "admin", ["admin"], None)
    texts["other run's token"] = job(principals["owner"])[2]
    wrong = []
    for operation, document in operations(api.app.openapi()).items():
        method, template = operation.split(" ")
        # The owner's and admin's calls come last, because they may change the job.
        job_id, run_id, texts["run token"] = job(principals["owner"])
        path = template.format_map(_Path(job_id=job_id, run_id=run_id))
        for caller in CALLERS:
            headers = {} if caller == "no token" else {"Authorization": f"Bearer {texts[caller]}"}
            body = {"json": {}} if "requestBody" in document else {}
            with api.stream(
                method, path, params={"attempt": 1, "after": 2**52}, headers=headers, **body
            ) as answer:
                refused = answer.status_code in (401, 403)
            assert answer.status_code != 500, (operation, caller)
            if refused == allows(RULES[operation], caller) or (answer.status_code == 401) != (
                caller == "no token" and refused
            ):
                wrong.append((operation, caller, answer.status_code))
    assert wrong == []


class _Path(dict):
    """The parameters of a path; those that the test does not set name nothing that exists."""

    def __missing__(self, name):
        return {"version": "1", "attempt": "1", "kind": "svg"}.get(name, "none")


def test_an_operation_without_a_rule_and_a_rule_without_an_operation_are_refused(api):
    routes = [*iter_route_contexts(api.app.routes)]
    rules.check(routes)
    with_route = [*routes, APIRoute("/api/v1/jobs/{job_id}/stars", lambda: None, methods=["POST"])]
    without_route = [route for route in routes if route.path_format != "/api/v1/workers"]
    for changed, name in (
        (with_route, "POST /api/v1/jobs/{job_id}/stars"),
        (without_route, "GET /api/v1/workers"),
    ):
        with pytest.raises(RuntimeError, match=name.replace("{", r"\{").replace("}", r"\}")):
            rules.check(changed)


def test_a_new_route_without_a_rule_keeps_the_application_from_starting(settings, monkeypatch):
    from server import app
    from server.api import events

    router = APIRouter(prefix="/api/v1")
    router.add_api_route("/jobs/{job_id}/events", lambda: None)
    router.add_api_route("/events:drop", lambda: None, methods=["POST"])
    monkeypatch.setattr(events, "router", router)
    with pytest.raises(RuntimeError, match="POST /api/v1/events:drop"):
        app.create_app(settings)


def test_only_operations_that_need_a_token_are_marked_so_in_the_description(api):
    for operation, document in operations(api.app.openapi()).items():
        assert ("security" in document) is not RULES[operation].is_public, operation


@pytest.mark.parametrize("operation", [name for name, rule in RULES.items() if rule.gates_refused])
@pytest.mark.parametrize(
    ("repository", "scopes", "refused"),
    [
        (None, {"submit"}, False),
        ("https://git.example/model", {"submit"}, True),
        ("https://git.example/model", {"submit", "approve"}, False),
        ("https://git.example/model", {"admin"}, False),
    ],
)
def test_what_verdicts_rest_on_is_not_for_a_token_of_gates_alone(
    operation, repository, scopes, refused
):
    sender = principals_module.Principal(
        id="t", name="ci", scopes=frozenset(scopes), run=None, repository=repository
    )
    if refused:
        with pytest.raises(ForbiddenError, match="is for the gates of repository https://git"):
            authorization.check_rule(None, RULES[operation], sender, {})
    else:
        authorization.check_rule(None, RULES[operation], sender, {})

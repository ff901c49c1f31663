"""Names of those who submitted a job or changed a baseline."""

from server.database.tables import LOCAL_ID, LOCAL_NAME
from server.documents.principals import principal_names
from server.web.access.api_tokens import create_token
from server.web.access.principals import LOCAL


def test_tokens_and_this_machine_have_names(database):
    with database.write() as session:
        mine, other = (
            create_token(session, name, ["view"], None)[0].id for name in ("mine", "other")
        )
    with database.read() as session:
        names = principal_names(session, {mine, "t-gone", None})
    assert names == {LOCAL_ID: LOCAL_NAME, mine: "mine"}
    assert other not in names
    assert (LOCAL.id, LOCAL.name) == (LOCAL_ID, LOCAL_NAME)

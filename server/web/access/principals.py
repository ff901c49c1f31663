"""Who sends a request, with which scopes; and whether senders need a token at all."""

import ipaddress

from parity.frozen import frozen
from server.database import tables
from server.database.run_tokens import RunToken
from server.settings import Settings
from server.web.access.rules import SCOPES, Scope


@frozen
class Principal:
    """A sender with scopes; `admin` includes all others, `submit` and `approve` include `view`. A
    trainer with a run token has none.

    `repository` is the one whose gates its token asks.
    """

    id: str
    name: str
    scopes: frozenset[str]
    run: RunToken | None = None
    repository: str | None = None

    def may(self, scope: Scope) -> bool:
        """Whether this principal has the scope, directly or through a wider one."""
        return (
            scope in self.scopes
            or "admin" in self.scopes
            or (scope == "view" and not self.scopes.isdisjoint(("submit", "approve")))
        )


NOBODY = Principal(id="", name="nobody", scopes=frozenset())
LOCAL = Principal(id=tables.LOCAL_ID, name=tables.LOCAL_NAME, scopes=frozenset(SCOPES))


def tokens_required(settings: Settings) -> bool:
    """Whether a request needs a token: always, except on a loopback address without
    `require_tokens`.
    """
    return settings.require_tokens or not is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # a dual-stack socket reports ::ffff:127.0.0.1
    inside = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (inside or address).is_loopback

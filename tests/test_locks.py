"""The locks of the containers against the lock of `make demo`."""

import re

import pytest

from server.settings import CHECKOUT


@pytest.mark.parametrize("lock", ["server", "worker"])
def test_what_a_container_installs_is_what_make_demo_runs(lock):
    """A pair whose arms ran on different versions is confounded, so the locks may not differ."""

    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==(\S+)", (CHECKOUT / name).read_text(), re.MULTILINE))

    here, all_of_it = pins(f"locks/{lock}.lock"), pins("locks/standalone.lock")
    assert here
    assert here.items() <= all_of_it.items()

"""What a page says to do about the code of a run or a job."""

import pytest

from server.run_codes import RUN_CODES, remedy_of


@pytest.mark.parametrize("code", sorted(RUN_CODES))
def test_every_code_has_a_remedy_that_is_a_sentence_without_links(code: str) -> None:
    remedy = remedy_of(code)
    assert remedy[0].isupper() or not remedy[0].isalpha()
    assert remedy.endswith(".")
    assert "](" not in remedy


def test_a_code_without_an_entry_has_none() -> None:
    assert remedy_of("NO_SUCH_CODE") == ""

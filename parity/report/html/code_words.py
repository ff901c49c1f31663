"""Sentences with commands in them, as HTML."""

import re
from html import escape


def with_code(sentence: str) -> str:
    """A sentence as HTML; what stands between backticks, as a command does, looks like code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(sentence))

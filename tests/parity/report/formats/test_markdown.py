"""Names in a pull request's comment stay names: nobody is mentioned, nothing is linked."""

import pytest

from parity.report.formats.markdown import escaped

SPACE = "&#8203;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@octocat, @org/team", f"@{SPACE}octocat, @{SPACE}org/team"),
        ("me@example.com", f"me@{SPACE}example.com"),
        ("fixes #12, org/repo#3 and GH-4", f"fixes #{SPACE}12, org/repo#{SPACE}3 and GH-{SPACE}4"),
        ("https://x.example", f"https:{SPACE}//x.example"),
        ("www.x.example", f"www{SPACE}.x.example"),
        ("![a](b) [c][d]", "!&#91;a&#93;(b) &#91;c&#93;&#91;d&#93;"),
        (
            "**a** ~~b~~ __c__",
            "&#42;&#42;a&#42;&#42; &#126;&#126;b&#126;&#126; &#95;&#95;c&#95;&#95;",
        ),
        ("a\\|b\nc", "a&#92;&#124;b c"),
        ("<a href=x>&amp;", "&lt;a href=x&gt;&amp;amp;"),
        ("&#64;octocat", "&amp;#" + SPACE + "64;octocat"),
        ("fp8_current 95 % # of runs: 3", "fp8_current 95 % # of runs: 3"),
    ],
)
def test_text_is_only_text(text, expected):
    assert escaped(text) == expected

"""The text from which tokens are made: readable, each file once, mixed in an order that never
changes.
"""

from tools.gpu_evidence.text import documents, readable


def test_html_becomes_what_a_person_reads():
    head, script = "<head><title>no</title></head>", "<script>no()</script>"
    page = (
        f"{head}<body><nav>no</nav><h1>Pages &amp; folios</h1>{script}\n\n\n<p>a "
        "<b>page</b></p><!-- no --></body>"
    )
    assert readable(page, ".html").split() == ["Pages", "&", "folios", "a", "page"]
    assert "\n\n\n" not in readable(page, ".html")
    assert readable("a < b & c\n", ".txt") == "a < b & c"


def test_files_are_mixed_and_their_order_does_not_depend_on_the_place(tmp_path):
    for folder in ("one", "two"):
        for number in range(20):
            file = tmp_path / folder / "pages" / f"{number // 5}" / f"{number}.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"<p>text {number}</p>")
        (tmp_path / folder / "pages" / "_sources").mkdir()
        (tmp_path / folder / "pages" / "_sources" / "0.rst.txt").write_text("a copy")
        (tmp_path / folder / "pages" / "image.png").write_bytes(b"\x89PNG")
        (tmp_path / folder / "pages" / "empty.txt").write_text(" \n")
    one, two = (list(documents([tmp_path / folder / "pages"])) for folder in ("one", "two"))
    assert one == two
    assert sorted(one) == sorted(f"text {number}" for number in range(20))
    assert one != sorted(one, key=lambda text: int(text.split()[1]))


def test_a_single_file_is_a_text_too(tmp_path):
    (tmp_path / "book.txt").write_text("a book")
    assert list(documents([tmp_path / "book.txt"])) == ["a book"]

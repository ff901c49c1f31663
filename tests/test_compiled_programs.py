"""What tests compile is kept from one run to the next, and bounded."""

import os

from tests.conftest import compiled_programs, drop_oldest


def test_the_folder_depends_on_the_user_and_not_on_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = compiled_programs()
    monkeypatch.chdir(tmp_path)
    assert compiled_programs() == first
    assert tmp_path in first.parents


def test_another_jax_has_another_folder(monkeypatch):
    first = compiled_programs()
    monkeypatch.setattr("tests.conftest.metadata.version", lambda _: "0.0")
    assert compiled_programs() != first


def test_the_oldest_programs_go_first(tmp_path):
    (tmp_path / "a").mkdir()
    for age, name in enumerate(("new", "a/middle", "old")):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    drop_oldest(tmp_path, 300)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 3
    drop_oldest(tmp_path, 250)
    assert not (tmp_path / "old").exists()
    drop_oldest(tmp_path, 0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

"""What a launcher's trainer prints, on its way to the log of the attempt."""

import os

from workers.commands.commit_trainer import _Printed


def test_what_a_trainer_prints_is_copied_once_from_its_first_byte(tmp_path, capfdbinary):
    printed = _Printed(tmp_path / "log")
    for piece in (b"first\n", b"", b"second \xff\n"):
        os.write(printed.descriptor, piece)
        printed.copy()
    printed.close()
    assert capfdbinary.readouterr().err == b"first\nsecond \xff\n"


def test_a_trainer_that_puts_another_file_in_its_place_is_still_read(tmp_path, capfdbinary):
    printed = _Printed(tmp_path / "log")
    os.write(printed.descriptor, b"mine\n")
    (tmp_path / "other").write_bytes(b"not mine\n")
    (tmp_path / "other").rename(tmp_path / "log")
    printed.copy()
    assert printed.tail() == "mine"
    printed.close()
    assert capfdbinary.readouterr().err == b"mine\n"

"""The table of commands: it says what the modules say, without their import, and errors have their
exit codes.
"""

import importlib

import pytest

from parity.cli.application import ERROR_CODES
from parity.cli.command_table import Commands
from parity.gate.exit_codes import EXIT_CODES

GROUP = Commands(name="parity")


@pytest.mark.parametrize("name", Commands.places)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_own_help(name):
    command = GROUP.get_command(None, name)
    assert command.name == name
    assert command.get_short_help_str(1000).rstrip(".") == Commands.places[name].summary.rstrip(".")


def test_every_command_of_a_module_is_in_the_table():
    for module, name in {(place.module, place.app) for place in Commands.places.values()}:
        app = getattr(importlib.import_module(module), name)
        own = {command.name or command.callback.__name__ for command in app.registered_commands}
        listed = {
            word
            for word, place in Commands.places.items()
            if (place.module, place.app) == (module, name)
        }
        assert listed == ({app.info.name} if isinstance(app.info.name, str) else own)


@pytest.mark.parametrize("name", ERROR_CODES)
def test_the_classes_of_errors_exist(name):
    module, _, own = name.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), own), Exception)
    assert ERROR_CODES[name] in EXIT_CODES

import re

from server.settings import CHECKOUT, Settings
from tools.tables.generated import DOCS
from tools.tables.settings import settings_table

# Read by the command line and the logger, not by the service (docs/cli.md, docs/trainers.md).
CLIENT = {"PARITY_URL", "PARITY_TOKEN", "PARITY_RUN", "PARITY_SPOOL"}


def test_each_setting_has_one_row_with_a_meaning():
    table = settings_table()
    assert [
        table.count(f'<a id="parity_{name}"></a>`PARITY_{name.upper()}` |')
        for name in Settings.model_fields
    ] == [1] * len(Settings.model_fields)
    assert all(field.description for field in Settings.model_fields.values())


def test_each_variable_that_the_service_reads_is_on_the_page():
    names = {f"PARITY_{name.upper()}" for name in Settings.model_fields}
    for folder in ("server", "workers", "training", "parity_lab"):
        for file in (CHECKOUT / folder).rglob("*.py"):
            names |= set(re.findall(r'"(PARITY_[A-Z_]+[A-Z])"', file.read_text(encoding="utf-8")))
    section = (DOCS / "settings.md").read_text(encoding="utf-8")
    # workers/slots.py also has prefixes of variables, such as PARITY_PROCESS.
    missing = {name for name in names - CLIENT if f"`{name}" not in section}
    assert not missing

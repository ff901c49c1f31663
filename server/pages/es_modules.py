"""Which ES modules a page names: all that its own module imports.

A browser sees what a module imports only once it has that module, so a page that names all of them
saves the wait.
"""

import re
from pathlib import Path

# charts and style; the verdict's are also in the page that `parity compare --open` writes
CHARTS = ("parity.report", "static")
_IMPORT = re.compile(r"""^import (?:.*from )?"\./([a-z_]+\.js)";$""", re.MULTILINE)


def imported_by(name: str, *folders: Path) -> list[str]:
    """The names of all modules that a module imports, directly or not, in the order of their
    imports; each is in one of these folders.
    """
    names = [name]
    for module in names:
        file = next(folder / module for folder in folders if (folder / module).exists())
        names += [
            other
            for other in dict.fromkeys(_IMPORT.findall(file.read_text(encoding="utf-8")))
            if other not in names
        ]
    return names[1:]

"""The scripts of the charts as text for one file: our modules in an import map, and the chart library.

The library (uPlot, MIT) is not in the repository. `npm ci` puts it into node_modules, and a wheel that is built after that contains it.
"""

import base64
import json
import re
from functools import cache
from pathlib import Path

_STATIC = Path(__file__).parents[1] / "static"
ENTRY = "offline"
_VENDOR = _STATIC / "vendor" / "uplot"  # in a wheel
_INSTALLED = Path(__file__).parents[3] / "node_modules" / "uplot"  # in a checkout
_LIBRARY_ADDRESS = "/static/vendor/uplot/uPlot.esm.js"  # the server's
_IMPORT = re.compile(r'(from|import) "\./(\w+)\.js"')


def library_folder() -> Path | None:
    """The folder of the chart library, or None where this installation lacks it."""
    return next((folder for folder in (_VENDOR, _INSTALLED) if (folder / "dist" / "uPlot.iife.min.js").is_file()), None)


@cache
def library_script(folder: Path) -> str:
    """The chart library as a classic script, its licence before it."""
    licence = (folder / "LICENSE").read_text(encoding="utf-8").replace("*/", "")
    return f"/* {licence} */\n{(folder / 'dist' / 'uPlot.iife.min.js').read_text(encoding='utf-8')}"


def style(folder: Path | None) -> str:
    """The style of the pages, and of the chart library where there is one."""
    own = (_STATIC / "parity.css").read_text(encoding="utf-8")
    return own if folder is None else own + (folder / "dist" / "uPlot.min.css").read_text(encoding="utf-8")


@cache
def import_map() -> str:
    """The import map (JSON) of the modules that the entry needs, each as a data: URL, under bare names."""
    modules = {"uplot": "export default globalThis.uPlot;"}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in modules:
            continue
        text = (_STATIC / f"{name}.js").read_text(encoding="utf-8")
        waiting += [match[2] for match in _IMPORT.finditer(text)]
        modules[name] = _IMPORT.sub(r'\1 "\2"', text).replace(_LIBRARY_ADDRESS, "uplot")
    addresses = {name: f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}" for name, text in modules.items()}
    return json.dumps({"imports": addresses}, sort_keys=True)

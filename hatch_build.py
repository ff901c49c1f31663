"""Puts the chart library into a wheel, from node_modules, for the pages of `parity compare --open`. Without it there the wheel has none."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = ("LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css")


class ChartLibrary(BuildHookInterface):  # type: ignore[type-arg]
    """Includes uPlot, where `npm ci` has installed it. A source distribution keeps it where a wheel that is built from it looks."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library's files to what is built."""
        folder = Path(self.root) / "node_modules" / "uplot"
        if version == "editable" or not all((folder / name).is_file() for name in FILES):
            return
        target = "parity/report/static/vendor/uplot" if self.target_name == "wheel" else "node_modules/uplot"
        build_data["force_include"].update({str(folder / name): f"{target}/{name}" for name in FILES})

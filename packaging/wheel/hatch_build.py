"""Puts the tree that scripts/install laid out into the wheel, and says for which machines it is."""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tree(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        # scripts/dist has found out from which C library on
        build_data["tag"] = f"py3-none-{os.environ['POLYRAIL_PLATFORM']}"
        stage = Path(self.root) / "stage"
        # file by file: of a directory it takes what a selection of Python modules includes, which is nothing here
        for path in sorted(path for path in stage.rglob("*") if path.is_file()):
            place = path.relative_to(stage)
            if place.parts[0] == "bin":
                build_data["shared_scripts"][str(path)] = str(place.relative_to("bin"))
            else:
                build_data["shared_data"][str(path)] = str(place)

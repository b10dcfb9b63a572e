"""One wheel for each platform has dbctl as a script; the pure wheel has none and finds dbctl on PATH.

CTXPAGE_BINARY is the program to pack, CTXPAGE_PLATFORM the tag of its platform.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        binary = os.environ.get("CTXPAGE_BINARY")
        if self.target_name != "wheel" or not binary:
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["CTXPAGE_PLATFORM"]
        build_data["shared_scripts"][binary] = "dbctl.exe" if binary.endswith(".exe") else "dbctl"

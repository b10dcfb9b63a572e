"""Batch ids: ULIDs, by which the server knows a call that is repeated."""

from __future__ import annotations

import os
import time

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_batch() -> str:
    """Returns a new ULID: 48 bits of milliseconds and 80 random bits."""
    n = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_DIGITS[n >> s & 31] for s in range(125, -1, -5))

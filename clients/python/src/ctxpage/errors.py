"""Errors. Each code of the server is an exception of its own, with the server's words."""

from __future__ import annotations

from typing import Any


class CtxpageError(Exception):
    """A call failed. `code` is stable: programs compare it. The text is for people."""

    code = "internal"

    def __init__(self, message: str, *, code: str = "", hint: str = "", **more: Any) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message, self.hint = message, hint
        if code:
            self.code = code
        self.batch: str = more.get("batch", "")
        """Of Held: the batch that waits for review."""
        self.trace: str = more.get("trace", "")
        self.reason: str = more.get("reason", "")
        """Of Held: why."""
        self.ref: str = more.get("ref", "")
        """Of Conflict: what has a newer version."""


class Held(CtxpageError):
    """The gate held the write: durable, invisible, listed for review. Do not repeat it."""

    code = "held"


class Conflict(CtxpageError):
    """What it overwrites has changed: read again and retry."""

    code = "conflict"


class StaleContext(CtxpageError):
    """What it was written from has changed: assemble again."""

    code = "stale_context"


class NotFound(CtxpageError):
    """There is no such thing in the scope or above it."""

    code = "not_found"


class Gone(CtxpageError):
    """It was there: gc dropped it, it was erased (Erased), or its time is over (Expired)."""

    code = "gone"


class Erased(Gone):
    code = "erased"


class Expired(Gone):
    code = "expired"


class Dirty(CtxpageError):
    """Its source changed and cannot be fetched."""

    code = "dirty"


class Vanished(Dirty):
    code = "vanished"


class Invalid(CtxpageError, ValueError):
    """The request is wrong; the message says what was expected."""

    code = "invalid"


class Budget(CtxpageError):
    """The protected part does not fit the budget."""

    code = "budget"


class Headroom(CtxpageError):
    """The turn does not fit the window."""

    code = "headroom"


class Quota(CtxpageError):
    """The scope may hold no more."""

    code = "quota"


class Forbidden(CtxpageError):
    """The caller may not do that."""

    code = "role"


class SelfCertified(Forbidden):
    code = "self_certified"


class Reviewed(CtxpageError):
    """The batch was decided before."""

    code = "reviewed"


class TxnDone(CtxpageError):
    """The transaction has ended."""

    code = "txn_done"


class OutcomeUnknown(CtxpageError):
    """It may or may not have happened."""

    code = "outcome_unknown"


class Unavailable(CtxpageError):
    """No server answers, or it is full, closing, or too slow. The call may be made again."""

    code = "not_answering"


class Damaged(CtxpageError):
    """The files are damaged, of another release, encrypted with another key, or not there."""

    code = "corrupt"


_classes: tuple[type[CtxpageError], ...] = (
    Held, Conflict, StaleContext, NotFound, Gone, Erased, Expired, Dirty, Vanished, Invalid, Budget, Headroom, Quota, Forbidden, SelfCertified, Reviewed, TxnDone, OutcomeUnknown, Unavailable, Damaged,
)  # fmt: skip
_by_code: dict[str, type[CtxpageError]] = {c.code: c for c in _classes}
for _class, _codes in (
    (Invalid, "body too_large call method undo"),
    (Forbidden, "gated provenance scope unauthorized host origin key read_only file_root stop foreign"),
    (TxnDone, "txn_failed txn_expired"),
    (Unavailable, "closing full deadline cancelled locked skew no_space"),
    (Damaged, "newer_format old_format not_database no_database wrong_key"),
):
    _by_code.update(dict.fromkeys(_codes.split(), _class))


def error_of(body: dict[str, Any]) -> CtxpageError:
    """The exception for an error of the server."""
    code = body.get("code", "internal")
    more = {k: body[k] for k in ("batch", "trace", "reason", "ref") if k in body}
    return _by_code.get(code, CtxpageError)(body.get("message", code), code=code, hint=body.get("hint", ""), **more)

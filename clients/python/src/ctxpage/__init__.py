"""ctxpage: an embedded context database for LLM agents.

    import ctxpage

    with ctxpage.open("agent.ctx") as db:
        memory = db.scope("acme/support")
        memory.put("policy", "Refunds up to $400 need no approval.")
        print(memory.assemble("what may I refund?", 2000).text)

`aopen` is the same for asyncio. docs/python.md explains both.
"""

from . import types
from ._async import AsyncDatabase, AsyncDirectives, AsyncOperator, AsyncReview, AsyncScope, AsyncSession, AsyncTransaction, aopen
from ._ids import new_batch
from ._shared import Assembly, Provider, id_of
from ._sync import Database, Directives, Operator, Review, Scope, Session, Transaction, open
from .errors import (
    Budget,
    Conflict,
    CtxpageError,
    Damaged,
    Dirty,
    Erased,
    Expired,
    Forbidden,
    Gone,
    Headroom,
    Held,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Quota,
    Reviewed,
    SelfCertified,
    StaleContext,
    TxnDone,
    Unavailable,
    Vanished,
)

__version__ = "0.1.0"

__all__ = [
    "Assembly", "AsyncDatabase", "AsyncDirectives", "AsyncOperator", "AsyncReview", "AsyncScope", "AsyncSession", "AsyncTransaction", "Budget", "Conflict",
    "CtxpageError", "Damaged", "Database", "Directives", "Dirty", "Erased", "Expired", "Forbidden", "Gone", "Headroom", "Held", "Invalid", "NotFound",
    "Operator", "OutcomeUnknown", "Provider", "Quota", "Review", "Reviewed", "Scope", "SelfCertified", "Session", "StaleContext", "Transaction", "TxnDone",
    "Unavailable", "Vanished", "aopen", "id_of", "new_batch", "open", "types",
]  # fmt: skip

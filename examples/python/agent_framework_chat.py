"""Microsoft Agent Framework with memory: the history is stored, and facts come from a context. `pip install ctxpage[agent-framework]`, then:

    python3 agent_framework_chat.py agent.ctx       # twice: the second run knows the first
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, ContextProvider, Message, SessionContext

import ctxpage
from ctxpage.adapters.agent_framework import CtxpageHistoryProvider


class Scripted(BaseChatClient):
    """In place of a real model: it repeats what it was told."""

    async def _inner_get_response(self, *, messages: list[Message], stream: bool = False, options: Any, **more: Any) -> ChatResponse:
        told = [line for line in (options.get("instructions") or "").splitlines() if "Refunds" in line]
        return ChatResponse(messages=[Message("assistant", [f"{' '.join(told)} I have {len(messages)} messages."])])


class Facts(ContextProvider):
    """What the scope knows about the question, in at most 300 tokens."""

    def __init__(self, scope: ctxpage.Scope) -> None:
        super().__init__("facts")
        self.scope = scope

    async def before_run(self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]) -> None:
        found = await asyncio.to_thread(self.scope.assemble, context.input_messages[-1].text, 300)
        print("why:", *self.scope.why(found, "policy")["steps"][-2:], sep="\n  ")
        context.extend_instructions(self.source_id, found.text)


async def main(path: str) -> None:
    policy = Path(path).resolve().with_suffix(".policy.md")
    policy.write_text("Refunds up to $400 need no approval.")
    with ctxpage.open(path, args=["--root", str(policy.parent)]) as db:
        facts = db.scope("acme")
        facts.put("policy", source=f"file:{policy}")
        agent = Agent(client=Scripted(), context_providers=[CtxpageHistoryProvider(db.scope("acme/chats")), Facts(facts)])
        session = AgentSession(session_id="chat-1")
        for question in ("what may I refund?", "and now, what may I refund?"):
            print("said:", (await agent.run(question, session=session)).text)
            policy.write_text("Refunds up to $500 need no approval.")  # the next context has it
        try:
            db.gated("acme", actor="bot").put("guess", "Refunds up to $900.")
        except ctxpage.Held as held:
            print("a draft of the model:", held.code)


asyncio.run(main(sys.argv[1]))

"""Pydantic AI with memory: the conversation is stored, and facts come from a context. `pip install ctxpage[pydantic-ai]`, then:

    python3 pydantic_ai_chat.py agent.ctx       # twice: the second run knows the first
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import ctxpage
from ctxpage.adapters.pydantic_ai import CtxpageConversationStore


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """In place of a real model: it repeats what it was told."""
    told = [line for line in (info.instructions or "").splitlines() if "Refunds" in line]
    return ModelResponse([TextPart(f"{' '.join(told)} I have {len(messages)} messages.")])


agent = Agent(FunctionModel(model), deps_type=ctxpage.Scope)


@agent.instructions
def context(run: RunContext[ctxpage.Scope]) -> str:
    found = run.deps.assemble(str(run.prompt), 300)  # at most 300 tokens, whatever is stored
    print("why:", *run.deps.why(found, "policy")["steps"][-2:], sep="\n  ")
    return found.text


async def main(path: str) -> None:
    policy = Path(path).resolve().with_suffix(".policy.md")
    policy.write_text("Refunds up to $400 need no approval.")
    with ctxpage.open(path, args=["--root", str(policy.parent)]) as db:
        facts, store = db.scope("acme"), CtxpageConversationStore(db.scope("acme/chats"))
        facts.put("policy", source=f"file:{policy}")
        for question in ("what may I refund?", "and now, what may I refund?"):
            conversation = await store.load("chat-1") or Conversation(conversation_id="chat-1")
            result = await agent.run(question, conversation=conversation, deps=facts)
            await store.save(result, scope="ann")
            print("said:", result.output)
            policy.write_text("Refunds up to $500 need no approval.")  # the next context has it
        try:
            db.gated("acme", actor="bot").put("guess", "Refunds up to $900.")
        except ctxpage.Held as held:
            print("a draft of the model:", held.code)


asyncio.run(main(sys.argv[1]))

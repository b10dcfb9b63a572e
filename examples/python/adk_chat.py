"""Google ADK with memory: sessions, and what a user said in earlier ones. `pip install ctxpage[google-adk]`, then:

    python3 adk_chat.py agent.ctx       # twice: the second run knows the first
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai.types import Content, Part

import ctxpage
from ctxpage.adapters.adk import CtxpageMemoryService, CtxpageSessionService


class Scripted(BaseLlm):
    """In place of a real model: it repeats what it was told."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        told = [line for line in str(llm_request.config.system_instruction).splitlines() if "Refunds" in line or "Ada" in line]
        yield LlmResponse(content=Content(role="model", parts=[Part(text=" | ".join(told) or "Noted.")]))


async def main(path: str) -> None:
    policy = Path(path).resolve().with_suffix(".policy.md")
    policy.write_text("Refunds up to $400 need no approval.")
    with ctxpage.open(path, args=["--root", str(policy.parent)]) as db:
        facts = db.scope("acme")
        facts.put("policy", source=f"file:{policy}")
        memory = CtxpageMemoryService(facts)
        mine = memory.of("desk", "ann")  # ann's memory and the facts of acme; never another user's

        async def instructions(of: ReadonlyContext) -> str:
            found = await asyncio.to_thread(mine.assemble, of.user_content.parts[0].text, 300)  # at most 300 tokens
            print("why:", *mine.why(found, "policy")["steps"][-2:], sep="\n  ")
            return found.text

        agent = LlmAgent(name="desk", model=Scripted(), instruction=instructions, tools=[PreloadMemoryTool()])
        runner = Runner(app_name="desk", agent=agent, session_service=CtxpageSessionService(facts), memory_service=memory, auto_create_session=True)
        for session, question in (("s1", "My name is Ada. What may I refund?"), ("s2", "What is my name, and what may I refund?")):
            async for event in runner.run_async(user_id="ann", session_id=session, new_message=Content(role="user", parts=[Part(text=question)])):
                print("said:", event.content.parts[0].text)
            done = await runner.session_service.get_session(app_name="desk", user_id="ann", session_id=session)
            await memory.add_session_to_memory(done)
            policy.write_text("Refunds up to $500 need no approval.")  # the next context has it
        try:
            db.gated(mine.name, actor="bot").put("guess", "Ada may refund $900.")
        except ctxpage.Held as held:
            print("a draft of the model:", held.code)


asyncio.run(main(sys.argv[1]))

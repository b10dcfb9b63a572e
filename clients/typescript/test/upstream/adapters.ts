// The adapters against the types of the frameworks. It is compiled, not run.
import { betaMemoryTool, type MemoryToolHandlers } from '@anthropic-ai/sdk/tools/memory/node';
import type Anthropic from '@anthropic-ai/sdk';
import { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import type { InputProcessor, OutputProcessor } from '@mastra/core/processors';
import { run, Agent, type AgentInputItem, type Session } from '@openai/agents-core';
import { wrapLanguageModel, type LanguageModelMiddleware } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import { defineMemory, type MemoryProvider } from 'eve/memory';
import { byPrincipal } from 'eve/memory/scope';
import { defineTool } from 'eve/tools';
import type OpenAI from 'openai';
import { open } from 'ctxpage';
import { aiMemory } from 'ctxpage/ai-sdk';
import { MemoryTool } from 'ctxpage/anthropic';
import { eveMemory } from 'ctxpage/eve';
import { CtxpageSaver } from 'ctxpage/langgraph';
import { mastraMemory } from 'ctxpage/mastra';
import { AgentSession } from 'ctxpage/openai-agents';

const db = await open('agent.ctx');
const scope = db.scope('acme');

export const handlers: MemoryToolHandlers = new MemoryTool(scope);
export const memoryTool = betaMemoryTool(new MemoryTool(scope));
export const saver: BaseCheckpointSaver = new CtxpageSaver(scope);
export const session: Session = new AgentSession<AgentInputItem>(scope, 'chat');
export const running = run(new Agent({ name: 'a' }), 'hello', { session });
export const provider: MemoryProvider = eveMemory(db, { defineTool });
export const memory = defineMemory({ provider: eveMemory(db), scope: byPrincipal });
export const middleware: LanguageModelMiddleware = aiMemory(scope);
export const model = wrapLanguageModel({ model: new MockLanguageModelV4(), middleware: aiMemory(scope, { session: 'chat' }) });
export const input: InputProcessor = mastraMemory(scope);
export const output: OutputProcessor = mastraMemory(scope);

// The messages of a context go straight into a provider's client.
export async function ask(openai: OpenAI, anthropic: Anthropic): Promise<unknown[]> {
  const forOpenAI = await scope.assemble('refund?', { budget: 2000, messages: 'openai' });
  const forAnthropic = await scope.assemble('refund?', { budget: 2000, messages: 'anthropic' });
  return [
    await openai.chat.completions.create({ model: 'gpt-5', ...forOpenAI.messages('openai') }),
    await anthropic.messages.create({ model: 'claude', max_tokens: 1024, ...forAnthropic.messages('anthropic') }),
  ];
}

// OpenAI's own MemorySession beside ours: 10,000 random operations must answer the same. Then a Runner with a scripted model.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Agent, MemorySession, Runner, setTracingDisabled, tool } from '@openai/agents-core';
import { assistantMessage, functionCall, modelResponse, ScriptedModel } from '@openai/agents-core/testing';
import { z } from 'zod';
import { AgentSession } from 'ctxpage/openai-agents';
import { database, random } from './common.mjs';

setTracingDisabled(true);
const operations = 10_000;

function itemOf(rand, n) {
  const text = ['hello', '', 'zwölf \u{1F9E0}', '<script>', 'x'.repeat(2000), '\ud800', 'line\nline'][Math.floor(rand() * 7)] + ` ${n}`;
  switch (Math.floor(rand() * 7)) {
    case 0: return { type: 'message', role: 'user', content: text };
    case 1: return { role: 'user', content: [{ type: 'input_text', text }, { type: 'input_image', image: 'data:image/png;base64,AAAA', detail: 'auto' }] };
    case 2: return { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text, annotations: [] }], providerData: { n, deep: [null, true, { a: 1.5 }] } };
    case 3: return { type: 'function_call', callId: `call-${n}`, name: 'lookup', arguments: JSON.stringify({ text }), status: 'completed' };
    case 4: return { type: 'function_call_result', callId: `call-${n - 1}`, name: 'lookup', status: 'completed', output: { type: 'text', text } };
    case 5: return { type: 'reasoning', id: `r-${n}`, content: [] };
    default: return { role: 'system', content: text };
  }
}

test(`${operations} random operations beside MemorySession`, async (t) => {
  const db = await database(t);
  const theirs = new MemorySession({ sessionId: 'chat' });
  const ours = new AgentSession(db.scope('agents'), 'chat');
  assert.equal(await ours.getSessionId(), await theirs.getSessionId());
  const rand = random(5);
  let length = 0;
  for (let i = 0; i < operations; i++) {
    const what = rand();
    let op;
    if (what < 0.3) {
      const items = Array.from({ length: Math.floor(rand() * 4) }, (_, k) => itemOf(rand, i * 10 + k));
      op = (s) => s.addItems(structuredClone(items));
      length += items.length;
    } else if (what < 0.7) op = (s) => s.popItem();
    else if (what < 0.72 || length > 60) (op = (s) => s.clearSession()), (length = 0);
    else {
      const limit = [undefined, 0, -1, 1, 3, 1000, 2000][Math.floor(rand() * 7)];
      op = (s) => s.getItems(limit);
    }
    assert.deepEqual(await op(ours), await op(theirs));
  }
  assert.deepEqual(await ours.getItems(), await theirs.getItems());
  console.log(`measured ${operations} operations the same;`);
});

test('bytes, several callers that pop, and a second process', async (t) => {
  const db = await database(t);
  const scope = db.scope('agents');
  const session = new AgentSession(scope, 'chat');
  const item = { type: 'unknown', providerData: { bytes: new Uint8Array([0, 255, 7]) } };
  await session.addItems([item]);
  assert.deepEqual(await session.getItems(), [item]);
  await session.clearSession();
  await session.addItems(Array.from({ length: 24 }, (_, i) => ({ role: 'user', content: `item ${i}` })));
  const popped = await Promise.all(Array.from({ length: 30 }, () => new AgentSession(scope, 'chat').popItem()));
  assert.deepEqual(popped.filter(Boolean).map((p) => p.content).sort(), Array.from({ length: 24 }, (_, i) => `item ${i}`).sort());
  await scope.session('chat').append({ role: 'user', text: 'by another program' });
  assert.deepEqual(await session.getItems(), [{ type: 'message', role: 'user', content: 'by another program' }]);
});

test('a Runner with a scripted model remembers, and contexts find what was said', async (t) => {
  const db = await database(t);
  const scope = db.scope('agents');
  const model = new ScriptedModel([
    modelResponse([functionCall('weather', { city: 'Paris' }, { callId: 'call_1' })]),
    modelResponse([assistantMessage('It rains in Paris.')]),
    modelResponse([assistantMessage('You asked about Paris.')]),
  ]);
  const weather = tool({ name: 'weather', description: 'The weather', parameters: z.object({ city: z.string() }), execute: async ({ city }) => `rain in ${city}` });
  const agent = new Agent({ name: 'agent', model, tools: [weather] });
  const runner = new Runner();
  assert.equal((await runner.run(agent, 'What is the weather in Paris?', { session: new AgentSession(scope, 'chat') })).finalOutput, 'It rains in Paris.');
  const second = await runner.run(agent, 'What did I ask?', { session: new AgentSession(scope, 'chat') });
  assert.equal(second.finalOutput, 'You asked about Paris.');
  assert.deepEqual((await new AgentSession(scope, 'chat').getItems()).map((i) => i.type ?? 'message'), ['message', 'function_call', 'function_call_result', 'message', 'message', 'message']);
  const context = await scope.assemble('weather', { budget: 2000, session: 'chat', messages: 'openai' });
  assert.match(JSON.stringify(context.messages('openai')), /rain in Paris/);
});

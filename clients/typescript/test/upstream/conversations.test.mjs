// A conversation end to end with a stub model, through each framework that calls the memory itself.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generateText, streamText, tool, wrapLanguageModel } from 'ai';
import { MockLanguageModelV4, convertArrayToReadableStream } from 'ai/test';
import { Annotation, Command, interrupt, START, StateGraph } from '@langchain/langgraph';
import { z } from 'zod';
import { aiMemory } from 'ctxpage/ai-sdk';
import { eveMemory } from 'ctxpage/eve';
import { CtxpageSaver } from 'ctxpage/langgraph';
import { mastraMemory } from 'ctxpage/mastra';
import { database } from './common.mjs';

const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
const answer = (content) => ({ content, finishReason: { unified: content.some((c) => c.type === 'tool-call') ? 'tool-calls' : 'stop', raw: undefined }, usage, warnings: [] });

/** A stub that knows only what is in its prompt. */
const stub = (prompt) => (/My name is Ada/.test(JSON.stringify(prompt)) && /What is my name|Tell me my name/.test(JSON.stringify(prompt)) ? 'Your name is Ada.' : 'I will remember that.');

const texts = async (session) => {
  const all = [];
  for await (const turn of session.history()) all.push(turn.text);
  return all;
};

test('AI SDK: generateText, a tool, streamText', async (t) => {
  const db = await database(t);
  const scope = db.scope('ai');
  const prompts = [];
  const model = (session) => wrapLanguageModel({
    model: new MockLanguageModelV4({
      doGenerate: async ({ prompt }) => {
        prompts.push(prompt);
        const wantsTool = JSON.stringify(prompt).includes('weather') && prompt.at(-1).role === 'user';
        return answer(wantsTool ? [{ type: 'tool-call', toolCallId: 'c1', toolName: 'weather', input: '{}' }] : [{ type: 'text', text: stub(prompt) }]);
      },
      doStream: async ({ prompt }) => ({
        stream: convertArrayToReadableStream([
          { type: 'stream-start', warnings: [] }, { type: 'text-start', id: '1' }, ...stub(prompt).split(' ').map((w) => ({ type: 'text-delta', id: '1', delta: `${w} ` })), { type: 'text-end', id: '1' },
          { type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage },
        ]),
      }),
    }),
    middleware: aiMemory(scope, { session, budget: 1000 }),
  });
  assert.equal((await generateText({ model: model('one'), prompt: 'My name is Ada' })).text, 'I will remember that.');
  // Another conversation of the same scope: the model itself has seen nothing of the first.
  assert.equal((await generateText({ model: model('two'), prompt: 'What is my name?' })).text, 'Your name is Ada.');
  assert.deepEqual(prompts.at(-1).map((m) => m.role), ['user', 'user'], 'a context is data: a message of the user before the question');
  assert.deepEqual(await texts(scope.session('two')), ['What is my name?', 'Your name is Ada.']);
  const streamed = streamText({ model: model('three'), prompt: 'Tell me my name' });
  assert.equal((await streamed.text).trim(), 'Your name is Ada.');
  assert.deepEqual((await texts(scope.session('three'))).map((s) => s.trim()), ['Tell me my name', 'Your name is Ada.']);
  const weather = tool({ inputSchema: z.object({}), execute: async () => 'rain' });
  await generateText({ model: model('four'), prompt: 'weather?', tools: { weather }, stopWhen: ({ steps }) => steps.length === 2 });
  const four = await texts(scope.session('four'));
  assert.deepEqual([four.length, four[0]], [2, 'weather?'], 'the call of the tool adds no turn');
  const turns = [];
  for await (const turn of scope.session('two').history()) turns.push(turn);
  assert.equal((await scope.why(turns[1].trace)).question, 'What is my name?');
  // A budget that holds, and nothing to recall for another scope.
  assert.equal((await generateText({ model: wrapLanguageModel({ model: new MockLanguageModelV4({ doGenerate: async ({ prompt }) => answer([{ type: 'text', text: String(prompt.length) }]) }), middleware: aiMemory(db.scope('other')) }), prompt: 'name?' })).text, '1');
});

test('eve: two sessions of one user, another user, repeated operations, the gate', async (t) => {
  const db = await database(t);
  const provider = eveMemory(db, { budget: 1000, defineTool: (definition) => definition });
  let operations = 0;
  // What eve does in a turn, with the contexts that its documentation describes.
  const turn = async (key, session, text) => {
    const base = { abortSignal: new AbortController().signal, memory: { scope: { key, namespace: 'n', value: key }, slot: 'notes' }, session: { id: session }, turn: { id: 't', input: [{ role: 'user', content: text }], sequence: 1 } };
    const starting = { ...base, operationId: `${session}:${++operations}:started`, messages: [] };
    const recalled = await provider.recall['turn.started'](starting);
    const history = [...(recalled?.messages ?? []).map((m) => ({ role: 'user', content: m.content })), { role: 'user', content: text }];
    const completed = { ...base, operationId: `${session}:${operations}:completed`, messages: [...history, { role: 'assistant', content: [{ type: 'text', text: stub(history) }] }] };
    await provider.capture['turn.completed'](completed);
    await provider.capture['turn.completed'](completed); // eve may repeat it
    assert.deepEqual(await provider.recall['turn.started'](starting), recalled, 'a repeated recall has the same result');
    return stub(history);
  };
  assert.equal(await turn('v1:ada', 's1', 'My name is Ada'), 'I will remember that.');
  assert.equal(await turn('v1:ada', 's2', 'What is my name?'), 'Your name is Ada.');
  assert.equal(await turn('v1:bob', 's3', 'What is my name?'), 'I will remember that.');
  assert.deepEqual(await texts(db.scope('eve/v1%3Aada').session('s2')), ['What is my name?', 'Your name is Ada.']);
  const tools = await provider.tools({ memory: { scope: { key: 'v1:ada' } } });
  assert.equal((await tools.remember.execute({ text: 'Ada likes tea.' })).status, 'held');
  assert.match(JSON.stringify(await tools.search.execute({ query: 'name' })), /My name is Ada/);
  await db.scope('eve').put({ id: 'house', text: 'Our name for guests is friend.' });
  assert.match(JSON.stringify(await tools.search.execute({ query: 'guests' })), /friend/);
  assert.equal(await eveMemory(db).tools({ memory: { scope: { key: 'v1:ada' } } }), null);
});

test('Mastra: an agent with the processor for input and output', async (t) => {
  const { Agent } = await import('@mastra/core/agent');
  const db = await database(t);
  const scope = db.scope('mastra');
  const agentOf = (session) => {
    const memory = mastraMemory(scope, { session, budget: 1000 });
    const model = new MockLanguageModelV4({
      doGenerate: async ({ prompt }) => answer([{ type: 'text', text: stub(prompt) }]),
      doStream: async ({ prompt }) => ({
        stream: convertArrayToReadableStream([
          { type: 'stream-start', warnings: [] }, { type: 'text-start', id: '1' }, { type: 'text-delta', id: '1', delta: stub(prompt) }, { type: 'text-end', id: '1' }, { type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage },
        ]),
      }),
    });
    return new Agent({ id: 'agent', name: 'agent', instructions: 'Answer.', model, inputProcessors: [memory], outputProcessors: [memory] });
  };
  assert.equal((await agentOf('one').generate('My name is Ada')).text, 'I will remember that.');
  assert.equal((await agentOf('two').generate('What is my name?')).text, 'Your name is Ada.');
  const stream = await agentOf('three').stream('Tell me my name');
  assert.equal(await stream.text, 'Your name is Ada.');
  assert.deepEqual(await texts(scope.session('one')), ['My name is Ada', 'I will remember that.']);
  assert.deepEqual(await texts(scope.session('two')), ['What is my name?', 'Your name is Ada.']);
  assert.deepEqual(await texts(scope.session('three')), ['Tell me my name', 'Your name is Ada.']);
});

test('LangGraph: a graph goes on after its server was killed, is interrupted and resumed; a thread is deleted and erased', async (t) => {
  const db = await database(t);
  const scope = db.scope('graph');
  const State = Annotation.Root({ messages: Annotation({ reducer: (a, b) => a.concat(b), default: () => [] }) });
  const graph = () => new StateGraph(State)
    .addNode('model', (state) => ({ messages: [stub(state.messages)] }))
    .addNode('person', () => ({ messages: [`the person said ${interrupt('may I?')}`] }))
    .addEdge(START, 'model').addEdge('model', 'person')
    .compile({ checkpointer: new CtxpageSaver(scope) });
  const thread = (id) => ({ configurable: { thread_id: id } });
  await graph().invoke({ messages: ['My name is Ada'] }, thread('t1'));
  process.kill((await db.status()).pid, 'SIGKILL');
  assert.deepEqual((await graph().invoke(new Command({ resume: 'yes' }), thread('t1'))).messages, ['My name is Ada', 'I will remember that.', 'the person said yes']);
  assert.equal((await graph().invoke({ messages: ['What is my name?'] }, thread('t1'))).messages.at(-1), 'Your name is Ada.');
  assert.equal((await graph().invoke({ messages: ['What is my name?'] }, thread('t2'))).messages.at(-1), 'I will remember that.');
  // Checkpoints are no memory: no search finds them, and no context shows them.
  assert.deepEqual((await scope.search('Ada', { floor: 'scratch' })).hits, []);
  assert.equal((await scope.assemble('Ada', { budget: 1000 })).blocks.length, 0);
  const pages = async () => {
    const ids = [];
    for await (const page of scope.list()) ids.push(page.id);
    return ids;
  };
  const before = await pages();
  await new CtxpageSaver(scope).deleteThread('t1');
  assert.deepEqual(await pages(), before.filter((id) => !id.includes('/nt1/')));
  await db.operator('graph').erase({ subject: 't2', reason: 'asked for' });
  assert.deepEqual(await pages(), []);
});

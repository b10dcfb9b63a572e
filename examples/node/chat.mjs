// A conversation with memory, against `dbctl serve agent.ctx`. No dependencies, Node 20 or later.
//
//   node chat.mjs agent.ctx.api.sock "what may I refund?"
import { request } from 'node:http';

/** What the memory refused: code is stable, held has a batch that a person decides about. */
class MemoryFailure extends Error {
  constructor(error) {
    super(error.message);
    Object.assign(this, error);
  }
}

/** Calls the socket, bound to a scope, an actor and a role. */
class Memory {
  constructor(socketPath, key) {
    Object.assign(this, { socketPath, key });
  }

  static async connect(socketPath, scope, actor, role = 'host') {
    const { key } = await new Memory(socketPath).call('hello', { scope, actor, role });
    return new Memory(socketPath, key);
  }

  call(name, input = {}) {
    const headers = { 'content-type': 'application/json', ...(this.key && { 'ctxpage-key': this.key }) };
    return new Promise((resolve, reject) => {
      const req = request({ socketPath: this.socketPath, path: '/v1/' + name, method: 'POST', headers, timeout: 60_000 }, async (res) => {
        try {
          let text = '';
          for await (const part of res.setEncoding('utf8')) text += part;
          const answer = JSON.parse(text);
          if (res.statusCode !== 200) throw new MemoryFailure(answer.error);
          resolve(answer);
        } catch (failure) {
          reject(failure);
        }
      });
      req.on('timeout', () => req.destroy(new Error('no answer in time'))).on('error', reject).end(JSON.stringify(input));
    });
  }
}

const [path, question] = process.argv.slice(2);
const memory = await Memory.connect(path, 'acme/support', 'chat.mjs');
await memory.call('put', { writes: [{ id: 'policy', text: 'Refunds up to $400 need no approval.' }] });
const asked = await memory.call('session/append', { session: 'chat-2', turns: [{ role: 'user', text: question }] });
const context = await memory.call('assemble', { query: question, budget: 2000, session: 'chat-2' });
const answer = 'You may refund up to $400.'; // a model would be asked here, with context.text
await memory.call('session/append', { session: 'chat-2', turns: [{ role: 'assistant', text: answer, trace: context.trace }] });
const write = { trace: context.trace, writes: [{ id: 'answer-2', text: answer }] };
const kept = await memory.call('commit', { ...write, verdict: { confidence: 0.9, by: 'reviewer' } });
const failure = await memory.call('commit', { trace: context.trace, writes: [{ id: 'guess-2', text: 'Or more.' }] }).catch((e) => e);
console.log('without a verdict:', failure.code);
console.log('committed:', kept.refs[0]);
console.log('recalled:', (await memory.call('get', { ref: asked.refs[0] })).text);

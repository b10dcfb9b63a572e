// What a runtime must be able to do for this package. It runs alone, by node, bun and deno: runtime.mjs FILE.
import assert from 'node:assert/strict';
import { open, HeldError } from 'ctxpage';

const [path] = process.argv.slice(2);
const db = await open(path, { idle: '10s' });
const scope = db.scope('acme/支持', { actor: 'runtime' });
await scope.put({ id: 'policy', text: 'Refunds up to $400 need no approval. \u{1F9E0}' });
const context = await scope.assemble('what may I refund?', { budget: 1000, messages: 'openai' });
assert.match(JSON.stringify(context.messages('openai')), /\$400/);
await scope.begin(context).put({ id: 'answer', text: 'Up to $400.' }).commit({ confidence: 0.9, by: 'checker' });
await assert.rejects(scope.gated('model').put({ id: 'guess', text: 'Or more.' }), HeldError);
for (let round = 0; round < 3; round++) {
  process.kill((await db.status()).pid, 'SIGKILL');
  await Promise.all(Array.from({ length: 8 }, (_, i) => scope.put({ id: `page-${round}-${i}`, text: 'after a kill' })));
}
const pages = [];
for await (const page of scope.list({ prefix: 'page-' })) pages.push(page);
assert.deepEqual([pages.length, pages.every((p) => p.version === 1)], [24, true]);
await assert.rejects(scope.put({ id: 'x', text: 'x'.repeat(5_000_000) }, { signal: AbortSignal.timeout(1) }), (e) => e.name === 'TimeoutError' || e.name === 'AbortError');
for await (const line of scope.changes({ from: 0 })) if (line.leaf?.type === 'commit') break;
const tcp = await open(path, { transport: 'tcp', idle: '10s' });
assert.equal((await tcp.scope('acme/支持').get('answer')).text, 'Up to $400.');
await tcp.operator('acme').stop();
await tcp.close();
await db.operator('acme').stop();
await db.close();
console.log('all of it works');

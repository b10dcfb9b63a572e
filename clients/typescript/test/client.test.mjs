import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import * as ctxpage from 'ctxpage';
import { collect, ended, run, serversOf, workplace } from './helper.mjs';

const { connect, open } = ctxpage;

test('an agent remembers across two processes', async (t) => {
  const path = join(workplace(t), 'agent.ctx');
  assert.equal(await run('agent.mjs', path, 'My name is Ada'), 'I will remember that.\n');
  assert.equal(await run('agent.mjs', path, 'What is my name?'), 'Your name is Ada.\n');
});

test('the example of the repository', async (t) => {
  const said = await run('../examples/chat.mjs', join(workplace(t), 'agent.ctx'), 'what may I refund?');
  assert.match(said, /held: HeldError/);
  assert.match(said, /committed: acme\/support:answer/);
  assert.match(said, /recalled: what may I refund\?/);
});

test('pages: put, get, list, versions, search, delete', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme/support', { actor: 'host' });
  const { refs, status } = await scope.put({ id: 'policy', text: 'Refunds up to $400 need no approval.', tags: ['refunds'], meta: { owner: 'ann' } });
  assert.deepEqual([refs, status], [['acme/support:policy@1'], 'committed']);
  await scope.put([{ id: 'policy', text: 'Refunds up to $500 need no approval.' }, { id: 'old', text: 'We ask the manager.' }]);
  assert.equal((await scope.get('policy')).text, 'Refunds up to $500 need no approval.');
  assert.equal((await scope.recall('acme/support:policy@1')).meta.owner, 'ann');
  assert.deepEqual((await collect(scope.versions('policy'))).map((p) => p.version), [2, 1]);
  assert.deepEqual((await collect(scope.list({ prefix: 'pol' }))).map((p) => p.id), ['policy']);
  assert.equal((await scope.search('refunds')).hits[0].ref, 'acme/support:policy#1@2');
  await scope.delete('old');
  await assert.rejects(scope.get('old'), (e) => e instanceof ctxpage.NotFoundError && e.code === 'not_found');
  const below = db.scope('acme/support/eu');
  assert.equal((await below.get('policy')).scope, 'acme/support');
  await assert.rejects(db.scope('other').get('policy'), ctxpage.NotFoundError);
  await db.close();
});

test('a list of more pages than one answer holds', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('many');
  const ids = Array.from({ length: 1203 }, (_, i) => `page-${String(i).padStart(4, '0')}`);
  await scope.put(ids.map((id) => ({ id, text: id })));
  assert.deepEqual((await collect(scope.list())).map((p) => p.id), ids);
  assert.equal((await collect(scope.list({ limit: 1100 }))).length, 1100);
  await db.close();
});

test('a context: text, messages of three providers, why, replay, manifest, changes', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  await scope.put({ id: 'policy', text: 'Refunds up to $400 need no approval.' });
  const context = await scope.assemble('what may I refund?', { budget: 1000, messages: 'anthropic' });
  assert.match(context.text, /Refunds up to \$400/);
  assert.ok(context.tokens <= context.limit);
  assert.match(JSON.stringify(context.messages('anthropic').messages), /Refunds up to \$400/);
  assert.throws(() => context.messages('openai'), (e) => e.code === 'usage' && /messages: 'openai'/.test(e.hint));
  assert.equal((await scope.assemble('refund', { budget: 1000, messages: 'openai' })).messages('openai').messages.at(-1).role, 'user');
  assert.equal((await scope.assemble('refund', { budget: 1000, messages: 'gemini' })).messages('gemini').contents[0].role, 'user');
  const plain = await scope.assemble('refund', { budget: 1000 });
  assert.throws(() => plain.messages('openai'), ctxpage.InvalidError);
  assert.equal((await scope.why(context, 'policy')).in, true);
  assert.equal((await scope.why(context)).ref, '');
  assert.equal((await scope.replay(context)).text, context.text);
  assert.equal((await scope.manifest(context))[0].type, 'assemble');
  await assert.rejects(scope.assemble('refund', { budget: -1 }), ctxpage.InvalidError);
  const seen = [];
  for await (const line of scope.changes({ from: 0 })) {
    if (line.leaf !== undefined) seen.push(line.leaf.type);
    if (seen.length === 2) break; // leaving the loop ends the stream
  }
  assert.deepEqual(seen, ['commit', 'assemble']);
  await db.close();
});

test('a transaction with a verdict, and one that is left', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme', { actor: 'host' });
  await scope.put({ id: 'policy', text: 'Refunds up to $400 need no approval.' });
  const context = await scope.assemble('refund?', { budget: 1000 });
  const tx = scope.begin(context);
  tx.put({ id: 'answer', text: 'You may refund up to $400.' });
  assert.equal((await tx.commit({ confidence: 0.9, by: 'checker' })).status, 'committed');
  assert.equal((await scope.get('answer')).trace, context.trace);
  await assert.rejects(tx.commit(), (e) => e instanceof ctxpage.TransactionError && e.code === 'txn_done');

  const seeing = scope.begin(await scope.assemble('refund?', { budget: 1000 }));
  seeing.put({ id: 'draft', text: 'Perhaps more.' }).delete('answer');
  assert.equal((await seeing.get('draft')).text, 'Perhaps more.');
  await assert.rejects(seeing.get('answer'), ctxpage.NotFoundError);
  assert.ok((await seeing.assemble('more', { budget: 1000, floor: 'scratch' })).trace);
  await assert.rejects(scope.get('draft'), ctxpage.NotFoundError);
  await assert.rejects(seeing.commit({ confidence: 2, by: 'checker' }), ctxpage.InvalidError);
  assert.equal(seeing.done, false); // a wrong verdict leaves it open
  await seeing.commit({ confidence: 0.9, by: 'checker' });
  await assert.rejects(scope.get('answer'), ctxpage.NotFoundError);

  const left = scope.begin(context);
  left.put({ id: 'left', text: 'nobody commits this' });
  await left.get('left');
  await left[Symbol.asyncDispose]();
  await left.rollback(); // harmless
  await assert.rejects(scope.get('left'), ctxpage.NotFoundError);
  await db.close();
});

test('stale contexts and conflicts', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  await scope.put({ id: 'policy', text: 'Refunds up to $400.' });
  const context = await scope.assemble('refunds', { budget: 1000 });
  await scope.put({ id: 'policy', text: 'Refunds up to $600.' });
  await assert.rejects(scope.begin(context, { on_stale: 'fail' }).put({ id: 'a', text: 'Up to $400.' }).commit({ confidence: 1, by: 'checker' }), ctxpage.StaleContextError);
  const tx = scope.begin();
  await tx.get('policy');
  tx.put({ id: 'policy', text: 'Refunds up to $800.' });
  await scope.put({ id: 'policy', text: 'Refunds up to $700.' });
  await assert.rejects(tx.commit({ confidence: 1, by: 'checker' }), (e) => e instanceof ctxpage.ConflictError && e.ref?.startsWith('acme:policy'));
  await db.close();
});

test('the gate and review', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const gated = db.scope('acme').gated('model');
  const held = await gated.put({ id: 'guess', text: 'Perhaps $600.' }).catch((e) => e);
  assert.ok(held instanceof ctxpage.HeldError);
  assert.match(held.message, /no verdict/);
  await assert.rejects(gated.call('session/append', { session: 'c', turns: [{ role: 'user', text: 'x' }] }), ctxpage.DeniedError);
  const operator = db.operator('acme', { actor: 'jane' });
  assert.deepEqual((await collect(operator.held())).map((h) => h.batch), [held.batch]);
  assert.equal((await operator.review(held.batch)).writes[0].text, 'Perhaps $600.');
  assert.equal((await operator.approve(held.batch, { note: 'asked the shop' })).status, 'committed');
  await assert.rejects(operator.reject(held.batch), (e) => e.code === 'reviewed');
  assert.equal((await gated.get('guess')).text, 'Perhaps $600.');
  await db.close();
});

test('a conversation: append, window, pass, undo, pin, recall, history', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  const chat = scope.session('chat-1');
  const { refs } = await chat.append([{ role: 'user', text: 'what may I refund?' }, { role: 'assistant', text: 'Up to $500.' }]);
  assert.equal(refs.length, 2);
  await chat.append({ id: 'mine', role: 'user', text: 'thanks' });
  await chat.append({ id: 'mine', role: 'user', text: 'thanks' }); // changes nothing
  assert.deepEqual((await collect(chat.history())).map((turn) => turn.text), ['what may I refund?', 'Up to $500.', 'thanks']);
  assert.ok((await chat.limit(8000, { output_reserve: 1000 })).usable > 0);
  assert.equal((await chat.pass({ keywords: ['refund'], keep_last: 1 })).pass, 1);
  assert.equal((await chat.undo()).pass, 1);
  await chat.pin('mine');
  assert.equal((await chat.window()).turns[2].pinned, true);
  assert.equal((await chat.recall('mine')).text, 'thanks');
  assert.deepEqual(await collect(scope.sessions()), ['chat-1']);
  assert.equal((await chat.append({ role: 'user', text: 'x' }, { dry_run: true })).dry_run, true);
  assert.deepEqual((await collect(chat.history({ last: 2 }))).map((turn) => turn.text), ['Up to $500.', 'thanks']);
  await assert.rejects(chat.truncate(2, { last: 'another' }), ctxpage.ConflictError);
  assert.equal((await chat.truncate(2, { last: 'mine' })).deleted.length, 1);
  assert.equal((await collect(chat.history())).length, 2);
  await chat.truncate(0);
  assert.deepEqual(await collect(chat.history()), []);
  await db.close();
});

test('directives and refresh', async (t) => {
  const dir = workplace(t);
  const db = await open(join(dir, 'agent.ctx'), { args: ['--lease', '5m'] });
  const scope = db.scope('acme');
  assert.equal((await scope.step('prohibit emails', { dry_run: true })).changed, true);
  assert.equal((await scope.step('prohibit emails')).kind, 'update');
  assert.match((await scope.directives()).text, /emails/);
  assert.equal((await scope.suggest('no more mail', 'prohibit mail')).grounded, false);
  assert.equal((await scope.refresh({ dry_run: true })).sources, 0);
  await db.close();
});

test('names and texts from anywhere', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acmé/支持', { actor: 'Zoë' });
  const text = '<script>alert(1)</script> \u202e\u0007 \u{1F9E0} </page 1> ' + 'x'.repeat(1_000_000);
  await scope.put({ id: 'a b/ü?#%', text, meta: { 'ключ': 'значение' } });
  const page = await scope.get('a b/ü?#%');
  assert.equal(page.text, text);
  assert.equal(page.actor, 'Zoë');
  assert.deepEqual(page.meta, { 'ключ': 'значение' });
  await assert.rejects(scope.put({ id: 'half', text: '\ud800' }), (e) => e instanceof ctxpage.InvalidError && /surrogate/.test(e.message));
  await assert.rejects(db.scope('a\nb').get('x'), ctxpage.InvalidError);
  await assert.rejects(db.scope(' a').get('x'), ctxpage.InvalidError);
  await assert.rejects(scope.put({ id: 'big', text: 'x'.repeat(17 << 20) }), (e) => e.code === 'too_large');
  assert.equal((await scope.get('a b/ü?#%')).version, 1); // the connection is fine
  await db.close();
});

test('a write with the same batch is applied once', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  const batch = ctxpage.ulid();
  const first = await scope.put({ id: 'a', text: 'one' }, { batch });
  await scope.put({ id: 'a', text: 'two' });
  assert.deepEqual((await scope.put({ id: 'a', text: 'one' }, { batch })).refs, first.refs);
  assert.equal((await scope.get('a')).text, 'two');
  await db.close();
});

test('close waits for calls and ends streams; a stream begins although the server has ended', async (t) => {
  const dir = workplace(t);
  const db = await open(join(dir, 'agent.ctx'));
  const scope = db.scope('acme');
  await scope.put({ id: 'first', text: 'x' });
  for (const pid of serversOf(dir)) await ended(pid, 'SIGKILL');
  const stream = scope.changes({ from: 0 });
  assert.equal((await stream.next()).done, false);
  const rest = (async () => {
    for await (const line of stream) assert.ok(line.next >= 0);
  })();
  const puts = Array.from({ length: 20 }, (_, i) => scope.put({ id: `page-${i}`, text: 'x' }));
  await db.close();
  assert.equal((await Promise.all(puts)).length, 20);
  await rest;
  await assert.rejects(scope.get('first'), (e) => e.code === 'usage');
  await assert.rejects(scope.changes().next(), (e) => e.code === 'usage');
});

test('a transaction that read is lost with its server; one that did not goes on', async (t) => {
  const dir = workplace(t);
  const db = await open(join(dir, 'agent.ctx'));
  const scope = db.scope('acme');
  await scope.put({ id: 'policy', text: 'Refunds up to $400.' });
  const context = await scope.assemble('refunds', { budget: 1000 });
  const reading = scope.begin(context).put({ id: 'a', text: 'a' });
  await reading.get('policy');
  const writing = scope.begin(context).put({ id: 'b', text: 'b' });
  for (const pid of serversOf(dir)) await ended(pid, 'SIGKILL');
  const again = scope.begin(context);
  await again.get('policy');
  for (const pid of serversOf(dir)) await ended(pid, 'SIGKILL');
  await assert.rejects(again.get('policy'), (e) => e.code === 'transaction_lost');
  await assert.rejects(reading.commit({ confidence: 1, by: 'checker' }), (e) => e.code === 'transaction_lost' && e instanceof ctxpage.TransactionError);
  await assert.rejects(scope.get('a'), ctxpage.NotFoundError);
  assert.equal((await writing.commit({ confidence: 1, by: 'checker' })).status, 'committed');
  assert.deepEqual((await scope.put({ id: 'c', text: 'c' })).refs, ['acme:c@1']);
  await db.close();
});

test('over a loopback address with a token file', async (t) => {
  const dir = workplace(t);
  const tokens = join(dir, 'tokens');
  writeFileSync(tokens, 'agent aaaaaaaaaaaaaaaaaaaa\nhost hhhhhhhhhhhhhhhhhhhhhh\n', { mode: 0o600 });
  const child = spawn(ctxpage.findBinary(), ['serve', join(dir, 'agent.ctx'), '--http', '127.0.0.1:0', '--token-file', tokens, '--json'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const line = await new Promise((done) => child.stdout.once('data', (part) => done(String(part))));
  const { url } = JSON.parse(line);
  const db = await connect(url, { tokenFile: tokens });
  await db.scope('acme').put({ id: 'a', text: 'by token' });
  await assert.rejects(db.operator('acme').review('x'), ctxpage.DeniedError);
  await db.close();
  const agent = await connect(url, { token: 'aaaaaaaaaaaaaaaaaaaa' });
  assert.equal((await agent.gated('acme').get('a')).text, 'by token');
  await assert.rejects(agent.scope('acme').put({ id: 'a', text: 'x' }), ctxpage.DeniedError);
  await agent.close();
  await assert.rejects(connect(url, { token: 'wrongwrongwrongwrong' }), (e) => e.code === 'unauthorized');
  await ended(child.pid, 'SIGTERM');
  await assert.rejects(connect(url), (e) => e instanceof ctxpage.UnavailableError);
});

test('calls wait for one of few connections; an aborted one leaves its place to the next', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'), { connections: 2 });
  const scope = db.scope('acme');
  const control = new AbortController();
  const puts = Array.from({ length: 20 }, (_, i) => scope.put({ id: `page-${i}`, text: 'x' }, i % 3 === 1 ? { signal: control.signal } : {}));
  await puts[0];
  control.abort();
  const settled = await Promise.allSettled(puts);
  settled.forEach(({ status, reason }, i) => assert.ok(status === 'fulfilled' || (i % 3 === 1 && reason.name === 'AbortError'), `${i}: ${reason}`));
  assert.equal(settled[19].status, 'rejected');
  const there = (await collect(scope.list())).map((p) => p.id);
  settled.forEach(({ status }, i) => assert.ok(status === 'rejected' || there.includes(`page-${i}`), `page-${i}`));
  await Promise.all(Array.from({ length: 5 }, () => scope.get('page-0')));
  await db.close();
});

test('open over a loopback address: two processes, a killed server', async (t) => {
  const dir = workplace(t);
  const path = join(dir, 'agent.ctx');
  const db = await open(path, { transport: 'tcp' });
  await db.scope('acme').put({ id: 'a', text: 'one' });
  assert.equal(statSync(`${path}.http.tokens`).mode & 0o077, 0);
  const again = await open(path, { transport: 'tcp' });
  assert.equal((await again.scope('acme').get('a')).text, 'one');
  assert.equal(serversOf(dir).length, 1);
  for (const pid of serversOf(dir)) await ended(pid, 'SIGKILL');
  await again.scope('acme').put({ id: 'b', text: 'two' });
  assert.equal((await db.scope('acme').get('b')).text, 'two');
  await db.close();
  await again.close();
});

test('the operator: scopes, stats, health, export, import, backup, retention, quota, erase', async (t) => {
  const dir = workplace(t);
  const db = await open(join(dir, 'agent.ctx'));
  const scope = db.scope('acme/support', { actor: 'host' });
  await scope.put([{ id: 'policy', text: 'Refunds up to $400.' }, { id: 'ada', text: 'Ada lives in Paris.', subject: 'ada' }]);
  const operator = db.operator('acme', { actor: 'jane' });
  assert.deepEqual(await collect(operator.scopes({ prefix: 'acme', depth: 1 })), [{ name: 'acme', artefacts: 2 }]);
  assert.equal((await operator.stats()).path, join(dir, 'agent.ctx'));
  assert.ok((await operator.health({ examples: 1 })).findings.length >= 0);
  const lines = await collect(operator.export());
  assert.ok(lines.length > 2);
  const report = await operator.import({ lines: lines.map((l) => JSON.stringify(l)).join('\n') + '\n', dry_run: true });
  assert.equal(report.versions.new, 0);
  assert.ok((await operator.backup(join(dir, 'copy.ctx'))).head);
  assert.equal((await operator.setRetention({ kinds: { tool: '30d' } })).policy.kinds.tool, '30d');
  assert.equal((await operator.retention()).policies.length, 1);
  assert.deepEqual((await operator.runRetention({ dry_run: true })).items, []);
  await operator.setQuota({ bytes: 200 });
  await assert.rejects(scope.put({ id: 'large', text: 'x'.repeat(1000) }), ctxpage.QuotaError);
  assert.equal((await operator.quotas())[0].quota.bytes, 200);
  await db.scope('acme/support').gated('model').put({ id: 'guess', text: 'x' }).catch(() => undefined);
  assert.equal((await operator.approveAll({ dry_run: true, actor: 'nobody' })).batches.length, 0);
  const { receipt, report: erased } = await operator.erase({ subject: 'ada', reason: 'asked for' });
  assert.ok(receipt);
  assert.equal((await operator.erasures()).length, 1);
  assert.ok((await operator.receipt(erased.done.trace)).receipt);
  await assert.rejects(scope.get('ada'), ctxpage.NotFoundError);
  assert.match((await operator.embed({ dry_run: true })).model, /^small-/);
  await assert.rejects(db.scope('acme').call('stats', {}), ctxpage.DeniedError);
  await db.close();
});

test('what differs between two contexts', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  await scope.put([{ id: 'refund', text: 'Refunds up to $400.' }, { id: 'old', text: 'Old refund rules.' }]);
  const before = await scope.assemble('refund', { budget: 1000 });
  await scope.put([{ id: 'refund', text: 'Refunds up to $500.' }, { id: 'new', text: 'New refund rules.' }]);
  await scope.delete('old');
  const diff = await scope.diff(before, await scope.assemble('refund', { budget: 1000 }));
  assert.equal(diff.same, false);
  assert.ok(diff.only_a.some((ref) => ref.startsWith('acme:old')) && diff.only_b.some((ref) => ref.startsWith('acme:new')), JSON.stringify(diff));
  assert.equal((await scope.diff(before, before)).same, true);
  await db.close();
});

test('what open says when it cannot', async (t) => {
  const dir = workplace(t);
  await assert.rejects(open(join(dir, 'none', 'agent.ctx')), (e) => e.code === 'no_database');
  await assert.rejects(open(join(dir, 'agent.ctx'), { binary: join(dir, 'dbctl') }), (e) => e.code === 'no_binary');
  writeFileSync(join(dir, 'text.ctx'), 'this is no database');
  await assert.rejects(open(join(dir, 'text.ctx')), (e) => e.code === 'not_started' && /text\.ctx/.test(e.message));
  mkdirSync(join(dir, 'a'));
  await assert.rejects(open(join(dir, 'a')), (e) => e.code === 'not_started');
  const db = await open(join(dir, 'agent.ctx'));
  await db.close();
  await assert.rejects(db.scope('a').get('x'), (e) => e.code === 'usage');
  assert.equal(statSync(join(dir, 'agent.ctx.api.sock')).mode & 0o077, 0);
});

test('a path whose socket needs a short name', async (t) => {
  const dir = join(workplace(t), 'd'.repeat(60), 'e'.repeat(60));
  mkdirSync(dir, { recursive: true });
  const db = await open(join(dir, 'agent.ctx'));
  await db.scope('acme').put({ id: 'a', text: 'far away' });
  assert.notEqual(JSON.parse(readFileSync(join(dir, 'agent.ctx.api.lock'), 'utf8')).socket, join(dir, 'agent.ctx.api.sock'));
  await db.close();
  const again = await open(join(dir, 'agent.ctx'));
  assert.equal((await again.scope('acme').get('a')).text, 'far away');
  await again.close();
});

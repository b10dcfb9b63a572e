import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { open } from 'ctxpage';
import { collect, descriptors, random, run, serversOf, workplace } from './helper.mjs';

test('16 processes at one file', async (t) => {
  const dir = workplace(t);
  const path = join(dir, 'agent.ctx');
  const writers = Array.from({ length: 16 }, (_, i) => run('writer.mjs', path, `w${i}`, '25'));
  const acknowledged = (await Promise.all(writers)).flatMap((out) => out.trim().split('\n'));
  assert.equal(acknowledged.length, 16 * 25);
  assert.equal(serversOf(dir).length, 1, 'one server for all of them');
  const db = await open(path);
  const pages = await collect(db.scope('acme').list({ prefix: 'w' }));
  assert.deepEqual(pages.map((p) => p.id).sort(), acknowledged.sort());
  assert.ok(pages.every((p) => p.version === 1));
  const turns = await collect(db.scope('acme').session('shared').history());
  assert.deepEqual(turns.map((turn) => turn.text).sort(), acknowledged.map((id) => `turn of ${id}`));
  await db.close();
});

test('1,000 opens leave no process and no descriptor', async (t) => {
  const dir = workplace(t);
  const path = join(dir, 'agent.ctx');
  const first = await open(path);
  await first.close();
  const before = descriptors();
  for (let i = 0; i < 1000; i++) {
    const db = await open(path);
    if (i % 100 === 0) await db.scope('acme').put({ id: `open-${i}`, text: 'x' });
    await db.close();
  }
  await new Promise((done) => setImmediate(done));
  assert.ok(descriptors() <= before + 1, `${descriptors()} descriptors, ${before} before`);
  assert.equal(serversOf(dir).length, 1);
});

test('calls aborted at random: each write is there once or not at all', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  const rand = random(7);
  const before = descriptors();
  let aborted = 0;
  const outcomes = new Map();
  const worker = async (w) => {
    for (let i = 0; i < 60; i++) {
      const id = `${w}-${i}`;
      const control = new AbortController();
      const put = scope.put({ id, text: `page ${id}` }, { signal: control.signal });
      const turn = scope.session(`s${w}`).append({ id: `turn-${id}`, role: 'user', text: `turn ${id}` }, { signal: control.signal });
      setTimeout(() => control.abort(), rand() * 6);
      const [p, a] = await Promise.allSettled([put, turn]);
      for (const r of [p, a]) {
        if (r.status === 'rejected') {
          assert.equal(r.reason.name, 'AbortError', String(r.reason.stack));
          aborted++;
        }
      }
      outcomes.set(id, [p.status, a.status]);
      assert.equal((await scope.search('page', { limit: 1 })).hits.length <= 1, true); // the client goes on
    }
  };
  await Promise.all([0, 1, 2, 3].map(worker));
  const pages = new Map((await collect(scope.list())).map((p) => [p.id, p]));
  for (const [id, [put, append]] of outcomes) {
    if (put === 'fulfilled') assert.equal(pages.get(id)?.version, 1, id);
    if (append === 'fulfilled') assert.equal(pages.get(`turn-${id}`)?.version, 1, id);
    assert.ok((pages.get(id)?.version ?? 1) === 1);
  }
  assert.ok(aborted > 20, `${aborted} calls were aborted`);
  await assert.rejects(scope.put({ id: 'x', text: 'x' }, { signal: AbortSignal.abort() }), { name: 'AbortError' });
  await assert.rejects(scope.put({ id: 'x', text: 'x' }, { signal: AbortSignal.abort(new Error('enough')) }), { message: 'enough' });
  await db.close();
  assert.ok(descriptors() <= before + 1);
});

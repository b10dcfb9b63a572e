import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { open } from 'ctxpage';
import { collect, ended, random, serversOf, workplace } from './helper.mjs';

const rounds = Number(process.env.CTXPAGE_KILLS ?? 200);

// Four writers never stop while their server is killed 160 times with −9; then 40 clients are killed in the middle of their writes. Each write that was
// acknowledged must be there, and none twice.
test(`killed with -9 in the middle ${rounds} times: nothing acknowledged is lost, nothing is there twice`, async (t) => {
  const dir = workplace(t);
  const path = join(dir, 'agent.ctx');
  const db = await open(path);
  const scope = db.scope('acme');
  const rand = random(1);
  const acknowledged = new Map();
  let running = true;
  const writer = async (w) => {
    const context = await scope.assemble('page', { budget: 500 });
    for (let i = 0; running; i++) {
      const id = `w${w}-${i}`;
      const text = `page of ${id}`;
      if (i % 3 === 0) acknowledged.set(id, (await scope.put({ id, text })).refs[0]);
      else if (i % 3 === 1) acknowledged.set(id, (await scope.begin(context, { on_stale: 'allow' }).put({ id, text }).commit({ confidence: 1, by: 'checker' })).refs[0]);
      else {
        const { refs } = await scope.session(`chat-${w}`).append([{ role: 'user', text }, { role: 'assistant', text: `answer to ${id}` }]);
        acknowledged.set(id, refs);
      }
    }
  };
  const writers = [0, 1, 2, 3].map(writer);
  const serverKills = Math.floor(rounds * 0.8);
  let kills = 0;
  while (kills < serverKills) {
    const since = acknowledged.size;
    const after = Math.floor(rand() * 12);
    while (acknowledged.size < since + after) await Promise.race([new Promise((done) => setTimeout(done, 1)), ...writers]);
    for (const pid of serversOf(dir)) {
      await ended(pid, 'SIGKILL');
      kills++;
    }
  }
  running = false;
  await Promise.all(writers);

  const dead = new Set();
  for (; kills < rounds; kills++) {
    const name = `c${kills}`;
    const child = spawn(process.execPath, [new URL('writer.mjs', import.meta.url).pathname, path, name, '1000'], { stdio: ['ignore', 'pipe', 'inherit'] });
    let out = '';
    const enough = 1 + Math.floor(rand() * 6);
    await new Promise((done) => {
      child.stdout.setEncoding('utf8').on('data', (part) => {
        out += part;
        if (out.split('\n').length > enough) child.kill('SIGKILL');
      });
      child.once('close', done);
    });
    for (const id of out.split('\n').slice(0, -1)) dead.add(id);
  }

  const pages = new Map((await collect(scope.list())).map((p) => [p.id, p]));
  let checked = 0;
  for (const [id, ref] of acknowledged) {
    for (const r of [ref].flat()) {
      const page = pages.get(r.slice('acme:'.length, r.lastIndexOf('@')));
      assert.equal(page?.version, 1, `${id}: ${r}`);
      checked++;
    }
  }
  for (const id of dead) assert.equal(pages.get(id)?.version, 1, id);
  for (const page of pages.values()) assert.equal(page.version, 1, `${page.id} was written twice`);
  for (const w of [0, 1, 2, 3]) {
    const turns = (await collect(scope.session(`chat-${w}`).history())).map((turn) => turn.text);
    const want = [...acknowledged.keys()].filter((id) => id.startsWith(`w${w}-`) && Number(id.split('-')[1]) % 3 === 2).flatMap((id) => [`page of ${id}`, `answer to ${id}`]);
    assert.deepEqual(turns, want, 'each turn once, in order');
  }
  const shared = (await collect(scope.session('shared').history())).map((turn) => turn.text);
  assert.equal(new Set(shared).size, shared.length, 'no turn twice');
  for (const id of dead) assert.ok(shared.includes(`turn of ${id}`), id);
  console.log(`measured ${kills} kills, ${checked + dead.size} acknowledged writes checked`);
  await db.close();
});

// The control: a client that makes up a new batch for each attempt would write twice. The server must see that as two writes.
test('without batch ids a repeated write is written twice', async (t) => {
  const db = await open(join(workplace(t), 'agent.ctx'));
  const scope = db.scope('acme');
  await scope.put({ id: 'a', text: 'one' });
  await scope.put({ id: 'a', text: 'two' });
  await scope.put({ id: 'a', text: 'one' });
  assert.equal((await scope.get('a')).version, 3);
  await db.close();
});

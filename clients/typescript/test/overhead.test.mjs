import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open } from 'ctxpage';
import { workplace } from './helper.mjs';

const calls = 400;

// CTXPAGE_OVERHEAD is testdata/overhead/main.go, built. The figures are reported, not judged: the machine may be busy.
test('what a call costs beside the same call from Go', { skip: process.env.CTXPAGE_OVERHEAD ? false : 'CTXPAGE_OVERHEAD is not set' }, async (t) => {
  const path = join(workplace(t), 'agent.ctx');
  const db = await open(path);
  const scope = db.scope('overhead');
  const { socket } = JSON.parse(readFileSync(`${path}.api.lock`, 'utf8'));
  const median = async (make) => {
    const took = [];
    for (let i = 0; i < calls; i++) {
      const begun = performance.now();
      await make(i);
      took.push(performance.now() - begun);
    }
    return took.sort((a, b) => a - b)[calls / 2];
  };
  const mine = async () => ({
    put: await median((i) => scope.put({ id: `page-${i % 50}`, text: `refund ${i} within ${7 * i} days, says ts` })),
    get: await median((i) => scope.get(`page-${i % 50}`)),
    assemble: await median(() => scope.assemble('refund', { budget: 1000 })),
  });
  const go = () => JSON.parse(execFileSync(process.env.CTXPAGE_OVERHEAD, [socket, String(calls)], { encoding: 'utf8' }));
  await mine(); // warm
  const rounds = [];
  for (let i = 0; i < 3; i++) rounds.push([go(), await mine()]); // one after the other, in turn
  for (const name of ['put', 'get', 'assemble']) {
    const [theirs, ours] = [0, 1].map((who) => rounds.map((r) => r[who][name]).sort((a, b) => a - b)[1]);
    assert.ok(ours > 0 && theirs > 0);
    console.log(`measured ${name}: ${ours.toFixed(2)} ms here, ${theirs.toFixed(2)} ms from Go, ${(ours - theirs).toFixed(2)} ms more, ratio ${(ours / theirs).toFixed(2)};`);
  }
  await db.close();
});

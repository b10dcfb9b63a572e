import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open } from 'ctxpage';
import { workplace } from './helper.mjs';

const rounds = 15, calls = 30;
const middle = (took) => took.sort((a, b) => a - b)[Math.floor(took.length / 2)];

// CTXPAGE_OVERHEAD is testdata/overhead/main.go, built. The figures are reported, not judged: the machine may be busy.
test('what a call costs beside the same call from Go, in one run and in turn', { skip: process.env.CTXPAGE_OVERHEAD ? false : 'CTXPAGE_OVERHEAD is not set' }, async (t) => {
  const path = join(workplace(t), 'agent.ctx');
  const db = await open(path);
  const scope = db.scope('overhead');
  const { socket } = JSON.parse(readFileSync(`${path}.api.lock`, 'utf8'));
  const make = {
    put: (i) => scope.put({ id: `page-${i % 50}`, text: `refund ${i} within ${7 * i} days, says ts` }),
    get: (i) => scope.get(`page-${i % 50}`),
    assemble: () => scope.assemble('refund', { budget: 1000 }),
  };
  const mine = async (name) => {
    const took = [];
    for (let i = 0; i < calls; i++) {
      const begun = performance.now();
      await make[name](i);
      took.push(performance.now() - begun);
    }
    return middle(took);
  };
  const go = (name) => JSON.parse(execFileSync(process.env.CTXPAGE_OVERHEAD, [socket, String(calls), name], { encoding: 'utf8' }))[name];
  for (const name of Object.keys(make)) {
    const took = { go: [], mine: [] };
    for (let n = 0; n <= rounds; n++) {
      for (const who of n % 2 === 0 ? ['go', 'mine'] : ['mine', 'go']) {
        const median = who === 'go' ? go(name) : await mine(name);
        if (n > 0) took[who].push(median); // the first round warms
      }
    }
    const [theirs, ours] = [middle(took.go), middle(took.mine)];
    assert.ok(ours > 0 && theirs > 0);
    console.log(`measured ${name}: ${ours.toFixed(2)} ms here, ${theirs.toFixed(2)} ms from Go, ${(ours - theirs).toFixed(2)} ms more, ratio ${(ours / theirs).toFixed(2)};`);
  }
  await db.close();
});

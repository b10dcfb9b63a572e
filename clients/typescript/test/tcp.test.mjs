// Programs in Python, TypeScript and Go share a server over TCP, whichever of them started it.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { findBinary, open } from 'ctxpage';
import { collect, serversOf, workplace } from './helper.mjs';

const { CTXPAGE_PYTHON: python, CTXPAGE_TCP: go } = process.env; // the source of the Python package; testdata/tcp, built
const skip = python && go ? false : 'CTXPAGE_PYTHON and CTXPAGE_TCP are not set';

const program = `
import sys, ctxpage
path, id = sys.argv[1:]
with ctxpage.open(path, http=True, idle="20s") as db:
    db.scope("acme").put(id, "said by " + id)
    print(db.status()["pid"])
`;

/** How each language puts a page of its name. It returns the process that serves. */
const callers = {
  python: (path) => Number(execFileSync('python3', ['-c', program, path, 'python'], { encoding: 'utf8', env: { ...process.env, PYTHONPATH: python, CTXPAGE_BINARY: findBinary() } })),
  typescript: async (path) => {
    const db = await open(path, { transport: 'tcp', idle: '20s' });
    await db.scope('acme').put({ id: 'typescript', text: 'said by typescript' });
    const { pid } = await db.status();
    await db.close();
    return pid;
  },
  go: (path) => Number(execFileSync(go, [path, 'go'], { encoding: 'utf8' })),
};

for (const starter of Object.keys(callers)) {
  test(`a server that ${starter} started serves all three`, { skip }, async (t) => {
    const dir = workplace(t);
    const path = join(dir, 'agent.ctx');
    if (starter === 'go') { // the server itself
      const child = spawn(findBinary(), ['serve', path, '--http', '127.0.0.1:0', '--json'], { stdio: ['ignore', 'pipe', 'inherit'] });
      await new Promise((done) => child.stdout.once('data', done));
    }
    const pids = [];
    for (const name of [starter, ...Object.keys(callers)]) pids.push(await callers[name](path));
    assert.deepEqual(pids, Array(4).fill(serversOf(dir)[0]));
    assert.equal(serversOf(dir).length, 1);
    const db = await open(path, { transport: 'tcp' });
    assert.deepEqual((await collect(db.scope('acme').list({ full: true }))).map((p) => p.text), ['said by go', 'said by python', 'said by typescript']);
    await db.close();
  });
}

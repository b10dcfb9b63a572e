// LangGraph's own tests of a checkpointer, on ours.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { validate } from '@langchain/langgraph-checkpoint-validation';
import { open } from 'ctxpage';
import { CtxpageSaver } from 'ctxpage/langgraph';

let dir, db, n = 0;
validate({
  checkpointerName: 'CtxpageSaver',
  async beforeAll() {
    dir = mkdtempSync(join(tmpdir(), 'ctxpage-test-'));
    db = await open(join(dir, 'agent.ctx'), { idle: '20s' });
  },
  createCheckpointer: () => new CtxpageSaver(db.scope(`langgraph-${n++}`)),
  async afterAll() {
    await db.operator('langgraph').stop();
    await db.close();
    rmSync(dir, { recursive: true, force: true });
  },
});

// LangGraph's own tests of a checkpointer, on ours.
import { validate } from '@langchain/langgraph-checkpoint-validation';
import { CtxpageSaver } from 'ctxpage/langgraph';
import { opened } from './common.mjs';

let place, n = 0;
validate({
  checkpointerName: 'CtxpageSaver',
  async beforeAll() {
    place = await opened();
  },
  beforeAllTimeout: 60_000,
  createCheckpointer: () => new CtxpageSaver(place.db.scope(`langgraph-${n++}`)),
  afterAll: () => place.close(),
});

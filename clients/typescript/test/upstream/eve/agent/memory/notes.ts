import { open } from 'ctxpage';
import { eveMemory } from 'ctxpage/eve';
import { defineMemory } from 'eve/memory';
import { defineTool } from 'eve/tools';

const db = await open(process.env.CTXPAGE_DATABASE ?? 'agent.ctx');
await db.scope('eve').put({ id: 'policy', text: 'Refunds up to $400 need no approval.' });

export default defineMemory({ description: 'What the user said before.', provider: eveMemory(db, { defineTool }), scope: () => 'ada' });

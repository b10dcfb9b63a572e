import { BaseCheckpointSaver, compareWritesSortKeys, copyCheckpoint, getCheckpointId, maxChannelVersion, TASKS, WRITES_IDX_MAP, writesSortKey } from '@langchain/langgraph-checkpoint';
import type {
  ChannelVersions, Checkpoint, CheckpointListOptions, CheckpointMetadata, CheckpointPendingWrite, CheckpointTuple, PendingWrite, SerializerProtocol, WritesSortKey,
} from '@langchain/langgraph-checkpoint';
import { createHash } from 'node:crypto';
import { NotFoundError } from '../errors.js';
import type { Page, Write } from '../schema.js';
import type { Scope } from '../scope.js';

type Config = Parameters<BaseCheckpointSaver['getTuple']>[0];

/** A value as the serializer of LangGraph wrote it. */
interface Stored {
  readonly type: string;
  readonly text?: string;
  readonly base64?: string;
}

interface StoredCheckpoint {
  readonly thread: string;
  readonly ns: string;
  readonly id: string;
  readonly parent?: string | undefined;
  /** The checkpoint without the values of its channels. */
  readonly checkpoint: Stored;
  readonly metadata: Stored;
  /** Each channel with the page of its value: of this checkpoint, or of the one where the value changed last. */
  readonly values: readonly (readonly [channel: string, page: string])[];
}

interface StoredWrite {
  readonly task: string;
  readonly idx: number;
  readonly path: string;
  readonly channel: string;
  readonly value: Stored;
}

export interface CtxpageSaverOptions {
  /** What the ids of the pages begin with, default langgraph. Two savers of one scope need different ones. */
  readonly prefix?: string | undefined;
  readonly serde?: SerializerProtocol | undefined;
}

const partType = 'langgraph';
const deletesAtOnce = 1000;

/**
 * A checkpointer of LangGraph that keeps its checkpoints in a scope. A checkpoint is a page without words: no search finds it and no
 * context shows it. The value of a channel is stored again only when it changed. The subject of the pages is the thread, so that an
 * operator can erase one.
 */
export class CtxpageSaver extends BaseCheckpointSaver {
  readonly #scope: Scope;
  readonly #prefix: string;

  constructor(scope: Scope, options: CtxpageSaverOptions = {}) {
    super(options.serde);
    this.#scope = scope;
    this.#prefix = options.prefix ?? 'langgraph';
  }

  async getTuple(config: Config): Promise<CheckpointTuple | undefined> {
    const thread = optionalName('thread_id', config.configurable?.['thread_id']);
    const ns = name('checkpoint_ns', config.configurable?.['checkpoint_ns'] ?? '', true);
    if (thread === undefined) return undefined;
    const asked = getCheckpointId(config);
    if (asked !== '') {
      const found = await this.#read(this.#checkpointID(thread, ns, name('checkpoint_id', asked)));
      return found === undefined ? undefined : await this.#tuple(found, config);
    }
    for await (const page of this.#scope.list({ prefix: this.#checkpoints(thread, ns), limit: 1 })) {
      const found = await this.#read(page.id);
      if (found !== undefined) return await this.#tuple(found);
    }
    return undefined;
  }

  async *list(config: Config, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { configurable = {} } = config;
    const thread = optionalName('thread_id', configurable['thread_id'] === '' ? undefined : configurable['thread_id']);
    const ns = configurable['checkpoint_ns'] === undefined ? undefined : name('checkpoint_ns', configurable['checkpoint_ns'], true);
    const only = optionalName('checkpoint_id', configurable['checkpoint_id'] === '' ? undefined : configurable['checkpoint_id']);
    const beforeID: unknown = options.before?.configurable?.['checkpoint_id'];
    const before = optionalName('checkpoint_id', beforeID === '' ? undefined : beforeID);
    let left = options.limit ?? Infinity;
    const prefix = thread === undefined ? `${this.#prefix}/c/` : ns === undefined ? `${this.#prefix}/c/${part(thread)}/` : this.#checkpoints(thread, ns);
    for await (const page of this.#scope.list({ prefix })) {
      if (left <= 0) return;
      const found = await this.#read(page.id);
      if (found === undefined || (ns !== undefined && found.ns !== ns)) continue;
      if ((only !== undefined && found.id !== only) || (before !== undefined && found.id >= before)) continue;
      const metadata = (await this.#load(found.metadata)) as Record<string, unknown>;
      if (!Object.entries(options.filter ?? {}).every(([key, value]) => metadata[key] === value)) continue;
      left--;
      yield await this.#tuple(found);
    }
  }

  async put(config: Config, checkpoint: Checkpoint, metadata: CheckpointMetadata, newVersions: ChannelVersions): Promise<Config> {
    const thread = optionalName('thread_id', config.configurable?.['thread_id']);
    if (thread === undefined) throw missing('checkpoint', 'thread_id');
    const ns = name('checkpoint_ns', config.configurable?.['checkpoint_ns'] ?? '', true);
    const id = name('checkpoint_id', checkpoint.id);
    const parent: unknown = config.configurable?.['checkpoint_id'];
    const known = typeof parent === 'string' ? await this.#read(this.#checkpointID(thread, ns, parent)) : undefined;
    const before = known === undefined ? undefined : ((await this.#load(known.checkpoint)) as Checkpoint).channel_versions;
    const pages: Write[] = [];
    const values: [string, string][] = [];
    for (const [channel, value] of Object.entries(checkpoint.channel_values)) {
      const changed = Object.hasOwn(newVersions, channel);
      const old = known?.values.find(([c]) => c === channel)?.[1];
      if (!changed && old !== undefined && before?.[channel] === checkpoint.channel_versions[channel]) {
        values.push([channel, old]);
      } else if (changed || known !== undefined) {
        const page = `${this.#prefix}/v/${part(thread)}/${part(ns)}/${part(id)}/${part(channel)}`;
        pages.push(pageOf(page, thread, await this.#dump(value)));
        values.push([channel, page]);
      }
    }
    const stored: StoredCheckpoint = {
      thread, ns, id, ...(typeof parent === 'string' ? { parent } : {}), values,
      checkpoint: await this.#dump({ ...copyCheckpoint(checkpoint), channel_values: {} }), metadata: await this.#dump(metadata),
    };
    await this.#scope.put([...pages, pageOf(this.#checkpointID(thread, ns, id), thread, stored)]);
    return { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: id } };
  }

  async putWrites(config: Config, writes: PendingWrite[], taskId: string, taskPath = ''): Promise<void> {
    const thread = optionalName('thread_id', config.configurable?.['thread_id']);
    if (thread === undefined) throw missing('writes', 'thread_id');
    const checkpoint = optionalName('checkpoint_id', config.configurable?.['checkpoint_id']);
    if (checkpoint === undefined) throw missing('writes', 'checkpoint_id');
    const ns = name('checkpoint_ns', config.configurable?.['checkpoint_ns'] ?? '', true);
    const task = name('task_id', taskId);
    const prefix = `${this.#writes(thread, ns, checkpoint)}${part(task)}/`;
    const known = new Set<string>();
    for await (const page of this.#scope.list({ prefix })) known.add(page.id);
    const pages = new Map<string, Write>();
    for (const [at, [channel, value]] of writes.entries()) {
      const idx = WRITES_IDX_MAP[channel] ?? at;
      const id = `${prefix}${idx}`;
      // A task that runs again does not change what it wrote; errors and interrupts are replaced.
      if (idx >= 0 && (known.has(id) || pages.has(id))) continue;
      const stored: StoredWrite = { task, idx, path: taskPath, channel, value: await this.#dump(value) };
      pages.set(id, pageOf(id, thread, stored));
    }
    if (pages.size > 0) await this.#scope.put([...pages.values()]);
  }

  async deleteThread(threadId: string): Promise<void> {
    const thread = name('thread_id', threadId);
    const ids: string[] = [];
    for (const kind of ['w', 'v', 'c']) {
      for await (const page of this.#scope.list({ prefix: `${this.#prefix}/${kind}/${part(thread)}/` })) ids.push(page.id);
    }
    for (let at = 0; at < ids.length; at += deletesAtOnce) await this.#scope.delete(ids.slice(at, at + deletesAtOnce));
  }

  /** The prefix of the checkpoints of a namespace. */
  #checkpoints(thread: string, ns: string): string {
    return `${this.#prefix}/c/${part(thread)}/${part(ns)}/`;
  }

  #checkpointID(thread: string, ns: string, id: string): string {
    return this.#checkpoints(thread, ns) + newestFirst(id);
  }

  /** The prefix of the writes of a checkpoint. */
  #writes(thread: string, ns: string, checkpoint: string): string {
    return `${this.#prefix}/w/${part(thread)}/${part(ns)}/${part(checkpoint)}/`;
  }

  async #read(id: string): Promise<StoredCheckpoint | undefined> {
    try {
      return contentOf(await this.#scope.get(id)) as StoredCheckpoint;
    } catch (failure) {
      if (failure instanceof NotFoundError) return undefined;
      throw failure;
    }
  }

  /** Returns the writes of a checkpoint in the order in which LangGraph applies them. */
  async #pending(thread: string, ns: string, checkpoint: string): Promise<CheckpointPendingWrite[]> {
    const reads: Promise<Page>[] = [];
    for await (const page of this.#scope.list({ prefix: this.#writes(thread, ns, checkpoint) })) reads.push(this.#scope.get(page.id));
    const found = await Promise.all(
      (await Promise.all(reads)).map(async (page): Promise<{ key: WritesSortKey; write: CheckpointPendingWrite }> => {
        const { task, idx, path, channel, value } = contentOf(page) as StoredWrite;
        return { key: writesSortKey(path, task, idx), write: [task, channel, await this.#load(value)] };
      }),
    );
    return found.sort((a, b) => compareWritesSortKeys(a.key, b.key)).map(({ write }) => write);
  }

  async #tuple(stored: StoredCheckpoint, config?: Config): Promise<CheckpointTuple> {
    const { thread, ns, id, parent } = stored;
    const checkpoint = (await this.#load(stored.checkpoint)) as Checkpoint;
    checkpoint.channel_values = Object.fromEntries(
      await Promise.all(stored.values.map(async ([channel, page]): Promise<[string, unknown]> => [channel, await this.#load(contentOf(await this.#scope.get(page)) as Stored)])),
    );
    if (checkpoint.v < 4 && parent !== undefined) await this.#addPendingSends(checkpoint, thread, ns, parent);
    return {
      config: config ?? { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: id } },
      checkpoint,
      metadata: (await this.#load(stored.metadata)) as CheckpointMetadata,
      pendingWrites: await this.#pending(thread, ns, id),
      ...(parent === undefined ? {} : { parentConfig: { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: parent } } }),
    };
  }

  /** Checkpoints of an older form of LangGraph have their sends in the writes of their parent. */
  async #addPendingSends(checkpoint: Checkpoint, thread: string, ns: string, parent: string): Promise<void> {
    const sends = (await this.#pending(thread, ns, parent)).filter(([, channel]) => channel === TASKS).map(([, , value]) => value);
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = sends;
    checkpoint.channel_versions[TASKS] = versions.length > 0 ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
  }

  async #dump(value: unknown): Promise<Stored> {
    const [type, data] = await this.serde.dumpsTyped(value);
    return type === 'json' ? { type, text: new TextDecoder().decode(data) } : { type, base64: Buffer.from(data).toString('base64') };
  }

  async #load(stored: Stored): Promise<unknown> {
    return (await this.serde.loadsTyped(stored.type, stored.text ?? Buffer.from(stored.base64 ?? '', 'base64'))) as unknown;
  }
}

function pageOf(id: string, thread: string, stored: Stored | StoredCheckpoint | StoredWrite): Write {
  return { id, kind: 'scratch', subject: thread, parts: [{ type: partType, text: JSON.stringify(stored) }] };
}

function contentOf(page: Page): unknown {
  return JSON.parse(page.parts?.find((p) => p.type === partType)?.text ?? 'null');
}

/** Returns a name as one part of an id. Ids have at most 512 bytes, so long names are hashed. */
function part(text: string): string {
  const encoded = encodeURIComponent(text).replace(/[!'()*~]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
  return encoded.length <= 120 ? `n${encoded}` : `h${createHash('sha256').update(text).digest('hex')}`;
}

/** Encodes an id of a checkpoint so that the greatest, which is the newest, comes first in a list. */
function newestFirst(id: string): string {
  const bytes = Buffer.from(id, 'utf8');
  const inverted = Buffer.from(bytes.subarray(0, 64).map((b) => 255 - b)).toString('hex');
  return bytes.length <= 64 ? `${inverted}~` : `${inverted}~${createHash('sha256').update(bytes).digest('hex')}`;
}

function name(field: string, value: unknown, empty = false): string {
  if (typeof value !== 'string' || (value === '' && !empty)) {
    throw new TypeError(`Invalid configurable value for key "${field}": got ${value === '' ? 'an empty string' : typeof value}, expected ${empty ? 'a string' : 'a string that is not empty'}`);
  }
  return value;
}

function optionalName(field: string, value: unknown): string | undefined {
  return value === undefined ? undefined : name(field, value);
}

function missing(what: string, field: string): Error {
  return new Error(
    `Failed to put ${what}. The passed RunnableConfig is missing a required "${field}" field in its "configurable" property. Example: graph.stream(input, { configurable: { ${field}: "my-${field.replace('_', '-')}" } })`,
  );
}

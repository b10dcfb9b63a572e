// Writes src/schema.ts: TypeScript types of every argument and answer of the socket, from the JSON schemas that
// `GET /v1/schema` returns. `--check` changes nothing and fails if the file is out of date.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const here = new URL('..', import.meta.url);
const target = fileURLToPath(new URL('src/schema.ts', here));

/** Names of types that users write. Other types are named after their call or their field. */
const named = {
  'put.in.writes': 'Write', 'put.out': 'Written', 'put.in.writes.parts': 'Part', 'get.out': 'Page', 'get.out.tool_calls': 'ToolCall', 'get.out.pages': 'PageOfArtefact', 'list.out': 'PageList',
  'list.in.filter': 'Filter', 'search.out': 'SearchResult', 'search.out.hits': 'Hit', 'assemble.out': 'AssembleResult', 'assemble.out.blocks': 'Block',
  'commit.in.verdict': 'Verdict', 'begin.out': 'Begun', 'manifest.out.leaves': 'Leaf', 'manifest.out.leaves.pages': 'ServedPage', 'manifest.out.leaves.writes': 'ChangedPage',
  'session/append.in.turns': 'TurnInput', 'session/append.out': 'Appended', 'session/window.out': 'WindowState', 'session/window.out.turns': 'WindowTurn', 'session/history.out': 'History',
  'session/pass.out': 'Pass', 'session/pass.out.verdicts': 'TurnVerdict', 'session/undo.out': 'Undone', 'session/pin.out': 'Pinned', 'session/list.out': 'SessionList',
  'directives/show.out': 'DirectiveState', 'directives/step.out': 'Decision', 'directives/suggest.out': 'Suggestion', 'review/show.out': 'Held', 'review/list.out': 'HeldList', 'review/reject.out': 'Rejected',
  'session/truncate.out': 'Truncated', 'session/truncate.in': 'TruncateInput', 'manifest.in': 'TraceInput', 'embed.out.failed': 'Failure', 'embed.out': 'EmbedReport', 'embed.out.scopes': 'EmbeddedScope',
  'scopes.out': 'ScopeList', 'scopes.out.scopes': 'ScopeInfo', 'stats.out': 'Stats', 'health.out': 'HealthReport', 'health.out.findings': 'Finding', 'backup.out': 'BackupReport', 'import.out': 'ImportReport',
  'erase.out': 'Erased', 'erase.out.report': 'EraseReport', 'erase.out.report.done': 'EraseDone', 'erase/list.out': 'EraseList', 'erase/receipt.out': 'Receipt', 'retention/set.out': 'StoredPolicy',
  'retention/set.in.policy': 'RetentionPolicy', 'retention/show.out': 'Retention', 'retention/run.out': 'RetentionReport', 'quota/set.in.quota': 'Quota', 'quota/set.out': 'QuotaUse', 'quota/show.out': 'QuotaList',
  'review/approve_all.out': 'ApprovedList', 'review/approve_all.out.batches': 'ApprovedBatch', 'review/approve_all.in': 'ApproveAllInput',
  'refresh.out': 'RefreshReport', 'diff.out': 'Difference', 'diff.out.fields': 'DifferentSetting', 'diff.out.changed': 'DifferentPage', 'why.out': 'Explanation', 'replay.out': 'Replayed', 'manifest.out': 'Manifest', 'changes.out': 'Change', 'status.out': 'Status', 'hello.out': 'Greeting', 'get.out.parts': 'PagePart', 'session/append.in.turns.tool_calls': 'ToolCallInput', 'error': 'ErrorBody', 'directives/show.out.premises': 'Premise', 'directives/show.out.policies': 'Policy', 'session/append.in.turns.parts': 'Part',
};

const pascal = (s) => s.split(/[^A-Za-z0-9]+/).filter(Boolean).map((w) => w[0].toUpperCase() + w.slice(1)).join('');
const comment = (text, indent) => (text ? `${indent}/** ${text.replaceAll('*/', '* /')} */\n` : '');

const keyOf = (s, input) => `${input} ${JSON.stringify(s)}`;

/** Gives each different object of the schema a name: one of the table above, or one made from the place where it comes first. */
function nameTypes(schema) {
  const names = new Map();
  const walk = (s, path, input) => {
    if (s === undefined) return;
    walk(s.items, path, input);
    if (s.properties === undefined) return;
    const key = keyOf(s, input);
    if (named[path] !== undefined) names.set(key, named[path]);
    else if (!names.has(key)) names.set(key, pascal(path.replace('.in', '.Input').replace('.out', '.Result')));
    for (const [name, field] of Object.entries(s.properties)) walk(field, `${path}.${name}`, input);
  };
  for (const c of schema.calls) {
    const name = c.path.replace(/^\/v1\//, '');
    walk(c.in, `${name}.in`, true);
    walk(c.out, `${name}.out`, false);
  }
  walk(schema.error.properties.error, 'error', false);
  const all = [...names.values()];
  const twice = all.find((n, i) => all.indexOf(n) !== i);
  if (twice !== undefined) throw new Error(`two types would be named ${twice}: name them in the table of generate.mjs`);
  return names;
}

/** Reads a JSON schema file and returns the source of src/schema.ts. */
export function generate(text) {
  const schema = JSON.parse(text);
  const names = nameTypes(schema);
  const declared = new Set();
  const out = [];

  /** Returns the name of an object's type, which it writes the first time. Equal schemas have one type. */
  const declare = (s, path, input) => {
    const name = names.get(keyOf(s, input));
    if (!declared.has(name)) {
      declared.add(name);
      const body = object(s, path, input);
      out.push(`export interface ${name} ${body}\n`);
    }
    return name;
  };

  /** Returns the TypeScript type of a schema. path names it, input says that undefined may stand for an absent field. */
  const type = (s, path, input) => {
    if (Array.isArray(s.enum)) return s.enum.map((v) => JSON.stringify(v)).join(' | ');
    const kinds = Array.isArray(s.type) ? s.type : [s.type];
    const types = kinds.map((kind) => {
      switch (kind) {
        case 'string': case 'boolean': case 'null': return kind;
        case 'integer': case 'number': return 'number';
        case 'array': return (input ? 'readonly ' : '') + wrap(type(s.items ?? {}, path, input)) + '[]';
        case 'object': {
          if (s.properties === undefined) {
            if (s.additionalProperties === false) return 'Record<string, never>';
            const values = typeof s.additionalProperties === 'object' ? type(s.additionalProperties, path, input) : 'unknown';
            return input ? `Readonly<Record<string, ${values}>>` : `Record<string, ${values}>`;
          }
          return declare(s, path, input);
        }
        case undefined: return 'unknown';
        default: throw new Error(`${path}: the generator does not know the type ${kind}`);
      }
    });
    return types.join(' | ');
  };
  const wrap = (t) => (/[ |<]/.test(t) ? `(${t})` : t);

  const object = (s, path, input) => {
    const required = new Set(s.required ?? []);
    const fields = Object.entries(s.properties).map(([name, field]) => {
      const optional = !required.has(name);
      const t = type(field, `${path}.${name}`, input);
      const key = /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
      return `${comment(field.description, '  ')}  ${input ? 'readonly ' : ''}${key}${optional ? '?' : ''}: ${t}${optional && input ? ' | undefined' : ''};\n`;
    });
    return `{\n${fields.join('')}}`;
  };

  const calls = schema.calls.map((c) => {
    const name = c.path.replace(/^\/v1\//, '');
    return { name, role: c.role, about: c.about, stream: c.stream === true, in: type(c.in, `${name}.in`, true), out: type(c.out, `${name}.out`, false) };
  });
  const table = calls.map((c) => `${comment(c.about, '  ')}  '${c.name}': { in: ${c.in}; out: ${c.out}; role: '${c.role}'; stream: ${c.stream} };\n`);
  type(schema.error.properties.error, 'error', false);
  return [
    '// Code generated by scripts/generate.mjs from the schema of the socket. DO NOT EDIT.\n',
    `// sha256 of the schema: ${createHash('sha256').update(text).digest('hex')}\n\n`,
    `/** The version of the calls that these types describe. */\nexport const version = ${schema.version};\n\n`,
    `/** The codes of errors that the server answers. */\nexport type ServerCode = ${schema.codes.map((c) => JSON.stringify(c)).join(' | ')};\n\n`,
    out.join('\n'),
    `\n/** Every call of the socket: its argument, its answer (of a stream: each line), and the least role that may make it. */\nexport interface Calls {\n${table.join('')}}\n`,
  ].join('');
}

/** The schema that the Go tests keep up to date. */
export const source = fileURLToPath(new URL('../../serve/testdata/schema.json', here));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const want = generate(readFileSync(source, 'utf8'));
  if (!process.argv.includes('--check')) {
    writeFileSync(target, want);
  } else if (readFileSync(target, 'utf8') !== want) {
    console.error(`src/schema.ts is out of date: run node scripts/generate.mjs`);
    process.exit(1);
  }
}

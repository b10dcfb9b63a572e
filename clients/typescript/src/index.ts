/** ctxpage for Node: memory for agents in one local file. `open` is where to begin. */
export { connect, open, Database, type ConnectOptions, type OpenOptions, type ScopeOptions } from './database.js';
export * from './errors.js';
export type * from './messages.js';
export { Operator } from './operator.js';
export type * from './schema.js';
export { Assembly, GatedScope, Scope, type AssembleOptions, type WriteOptions } from './scope.js';
export { findBinary, type StartOptions } from './server.js';
export { Session, SessionReader } from './session.js';
export { Transaction, type TransactionOptions } from './transaction.js';
export type { Caller, CallName, CallOptions, Role } from './transport.js';
export { ulid } from './ulid.js';

import type { ErrorBody, ServerCode } from './schema.js';

/** Codes of errors that this package finds itself, without an answer of a server. */
export type ClientCode = 'no_answer' | 'no_binary' | 'not_started' | 'transaction_lost' | 'usage';

/** The stable code of an error. Programs compare it; the texts may change. */
export type Code = ServerCode | ClientCode;

/** What an error says beside its code. */
export interface ErrorDetails {
  /** What to do about it. */
  readonly hint?: string | undefined;
  /** Of held: the batch that waits for review. Of other writes: the batch id, under which the same call can be repeated. */
  readonly batch?: string | undefined;
  readonly trace?: string | undefined;
  /** Of held: why. */
  readonly reason?: string | undefined;
  /** Of conflict: what has a newer version. */
  readonly ref?: string | undefined;
  readonly cause?: unknown;
}

/** The base of all errors of this package. The message has the server's words. */
export class CtxpageError extends Error {
  readonly code: Code;
  readonly hint: string | undefined;
  readonly batch: string | undefined;
  readonly trace: string | undefined;
  readonly reason: string | undefined;
  readonly ref: string | undefined;

  constructor(code: Code, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = details.hint;
    this.batch = details.batch;
    this.trace = details.trace;
    this.reason = details.reason;
    this.ref = details.ref;
  }
}

/** The gate held the write: it is durable, invisible, and listed for review under `batch`. Do not repeat it. */
export class HeldError extends CtxpageError {}
/** What the write overwrites has changed, or a turn is not the newest any more. Read again and retry. */
export class ConflictError extends CtxpageError {}
/** A page of the context that the write was made from has changed. Assemble again. */
export class StaleContextError extends ConflictError {}
/** There is no such page, trace, batch or session in this scope. */
export class NotFoundError extends CtxpageError {}
/** It was there, and its content was erased or dropped by gc. */
export class GoneError extends NotFoundError {}
/** Its time is over. */
export class ExpiredError extends GoneError {}
/** Its source changed and cannot be fetched. `serveStale` returns what is stored. */
export class DirtyError extends CtxpageError {}
/** What must be in the context does not fit the budget, or a turn does not fit the window. */
export class BudgetError extends CtxpageError {}
/** The scope may hold no more. */
export class QuotaError extends CtxpageError {}
/** The request is wrong. The message says what was got and what was expected. */
export class InvalidError extends CtxpageError {}
/** The caller may not do that. */
export class DeniedError extends CtxpageError {}
/** The transaction has ended. */
export class TransactionError extends CtxpageError {}
/** It may or may not have happened. Repeat the call with the same batch. */
export class OutcomeUnknownError extends CtxpageError {}
/** The call took longer than its timeout. A write may still have happened: repeat it with the same batch. */
export class DeadlineError extends OutcomeUnknownError {}
/** The server or the owner of the files is not there, is busy, or keeps the files to itself. */
export class UnavailableError extends CtxpageError {}
/** The files are damaged, of another format, encrypted with another key, or no database. */
export class DatabaseError extends CtxpageError {}

type ErrorClass = new (code: Code, message: string, details?: ErrorDetails) => CtxpageError;

/** The class of each code. The type makes the compiler ask for a class whenever the schema gains a code. */
const classes: Record<Code, ErrorClass> = {
  held: HeldError,
  conflict: ConflictError,
  stale_context: StaleContextError,
  not_found: NotFoundError,
  gone: GoneError,
  erased: GoneError,
  expired: ExpiredError,
  dirty: DirtyError,
  vanished: DirtyError,
  budget: BudgetError,
  headroom: BudgetError,
  quota: QuotaError,
  invalid: InvalidError,
  body: InvalidError,
  too_large: InvalidError,
  call: InvalidError,
  method: InvalidError,
  undo: InvalidError,
  usage: InvalidError,
  gated: DeniedError,
  provenance: DeniedError,
  role: DeniedError,
  scope: DeniedError,
  self_certified: DeniedError,
  unauthorized: DeniedError,
  host: DeniedError,
  origin: DeniedError,
  key: DeniedError,
  file_root: DeniedError,
  read_only: DeniedError,
  reviewed: ConflictError,
  replay_differs: ConflictError,
  txn_done: TransactionError,
  txn_failed: TransactionError,
  txn_expired: TransactionError,
  transaction_lost: TransactionError,
  outcome_unknown: OutcomeUnknownError,
  cancelled: OutcomeUnknownError,
  deadline: DeadlineError,
  no_answer: UnavailableError,
  no_binary: UnavailableError,
  not_started: UnavailableError,
  closing: UnavailableError,
  full: UnavailableError,
  locked: UnavailableError,
  not_answering: UnavailableError,
  foreign: UnavailableError,
  skew: UnavailableError,
  stop: UnavailableError,
  no_space: UnavailableError,
  corrupt: DatabaseError,
  newer_format: DatabaseError,
  old_format: DatabaseError,
  not_database: DatabaseError,
  no_database: DatabaseError,
  wrong_key: DatabaseError,
  internal: DatabaseError,
};

/** Makes the error of a code. A code that this release does not know becomes a plain CtxpageError. */
export function errorOf(code: Code, message: string, details: ErrorDetails = {}): CtxpageError {
  const known: ErrorClass | undefined = Object.hasOwn(classes, code) ? classes[code] : undefined;
  return new (known ?? CtxpageError)(code, message, details);
}

/** Makes the error of a server's answer. batch is the id under which the call was made. */
export function answered(body: ErrorBody, batch?: string): CtxpageError {
  return errorOf(body.code as Code, body.message, { ...body, batch: body.batch ?? batch });
}

// Package journal keeps what the users of scopes have decided: the rows that directives are stored in, the steps that
// lead from one version to the next, the page that a model is shown, and the check that all of it agrees. It reads
// through the store and writes nothing: a Chain makes the rows, the database commits them.
//
// What a scope was told is kept in three forms, all written by the one batch of a step, so that a crash leaves all of it
// or nothing:
//
//	state row    directive/state/SCOPE            the newest journal row: session, open question included, and version
//	journal row  directive/log/SCOPE/VERSION      what was said, decided, by whom, when, and the session after it
//	page         ctxpage:directives of the scope  the own state in words, kind system; absent while the state is empty
//
// The page is an ordinary page but for its reserved id: versioned, replayed, named in manifests, visible to the scopes
// below. It holds the own state only, because a step writes its own scope only; what holds over several levels is put
// together in an assembly (see Overrule).
package directivelog

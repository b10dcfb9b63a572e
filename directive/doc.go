// Package directive holds what a user has decided for a conversation: one
// premise and a set of policies. They change only when the user says so in one
// of a few fixed forms, and nothing else changes them: no model, no document, no
// length of the conversation.
//
//	set premise VALUE      change premise to VALUE      clear premise
//	use ITEM               prohibit ITEM                remove policy ITEM
//	use NEW ITEM instead of OLD ITEM                    reset policies
//	clear state
//
// # A premise or a policy
//
// All answers start from the premise: who reads, what it is about, in which tone. There is
// one, it is prose, and it is changed as a whole. A policy is a yes or no to a named thing: a tool,
// a library, an ingredient, a subject. There are many, and people and programs look each up by its
// name. If a program must act on it, make it a policy. If only the model can act on it, and it
// takes a sentence to say, put it into the premise. If it applies to one answer only, it is
// neither: say it in the message.
//
// # What prompting alone cannot do
//
// A rule in a prompt is text among other text. It moves away from the end as the conversation
// grows, and a summary may lose it. A later sentence, of the user or in a fetched page, may
// contradict it; then the model decides which of the two it follows, and nobody notices.
//
// Here a contradiction is found by comparing keys, and the user is asked. Each assembly renders the
// rule again from state, in its place. A page cannot change it, because pages are never stepped.
// And a program can ask whether something is prohibited without asking a model. Directives do not
// make the model obey: check in code what must not happen, as in the example of the tool denylist.
//
// # The host's loop
//
// For each message of the user, and for nothing else:
//
//	session, decision := directive.Step(session, input)
//	switch decision.Kind {
//	case directive.Clarify:
//		show decision.Prompt, do not call the model
//	case directive.Update:
//		say that it is kept, save the session
//	case directive.Passthrough:
//		call the model with session.State and the input
//	}
//
// A clarify changes nothing. Three of its codes open a question, which only a yes
// or no closes; the session carries it, so save the session after those, too.
// [Decision.Code] and [Decision.Repair] are for programs.
//
// # Identity of items
//
// Items are compared by key: case, width, blanks, the kind of
// apostrophe and leading articles do not count. Accents, plurals and synonyms do.
//
// # Scopes
//
// [Join] returns the state that applies in a scope below others. [StepIn] judges a step in such a scope.
//
// # Files
//
// state.go and policies.go are the state, grammar.go parses, step.go and prompts.go decide,
// scope.go joins, wire.go is the wire form. grammar.go also splits several directives in one, and prompts.go
// validates what a host's preprocessor makes of a message. Package internal/directivetext normalises
// texts. The rules come from context-compiler v0.7.1; where that does what nobody would want,
// quirks_test.go says what is done here instead.
//
// All functions are pure: no clock, no file, no lock. All values may be used by
// any number of goroutines.
package directive

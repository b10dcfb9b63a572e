package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// A host hands a gated handle to code that acts for a model. It reads what every handle of the scope reads. It
// writes in one way: through a transaction of Begin or Resume, whose drafts are scratch until Commit passes the gate.
// Every other write returns ErrGated, and so does a draft that claims what a model must not decide.
//
//	refused                                              because
//	Put, Delete, Update                                  no verdict
//	Session: Append, Try, Receive, Record, Pass, Undo,   the conversation and its window are the host's; a pass as a
//	Pin, Unpin, SetWindow, Observe, Watch                dry run is a read
//	Directives: Step, Apply, Restore, Import             only the user decides
//	WithOnStale(AllowStale), another actor's assembly    a draft answers for the context it was written from
//	kind system; a role other than assistant             instructions, the user's words, results of tools
//	provenance above validated; pins; a priority above   trust and protection are given, not claimed
//	the priority of the kind
//	a source other than page:                            what the source says later passes no gate
//	replacing what is pinned or trusted above validated  a verdict on a draft is no verdict on what it replaces

// Gated makes a handle that cannot bypass the commit gate. Give it to code that acts for a model, and keep a handle
// without it for the host. With an evaluator (JudgedBy, Options.Evaluator) only the evaluator judges, and Commit
// refuses a verdict of its caller. Without one Commit takes the verdict it is given, so the host must make that call.
// GateOff with Gated is an *InvalidError of the first method call.
func Gated() ScopeOption { return func(o *scopeOptions) { o.gated = true } }

// JudgedBy sets the evaluator of this handle's commits instead of Options.Evaluator.
func JudgedBy(e Evaluator) ScopeOption { return func(o *scopeOptions) { o.judge = e } }

// gatedError says what a gated handle may not do, and what to do instead.
func gatedError(what, instead string) error {
	return fmt.Errorf("%w: %s; %s", store.ErrGated, what, instead)
}

// hostOnly refuses a gated handle and a handle with an invalid name or option.
func (s *Scope) hostOnly(what string) error {
	if s.err == nil && s.gated {
		return gatedError(what, "use Begin or Resume and Commit, or a handle of the host, without Gated")
	}
	return s.err
}

// evaluator returns the judge of commits of the handle that come without a verdict; nil: there is none.
func (s *Scope) evaluator() Evaluator {
	if s.judge != nil {
		return s.judge
	}
	return s.db.opts.Evaluator
}

// maxGatedSeq leaves numbers for turns that follow what an agent puts into a conversation.
const maxGatedSeq = 1 << 53

// mayDraft refuses puts that a gated handle must not make.
func (s *Scope) mayDraft(ctx context.Context, a *Artefact, claimed store.Provenance) error {
	if err := s.mayClaim(a, claimed); err != nil {
		return err
	}
	return s.mayReplace(ctx, append([]string{a.ID}, a.Supersedes...)...)
}

// mayClaim refuses drafts of a gated handle that claim what a model must not decide. The defaults of the kind are set.
func (s *Scope) mayClaim(a *Artefact, claimed store.Provenance) error {
	scheme, _, _ := strings.Cut(a.Source, ":")
	kind := Artefact{Kind: a.Kind}
	kind.KindDefaults()
	switch {
	case !s.gated:
		return nil
	case a.Kind == store.KindSystem || store.SpokenAs(a.Role) == render.RoleSystem:
		return fmt.Errorf("%w, %w: %s: a draft cannot be of kind or role system", store.ErrGated, store.ErrProvenance, a.ID)
	case a.Role != "" && a.Role != render.RoleAssistant:
		return gatedError(fmt.Sprintf("%s: role %q", a.ID, a.Role), "a draft has the role assistant, or none; the host appends what users and tools say")
	case claimed > store.Validated:
		return fmt.Errorf("%w, %w: %s: a draft is worth validated at most, once the gate lets it pass", store.ErrGated, store.ErrProvenance, a.ID)
	case a.Pinned:
		return gatedError(a.ID+": pinned", "the host pins")
	case a.Priority > kind.Priority:
		return gatedError(a.ID+": a priority above that of kind "+a.Kind.String(), "leave it out, or let the host put it")
	case a.Source != "" && scheme != "page":
		return gatedError(a.ID+": source "+scheme+":", "what a source says later passes no gate: let the host put it, or give its text")
	case a.Seq > maxGatedSeq:
		return store.Invalid("seq", fmt.Sprint(a.Seq), fmt.Sprintf("at most %d of a gated handle: turns must find room behind it", int64(maxGatedSeq)))
	}
	return nil
}

// mayReplace refuses to overwrite, delete or supersede what is pinned, or is trusted more than a draft can be.
func (s *Scope) mayReplace(ctx context.Context, ids ...string) error {
	if !s.gated {
		return nil
	}
	for _, id := range ids {
		h, _, err := s.db.headOf(ctx, s.chain[:1], Ref{ID: id})
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case h.Provenance > store.Validated:
			return fmt.Errorf("%w, %w: %q is %s, which a draft cannot replace; put the draft under another id", store.ErrGated, store.ErrProvenance, id, h.Provenance)
		case h.Pinned:
			return gatedError(fmt.Sprintf("%q is pinned", id), "put the draft under another id, or let the host replace it")
		}
	}
	return nil
}

// mayResume refuses assemblies of another actor.
func (s *Scope) mayResume(trace string, leaves []*manifest.Record) error {
	if s.gated && slices.ContainsFunc(leaves, func(l *manifest.Record) bool { return l.Actor != s.actor }) {
		return gatedError("assembly "+trace+" was made by another actor", "resume one of this handle")
	}
	return nil
}

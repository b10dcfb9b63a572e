package ops

import (
	"fmt"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Cascade says what happens to artefacts that were derived from erased ones. Summaries and copies (a page: source) hold
// the erased content, so they are erased in any case.
type Cascade string

// The cascades.
const (
	// Keep keeps derived artefacts. A context leaves them out, with the reason that a page they
	// derive from changed.
	Keep Cascade = "keep"
	// Rederive erases derived artefacts. The report names those that have other sources, so that they can be
	// derived again.
	Rederive Cascade = "rederive"
	// Erase erases derived artefacts, what was derived from those, and so on.
	Erase Cascade = "erase"
)

// Request names what is to be erased: one of Subject, Scope, Session and Refs.
type Request struct {
	// Subject selects every artefact of which a version names this subject, turns included. With a Scope it selects those
	// of the scope and of the scopes below it alone: tenants may use the same name for different people.
	Subject string
	// Scope without a Subject selects all of a scope and of the scopes below it: artefacts, sessions, directives, held
	// batches, questions.
	Scope string
	// Session selects a conversation, by scope and id: its turns, what was decided about them, and what was asked in
	// it.
	Session store.Ref
	// Refs are artefacts by scope and id; all their versions go.
	Refs []store.Ref
	// By and Reason stay in the audit forever, so they must not name what is erased.
	By, Reason string
	Cascade    Cascade // "": Keep
	// Names also removes the ids, scopes and sessions of what is erased from the audit, and every row that has these
	// names. Leaves that name them lose their bodies and keep their hashes.
	Names bool
	// DryRun makes the report and changes nothing.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine.
	Progress func(what string, done, total uint64)
}

// Check refuses a request that does not name exactly one thing to erase, or does not say who asks for it and why.
// Names are put in the form in which they are stored.
func (r *Request) Check() error {
	r.Subject, r.Session.ID = store.Canonical(r.Subject), store.Canonical(r.Session.ID)
	r.Refs = slices.Clone(r.Refs)
	for i := range r.Refs {
		r.Refs[i].ID = store.Canonical(r.Refs[i].ID)
	}
	n := 0
	for _, is := range []bool{r.Subject != "" || r.Scope != "", r.Session != (store.Ref{}), len(r.Refs) > 0} {
		if is {
			n++
		}
	}
	if r.Subject != "" && r.Scope != "" {
		if err := store.CheckScope(r.Scope); err != nil {
			return err
		}
	}
	switch {
	case n != 1:
		return store.Invalid("request", fmt.Sprintf("%d things to erase", n), "one of a subject, a scope, a subject in a scope, a session, and references")
	case !slices.Contains([]Cascade{"", Keep, Rederive, Erase}, r.Cascade):
		return store.Invalid("cascade", string(r.Cascade), "keep, rederive or erase")
	case r.Session != (store.Ref{}) && (r.Session.Scope == "" || r.Session.ID == ""):
		return store.Invalid("session", r.Session.String(), "a scope and the id of a session")
	}
	for _, f := range []struct{ field, text string }{{"by", r.By}, {"reason", r.Reason}} {
		if err := store.CheckID(f.field, f.text); err != nil {
			return err
		}
	}
	for _, ref := range r.Refs {
		if ref.Scope == "" || ref.ID == "" || ref.Page != 0 || ref.Version != 0 {
			return store.Invalid("reference", ref.String(), "scope:id, without page and version: all versions are erased")
		}
	}
	if r.Scope != "" {
		return store.CheckScope(r.Scope)
	}
	return nil
}

// Report says what is erased and what that affects. A dry run returns the same report, without Done.
type Report struct {
	DryRun    bool       `json:"dry_run,omitempty"`
	Erased    []Item     `json:"erased"`             // artefacts that go, by scope and id
	Derived   []Derived  `json:"derived"`            // artefacts made from those, that stay or are to be made again
	Held      []HeldItem `json:"held"`               // held batches that go, decided ones too
	Contexts  []Context  `json:"contexts"`           // that showed a page that goes
	Answers   []Answer   `json:"answers"`            // that were committed or held from those contexts; they stay unless they are in Erased
	Sessions  []string   `json:"sessions"`           // of which turns go, scope/session
	Scopes    []string   `json:"scopes"`             // of which something goes
	Questions int        `json:"questions"`          // texts that were asked
	Rows      int        `json:"rows"`               // of state: sessions, directives, drafts
	Bodies    uint64     `json:"bodies,omitempty"`   // of leaves that go with Names
	NamedBy   []string   `json:"named_by,omitempty"` // artefacts that stay and name what goes, with Names: their rows still have the names
	// Missing are references that were asked for and that the database does not have: the name is mistyped, or it was
	// erased before.
	Missing []string `json:"missing,omitempty"`
	// Files are the files that erased artefacts were imported from. An erase changes no file. The next Refresh imports
	// a file again unless it is removed, excluded by a .gitignore of its directory, or its directory is forgotten
	// (Scope.RemoveDirectory).
	Files []File `json:"files"`
	// Backups are the backups that the database knows of. They still have what is erased here, if it was
	// there when they were made.
	Backups []store.Backup `json:"backups"`
	// Done says what was erased; nil after a dry run.
	Done *store.EraseReport `json:"done,omitempty"`
}

// Empty reports whether the database has nothing of what was asked for and, if Request.Names was set, nothing
// that names it.
func (r *Report) Empty() bool {
	return len(r.Erased)+len(r.Held)+r.Questions+r.Rows == 0 && r.Bodies == 0
}

// Item is an artefact that is erased.
type Item struct {
	Ref      string `json:"ref"`
	Kind     string `json:"kind"`
	Versions uint32 `json:"versions"`
	Why      string `json:"why"` // that it was asked for, or the erased artefact it derives from
}

// Derived is an artefact that was derived from an erased one.
type Derived struct {
	Ref   string   `json:"ref"`
	From  []string `json:"from"`  // those of its sources that are erased
	Left  []string `json:"left"`  // its other sources
	Stays bool     `json:"stays"` // false: it is erased too, and can be derived again from Left
}

// File is a file of a recorded directory that an artefact was imported from.
type File struct {
	Ref  string `json:"ref"`  // the erased artefact
	Path string `json:"path"` // of the file; it was not checked whether the file still exists
	Dir  string `json:"dir"`  // the recorded directory
}

// HeldItem is a held batch that is erased.
type HeldItem struct {
	ID    string    `json:"id"`
	Scope string    `json:"scope"`
	Actor string    `json:"actor"`
	At    time.Time `json:"at"`
	Why   string    `json:"why"`
}

// Context is a read that gave pages to somebody.
type Context struct {
	Trace   string    `json:"trace"`
	Type    string    `json:"type"`
	Scope   string    `json:"scope"`
	Session string    `json:"session,omitempty"`
	Actor   string    `json:"actor"`
	At      time.Time `json:"at"`
	Pages   int       `json:"pages"` // how many of the pages it gave are erased
}

// Answer is a write that was made from a context.
type Answer struct {
	Trace   string   `json:"trace"`   // of the write
	Context string   `json:"context"` // trace
	Status  string   `json:"status"`
	Refs    []string `json:"refs"`
}

// Package erase says what an operator asks to be erased, what that does to a database, and how anybody can check that it was
// done: the request, the report of its impact, and the receipt. It opens no database; ctxpage.DB.Erase does the work.
//
// What an erase cannot reach: backups and copies, what was sent to a model or a source, and what stands in the audit by
// design (names, times, who did what). docs/erase.md says it in full.
package erase

import (
	"fmt"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Cascade says what happens to artefacts that were derived from what is erased. Summaries and copies (a page: source) hold
// its content, so they are erased in any case.
type Cascade string

// The cascades.
const (
	// Keep leaves them. A context leaves them out as derived from a page that changed.
	Keep Cascade = "keep"
	// Rederive erases them, and the report names those that have other sources, so that they can be derived again.
	Rederive Cascade = "rederive"
	// Erase erases them, and what was derived from them, and so on.
	Erase Cascade = "erase"
)

// Request is what is to be erased: one of Subject, Scope, Session and Refs.
type Request struct {
	// Subject takes every artefact that any of its versions says it is about.
	Subject string
	// Scope takes all of a scope and of those below it: artefacts, sessions, directives, held batches, questions.
	Scope string
	// Session takes a conversation: its turns, what was decided about them, and what was asked in it. It is named by scope and id.
	Session store.Ref
	// Refs are artefacts by scope and id; all their versions go.
	Refs []store.Ref
	// By and Reason stand in the audit for ever, so they must not name what is erased.
	By, Reason string
	Cascade    Cascade // "": Keep
	// Names also removes the ids, scopes and sessions of what is erased from the audit, and every row that has them.
	// Leaves that name them lose their bodies and keep their hashes.
	Names bool
	// DryRun makes the report and changes nothing.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine.
	Progress func(what string, done, total uint64)
}

// Check refuses a request that does not name exactly one thing to erase, or does not say who asks for it and why.
func (r *Request) Check() error {
	n := 0
	for _, is := range []bool{r.Subject != "", r.Scope != "", r.Session != (store.Ref{}), len(r.Refs) > 0} {
		if is {
			n++
		}
	}
	switch {
	case n != 1:
		return store.Invalid("request", fmt.Sprintf("%d things to erase", n), "one of a subject, a scope, a session, and references")
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

// Report says what an erase takes and what it touches. A dry run gives the same one.
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
	// Missing are references that were asked for and of which there is nothing: a name may be mistyped, or was erased before.
	Missing []string `json:"missing,omitempty"`
	// Files are where what goes came from. An erase touches no file, and the next Refresh imports each of them again, unless it
	// is removed, or excluded by a .gitignore of its directory, or the directory is forgotten (Scope.RemoveDirectory).
	Files []File `json:"files"`
	// Backups are those that the database knows of: they were made before, and have what was there then.
	Backups []store.Backup `json:"backups"`
	// Done says what was erased; nil of a dry run.
	Done *store.EraseReport `json:"done,omitempty"`
}

// Empty reports whether the database has nothing of what was asked for and, with Names, nothing that names it.
func (r *Report) Empty() bool {
	return len(r.Erased)+len(r.Held)+r.Questions+r.Rows == 0 && r.Bodies == 0
}

// Item is an artefact that goes.
type Item struct {
	Ref      string `json:"ref"`
	Kind     string `json:"kind"`
	Versions uint32 `json:"versions"`
	Why      string `json:"why"` // asked for, or what it was made from
}

// Derived is an artefact that was made from one that goes.
type Derived struct {
	Ref   string   `json:"ref"`
	From  []string `json:"from"`  // those of its sources that are erased
	Left  []string `json:"left"`  // its other sources
	Stays bool     `json:"stays"` // else it goes, and may be made again from what is left
}

// File is a file of a recorded directory that an artefact was imported from.
type File struct {
	Ref  string `json:"ref"`  // the artefact that goes
	Path string `json:"path"` // of the file; it was not checked whether the file still exists
	Dir  string `json:"dir"`  // the recorded directory
}

// HeldItem is a held batch that goes.
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
	Pages   int       `json:"pages"` // of those that go
}

// Answer is a write that was made from a context.
type Answer struct {
	Trace   string   `json:"trace"`   // of the write
	Context string   `json:"context"` // trace
	Status  string   `json:"status"`
	Refs    []string `json:"refs"`
}

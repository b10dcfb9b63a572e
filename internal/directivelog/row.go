package directivelog

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// Keys of state rows. A log key ends in a version, which has no slash, so no two scopes share one.
const (
	prefix      = "directive/"
	statePrefix = prefix + "state/"
	logPrefix   = prefix + "log/"
)

// StateKey is the key of the newest version of a scope's directives.
func StateKey(scope string) string { return statePrefix + scope }

// ScopeOfState returns the scope of the key of a newest version.
func ScopeOfState(key string) (scope string, ok bool) { return strings.CutPrefix(key, statePrefix) }

// TextOf returns the text that a model is shown for the row of a version; "" for no row.
func TextOf(row []byte) (string, error) {
	if row == nil {
		return "", nil
	}
	e, err := unpack(row)
	return e.After.State.Text(), err
}

// LogKey is the key of one version.
func LogKey(scope string, version uint64) string {
	return logPrefix + scope + "/" + strconv.FormatUint(version, 10)
}

// StateKind says what a store must know of these rows.
func StateKind() store.StateKind {
	return store.StateKind{Prefix: prefix, Scope: ScopeOf, Copy: true, Unit: unit, Check: check, Journal: &store.StateJournal{Keep: keptVersions, Entry: entry, At: writtenAt, Head: StateKey}}
}

// check refuses a row that is no version of directives.
func check(_ string, row []byte) error {
	_, err := unpack(row)
	return err
}

// keptVersions is how many versions of a scope's directives stay whatever their age.
const keptVersions = 32

// entry returns the scope of a journal row, and its version.
func entry(key string) (scope string, version uint64) {
	rest, ok := strings.CutPrefix(key, logPrefix)
	at := strings.LastIndexByte(rest, '/')
	if !ok || at < 0 {
		return "", 0
	}
	version, err := strconv.ParseUint(rest[at+1:], 10, 64)
	if err != nil {
		return "", 0
	}
	return rest[:at], version
}

func writtenAt(row []byte) (int64, error) {
	var w wire
	err := codec.Unpack(row, &w)
	return w.At, err
}

// unit is the rows of one scope, without whose state row the journal says nothing.
func unit(key string) store.StateUnit {
	scope, ok := strings.CutPrefix(key, statePrefix)
	if !ok {
		scope = strings.TrimPrefix(key, logPrefix)
		scope = scope[:max(0, strings.LastIndexByte(scope, '/'))]
	}
	return store.StateUnit{Name: "directives of " + scope, Key: StateKey(scope), Page: store.Ref{Scope: scope, ID: PageID}}
}

// wire is the row of a version; the state row repeats the newest. Its checkpoint is a directive checkpoint.
type wire struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack   struct{} `msgpack:",as_array"`
	Version    uint64
	At         int64 // unix µs
	Actor      string
	Action     string
	Input      string
	Kind       uint8
	Changed    bool
	Prompt     string
	Code       string
	Repair     []string
	Scope      string
	Checkpoint []byte
}

// Pack encodes the row of a version.
func Pack(e *directive.Entry) ([]byte, error) {
	b, err := msgpack.Marshal(&wire{
		Version: e.Version, At: codec.Micros(e.At), Actor: e.Actor, Action: e.Action, Input: e.Input, Kind: uint8(e.Decision.Kind),
		Changed: e.Decision.Changed, Prompt: e.Decision.Prompt, Code: string(e.Decision.Code), Repair: e.Decision.Repair,
		Scope: e.Decision.Scope, Checkpoint: directive.ExportCheckpoint(e.After),
	})
	if err != nil {
		return nil, fmt.Errorf("ctxpage: encode directives: %w", err)
	}
	return b, nil
}

func unpack(row []byte) (out directive.Entry, err error) {
	var w wire
	if err := codec.Unpack(row, &w); err != nil {
		return out, err
	}
	if w.Version == 0 {
		return out, fmt.Errorf("%w: directives of version 0", codec.ErrMalformed)
	}
	after, err := directive.ImportCheckpoint(w.Checkpoint)
	if err != nil {
		return out, err
	}
	out = directive.Entry{
		Version: w.Version, At: codec.FromMicros(w.At), Actor: w.Actor, Action: w.Action, Input: w.Input, After: after,
		Decision: directive.Decision{
			Kind: directive.Kind(w.Kind), Changed: w.Changed, Prompt: w.Prompt, Code: (w.Code), Repair: w.Repair, Scope: w.Scope,
		},
	}
	if out.Decision.Kind == directive.Update {
		out.Decision.State = after.State
	}
	return out, nil
}

// Journal reads the directives of a store. The zero value is of no use.
type Journal struct {
	Store store.Store
	File  string // names the database in an error
}

// At returns one version. ErrGone when gc dropped it, ErrNotFound when the scope never had it.
func (j Journal) At(ctx context.Context, scope string, version uint64) (directive.Entry, error) {
	e, _, err := j.row(ctx, LogKey(scope, version))
	if err != nil || e.Version != 0 {
		return e, err
	}
	newest, err := j.Newest(ctx, scope)
	switch {
	case err != nil:
		return e, err
	case version > 0 && version < newest.Version:
		return e, fmt.Errorf("%w: gc dropped version %d of the directives of %s", store.ErrGone, version, scope)
	}
	return e, fmt.Errorf("%w: the directives of %s have no version %d", store.ErrNotFound, scope, version)
}

// Newest returns the version that holds; its Version is 0 before the first change.
func (j Journal) Newest(ctx context.Context, scope string) (directive.Entry, error) {
	e, _, err := j.row(ctx, StateKey(scope))
	return e, err
}

// row reads a row of directives, with the LSN of its last change; version and LSN are 0 when there is none.
func (j Journal) row(ctx context.Context, key string) (out directive.Entry, lsn uint64, err error) {
	row, err := j.Store.State(ctx, key)
	if err != nil || row.Value == nil {
		return out, 0, err
	}
	if out, err = unpack(row.Value); err != nil {
		return out, 0, &store.CorruptError{File: j.File, Err: fmt.Errorf("state row %q: %w", key, err)}
	}
	return out, row.LSN, nil
}

// ScopeOf is the scope of a key.
func ScopeOf(key string) string { return unit(key).Page.Scope }

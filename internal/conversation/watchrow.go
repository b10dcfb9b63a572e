package conversation

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/window"
	"github.com/ctxpage/ctxpage/session"
	"github.com/vmihailenco/msgpack/v5"
)

// What the process that runs the watcher of a session must know without loading the session: how full the window is (Mark,
// in the change row) and where the watcher stands (WatchRow). Both rows are told to it (store.Changes).

// Fullness says between which limits of the window its tokens are.
type Fullness byte

// The values of a change row begin with one of these; the tokens of the window follow it as a varint.
const (
	NoWindow Fullness = iota + 1
	Calm              // at or below the target
	Busy              // at or below the warning
	Full              // above the warning: the watcher must look
)

// Mark returns the value of the change row for the window as it is in memory, with so many tokens that come in besides.
func (c *Turns) Mark(coming int) []byte {
	if c.State.Config == nil {
		return []byte{byte(NoWindow)}
	}
	t := c.State.Config.Thresholds()
	tokens, f := c.Tokens()+coming, Full
	switch {
	case tokens <= t.Target:
		f = Calm
	case tokens <= t.Warn:
		f = Busy
	}
	return binary.AppendUvarint([]byte{byte(f)}, uint64(tokens))
}

// MarkOf reads the value of a change row.
func MarkOf(value []byte) (f Fullness, tokens int) {
	if len(value) == 0 {
		return NoWindow, 0
	}
	n, _ := binary.Uvarint(value[1:])
	return Fullness(value[0]), int(n)
}

// SessionOf returns the scope and the session of the key of a change row or a watch row; kind is its prefix.
func SessionOf(kind, key string) (of [2]string, ok bool) {
	if key, ok = strings.CutPrefix(key, kind); ok {
		of[0], of[1], ok = strings.Cut(key, "\x00")
	}
	return of, ok
}

// KeptEvents is how many events of its watcher a session keeps for those who follow them.
const KeptEvents = 16

// WatchRow is where the watcher of a session stands, so that any process can go on with it and any process can follow it.
type WatchRow struct {
	Holder   string // the process that was asked to run it, by the id of its open database; "": the owner
	Name     string // of the holder, for people
	Progress window.Progress
	Events   []session.Event // the newest, oldest first
}

// Add notes events.
func (r *WatchRow) Add(events []session.Event) {
	r.Events = append(r.Events, events...)
	r.Events = r.Events[max(len(r.Events)-KeptEvents, 0):]
}

// Encode returns the row as stored: arrays without names.
func (r *WatchRow) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.UseArrayEncodedStructs(true)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("ctxpage: encode the watch of a session: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeWatch reads a stored row; nil: there is none.
func DecodeWatch(raw []byte) (r WatchRow, err error) {
	if raw == nil {
		return r, nil
	}
	if err := codec.Unpack(raw, &r); err != nil {
		return r, fmt.Errorf("ctxpage: the watch of a session: %w", err)
	}
	return r, nil
}

// WindowOf returns the configuration in the state row of a session; nil: it has no window.
func WindowOf(raw []byte) (*session.Config, error) {
	if raw == nil {
		return nil, nil
	}
	var s sessionRow
	if err := codec.Unpack(raw, &s); err != nil {
		return nil, fmt.Errorf("ctxpage: state of a session: %w", err)
	}
	return s.Config, nil
}

package remote

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "add the vectors that testdata/vectors.json does not have")

// vector is a message as it crosses the socket: for authors of other clients, and so that no release writes other bytes.
type vector struct {
	Name  string `json:"name"`  // call, and whether it is asked, answered or failed
	Value string `json:"value"` // as Go prints it in JSON, to be compared by eye
	Hex   string `json:"hex"`   // the frames
}

// vectors are made once; the bytes in the file are what counts.
func vectors() map[string]any {
	at := time.Date(2026, 11, 23, 9, 30, 0, 123456000, time.UTC)
	ref := store.Ref{Scope: "acme", ID: "policy", Page: 1, Version: 2}
	return map[string]any{
		"Resolve asked": resolveAsk{Scopes: store.Scopes{"acme/support", "acme"}, Ref: ref},
		"Load asked":    loadAsk{Scopes: store.Scopes{"acme"}, Pages: []store.PageKey{{Num: 7, Version: 1}}, Want: store.WantHead},
		"State asked":   "session\x00acme\x00chat",
		"Refresh asked": uint64(41),
		"Hold asked":    holdAsk{Ticket: 3, At: store.Moment{LSN: 41, Time: at}},
		"Changes asked": changesAsk{After: 41, Wait: time.Second},
		"Outcome asked": outcomeAsk{ID: [16]byte{1, 2, 3}, GiveUp: []uint64{5}},
		"Scan asked":    store.ScanQuery{Limit: 10, Filter: &store.Filter{IDPrefix: "p", TagsAll: []string{"open"}, Meta: store.Conditions{{Key: "team", Op: store.OpEqual, Value: "red"}}}},
		"Commit asked":  store.Batch{ID: [16]byte{9}, Scope: "acme", Actor: "bot", Now: at, Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}},
		"Commit answer": answer[store.Outcome]{LSN: 42, Value: store.Outcome{LSN: 42, Leaf: 8, Refs: []store.Ref{ref}}},
		"State answer":  answer[store.StateRow]{LSN: 42, Value: store.StateRow{Key: "k", Value: []byte{0, 255}}},
		"Append asked": appendAsk{Leaves: []*manifest.Record{{Type: manifest.TypeAssemble, Trace: "t", Pages: []manifest.Page{
			{Num: 7, Version: 1, Form: 1, Tokens: 75, Score: 3308}, {Num: 9, Version: 2, Ranges: [][2]uint32{{0, 300}}, Reason: "duplicate"},
		}, Excluded: []manifest.Exclusion{{Reason: "budget", Count: 1, Nearest: []manifest.Page{{Num: 3, Version: 1}}}}}, {Type: manifest.TypeGet}}},
		"Append asked, expecting": appendAsk{Leaves: []*manifest.Record{{Type: manifest.TypeGet}}, Expect: &expected{store.Scopes{"acme"}, store.Ref{ID: "policy"}, store.Located{Version: 2, LSN: 41, Current: true}}},
		"Prepare answer": answer[prepared]{LSN: 42, Value: prepared{
			Whole: true, Candidates: store.Candidates{LSN: 42, Hits: []store.Candidate{{Key: store.PageKey{Num: 7, Version: 1}, Ref: store.Ref{ID: "policy"}, Near: true, Cosine: new(float64)}, {Key: store.PageKey{Num: 300, Version: 1}, Ref: store.Ref{ID: "house"}, Beside: .5}}},
		}},
		"Hello answer":   welcome{Status: Status{Format: 1, PID: 4711, Program: "dbctl", Since: at, Database: "DB", Lease: 10 * time.Second, Clients: 1}, Session: "s", LSN: 42},
		"refused":        refusal{refusedFull, "1 clients are served"},
		"progress":       progress{What: "copy", Done: 3, Total: 9},
		"failed":         failure{store.ErrNotFound},
		"failed, fields": failure{&store.ConflictError{Ref: ref, Have: 41, Now: 42}},
	}
}

// failure is the message of an error frame.
type failure struct{ Err error }

var vectorOrder = []string{
	"Resolve asked", "Load asked", "State asked", "Refresh asked", "Hold asked", "Changes asked", "Outcome asked", "Scan asked", "Commit asked", "Append asked",
	"Commit answer", "State answer", "Prepare answer", "progress", "failed", "failed, fields", "Hello answer", "refused", "Append asked, expecting",
}

// The bytes of messages stay what they were: those in the file are read into today's types and written again.
func TestVectors(t *testing.T) {
	const file = "testdata/vectors.json"
	made := vectors()
	require.Len(t, vectorOrder, len(made))
	var all []vector
	b, err := os.ReadFile(file)
	if !*update || err == nil {
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &all))
	}
	known := map[string]vector{}
	for _, v := range all {
		known[v.Name] = v
	}
	for _, name := range vectorOrder {
		v, ok := known[name]
		if !ok && *update {
			v = vector{name, "", hex.EncodeToString(frameOf(t, name, made[name]))}
			shown := must(json.Marshal(made[name]))(t)
			v.Value = string(shown)
			all = append(all, v)
			ok = true
		}
		require.True(t, ok, "%s is not in %s; -update adds it", name, file)
		raw := must(hex.DecodeString(v.Hex))(t)
		var told []byte
		kind, message, err := readMessage(bytes.NewReader(raw), maxAnswer, func(b []byte) error { told = bytes.Clone(b); return errTold })
		if kind == 0 && told != nil {
			message, err = told, nil
		}
		require.NoError(t, err, name)
		back := reflect.New(reflect.TypeOf(made[name]))
		require.NoError(t, unpack(message, back.Interface()), name)
		require.Equal(t, v.Hex, hex.EncodeToString(frameOf(t, name, back.Elem().Interface())), "%s: other bytes than those of the file", name)
		require.Equal(t, hex.EncodeToString(frameOf(t, name, made[name])), v.Hex, "%s: the value is another one", name)
	}
	require.Len(t, all, len(vectorOrder))
	if *update {
		b := must(json.MarshalIndent(all, "", " "))(t)
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, append(b, '\n'), 0o644))
	}
	// The control: a byte that changed is seen.
	raw := must(hex.DecodeString(all[0].Hex))(t)
	raw[len(raw)-1] ^= 1
	var q resolveAsk
	_, message, err := readMessage(bytes.NewReader(raw), maxAnswer, nil)
	require.NoError(t, err)
	if unpack(message, &q) == nil {
		require.NotEqual(t, made["Resolve asked"], q)
	}
}

// errTold ends the reading of a frame of progress, which another message follows.
var errTold = errCut

func frameOf(t *testing.T, name string, v any) []byte {
	t.Helper()
	b, err := pack(v)
	require.NoError(t, err, name)
	kind := byte(frameEnd)
	switch v.(type) {
	case failure:
		kind = frameError
	case refusal:
		kind = frameRefused
	case progress:
		kind = frameProgress
	}
	return framed(kind, b)
}

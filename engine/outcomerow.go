package engine

import (
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// EncodeMsgpack writes the bytes that the encoder makes of the fields by reflection: every commit has an outcome, and it is
// encoded under the sequencer's lock, where all other writers wait. A row is decoded by field names, so a field that is
// missing here would be lost without an error; TestOutcomeRow compares the two for every field.
func (r *outcomeRow) EncodeMsgpack(e *msgpack.Encoder) error {
	n := 8
	if len(r.Bound) == 0 {
		n--
	}
	w := outcomeWriter{e: e}
	w.do(e.EncodeMapLen(n))
	w.name("Status")
	w.do(e.EncodeUint8(uint8(r.Status)))
	w.name("LSN")
	w.do(e.EncodeUint64(r.LSN))
	w.name("Leaf")
	w.do(e.EncodeUint64(r.Leaf))
	w.refs("Refs", r.Refs)
	w.name("Reason")
	w.do(e.EncodeString(r.Reason))
	w.refs("Stale", r.Stale)
	w.refs("Repeats", r.Repeats)
	if len(r.Bound) > 0 {
		w.name("Bound")
		w.do(e.EncodeBytes(r.Bound))
	}
	return w.err
}

// outcomeWriter keeps the first error.
type outcomeWriter struct {
	e   *msgpack.Encoder
	err error
}

func (w *outcomeWriter) do(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *outcomeWriter) name(s string) { w.do(w.e.EncodeString(s)) }

func (w *outcomeWriter) refs(name string, refs []store.Ref) {
	w.name(name)
	if refs == nil {
		w.do(w.e.EncodeNil())
		return
	}
	w.do(w.e.EncodeArrayLen(len(refs)))
	for i := range refs {
		w.do(w.e.EncodeMapLen(4))
		w.name("Scope")
		w.do(w.e.EncodeString(refs[i].Scope))
		w.name("ID")
		w.do(w.e.EncodeString(refs[i].ID))
		w.name("Page")
		w.do(w.e.EncodeInt(int64(refs[i].Page)))
		w.name("Version")
		w.do(w.e.EncodeUint32(refs[i].Version))
	}
}

package manifest

import "github.com/ctxpage/ctxpage/internal/dense"

// denseBody is the dense form of a body whose row is r, borrowed from w; false: it is no shorter. A
// sealed archive has none: the length of a sealed leaf must not tell how much of it repeats.
func denseBody(w *dense.Writer, body []byte, r row) ([]byte, bool) {
	last := 0
	if r.rows {
		t, err := tallyOf(body)
		if last = t.bytes(); err != nil || last > len(body) {
			return nil, false
		}
	}
	form := w.Form(body, last)
	return form, len(form) < len(body)
}

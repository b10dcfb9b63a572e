package ui

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
)

// Live updates are server-sent events: one for each leaf that passes the filter, named by its index, so that a browser that lost the
// connection goes on behind the last one that it got (Last-Event-ID). The data is the row of the list, as the server makes it.

const (
	eventWait  = 15 * time.Second // between signs of life on a quiet stream
	mostMissed = 500              // rows that a browser gets which was away; of more it is told to load the page again
)

func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	f, err := filterOf(r)
	if err != nil {
		h.fail(w, r, statusOf(err), problem(err))
		return
	}
	from, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var n uint64
		n, err = strconv.ParseUint(last, 10, 64)
		from = n + 1
	}
	if err != nil {
		h.fail(w, r, http.StatusBadRequest, "The stream begins behind a leaf: expected its number in after or in Last-Event-ID.")
		return
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{})
	h.closed.Add(1)
	defer h.closed.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ended, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	fmt.Fprint(w, "retry: 2000\n\n")
	_ = out.Flush()
	for ctx.Err() == nil {
		size, err := h.o.DB.Manifests().Wait(ctx, from, eventWait)
		if err != nil {
			return
		}
		if size <= from {
			fmt.Fprint(w, ": quiet\n\n")
		} else if from, err = h.send(ctx, w, f, from, size); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
	}
}

// send writes the leaves of [from, size) that pass a filter, and returns where to go on.
func (h *Handler) send(ctx context.Context, w http.ResponseWriter, f manifest.Filter, from, size uint64) (uint64, error) {
	if size-from > mostMissed {
		fmt.Fprintf(w, "id: %d\nevent: missed\ndata: %d\n\n", size-1, size-from)
		return size, nil
	}
	leaves, err := h.o.DB.Manifests().Records(ctx, from, size, false, int(size-from))
	if err != nil {
		return from, err
	}
	for _, l := range leaves {
		from = l.Index + 1
		if !f.Match(l) {
			continue
		}
		row := leafRow{Record: l}
		if row.Asked, err = h.asked(ctx, l); err != nil {
			return from, err
		}
		var b strings.Builder
		if err := h.pages["live"].ExecuteTemplate(&b, "leaf", row); err != nil {
			return from, err
		}
		fmt.Fprintf(w, "id: %d\nevent: leaf\ndata: %s\n\n", l.Index, strings.Join(strings.Fields(b.String()), " "))
	}
	return from, nil
}

package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/remote"
)

// FuzzCalls sends any bytes as the argument of any call. No call may panic.
func FuzzCalls(f *testing.F) {
	names := remote.CallNames()
	for i := range names {
		for _, body := range [][]byte{{0x80}, {0xc0}, {0x90}, {0x91, 0xc0}, []byte("\x81\xa4Kind\x04"), []byte("\x81\xa6Scopes\x91\xa4acme"), []byte("\x82\xa4Nums\x92\x01\x02\xa4Vecs\x90")} {
			f.Add(uint8(i), body)
		}
	}
	mem := newMemory(f)
	must(mem.Commit(context.Background(), fact(f, "fact", "zebra")))(f)
	f.Fuzz(func(t *testing.T, call uint8, body []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		name := names[int(call)%len(names)]
		if name == "Changes" || name == "Audit.Wait" {
			t.Skip("it waits for as long as the argument says")
		}
		remote.MakeCall(ctx, mem, name, body)
	})
}

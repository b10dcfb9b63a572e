package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// checkAuditWait appends without a sync, waits, and crashes. A wait may end early; ten seconds are a wide bound for a leaf.
func checkAuditWait(b *bench) {
	b.put("rule", "zebra")
	size := b.leaves(b.st.Audit())
	for n := range 3 {
		now, err := b.st.Audit().Wait(b.ctx, size, 20*time.Millisecond)
		require.NoError(b, err)
		require.Equal(b, size, now, "nothing came")
		trace := fmt.Sprint("waited-", n)
		grown := make(chan uint64, 1)
		go func(audit store.Audit, size uint64) {
			defer close(grown)
			for begun := time.Now(); time.Since(begun) < 10*time.Second; {
				now, err := audit.Wait(b.ctx, size, time.Second)
				if err != nil {
					return
				}
				if now > size {
					grown <- now
					return
				}
			}
		}(b.st.Audit(), size)
		leaf := &manifest.Record{Type: manifest.TypeAssemble, Trace: trace, Time: b.time().UnixMicro(), Scope: scope}
		require.NoError(b, b.st.Append(b.ctx, []*manifest.Record{leaf}, store.Written))
		now, ok := <-grown
		require.True(b, ok, "a wait, made again while it ends early, ends with the leaf")
		require.Greater(b, now, size)
		b.crash()
		found, err := b.st.Audit().ByTrace(b.ctx, trace)
		require.NoError(b, err, "the leaf was shown and is not there")
		require.Len(b, found, 1)
		require.Less(b, found[0].Index, now)
		after := b.leaves(b.st.Audit())
		require.GreaterOrEqual(b, after, now)
		now, err = b.st.Audit().Wait(b.ctx, size, time.Minute)
		require.NoError(b, err)
		require.Greater(b, now, size, "what is there already needs no wait")
		size = b.leaves(b.st.Audit())
	}
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := b.st.Audit().Wait(ended, size, time.Minute)
	require.ErrorIs(b, err, context.Canceled)
}

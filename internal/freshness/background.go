package freshness

import (
	"context"
	"time"
)

// Background is work that is done at once and then now and then.
type Background struct {
	stop context.CancelFunc
	done chan struct{}
}

// Every begins it. One run ends before the next begins.
func Every(pause time.Duration, run func(context.Context)) *Background {
	ctx, stop := context.WithCancel(context.Background())
	b := &Background{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			run(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return b
}

// Stop ends it, the context of a run under way as well, and waits for it. Of nil, or called again, it does nothing.
func (b *Background) Stop() {
	if b != nil {
		b.stop()
		<-b.done
	}
}

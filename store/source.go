package store

import (
	"context"
	"time"
)

// Source loads the content of one scheme, such as web pages; hosts register their own in ctxpage.Options.Sources. Both methods run concurrently, under a deadline and under no lock of the
// database; they must not call it. Key is the source without its scheme and colon.
type Source interface {
	// Probe returns the current validator of the content. It must be cheap: it may compare a stamp alone with have, the last known validator,
	// and returns have if nothing changed.
	Probe(ctx context.Context, key string, have Validator) (Validator, error)
	// Fetch loads the content. It may use a network.
	Fetch(ctx context.Context, key string) (Fetched, error)
}

// Fetched is the result of Source.Fetch. Text must be UTF-8.
type Fetched struct {
	Text      string
	Validator Validator
	// AsOf is the time for which the content was true; zero: now.
	AsOf time.Time
}

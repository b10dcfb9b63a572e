// Package source is what a source of content is: a file, a web page, whatever a host registers under a scheme of its own
// (ctxpage.Options.Sources). Package httpsource has the one for http and https; file: and page: are built in.
package source

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Source loads content of one scheme. Both methods run concurrently, under a deadline and under no lock of the
// database; they must not call it. Key is the source without its scheme and colon.
type Source interface {
	// Probe returns what the content is currently recognised by. It must be cheap: given the known validator, it may
	// answer from a stamp alone, and returns have when nothing changed.
	Probe(ctx context.Context, key string, have Validator) (Validator, error)
	// Fetch loads the content; it may be a network.
	Fetch(ctx context.Context, key string) (Fetched, error)
}

// Validator is what the state of a source is recognised by: a stamp, a hash, or both, and when it was seen.
type Validator = store.Validator

// Fetched is what a source returned. Text must be UTF-8.
type Fetched struct {
	Text      string
	Validator Validator
	// AsOf is when the content was true; zero: now.
	AsOf time.Time
}

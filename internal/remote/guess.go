package remote

import (
	"context"
	"errors"
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

// Guess is the context of one read of an artefact: a Resolve, then the Append of its leaf. At a client it turns the two calls into one.
// Resolve returns the last known answer without asking, and the server appends the leaf only if the reference still resolves to that.
// So no answer is older than the call, and a client keeps nothing that it must bring up to date. If the guess is wrong, nothing is
// appended, and the caller reads again.
//
// Only the first Resolve is guessed. It comes before anything that the reader does concurrently.
type Guess struct {
	context.Context
	renewed bool     // nothing is guessed any more
	asked   bool     // the first Resolve was called
	used    bool     // it was guessed
	sent    bool     // the leaf may have been sent
	is      expected // the guess
}

// errGuess is returned if a guess is wrong, or cannot be compared.
var errGuess = errors.New("ctxpage: the artefact has changed since it was last read")

type guessKey struct{}

// Guessing returns a Guess for a read from a store that another process has. It returns nil if this process has the store.
func Guessing(ctx context.Context, st store.Store) *Guess {
	switch st := st.(type) {
	case *Client:
		return &Guess{Context: ctx}
	case *guest:
		if _, is := st.is.Load().st.(*Client); is {
			return &Guess{Context: ctx}
		}
	}
	return nil
}

// Value returns the values of the context of the call, and itself.
func (g *Guess) Value(key any) any {
	if key == (guessKey{}) {
		return g
	}
	return g.Context.Value(key)
}

// guessOf returns the guess of a context; nil: there is none.
func guessOf(ctx context.Context) *Guess {
	g, _ := ctx.Value(guessKey{}).(*Guess)
	return g
}

// Guessed returns an error if a Resolve in this context was guessed. A reader that is about to do more than read must stop then.
func Guessed(ctx context.Context) error {
	if g := guessOf(ctx); g != nil && g.used {
		return errGuess
	}
	return nil
}

// Renew reports whether a read that ended with err must be made again in this context, in which nothing is guessed any more.
func (g *Guess) Renew(err error) bool {
	if !g.used || err == nil || g.sent && !errors.Is(err, errGuess) {
		return false
	}
	*g = Guess{Context: g.Context, renewed: true}
	return true
}

// expected is the condition of an Append: what the reference must resolve to.
type expected struct {
	Scopes store.Scopes
	Ref    store.Ref
	Is     store.Located // see identity
}

// identity returns a copy without scope and pages: version and LSN determine them.
func identity(l store.Located) store.Located {
	l.Scope, l.Pages = "", nil
	return l
}

// holds reports whether the condition is met.
func (x *expected) holds(ctx context.Context, st store.Store) bool {
	l, err := st.Resolve(ctx, x.Scopes, x.Ref)
	a, b := identity(l), x.Is
	return err == nil && a.Version == b.Version && a.LSN == b.LSN && a.Current == b.Current && a.Expires == b.Expires && a.By == b.By && a.ByID == b.ByID
}

// answeredResolve is an answer of Resolve that a client remembers.
type answeredResolve struct {
	scopes store.Scopes
	is     store.Located
}

// maxResolves is how many answers a client remembers.
const maxResolves = 4096

// resolveGuessed is Resolve for the first one of a Guess.
func (c *Client) resolveGuessed(ctx context.Context, g *Guess, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	g.asked = true
	c.mu.Lock()
	last, known := c.resolves[ref]
	c.mu.Unlock()
	if known && !g.renewed && slices.Equal(last.scopes, scopes) {
		g.used, g.is = true, expected{scopes, ref, identity(last.is)}
		return last.is, nil
	}
	l, err := c.Resolve(ctx, scopes, ref) // no longer the first
	if err != nil {
		return l, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.resolves) >= maxResolves || c.resolves == nil {
		c.resolves = map[store.Ref]answeredResolve{}
	}
	c.resolves[ref] = answeredResolve{scopes, l}
	return l, nil
}

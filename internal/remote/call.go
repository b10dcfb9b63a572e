package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// The life of one call of a client:
//
// 	greet ─▶ send ─▶ answer                                        returned to the caller
// 	  ▲        ├───▶ refused "session": say hello, send again      the server made nothing of it
// 	  │        ├───▶ refused "call": send with a new number        the server forgot the number, see renumber
// 	  │        ├───▶ connection lost: pause, send again            the number keeps it from being made twice
// 	  └────────┤     server is closing, or no server: pause        Vacant may take the database over
// 	           └───▶ silent for Answer: *UnavailableError          never sent elsewhere: the owner may only be slow
//
// Invariant: a call has one number for all attempts that may have arrived, and a session remembers the answers of its last
// numbers. So an attempt that did arrive is answered, not made again. With another session, after the server was replaced, the numbers say
// nothing: batches are then recognised by their id, leaves by the audit (Missing), and calls that are bound end with
// errElsewhere.
//
// Time: silence is measured by asking for the status beside the call (limitSilence), so work may take hours and a stopped server
// is named within Answer. RetryFor bounds the attempts while connections to one process fail.

// callOptions say how a call is made.
type callOptions struct {
	progress func(progress)
	// bound: another server cannot tell whether the call was made, so the call is not sent to another once it may have been
	// made.
	bound bool
	// writes: if it is unknown whether the call was made, it returns store.ErrOutcomeUnknown.
	writes bool
	// waited: Close waits for the call.
	waited bool
	// unwatched: the caller bounds how long the server may be silent.
	unwatched bool
	// meanwhile is called when the request was sent, before the answer is waited for; nil: there is nothing to do.
	meanwhile func()
	// giveUp: if it is unknown whether the call was made, the next call of Outcome names it.
	giveUp bool
}

// errSilent means that a server did not answer in time, and did not tell its status either.
var errSilent = errors.New("no answer in time")

// answered is an error that the store returned, or errClosing, of a call that waited while its server drained.
type answered struct {
	error
	value []byte // the value of the call beside its error
}

// Unwrap returns that error. Without it errClosing went to the caller, who met it at a hand-over when it looked for changes.
func (a *answered) Unwrap() error { return a.error }

// endedBy is the error for the caller. The server knows that the caller gave the call up, and not
// why.
func (a *answered) endedBy(ctx context.Context) error {
	if why := endReason(ctx); why != nil && errors.Is(a.error, context.Canceled) && !errors.Is(a.error, store.ErrOutcomeUnknown) {
		return why
	}
	return a.error
}

// ask makes a call and returns the answer.
func ask[A any](ctx context.Context, c *Client, name string, q any, h callOptions) (A, error) {
	var a answer[A]
	at := c.opts.Now()
	b, err := c.call(ctx, name, q, h)
	switch {
	case err == nil:
		err = unpack(b, &a)
	case len(b) > 0:
		err = errors.Join(err, unpack(b, &a.Value))
	}
	if err == nil {
		c.advanceMark(a.LSN, at)
	}
	return a.Value, err
}

// call makes a call. Beside an error that the store returned it returns the value that came with it,
// which may be empty. While connections fail it is sent again under the same number, after a pause that grows and is drawn.
func (c *Client) call(ctx context.Context, name string, q any, h callOptions) ([]byte, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.running.Done()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	message, err := packFrame(frameEnd, q)
	if err != nil {
		return nil, err
	}
	if len(message) > maxRequest {
		return nil, store.Invalid(name, fmt.Sprintf("%d bytes", len(message)), fmt.Sprintf("at most %d", maxRequest))
	}
	t := &pendingCall{c: c, name: name, message: message, number: c.calls.Add(1), opts: h}
	b, tried, err := t.first(ctx)
	if tried && err == nil {
		return b, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !h.waited {
		defer context.AfterFunc(c.ended, func() { cancel(store.ErrClosed) })()
	}
	if !tried {
		b, err = t.once(ctx)
	}
	return t.untilAnswered(ctx, b, err)
}

// endReason returns why a context is over: the client was closed, or the reason of the caller.
func endReason(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), store.ErrClosed) {
		return store.ErrClosed
	}
	return ctx.Err()
}

// pendingCall is a call under way.
type pendingCall struct {
	c       *Client
	name    string
	message []byte
	number  uint64
	opts    callOptions
	sentTo  string // session of the first attempt that may have reached a store; "": none did
}

// The pauses between attempts.
const (
	firstPause = 2 * time.Millisecond
	longPause  = 25 * time.Millisecond
)

// untilAnswered repeats the attempt that gave b or err.
func (t *pendingCall) untilAnswered(ctx context.Context, b []byte, err error) ([]byte, error) {
	deadline := time.Now().Add(t.c.opts.RetryFor)
	owner := t.c.reached.Load()
	left, closed := t.c.serverLeft(), t.c.ended.Done()
	for pause := firstPause; ; b, err = t.once(ctx) {
		var said *answered
		var no *refused
		var skew *SkewError
		switch {
		case err == nil:
			t.c.met() // a Vacant of this call may have come after the new session
			return b, nil
		case errors.As(err, &said) && !errors.Is(err, errClosing):
			return said.value, said.endedBy(ctx)
		case ctx.Err() != nil:
			return nil, t.lost(endReason(ctx))
		case errors.As(err, &no) && no.Code == refusedSession:
			continue // at once: it was not made
		case no != nil && no.Code == refusedCall && t.renumber():
			continue
		case no != nil && no.Code == refusedCall && t.opts.bound:
			return nil, t.lost(errElsewhere)
		case errors.Is(err, errClosing) || no != nil && no.Code == refusedClosing:
			deadline = time.Now().Add(t.c.opts.RetryFor) // it answers
		case errors.As(err, &no) || errors.As(err, &skew) || errors.Is(err, ErrForeign) || errors.Is(err, errElsewhere) || errors.Is(err, store.ErrClosed):
			return nil, t.lost(err)
		case errors.Is(err, errSilent):
			return nil, t.lost(t.c.unavailable(err))
		}
		expired := time.Now().After(deadline) // also where this process stood still meanwhile: the place is asked for all the same
		if now := t.c.reached.Load(); now != owner {
			owner, expired, deadline = now, false, time.Now().Add(t.c.opts.RetryFor)
		}
		if t.c.opts.Vacant != nil && t.c.opts.Vacant(ctx) {
			return nil, &TakenError{Sent: t.sentTo != ""}
		}
		if expired {
			return nil, t.lost(t.c.unavailable(err))
		}
		select {
		case <-ctx.Done():
		case <-closed: // this process may have become the owner
			closed = nil
		case <-left:
			pause, left = firstPause, t.c.serverLeft()
			continue
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longPause)
	}
}

// lost is the error of a call that got no answer.
func (t *pendingCall) lost(err error) error {
	if t.sentTo == "" || !t.opts.writes {
		return err
	}
	if t.opts.giveUp {
		t.c.mu.Lock()
		if s := t.c.session; s != nil && s.Session == t.sentTo { // another session has no calls of this one
			t.c.givenUp = append(t.c.givenUp, t.number)
		}
		t.c.mu.Unlock()
	}
	return fmt.Errorf("%w: %w; ask for the outcome, or repeat with the same id", store.ErrOutcomeUnknown, err)
}

// renumber assigns a new number to a call that was refused because the session has forgotten so late a
// number: hundreds of calls with later ones came and went before it. It returns false if an earlier
// attempt may have been made and a second one would do the same again.
func (t *pendingCall) renumber() bool {
	if t.sentTo != "" && !t.opts.giveUp { // a batch is made once, by its id
		return false
	}
	t.number = t.c.calls.Add(1)
	return true
}

// errElsewhere is of a call that cannot be sent again, because it may have been made and the server does not know it.
var errElsewhere = errors.New("ctxpage: the server was replaced, or forgot the answer, while the call was under way")

// once makes one attempt.
func (t *pendingCall) once(ctx context.Context) ([]byte, error) {
	s, err := t.c.greet(ctx)
	if err != nil {
		return nil, err
	}
	if t.opts.bound && t.sentTo != "" && t.sentTo != s.Session {
		return nil, errElsewhere
	}
	b, err := t.onStream(ctx, s.Session)
	return b, t.made(s, err)
}

// made notes what the error of an attempt says: the server does not know the session, or it may have got the call.
func (t *pendingCall) made(s *welcome, err error) error {
	var no *refused
	switch {
	case errors.As(err, &no) && no.Code == refusedSession:
		t.c.forget(s)
	case err != nil && t.sentTo == "" && !errors.As(err, &no) && !unsent(err) && !errors.Is(err, errClosing):
		t.sentTo = s.Session
	}
	return err
}

// errUnsent is matched by the error of a call that no server got.
var errUnsent = errors.New("nothing was sent")

// unsent tells that a server got nothing of a request.
func unsent(err error) bool {
	var dial *dialError
	return errors.As(err, &dial) || errors.Is(err, errUnsent)
}

// plain makes one attempt at a call that needs no session in progress, and reads its answer.
func (c *Client) plain(ctx context.Context, name, session string, into any, unwatched bool) error {
	message, err := packFrame(frameEnd, none{})
	if err != nil {
		return err
	}
	t := &pendingCall{c: c, name: name, message: message, opts: callOptions{unwatched: unwatched, waited: name == "Bye"}}
	b, err := t.onStream(ctx, session)
	if err != nil {
		return err
	}
	return unpack(b, into)
}

// readAnswer reads the frames of the answer.
func (t *pendingCall) readAnswer(from io.Reader) ([]byte, error) {
	kind, b, err := readMessage(from, maxAnswer, func(b []byte) error {
		var p progress
		if err := unpack(b, &p); err != nil {
			return err
		}
		if t.opts.progress != nil {
			t.opts.progress(p)
		}
		return nil
	})
	if err != nil || kind == frameEnd {
		return b, err
	}
	if kind == frameRefused {
		return nil, parseRefusal(b)
	}
	var failed callError
	if err := unpack(b, &failed); err != nil {
		return nil, err
	}
	if failed.Err == nil {
		failed.Err = errors.New("ctxpage: an error without a text")
	}
	return nil, &answered{failed.Err, failed.Value}
}

// greet returns the session, and says hello where there is none.
//
// One goroutine says hello at a time; the others wait for what it gets. A new session is refused if
// its database is another one than before, or has fewer commits: an older copy of the files was put
// in their place, and what this client has seen is no longer true.
func (c *Client) greet(ctx context.Context) (*welcome, error) {
	if s := c.current(); s != nil {
		return s, nil
	}
	select {
	case c.helloLock <- struct{}{}:
		defer func() { <-c.helloLock }()
	case <-ctx.Done():
		return nil, endReason(ctx)
	}
	if s := c.current(); s != nil {
		return s, nil
	}
	s := &welcome{}
	if err := c.plain(ctx, "Hello", "", s, false); err != nil {
		return nil, err
	}
	c.mu.Lock()
	known, seen := c.server.Database, c.mark.LSN
	c.mu.Unlock()
	if s.LSN < seen {
		return nil, fmt.Errorf("%w: %s ends at commit %d now, it was at %d: an older copy was put in its place; open it anew", store.ErrClosed, c.path, s.LSN, seen)
	}
	if known != "" && known != s.Database {
		return nil, fmt.Errorf("%w: %s has database %s now, expected %s; open it anew", store.ErrClosed, c.path, s.Database, known)
	}
	if err := c.retakeHolds(ctx, s); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.session, c.server, c.givenUp = s, s.Status, nil
	c.mu.Unlock()
	c.advanceMark(s.LSN, c.opts.Now())
	c.met()
	return s, nil
}

// met tells that a server answers.
func (c *Client) met() {
	if c.opts.Met != nil {
		c.opts.Met()
	}
}

// current returns the session; nil: the client must say hello.
func (c *Client) current() *welcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// forget drops a session that the server does not know.
func (c *Client) forget(s *welcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
	}
}

// retakeHolds takes the holds of the client in a new session: the old ones ended with their session, or with its server.
func (c *Client) retakeHolds(ctx context.Context, s *welcome) error {
	c.mu.Lock()
	asks := make([]holdAsk, 0, len(c.holds))
	for t, at := range c.holds {
		asks = append(asks, holdAsk{t, at})
	}
	c.mu.Unlock()
	sort.Slice(asks, func(i, j int) bool { return asks[i].Ticket < asks[j].Ticket })
	for _, q := range asks {
		message, err := packFrame(frameEnd, q)
		if err != nil {
			return err
		}
		t := &pendingCall{c: c, name: "Hold", message: message, number: c.calls.Add(1)}
		if _, err := t.onStream(ctx, s.Session); err != nil {
			return err
		}
	}
	return nil
}

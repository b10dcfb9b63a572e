package conversation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// An open database follows the commits of all processes (store.Changes) and has the sessions looked at whose windows fill. The
// owner of the files has no goroutine for that until a commit writes a told row (park); other commits cost it nothing:
//
//	a commit of a session ─▶ its change row is told: Full, or no longer Full ─▶ queued ─▶ a worker looks ─▶ settled
//	a step of a watcher   ─▶ its watch row is told ─▶ events for those who follow; the holder is alive
//
// A session costs nothing while its window has room: no goroutine, no turns in memory, no entry here. A look at a full one
// reads three rows; turns are loaded for a pass only, and released after it.
//
// Who looks. The owner of the files looks for all processes, and every host of a shared database does. A process that
// started a watcher (Start) is named in the watch row as its holder, and looks itself: its summarizer and its counter are
// used then. Others wait for the holder, Host.Patience after the first look that found work. If the holder has done nothing
// by then, an owner takes the session over, and a host takes the hold. So a hold needs no renewal and no common clock.
// Two processes that look at once do no harm: every commit expects the rows that it was decided on.

// LookAgain is the delay after a look that failed, and the least time between looks without a commit.
const LookAgain = time.Second

// waitChanges is the time that one call waits for commits.
const waitChanges = time.Minute

// lookWorkers is the number of sessions that are looked at concurrently. A summarizer may be slow, and others must not wait for it.
const lookWorkers = 4

// closeTime bounds the passes that are made while the database closes.
const closeTime = 5 * time.Second

// keeper is the background work on the sessions of a database.
type keeper struct {
	t      *Sessions
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{} // closed when the work has ended
	at     uint64        // LSN up to which changes were taken; of the goroutine
	all    bool          // what the owner before left was read; of the goroutine
	worker sync.WaitGroup

	mu      sync.Mutex // guards those below; nothing is called under it but AfterTold of the store, which calls nobody
	queue   [][2]string
	looks   map[[2]string]*looked
	started map[[2]string]*started
	workers int
	wake    context.CancelFunc // ends the wait for commits; nil: nobody waits
	woken   bool               // wake was wanted while nobody waited
}

// looked is a session that is not at rest.
type looked struct {
	queued bool
	flying chan struct{} // closed when the look in flight ends; nil: none
	again  bool          // something happened during the look
	at     time.Time     // when to look without a commit; zero: never
	since  time.Time     // since when the holder is waited for; zero: it is not
}

// started is a watcher that this process was told to run.
type started struct {
	until  context.Context // of the caller
	ctx    context.Context // of its looks
	stop   context.CancelFunc
	forget func() bool // that until ends it
}

// Keep begins the background work, once. Also called when this process becomes the owner of the files.
func (t *Sessions) Keep() {
	at := t.Store.Mark().LSN
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keeper == nil && !t.closed {
		k := &keeper{t: t, done: make(chan struct{}), at: at, looks: map[[2]string]*looked{}, started: map[[2]string]*started{}}
		k.ctx, k.stop = context.WithCancel(context.Background())
		t.keeper = k
		go k.run()
	} else if t.keeper != nil {
		t.keeper.nudge()
	}
}

// background returns the background work; nil: there is none.
func (t *Sessions) background() *keeper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keeper
}

// watchesAll reports whether this process looks at all sessions.
func (t *Sessions) watchesAll() bool { return !t.ReadOnly && !t.OnlyStarted && t.Owns() }

// runs reports whether this process looks at a session in the background.
func (t *Sessions) runs(of [2]string) bool {
	k := t.background()
	return k != nil && k.ctx.Err() == nil && (t.watchesAll() || k.startedBy(of) != nil)
}

// run follows commits until the database is closed, or until it parks.
func (k *keeper) run() {
	for k.ctx.Err() == nil {
		if !k.all && k.t.watchesAll() {
			k.all = k.readAll(k.ctx, WatchRowKey) // what the owner before left
		}
		wait := k.dispatch()
		ch, nudged, err := k.changes(wait)
		switch {
		case errors.Is(err, store.ErrClosed):
			k.stop()
		case err != nil && k.ctx.Err() == nil:
			k.t.Logger.Warn("watcher: commits cannot be followed; it tries again", "error", err)
			k.pause()
		case err == nil:
			k.at = ch.LSN
			k.take(k.ctx, ch)
			if !nudged && len(ch.Told) == 0 && !ch.AllTold && k.park(wait) {
				return
			}
		}
	}
	close(k.done)
}

// park ends the goroutine if the store can call it again (Host.AfterTold): when a told row was written, when the wait is over,
// when it is nudged, or when the work ends. false: it goes on.
func (k *keeper) park(wait time.Duration) bool {
	if k.t.AfterTold == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.woken {
		return false
	}
	var once sync.Once
	var stops []func()
	wake := func() {
		once.Do(func() {
			go func() {
				k.mu.Lock() // after park
				k.wake = nil
				k.mu.Unlock()
				for _, stop := range stops {
					stop()
				}
				k.run()
			}()
		})
	}
	k.wake = wake
	stopEnd := context.AfterFunc(k.ctx, wake)
	stops = append(stops, k.t.AfterTold(k.at, k.wanted(), wake), func() { stopEnd() })
	if wait < waitChanges { // otherwise nothing is due without a commit
		t := time.AfterFunc(wait, wake)
		stops = append(stops, func() { t.Stop() })
	}
	return true
}

// unread is how many told rows may wait until somebody is woken for them: the store forgets old ones, and then all rows are read.
const unread = 1024

// wanted returns which told rows end the wait. While all sessions are at rest, one whose window has room stays so: an append that
// woke the goroutine for it took a third more of the processors. The caller holds mu.
func (k *keeper) wanted() func(store.StateRow) bool {
	rest, rows := len(k.looks) == 0, 0
	return func(r store.StateRow) bool {
		rows++
		_, change := SessionOf(ChangeRowKey, r.Key)
		f, _ := MarkOf(r.Value)
		return !rest || !change || f == Full || rows >= unread
	}
}

// pause waits before a failed call is repeated.
func (k *keeper) pause() {
	t := time.NewTimer(LookAgain)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.ctx.Done():
	}
}

// changes waits for commits, until it is nudged or the time is over. If the work can park it does not wait.
func (k *keeper) changes(wait time.Duration) (ch store.Changes, nudged bool, err error) {
	if k.t.AfterTold != nil {
		wait = 0
	}
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	k.mu.Lock()
	if k.woken {
		k.woken, nudged, wait = false, true, 0
	}
	k.wake = cancel
	k.mu.Unlock()
	ch, err = k.t.Store.Changes(ctx, k.at, wait)
	k.mu.Lock()
	k.wake = nil
	nudged = nudged || ctx.Err() != nil
	k.mu.Unlock()
	if err != nil && ctx.Err() != nil && k.ctx.Err() == nil {
		return store.Changes{LSN: k.at}, true, nil
	}
	return ch, nudged, err
}

// nudge has the goroutine look at its timers and its role.
func (k *keeper) nudge() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.woken = k.wake == nil; !k.woken {
		k.wake()
	}
}

// take queues what commits call for.
func (k *keeper) take(ctx context.Context, ch store.Changes) {
	for _, r := range ch.Told {
		k.told(r)
	}
	if ch.AllTold {
		k.readAll(ctx, WatchRowKey)
		k.readAll(ctx, ChangeRowKey)
	}
}

// readAll takes the rows of a kind as if they had just been told, and reports whether it could.
func (k *keeper) readAll(ctx context.Context, kind string) bool {
	err := format.Walk(ctx, k.t.Store, kind, func(r store.StateRow) error {
		k.told(r)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		k.t.Logger.Warn("watcher: what it watches cannot be read; it goes on with what it knows", "error", err)
	}
	return err == nil
}

// told takes one row that was written.
func (k *keeper) told(r store.StateRow) {
	if of, ok := SessionOf(ChangeRowKey, r.Key); ok {
		f, _ := MarkOf(r.Value)
		k.enqueue(of, f == Full, false)
		return
	}
	of, ok := SessionOf(WatchRowKey, r.Key)
	if !ok || r.Value == nil {
		return
	}
	row, err := DecodeWatch(r.Value)
	if err != nil {
		k.t.Logger.Warn("watcher: the row of a session is damaged", "session", of[1], "error", err)
		return
	}
	if w := k.t.watcherOf(of); w != nil {
		w.follow(&row)
	}
	k.enqueue(of, row.Progress.Phase != Idle, true)
}

// enqueue has a session looked at if it needs it: when it is full, or when it was looked at before and is not at rest.
// alive: its holder has just written.
func (k *keeper) enqueue(of [2]string, need, alive bool) {
	all := k.t.watchesAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.looks[of]
	if !all && k.started[of] == nil || l == nil && !need {
		return
	}
	if l == nil {
		l = &looked{}
		k.looks[of] = l
	}
	if alive {
		l.since = time.Time{}
	}
	switch {
	case l.flying != nil:
		l.again = true
	case !l.queued:
		l.queued = true
		k.queue = append(k.queue, of)
	}
}

// dispatch sends workers to the queued sessions and to those whose time has come, and returns how long to wait for
// commits.
func (k *keeper) dispatch() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, wait := time.Now(), waitChanges
	for of, l := range k.looks {
		switch {
		case l.at.IsZero() || l.queued || l.flying != nil:
		case l.at.After(now):
			wait = min(wait, l.at.Sub(now))
		default:
			l.queued = true
			k.queue = append(k.queue, of)
		}
	}
	for n := min(lookWorkers-k.workers, len(k.queue)); n > 0 && k.ctx.Err() == nil; n-- { // those at work may be long in a look
		k.workers++
		k.worker.Go(k.work)
	}
	return wait
}

// work looks at queued sessions until there are none.
func (k *keeper) work() {
	for {
		of, ok := k.next()
		if !ok {
			return
		}
		ctx := k.ctx
		if s := k.startedBy(of); s != nil {
			ctx = s.ctx
		}
		at, rest := k.look(ctx, of, k.t.Summarizer)
		k.settle(of, at, rest)
	}
}

// next takes a session from the queue. Without one the worker ends.
func (k *keeper) next() (of [2]string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) == 0 || k.ctx.Err() != nil {
		k.workers--
		return of, false
	}
	of, k.queue = k.queue[0], k.queue[1:]
	l := k.looks[of]
	l.queued, l.again, l.at, l.flying = false, false, time.Time{}, make(chan struct{})
	return of, true
}

// settle notes the result of a look: at is the time of the next look without a commit; rest reports that nothing is due.
func (k *keeper) settle(of [2]string, at time.Time, rest bool) {
	k.mu.Lock()
	l := k.looks[of]
	close(l.flying)
	l.flying, l.at = nil, at
	switch {
	case l.again:
		l.queued = true
		k.queue = append(k.queue, of)
	case rest:
		delete(k.looks, of)
	}
	k.mu.Unlock()
	if !at.IsZero() {
		k.nudge()
	}
}

// look looks at a session once.
func (k *keeper) look(ctx context.Context, of [2]string, by Summarizer) (at time.Time, rest bool) {
	at, rest, err := k.lookOnce(ctx, of, by)
	if err == nil || k.ctx.Err() != nil || ctx.Err() != nil {
		return at, rest
	}
	if errors.Is(err, store.ErrClosed) {
		k.stop()
		return at, rest
	}
	if !errors.Is(err, store.ErrConflict) { // somebody else was quicker
		k.t.Logger.Warn("watcher: no room was made in a session; it tries again", "session", of[1], "error", err)
	}
	return time.Now().Add(LookAgain), false
}

func (k *keeper) lookOnce(ctx context.Context, of [2]string, by Summarizer) (at time.Time, rest bool, err error) {
	t := k.t
	s, err := t.sight(ctx, of)
	if err != nil || s.config == nil {
		return at, s != nil && s.config == nil, err
	}
	w := t.watcherOf(of)
	if w == nil {
		c, done := t.briefly(of)
		defer done()
		w = &Watcher{c: c, actor: "watcher"}
	}
	now := t.Clock()
	_, tokens := MarkOf(s.change.Value)
	_, err = w.step(ctx, now, s, tokens, by, func(move Move) (may bool, err error) {
		may, at, err = k.may(ctx, s, move)
		return may, err
	})
	if retry := s.machine.RetryAt(); !retry.IsZero() {
		at = time.Now().Add(max(retry.Sub(now), LookAgain))
	}
	return at, err == nil && at.IsZero() && s.machine.Phase == Idle, err
}

// may reports whether this process does what a session needs, or else until when its holder has time. It takes the hold
// of a session where a hold is needed.
func (k *keeper) may(ctx context.Context, s *sight, move Move) (may bool, until time.Time, err error) {
	t := k.t
	switch is := s.row.Holder; {
	case is == "" && t.needsHold(), is != "" && is != t.self():
	default:
		return true, until, nil
	}
	if !t.watchesAll() && (s.row.Holder != "" || k.startedBy(s.of) == nil) {
		return false, until, nil // an owner sees to it when the holder does nothing
	}
	if s.row.Holder != "" {
		if until = k.patience(s.of); time.Now().Before(until) {
			return false, until, nil
		}
		t.Logger.Warn("watcher: the process that holds a session did nothing; this one takes over", "session", s.of[1], "holder", s.row.Name)
	}
	if t.holdBy(s); move == Rest {
		return true, time.Time{}, nil // stored with the events
	}
	return true, time.Time{}, t.commitWatch(ctx, s, "watcher", holdLeaf(s))
}

// needsHold reports whether this process must hold a session to run its watcher: it is not the only one that may.
func (t *Sessions) needsHold() bool { return t.Shared || !t.Owns() }

// holdBy makes this process the holder of a session, or nobody where no hold is needed.
func (t *Sessions) holdBy(s *sight) {
	if s.row.Holder, s.row.Name = "", ""; t.needsHold() {
		s.row.Holder, s.row.Name = t.self(), t.Name
	}
}

// holdLeaf is the leaf of a change of holders.
func holdLeaf(s *sight) manifest.Record {
	action := "watch: run by the owner"
	if s.row.Holder != "" {
		action = "watch: run by " + s.row.Name
	}
	return manifest.Record{Type: manifest.TypePass, Session: s.of[1], Action: action}
}

// claim makes this process the one that runs the watcher of a session.
func (t *Sessions) claim(ctx context.Context, of [2]string) error {
	return format.Retry(ctx, func() error {
		s, err := t.sight(ctx, of)
		if err != nil || s.config == nil || s.row.Holder == "" && !t.needsHold() || s.row.Holder != "" && s.row.Holder == t.self() {
			return err
		}
		t.holdBy(s)
		return t.commitWatch(ctx, s, "watcher", holdLeaf(s))
	})
}

// letGo ends the hold of this process on a session, if it has one.
func (t *Sessions) letGo(ctx context.Context, of [2]string) {
	err := format.Retry(ctx, func() error {
		s, err := t.sight(ctx, of)
		if err != nil || s.config == nil || s.row.Holder == "" || s.row.Holder != t.self() {
			return err
		}
		s.row.Holder, s.row.Name = "", ""
		return t.commitWatch(ctx, s, "watcher", holdLeaf(s))
	})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		t.Logger.Warn("watcher: a session could not be released; the owner of the files takes over later", "session", of[1], "error", err)
	}
}

// patience returns until when the holder of a session has time.
func (k *keeper) patience(of [2]string) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.looks[of]
	if l == nil { // while closing
		return time.Now()
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	return l.since.Add(k.t.Patience)
}

func (k *keeper) startedBy(of [2]string) *started {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.started[of]
}

// StopWatchers ends the background work. An owner makes the passes that are due first, with extracts: a process that lives
// only for one append would otherwise leave the window full. Holds of this process end.
func (t *Sessions) StopWatchers() {
	t.mu.Lock()
	k := t.keeper
	t.closed = true
	t.mu.Unlock()
	if k == nil {
		return
	}
	k.stop()
	<-k.done
	k.worker.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if t.watchesAll() {
		if ch, err := t.Store.Changes(ctx, k.at, 0); err == nil {
			k.take(ctx, ch)
		}
		for _, of := range k.left() {
			if _, _, err := k.lookOnce(ctx, of, nil); err != nil {
				t.Logger.Warn("watcher: a session was not looked at before the end", "session", of[1], "error", err)
			}
		}
	}
	for _, of := range t.holds() {
		t.letGo(ctx, of)
	}
}

// left returns the sessions that were not at rest.
func (k *keeper) left() [][2]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.looks))
}

// start notes that this process runs the watcher of a session until ctx ends.
func (k *keeper) start(ctx context.Context, w *Watcher) (*started, error) {
	of := w.c.name()
	if old := k.startedBy(of); old != nil {
		if old.until.Err() == nil {
			return nil, store.Invalid("watcher", "running already", "Stop first")
		}
		k.end(of, old)
	}
	s := &started{until: ctx}
	s.ctx, s.stop = context.WithCancel(k.ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.started[of] != nil {
		return nil, store.Invalid("watcher", "running already", "Stop first")
	}
	k.started[of] = s
	s.forget = context.AfterFunc(ctx, func() { k.end(of, s) })
	return s, nil
}

// end stops what start began and waits for the look in flight.
func (k *keeper) end(of [2]string, s *started) {
	k.mu.Lock()
	forget, mine := s.forget, k.started[of] == s
	if mine {
		delete(k.started, of)
	}
	var flying chan struct{}
	if l := k.looks[of]; l != nil {
		flying = l.flying
	}
	k.mu.Unlock()
	forget()
	s.stop()
	if flying != nil {
		<-flying
	}
	if mine && k.ctx.Err() == nil { // otherwise StopWatchers lets go
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		k.t.letGo(ctx, of)
	}
}

// Start has this process run the watcher of the session until Stop, the end of ctx, or the end of the database. ErrInvalid
// when it runs it already.
func (w *Watcher) Start(ctx context.Context) error {
	t := w.c.home
	k := t.background()
	switch {
	case t.ReadOnly:
		return store.ErrReadOnly
	case k == nil || k.ctx.Err() != nil:
		return store.ErrClosed
	}
	s, err := k.start(ctx, w)
	if err != nil {
		return err
	}
	if err := t.claim(ctx, w.c.name()); err != nil {
		k.end(w.c.name(), s)
		return err
	}
	k.enqueue(w.c.name(), true, false)
	k.nudge()
	return nil
}

// Stop ends what Start began and waits for it. It is harmless when nothing was started.
func (w *Watcher) Stop() {
	if k := w.c.home.background(); k != nil {
		if s := k.startedBy(w.c.name()); s != nil {
			k.end(w.c.name(), s)
		}
	}
}

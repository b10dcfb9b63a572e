package remote

import (
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// welcome is the answer to a Hello: a session.
type welcome struct {
	Status
	Session string
	LSN     uint64
}

// Status describes a server.
type Status struct {
	Format   int // of the file
	PID      int
	Program  string
	Since    time.Time
	Database string        // its id
	Lease    time.Duration // after which a silent session ends
	Clients  int           // sessions
	State    string        // "": it serves; opening: it is about to; closing: it is about to end
}

// callError is the content of a frameError. Value is the value that the call returned beside its error, as a message of
// its own.
type callError struct {
	Err   error
	Value []byte
}

// refusal is why a request was not taken for a call. Nothing was done.
type refusal struct{ Code, Message string }

const (
	stateOpening = "opening"
	stateClosing = "closing"
)

const (
	refusedClosing = "closing" // about to end: ask again, here or whoever serves then
	refusedSession = "session" // not known, or lapsed
	refusedMethod  = "method"  // not known
	refusedBody    = "body"    // malformed
	refusedCall    = "call"    // given up by its client before it came, or forgotten by the server
	refusedFull    = "full"    // too many clients
	refusedStop    = "stop"    // this server cannot be told to stop
)

// answer is the result of a call, and the LSN that readers had reached.
type answer[A any] struct {
	LSN   uint64
	Value A
}

// progress is how far a job has come.
type progress struct {
	What        string
	Done, Total uint64
}

type none struct{}

type (
	resolveAsk struct {
		Scopes store.Scopes
		Ref    store.Ref
	}
	loadAsk struct {
		Scopes store.Scopes
		Pages  []store.PageKey
		Want   store.Want
	}
	vectorsAsk struct {
		Scopes store.Scopes
		Model  string
		Nums   []uint64
		Vecs   [][]float32 // of PutVectors
	}
	// outcomeAsk ends calls of this session first: a Commit among them that did not come yet
	// never will be made.
	outcomeAsk struct {
		ID     ulid.ULID
		GiveUp []uint64
	}
	holdAsk struct {
		Ticket store.Ticket // the client's own number
		At     store.Moment
	}
	// prepareAsk is a hold, and what will be asked under it.
	prepareAsk struct {
		Hold       holdAsk
		Scans      []store.ScanQuery
		Candidates store.CandidateQuery
	}
	// prepared are the answers, none of them unless Whole: what failed is asked for alone, and
	// fails again.
	prepared struct {
		Whole      bool
		Scans      []store.ScanPage
		Candidates store.Candidates
	}
	// renewAsk keeps a session, and releases holds.
	renewAsk   struct{ Release []store.Ticket }
	changesAsk struct {
		After uint64
		Wait  time.Duration
	}
	auditWaitAsk struct {
		Size uint64
		Wait time.Duration
	}
	appendAsk struct {
		Leaves     []*manifest.Record
		Durability store.Durability
		Expect     *expected // otherwise nothing is appended; nil: nothing is expected
	}
	// appended has the fields that a store fills in a leaf that it takes.
	appended struct {
		Index        uint64
		Query        manifest.Digest
		QuestionKept bool
	}
	recordsAsk struct {
		From, To uint64
		Reverse  bool
		Limit    int
	}
	// records are some of those that were asked for; More: ask for those after them.
	records struct {
		Records []*manifest.Record
		More    bool
	}
	writtenAsk struct {
		Num     uint64
		Version uint32
	}
	written struct {
		Leaf  *manifest.Record
		Write manifest.Write
	}
	sizesAsk struct {
		I, Size uint64
		Now     int64
	}
	verifyAsk struct{ Against *manifest.Head }
)

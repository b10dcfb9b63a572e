package remote

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The versions of the protocol that this program speaks. The range moves when a call means
// something else, not when a field or a call is added, unless ignoring the field would give a wrong
// answer.
//
//	1  the first
//	2  a query may have a filter, an erase may take names and leaves, and a gc vectors, which a server of 1 would ignore;
//	   Prepare
//	3  the pages of leaves come to Append as tables, which a server of 2 would ignore
//	4  calls may come on a stream (stream.go)
//	5  the pages of leaves come to Append packed (packed.go), which a server of 4 would ignore
const (
	MinProtocol = 1
	MaxProtocol = 5
)

// The first protocols that have them.
const (
	filterProtocol  = 2
	prepareProtocol = 2
	eraseProtocol   = 2
	pagesProtocol   = 3
	streamSince     = 4
	packedProtocol  = 5
)

// Headers of a call, which are not case-sensitive.
const (
	headerSession = "ctxpage-session" // from the handshake
	headerCall    = "ctxpage-call"    // number of the call in its session; the same when it is sent again
)

const (
	jsonType = "application/json"
	packType = "application/msgpack"
)

// hello asks for a session. It is JSON, like all that must be understood across versions: the
// handshake, the status, the order to stop, and refusals.
type hello struct {
	Min     int    `json:"min"`
	Max     int    `json:"max"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
}

// backupAsk and backupDone are a backup that every version can ask for: a program that cannot talk
// to a server can still save what the server has, before one of them is replaced.
type backupAsk struct {
	Path string `json:"path"` // absolute, of a file that does not exist
}

// backupDone is the answer: how large the copy is, and the head to compare it with later.
type backupDone struct {
	Bytes int64  `json:"bytes"`
	Head  string `json:"head"` // of the audit, after the copy
}

// welcome is the answer to a hello.
type welcome struct {
	Status
	Protocol int    `json:"protocol"` // the version that both speak
	Session  string `json:"session"`
	LSN      uint64 `json:"lsn"`
}

// Status describes a server to any client, of any protocol version.
type Status struct {
	Min      int           `json:"min"` // protocol
	Max      int           `json:"max"`
	Format   int           `json:"format"` // of the file
	PID      int           `json:"pid"`
	Program  string        `json:"program"`
	Since    time.Time     `json:"since"`
	Database string        `json:"database"`        // its id
	Lease    time.Duration `json:"lease_ns"`        // after which a silent session ends
	Clients  int           `json:"clients"`         // sessions
	State    string        `json:"state,omitempty"` // "": it serves; opening: it is about to; closing: it is about to end
}

// callError is what a frameError holds. Value is what the call gives beside its error, as a message of
// its own.
type callError struct {
	Err   error
	Value []byte
}

// refusal is why a request was not taken for a call. Nothing was done.
type refusal struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Server  *Status `json:"server,omitempty"` // with refusedSkew
}

const (
	stateOpening = "opening"
	stateClosing = "closing"
)

const (
	refusedClosing = "closing" // about to end: ask again, here or whoever serves then
	refusedSkew    = "skew"    // no protocol in common
	refusedSession = "session" // not known, or lapsed
	refusedMethod  = "method"  // not known
	refusedBody    = "body"    // malformed
	refusedCall    = "call"    // given up by its client before it came, or forgotten by the server
	refusedFull    = "full"    // too many clients
	refusedStop    = "stop"    // this server cannot be told to stop
	refusedBackup  = "backup"  // the backup could not be made
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
	// outcomeAsk gives up calls of this session first: a Commit among them that did not come yet
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
		Packed     bool // the tables of the answer may be packed
	}
	// prepared are the answers, none of them unless Whole: what failed is asked for alone, and
	// fails again.
	prepared struct {
		Whole      bool
		Scans      []store.ScanPage
		Candidates store.Candidates // but for Hits and Nearest, which are tables
		Hits       table
		Nearest    []table // of each of Candidates.Excluded

		Packed        packedTable // in place of Hits and Nearest, if that was asked for
		PackedNearest []packedTable
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
		Pages      []pageTable // since protocol 3: of each leaf, whose own Pages are left out
		Packed     []leafPages // since protocol 5, in place of Pages
	}
	// leafPages are the pages of a leaf, and those of each of its Excluded.
	leafPages struct {
		Pages   packedPages
		Nearest []packedPages
	}
	// appended is what a store puts into a leaf that it takes.
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

package session

// Role is who spoke a block.
type Role string

// The roles a block may have; others are accepted and mean nothing special.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
	System    Role = "system"
)

// Block is what a pass needs of one message: metadata and the hashes of its
// tokens, never its text.
type Block struct {
	ID     string // caller's key, unique in the history
	Turn   int64  // position in the conversation, not negative
	Tokens int
	Hashes []uint64 // TokenSet of the text: sorted, distinct
	Role   Role
	Kind   string
	Pinned bool
	Source uint64 // hash of the content; enters the idempotence key only
}

// Params are the weights, the cuts and the guards of a pass. CompatParams and
// RecommendedParams give the two presets.
type Params struct {
	Alpha, Beta         float64 // weights of similarity and recency
	RetainCut, EvictCut float64 // R ≥ RetainCut retains, R < EvictCut evicts
	KeepLast            int     // the newest blocks, always retained
	UserFloor           bool    // user turns are never below page, the newest one is retained
	MinEvictAge         int64   // turns a block must be behind the head to be evicted
	ClampFuture         bool    // a block newer than the head counts as being at the head
}

// CompatParams are the defaults of the reference pager: no guards.
func CompatParams() Params { return Params{Alpha: 0.7, Beta: 0.3, RetainCut: 0.55, EvictCut: 0.20} }

// RecommendedParams are lower cuts with the guards on.
func RecommendedParams() Params {
	return Params{Alpha: 0.7, Beta: 0.3, RetainCut: 0.30, EvictCut: 0.10, KeepLast: 6, UserFloor: true}
}

// Input is one pass: the blocks in the order of the conversation, the intent,
// the parameters.
type Input struct {
	Blocks []Block
	Intent Intent
	Params Params
	Head   int64   // head turn; 0 means the highest turn of the blocks
	Last   PassKey // key of the last pass that was recorded; 0 means none
}

// PassKey identifies history, intent and parameters of a pass: equal keys,
// equal verdicts. It is an xxhash64, good against accidents, not against an
// adversary. Zero is never a key.
type PassKey uint64

// Verdict is what a pass decided about one block, and why.
type Verdict struct {
	Index      int
	ID         string
	Action     Action
	Reason     Reason
	R          float64 // unrounded
	Similarity float64
	Recency    float64
	Hits       int   // keywords found in the block
	Delta      int64 // turns behind the head
}

// Result is the outcome of a pass; Verdicts is in the order of the blocks.
type Result struct {
	Key      PassKey
	History  uint64 // hash of the blocks
	Intent   uint64 // hash of the intent
	Keywords int
	Params   Params
	Repeated bool // Key equals Input.Last: nothing new to record
	Verdicts []Verdict
	Count    [3]int // blocks by Action
	Tokens   [3]int // tokens by Action
}

package lexical

type Analyzer struct{}

func NewAnalyzer() *Analyzer { return &Analyzer{} }

func (a *Analyzer) Analyze(parts ...string) Analysis { return Analysis{} }
func (a *Analyzer) Terms(query string) []string      { return nil }

type TermCount struct {
	Term string
	N    uint32
}
type Analysis struct {
	Terms  []TermCount
	Length int
}

type Index struct{}

func Open(rows Rows) (*Index, error)                                             { return &Index{}, nil }
func Reset(w Writer) error                                                       { return nil }
func (x *Index) Through() uint64                                                 { return 0 }
func (x *Index) Add(d Doc)                                                       {}
func (x *Index) Remove(nums ...uint64)                                           {}
func (x *Index) Checkpoint(w Writer, force bool) (Swap, error)                   { return Swap{}, nil }
func (x *Index) Apply(s Swap)                                                    {}
func (x *Index) Stats(scopes []uint32, rows Rows, terms []string) (Stats, error) { return Stats{}, nil }
func (x *Index) Search(rows Rows, c Corpus, q Query) ([]Hit, error)              { return nil, nil }
func (x *Index) ScoreDoc(s Stats, a Analysis, terms []string) float64            { return 0 }

type Swap struct{}

// Stats: integers only, summed over the scopes of the chain.
type Stats struct {
	N, Length uint64   // pages; terms in them
	DF        []uint64 // pages with the term, in the order of the terms asked for
}
type Weights struct{ Near1, Near2, Group float64 }
type Query struct {
	Scopes  []uint32
	Terms   []string
	K       int
	Weights Weights // zero: DefaultWeights()
}
type Hit struct {
	Num              uint64
	Score            float64
	Own, Near, Group float64
	Via              uint64
}

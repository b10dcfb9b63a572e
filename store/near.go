package store

// A page takes a share of its neighbours' cosines: a question often uses words of the turn before
// the one it asks for.
const (
	LendNext  = .9
	LendAfter = .8
)

// Near asks for the pages whose vectors are nearest to a vector of the same model. Superseded pages
// and pages that a rule excludes are not found. Vectors of another length are skipped.
type Near struct {
	Model  string
	Vector []float32
	K      int // how many
}

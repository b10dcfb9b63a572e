package store

// What neighbours lend of their cosines. A turn is often asked for in words that stand in the one before it.
const (
	LendNext  = .9
	LendAfter = .8
)

// Near asks for pages whose vectors by a model point nearly where a vector does. Pages that another artefact supersedes are
// not found by their vectors, and pages that are no candidates by any other rule neither. Vectors of another length than the
// question's are passed over.
type Near struct {
	Model  string
	Vector []float32
	K      int // how many
}

package store

// Near asks for the pages whose vectors are nearest to a vector of the same model. Superseded pages
// and pages that a rule excludes are not found. Vectors of another length are skipped.
type Near struct {
	Model  string
	Vector []float32
	K      int // how many
}

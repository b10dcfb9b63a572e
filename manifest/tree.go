package manifest

import "golang.org/x/mod/sumdb/tlog"

// Hash is a node of the tree: SHA-256 as in RFC 6962; base64 as text.
type Hash = tlog.Hash

// LeafHash is the hash under which a leaf's bytes stand in the tree.
func LeafHash(body []byte) Hash { return tlog.RecordHash(body) }

package directive

import "time"

// Entry is one version of the directives of a scope: its state and how it came about.
type Entry struct {
	Version  uint64
	At       time.Time
	Actor    string
	Action   string   // step, restore or import
	Input    string   // of a step
	Decision Decision // the answer to a step; of the others its Kind is Update
	After    Session
}

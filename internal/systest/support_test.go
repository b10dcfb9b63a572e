package systest_test

import "github.com/ctxpage/ctxpage/internal/systest"

// Short names for what other tests of the whole use too.
var (
	openOver    = systest.OpenOver
	openTest    = systest.OpenTest
	openChecked = systest.OpenChecked
	storeOf     = systest.StoreOf
	newID       = systest.NewID
	hitsOf      = systest.HitsOf
	textOf      = systest.TextOf
	filesHave   = systest.FilesHave
	together    = systest.Together
)

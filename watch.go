package ctxpage

// Watcher keeps the headroom of a session.
type Watcher struct{}

func (c *conversation) wake() {}

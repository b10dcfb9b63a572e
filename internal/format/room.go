package format

import (
	"context"

	"github.com/ctxpage/ctxpage/store"
)

type roomKey struct{}

// WithRoom puts memory for the hits into the context of a Candidates call. A store that uses it leaves the hits there; any other store
// ignores it. So a caller that is done with them can use it again: what is weighed for a context is several times what is served.
func WithRoom(ctx context.Context, room *[]store.Candidate) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// RoomOf returns the memory in a context; nil: there is none.
func RoomOf(ctx context.Context) *[]store.Candidate {
	room, _ := ctx.Value(roomKey{}).(*[]store.Candidate)
	return room
}

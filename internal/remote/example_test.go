package remote_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
)

// One process has the file and serves it; what another one opens on a client behaves as if the file were its own.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ctxpage")
	exitOn(err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agent.ctx")

	// The process that has the file.
	st, err := filestore.Open(filestore.Options{Path: path, State: ctxpage.StateKinds()})
	exitOn(err)
	srv, err := remote.NewServer(ctx, st, remote.ServerOptions{})
	exitOn(err)
	socket, err := remote.SocketPath(path)
	exitOn(err)
	l, err := remote.Listen(socket)
	exitOn(err)
	go func() { _ = srv.Serve(l) }()
	owner, err := ctxpage.Open(path, ctxpage.Options{Store: st})
	exitOn(err)
	_, err = owner.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "refunds", Text: "Refunds up to $400."})
	exitOn(err)

	// Another process.
	c, err := remote.Dial(ctx, socket, remote.ClientOptions{})
	exitOn(err)
	db, err := ctxpage.Open(path, ctxpage.Options{Store: c})
	exitOn(err)
	v, err := db.Scope("acme").Get(ctx, "refunds")
	exitOn(err)
	fmt.Println(v.Text)
	exitOn(db.Close())

	exitOn(srv.Close())
	exitOn(owner.Close())
	// Output: Refunds up to $400.
}

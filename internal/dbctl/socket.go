package dbctl

import (
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/remote"
)

// A database may be named by the socket of a process that serves it (unix:PATH). That is how dbctl works on a database that is
// no file: a server such as dbctl-pg has the driver, and dbctl does not link it.

const socketScheme = "unix:"

// served reports whether a name is that of a socket. errOnServer: it is the URL of a database server.
func served(name string) (socket string, is bool, err error) {
	if onServer(name) {
		return "", false, errOnServer
	}
	socket, is = strings.CutPrefix(name, socketScheme)
	return socket, is, nil
}

// dial opens a database at a socket. exclusive: the verb needs files of its own.
func (a *app) dial(socket string, exclusive bool) (*ctxpage.DB, error) {
	if exclusive {
		return nil, usage("this verb needs the files of a database; a socket serves none")
	}
	c, err := remote.Dial(a.ctx, socket, remote.ClientOptions{Now: a.now})
	if err != nil {
		return nil, err
	}
	db, err := ctxpage.Open(socketScheme+socket, ctxpage.Options{Counter: a.counter, Store: c, RecordedRoots: !a.NoRoots, Clock: a.now, FileRoots: a.roots, Embedder: a.embedder, Summarizer: a.summarizer, NoWatch: true})
	if err != nil {
		_ = c.Close()
	}
	return db, err
}

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/remote"
)

// An owner of a later release keeps a file: stat says who it is and fails, backup has it make the copy.
func TestSkew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	lock, err := filestore.TakeLock(filestore.Options{Path: file})
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.Release()) }()
	where, err := remote.SocketPath(file)
	require.NoError(t, err)
	l, err := net.Listen("unix", where)
	require.NoError(t, err)
	require.NoError(t, lock.Serve(where))
	is := `{"min":98,"max":99,"format":77,"pid":4711,"program":"later","since":"2026-11-23T09:30:00Z","database":"DB"}`
	var asked map[string]string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, is) })
	mux.HandleFunc("POST /hello", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"code":"skew","message":"98 to 99 is spoken here","server":%s}`, is)
	})
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&asked)
		fmt.Fprint(w, `{"bytes":4096,"head":"the head"}`)
	})
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()

	out := filepath.Join(t.TempDir(), "saved.ctx")
	v := asJSON(t, "", "backup", file, out)
	require.Equal(t, map[string]string{"path": out}, asked)
	require.Equal(t, "the head", v["head"])
	require.EqualValues(t, 4096, v["bytes"])

	r := dbctl("", "stat", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "pid 4711 (later, since")
	require.Contains(t, r.out, "77")
	require.Contains(t, r.err, "protocol 98 to 99")
	r = dbctl("", "ls", file)
	require.Equal(t, exitFailed, r.code, "what needs the owner says so")
	require.Contains(t, r.err, "end the older of the two")
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/remote"
)

// fakeOwner is an owner of another release, which keeps a file and speaks other protocols.
func fakeOwner(t *testing.T, file string, min, max int) (asked *map[string]string, ended chan struct{}) {
	t.Helper()
	ok(t, "", "init", file)
	lock, err := filestore.TakeLock(filestore.Options{Path: file})
	require.NoError(t, err)
	where, err := remote.SocketPath(file)
	require.NoError(t, err)
	l, err := net.Listen("unix", where)
	require.NoError(t, err)
	require.NoError(t, lock.Serve(where))
	is := fmt.Sprintf(`{"min":%d,"max":%d,"format":77,"pid":4711,"program":"another","since":"2026-11-23T09:30:00Z","database":"DB"}`, min, max)
	asked, ended = &map[string]string{}, make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, is) })
	mux.HandleFunc("POST /hello", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"code":"skew","message":"%d to %d is spoken here","server":%s}`, min, max, is)
	})
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(asked)
		fmt.Fprint(w, `{"bytes":4096,"head":"the head"}`)
	})
	srv := &http.Server{Handler: mux}
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, is)
		go func() {
			_ = srv.Shutdown(context.Background()) // after the answer
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
			close(ended)
		}()
	})
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return asked, ended
}

// An owner of another release keeps a file, a later one or an earlier one: stat says who it is and fails, backup has it make
// the copy, stop ends it, and then the file is open to this program.
func TestSkew(t *testing.T) {
	for name, protocols := range map[string][2]int{"later": {98, 99}, "earlier": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "agent.ctx")
			asked, ended := fakeOwner(t, file, protocols[0], protocols[1])

			out := filepath.Join(t.TempDir(), "saved.ctx")
			v := asJSON(t, "", "backup", file, out)
			require.Equal(t, map[string]string{"path": out}, *asked)
			require.Equal(t, "the head", v["head"])
			require.EqualValues(t, 4096, v["bytes"])

			r := dbctl("", "stat", file)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.out, "pid 4711 (another, since")
			require.Contains(t, r.out, "77")
			require.Contains(t, r.err, fmt.Sprintf("protocol %d to %d", protocols[0], protocols[1]))
			r = dbctl("", "ls", file)
			require.Equal(t, exitFailed, r.code, "what needs the owner says so")
			require.Contains(t, r.err, "end the older of the two")

			v = asJSON(t, "", "stop", file, "--wait", "20s")
			require.Equal(t, true, v["stopped"])
			require.EqualValues(t, 4711, v["pid"])
			<-ended
			ok(t, "", "ls", file)
			require.Contains(t, ok(t, "", "stop", file), "no process has")
		})
	}
}

// Stop ends what only serves a database, at whichever socket it does, and nothing else.
func TestStop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	require.Equal(t, exitFailed, dbctl("", "stop", file).code, "there is no database")
	require.NoFileExists(t, file+".lock")
	s := startServe(t, file)
	r := dbctl("", "stop", file, "--wait", "0s")
	require.Contains(t, []int{exitOK, exitFailed}, r.code, "it may end at once")
	s.ends(t, "stop")
	require.Contains(t, ok(t, "", "stop", file), "no process has")

	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("host host-token-01234567\n"), 0o600))
	s = startServe(t, file, "--http", "127.0.0.1:0", "--token-file", tokens)
	v := asJSON(t, "", "stop", file, "--wait", "20s")
	require.EqualValues(t, s.PID, v["pid"], "its owner's socket takes the order, too")
	s.ends(t, "stop at the files' socket")

	live := filepath.Join(t.TempDir(), "live.ctx")
	p := liveWriter(t, live)
	r = dbctl("", "stop", live)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, fmt.Sprintf("pid %d", p.Pid))
	require.Contains(t, r.err, "beside its own work")
	ok(t, "", "ls", live)
	s = startServe(t, live)
	v = asJSON(t, "", "stop", live, "--wait", "20s")
	require.EqualValues(t, s.PID, v["pid"], "beside an agent the server ends, and the agent goes on")
	s.ends(t, "stop beside an agent")
	ok(t, "", "ls", live)
}

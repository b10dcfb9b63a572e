package dbctl

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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

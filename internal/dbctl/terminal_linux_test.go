package dbctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/stretchr/testify/require"
)

// onTerminal runs dbctl with a terminal as standard output and standard error, and gives what it received.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	defer master.Close()
	var unlocked, number int32
	for req, arg := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &number} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), req, uintptr(unsafe.Pointer(arg)))
		require.Zero(t, errno)
	}
	slave := must(os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	exe := must(os.Executable())(t)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stdout, cmd.Stderr = slave, slave
	require.NoError(t, cmd.Start())
	slave.Close()
	out, _ := io.ReadAll(master) // ends with EIO when nobody has the other side any more
	_ = cmd.Wait()
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

// nasty is what a stored text may try on the terminal of who looks at it.
const nasty = "a\x1b[2Jb\u009b31mc\x7fd\u202ee\u2066f\u200bg\U000e0041h\u00adi\u2028j\rk\ufeffl\u180em\u3164n"

func TestNothingStoredSteersATerminal(t *testing.T) {
	file := newDB(t)
	ok(t, nasty, "put", file, "acme/support", "nasty", "--meta", "k="+strings.NewReplacer("\x1b", "", "\u009b", "", "\x7f", "", "\r", "").Replace(nasty), "--tag", "x\u202ey")
	ok(t, "", "put", file, "acme/support", "re\u200bfund\U000e0042", "words")
	ok(t, "", "session", "append", file, "acme/support", "chat\u200b", nasty)
	for _, args := range [][]string{
		{"get", file, "acme/support", "nasty"}, {"search", file, "acme/support", "a"}, {"ls", file, "acme/support"}, {"ls", file},
		{"assemble", file, "acme/support", "a b", "--format", "openai"}, {"history", file, "acme/support", "re\u200bfund\U000e0042"},
		{"manifest", "tail", file}, {"manifest", "ls", file}, {"session", "show", file, "acme/support", "chat\u200b", "--text"},
		{"handoff", file, "acme/support", "chat\u200b"}, {"get", file, "acme/support", "no\u202esuch\u009b"}, {"nov\u200berb"},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			out := onTerminal(t, append(args, more...)...)
			require.NotEmpty(t, out, args)
			for _, r := range out {
				require.False(t, r != '\n' && r != '\t' && (view.Steers(r) || view.Hidden(r)), "%v: %U in %q", args, r, out)
			}
		}
	}
	var v view.Page
	require.NoError(t, json.Unmarshal([]byte(onTerminal(t, "get", file, "acme/support", "nasty", "--json")), &v))
	require.Equal(t, nasty, v.Text, "the JSON says the same")
	for _, args := range [][]string{{"handoff", file, "acme/support", "chat\u200b", "--format", "json"}, {"session", "notes", file, "acme/support", "chat\u200b", "--show"}} {
		ok(t, `{"goal":"g\u200bo\u202eal"}`, "session", "notes", file, "acme/support", "chat\u200b")
		out := onTerminal(t, args...)
		require.NotContains(t, out, "\ufffd", "JSON is escaped")
		require.Contains(t, out, `g\u200bo\u202eal`, args)
		require.True(t, json.Valid([]byte(out)), out)
	}
	require.Equal(t, nasty, ok(t, "", "get", file, "acme/support", "nasty"), "and what is no terminal gets every byte")
}

package dbctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
)

type checkCmd struct {
	File   string `arg:"" help:"Database."`
	Online bool   `help:"Let the process that has the database open check it. Damage that crashes the walk ends that process."`
	Child  bool   `hidden:"" help:"Check in this process and write the result for the parent process."`
}

type checkView struct {
	OK       bool            `json:"ok"`
	File     string          `json:"file"`
	Problems []store.Problem `json:"problems"`
}

// childAnswer is the output of the child process: a report, or why it could not walk. A child that died writes nothing.
type childAnswer struct {
	Problems []store.Problem `json:"problems"`
	Failed   *errorJSON      `json:"failed,omitempty"`
}

func (c *checkCmd) Run(a *app) error {
	if c.Child {
		return c.walk(a)
	}
	ans, err := c.check(a)
	if err != nil {
		return err
	}
	v := checkView{len(ans.Problems) == 0, c.File, nonNil(ans.Problems)}
	return unless(v.OK, exitDamaged, a.emit(v, v.print))
}

func (v checkView) print(w io.Writer) {
	if v.OK {
		fmt.Fprintf(w, "%s: no damage found\n", v.File)
		return
	}
	fmt.Fprintf(w, "%s: %s; restore a backup, or dbctl salvage\n", v.File, plural(len(v.Problems), "problem", "problems"))
	rows(w, "INVARIANT WHERE WHAT", v.Problems, func(p *store.Problem) []any { return []any{p.Invariant, p.Where, p.What} })
}

// check walks in a child process, or asks a server.
func (c *checkCmd) check(a *app) (ans childAnswer, err error) {
	if _, is := atSocket(c.File); is && !c.Online {
		return ans, usage("check needs files, and %s is a socket; with --online the process that serves it checks them", c.File)
	}
	if !onServer(c.File) {
		return a.checkInChild(c.File, c.Online)
	}
	err = a.with(c.File, false, func(db *ctxpage.DB) error {
		ans.Problems, err = db.Admin().Check(a.ctx, a.progress())
		return err
	})
	return ans, err
}

func (c *checkCmd) walk(a *app) error {
	var out childAnswer
	err := a.withAs(c.File, false, !c.Online, func(db *ctxpage.DB) (err error) {
		out.Problems, err = db.Admin().Check(a.ctx, a.progress())
		return err
	})
	if err != nil {
		failed := a.told(err, codeOf(err))
		out.Failed = &failed
	}
	return json.NewEncoder(a.out).Encode(out)
}

// checkInChild runs the check in a child process. A database that the child cannot open because of
// damage is a problem like any other.
func (a *app) checkInChild(path string, online bool) (ans childAnswer, err error) {
	out, end, said, err := a.child(path, online)
	if err != nil {
		return ans, err
	}
	if jerr := json.Unmarshal(out, &ans); jerr != nil {
		ans.Problems, err = died(path, end, said)
		return ans, err
	}
	if ans.Failed == nil {
		return ans, nil
	}
	e := ans.Failed.Error
	if e.Exit != exitDamaged {
		return ans, &exitError{code: e.Exit, msg: e.Message, told: ans.Failed}
	}
	ans.Problems = append(ans.Problems, store.Problem{Invariant: "open", Where: path, What: e.Message})
	return ans, nil
}

// child runs the walk in a child process and returns its output, how it ended, and the end of its error output.
func (a *app) child(path string, online bool) (out []byte, end *os.ProcessState, said string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, "", failed("check: cannot find this program to run it again: %v", err)
	}
	args := []string{"check", "--child", "--wait", a.Wait.String()}
	if online {
		args = append(args, "--online")
	}
	progress := !a.JSON && (a.Progress || isTerminal(a.err))
	if progress {
		args = append(args, "--progress")
	}
	cmd := exec.CommandContext(a.ctx, self, append(args, "--", path)...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	if a.KeyFile != "" {
		cmd.Env = append(cmd.Env, "CTXPAGE_KEY_FILE="+a.KeyFile, "CTXPAGE_KEYRING="+a.Keyring)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if progress {
		cmd.Stderr = io.MultiWriter(&stderr, unguarded(a.err))
	}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return nil, nil, "", failed("check: %v", err)
	}
	if errors.Is(a.ctx.Err(), context.Canceled) {
		return nil, nil, "", a.ctx.Err()
	}
	return stdout.Bytes(), cmd.ProcessState, stderr.String(), nil
}

// childEnv marks a process started by check; it changes nothing but what tests make of it.
const childEnv = "DBCTL_CHECK_CHILD"

// died judges a walk that ended without an answer: a fault is damage, being killed from outside is not.
func died(path string, end *os.ProcessState, said string) ([]store.Problem, error) {
	if system.Killed(end) {
		return nil, failed("check: the walk was ended from outside (%s)", end)
	}
	what := "the walk over the file died (" + end.String() + ")"
	for _, l := range strings.Split(said, "\n") {
		for _, telling := range []string{"fatal error:", "panic:", "unexpected fault", "[signal", "SIG"} {
			if strings.HasPrefix(l, telling) {
				what += "; " + strings.TrimSpace(l)
			}
		}
	}
	return []store.Problem{{Invariant: "I11", Where: path, What: what}}, nil
}

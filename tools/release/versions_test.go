package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// modulePath is the name of the module in a proxy.
const modulePath = "github.com/ctxpage/ctxpage"

// proxyOf makes a module proxy of files, which has dir as the only version of the module: what a public proxy serves once a version is
// tagged.
func proxyOf(t *testing.T, dir, version string) string {
	t.Helper()
	proxy := t.TempDir()
	serveModule(t, proxy, modulePath, dir, version)
	return proxy
}

// serveModule adds a version of a module to a proxy.
func serveModule(t *testing.T, proxy, path, dir, version string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	f, err := os.Create(filepath.Join(at, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromDir(f, module.Version{Path: path, Version: version}, dir))
	require.NoError(t, f.Close())
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	info, err := json.Marshal(map[string]string{"Version": version, "Time": time.Unix(epoch, 0).UTC().Format(time.RFC3339)})
	require.NoError(t, err)
	for name, b := range map[string][]byte{version + ".mod": mod, version + ".info": info, "list": []byte(version + "\n")} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), b, 0o644))
	}
}

// goEnv asks the go command for one of its settings.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// install runs `go install …/cmd/dbctl@VERSION` with a clean module cache and returns the program.
func install(t *testing.T, proxy, version, bin string) string {
	t.Helper()
	out, err := user(t, proxy, t.TempDir(), bin, "install", modulePath+"/cmd/dbctl@"+version)
	require.NoError(t, err, out)
	return filepath.Join(bin, "dbctl")
}

// user runs the go command in a folder outside the checkout, which is also where it installs programs. Only our modules come from proxy;
// others come from the modules that this machine has, and what it lacks from its proxy.
func user(t *testing.T, proxy, cache, dir string, args ...string) (string, error) {
	t.Helper()
	others := "file://" + filepath.ToSlash(filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")) + "," + goEnv(t, "GOPROXY")
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(proxy)+","+others, "GOMODCACHE="+cache, "GOBIN="+dir, "GOSUMDB=off", "GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tags lists the releases of this checkout.
func tags(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "tag", "--list", "v[0-9]*").Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// pseudo is the version under which Go knows the revision of this checkout as long as nothing is tagged.
func pseudo(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	require.NoError(t, err)
	return "v0.0.0-" + time.Unix(epoch, 0).UTC().Format("20060102150405") + "-" + strings.TrimSpace(string(out))[:12]
}

// current is this checkout, installed once for all tests as a version that is not tagged.
var current = struct {
	sync.Once
	program string
}{}

func installed(t *testing.T) string {
	t.Helper()
	current.Do(func() {
		bin, err := os.MkdirTemp("", "ctxpage-installed-")
		require.NoError(t, err)
		current.program = install(t, proxyOf(t, sources(t), pseudo(t)), pseudo(t), bin)
	})
	require.NotEmpty(t, current.program, "the installation failed in an earlier test")
	return current.program
}

// `go install …@VERSION` works from a clean module cache, and the program knows its version without a stamp.
func TestInstall(t *testing.T) {
	program := installed(t)
	var v struct{ Version, Commit string }
	require.NoError(t, json.Unmarshal([]byte(tool(t, t.TempDir(), program, "version", "--json")), &v))
	require.Equal(t, pseudo(t), v.Version)
	require.Equal(t, pseudo(t)[len(pseudo(t))-12:], v.Commit)
	firstContext(t, program)
}

// Each module beside the library is got from a proxy as the docs say, with the version of the library that its go.mod names, and builds
// in a module of its user. What replaces the library in a checkout stands in go.work: a program of a module with a replacement in its
// go.mod cannot be installed, which the control shows.
func TestModules(t *testing.T) {
	root, proxy, cache := sources(t), t.TempDir(), t.TempDir()
	serveModule(t, proxy, modulePath, root, version)
	works, err := filepath.Glob(filepath.Join(root, "*", "go.work"))
	require.NoError(t, err)
	deeper, err := filepath.Glob(filepath.Join(root, "*", "*", "go.work"))
	require.NoError(t, err)
	works = append(works, deeper...)
	require.Len(t, works, 7)
	for _, work := range works {
		dir := filepath.Dir(work)
		under, err := filepath.Rel(root, dir)
		require.NoError(t, err)
		path := modulePath + "/" + filepath.ToSlash(under)
		serveModule(t, proxy, path, dir, version)
		bin := t.TempDir()
		for _, args := range [][]string{{"mod", "init", "example.com/agent"}, {"get", path + "@" + version}, {"build", path}} {
			out, err := user(t, proxy, cache, bin, args...)
			require.NoError(t, err, "%s: %s", path, out)
		}
		out, err := user(t, proxy, cache, bin, "list", "-m", modulePath)
		require.NoError(t, err, out)
		require.Equal(t, modulePath+" "+version, strings.TrimSpace(out))
		if _, err := os.Stat(filepath.Join(dir, "cmd", "dbctl")); err == nil {
			out, err := user(t, proxy, cache, bin, "install", path+"/cmd/dbctl@"+version)
			require.NoError(t, err, "%s: %s", path, out)
			firstContext(t, filepath.Join(bin, "dbctl"))
		}
	}

	dir := filepath.Join(root, "pgstore")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), append(mod, "\nreplace "+modulePath+" => ..\n"...), 0o644))
	serveModule(t, proxy, modulePath+"/pgstore", dir, "v0.1.1")
	out, err := user(t, proxy, cache, t.TempDir(), "install", modulePath+"/pgstore/cmd/dbctl@v0.1.1")
	require.Error(t, err)
	require.Contains(t, out, "replace directives")
}

// A database that an earlier release wrote is served by this one as that release served it. What this one wrote is served by the earlier
// one, too, or refused by its format before anything is changed. Before the first release this revision, installed as a module, stands for
// the earlier one.
func TestUpgradeAndDowngrade(t *testing.T) {
	f, err := os.Open(one(t, "*_linux_amd64.tar.gz"))
	require.NoError(t, err)
	defer f.Close()
	now := filepath.Join(unpack(t, f), "dbctl_0.1.0_linux_amd64", "dbctl")
	earlier := map[string]string{}
	for _, tag := range tags(t) {
		dir := t.TempDir()
		out, err := exec.Command("sh", "-c", fmt.Sprintf("git -C ../.. archive %s | tar x -C %s", tag, dir)).CombinedOutput()
		require.NoError(t, err, string(out))
		earlier[tag] = install(t, proxyOf(t, dir, tag), tag, t.TempDir())
	}
	if len(earlier) == 0 {
		earlier["none yet"] = installed(t)
	}
	for tag, old := range earlier {
		t.Run(tag, func(t *testing.T) { upgrade(t, old, now) })
	}
}

func upgrade(t *testing.T, old, now string) {
	t.Helper()
	dir := t.TempDir()
	const text = "Refunds up to $400 need no approval."
	for _, args := range [][]string{
		{"init", "agent.ctx"},
		{"put", "agent.ctx", "acme/support", "refund-limit", text, "--verified", "--by", "ann"},
		{"put", "agent.ctx", "acme/support", "refund-limit", text, "--tag", "billing"},
		{"session", "append", "agent.ctx", "acme/support", "chat-1", "May I have a refund?"},
	} {
		tool(t, dir, old, args...)
	}
	var a struct{ Trace string }
	require.NoError(t, json.Unmarshal([]byte(tool(t, dir, old, "assemble", "agent.ctx", "acme/support", "what may I refund?", "--budget", "2000", "--json")), &a))
	exported, replayed := export(t, dir, old), tool(t, dir, old, "replay", "agent.ctx", a.Trace)
	require.Contains(t, replayed, "$400")

	tool(t, dir, now, "check", "agent.ctx")
	require.Equal(t, exported, export(t, dir, now), "the same content")
	require.Equal(t, replayed, tool(t, dir, now, "replay", "agent.ctx", a.Trace), "the same context, byte for byte")
	tool(t, dir, now, "put", "agent.ctx", "acme/support", "later", text)
	written := export(t, dir, now)
	require.NotEqual(t, exported, written, "the control: an export shows a difference")

	cmd := exec.Command(old, "check", "agent.ctx", "--json")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		require.Contains(t, string(out), `"kind":"newer format"`, "the earlier release refuses by the format, or serves")
		require.Equal(t, written, export(t, dir, now), "nothing was changed")
		return
	}
	require.Equal(t, written, export(t, dir, old))
	require.Equal(t, replayed, tool(t, dir, old, "replay", "agent.ctx", a.Trace))
}

// export lists what a database holds, without the first line, which has the time, and the last, which has a digest of all.
func export(t *testing.T, dir, program string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(tool(t, dir, program, "export", "agent.ctx", "--read-only")), "\n")
	require.Greater(t, len(lines), 3)
	return strings.Join(lines[1:len(lines)-1], "\n")
}

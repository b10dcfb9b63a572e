package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// version of the releases that tests make. The clients have this version, too.
const version = "v0.1.0"

// maxProgram bounds the program. docs/limits.md says what it consists of.
const maxProgram = 31_500_000

// maxImage bounds what a registry stores and a host downloads for one platform.
const maxImage = 25_000_000

// sources copies what is part of the checkout to a new folder, without its history: two copies have nothing in common but their files.
func sources(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	list, err := cmd.Output()
	require.NoError(t, err, "tests of releases run in a git checkout")
	to := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(string(list), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed and not committed
		}
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(to, name), b, info.Mode().Perm()))
	}
	return to
}

// parts of a release that these tests make, and the date of their files.
const (
	tested = "archives,deb,rpm,apk,image,sums"
	epoch  = 1790000000
)

// first is a release of this platform, made once for all tests.
var first struct {
	sync.Once
	dir string
}

func TestMain(m *testing.M) {
	os.Setenv("SOURCE_DATE_EPOCH", strconv.Itoa(epoch))
	code := m.Run()
	os.RemoveAll(first.dir)
	os.RemoveAll(filepath.Dir(current.program))
	os.Exit(code)
}

func made(t *testing.T) string {
	t.Helper()
	first.Do(func() {
		dir, err := os.MkdirTemp("", "ctxpage-made-")
		require.NoError(t, err)
		require.NoError(t, run(context.Background(), []string{"-version", version, "-root", sources(t), "-out", dir, "-only", tested, "-targets", "linux/amd64"}, io.Discard))
		first.dir = dir
	})
	require.NotEmpty(t, first.dir, "an earlier test could not make the release")
	return first.dir
}

func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(made(t), pattern))
	require.NoError(t, err)
	require.Len(t, found, 1, pattern)
	return found[0]
}

// Two builds from two folders are equal byte by byte. With another date they are not: the comparison can fail.
func TestReproducible(t *testing.T) {
	if os.Getenv("CTXPAGE_LONG") != "" {
		t.Setenv("GOCACHE", t.TempDir()) // nothing of the first build is used again
	}
	again := t.TempDir()
	require.NoError(t, run(context.Background(), []string{"-version", version, "-root", sources(t), "-out", again, "-only", tested, "-targets", "linux/amd64"}, io.Discard))
	entries, err := os.ReadDir(again)
	require.NoError(t, err)
	require.Len(t, entries, 6)
	for _, e := range entries {
		a, err := os.ReadFile(filepath.Join(made(t), e.Name()))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(again, e.Name()))
		require.NoError(t, err)
		require.True(t, bytes.Equal(a, b), "%s differs between two builds", e.Name())
	}
	for _, write := range []func(io.Writer, []entry, time.Time) error{writeTarGz, writeTar, writeZip} {
		var a, b bytes.Buffer
		require.NoError(t, write(&a, completions(), time.Unix(epoch, 0)))
		require.NoError(t, write(&b, completions(), time.Unix(epoch+2, 0)))
		require.False(t, bytes.Equal(a.Bytes(), b.Bytes()), "the control: another date is other bytes")
	}
}

func TestSumsAreThoseOfTheFiles(t *testing.T) {
	dir := made(t)
	cmd := exec.Command("sha256sum", "--check", "--strict", sumsFile)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, 5, strings.Count(string(out), ": OK"), string(out))
}

// unpack writes the files of a tar.gz to a new folder.
func unpack(t *testing.T, r io.Reader) string {
	t.Helper()
	z, err := gzip.NewReader(r)
	require.NoError(t, err)
	to := t.TempDir()
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return to
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		path := filepath.Join(to, h.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		b, err := io.ReadAll(tr)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, os.FileMode(h.Mode)))
	}
}

// tool runs a program in a folder of its own and returns what it prints.
func tool(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", program, strings.Join(args, " "), out)
	return string(out)
}

// firstContext follows README and docs/install.md from an installed dbctl to the first context.
func firstContext(t *testing.T, dbctl string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "notes"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes", "refunds.md"), []byte("# Refunds\n\nRefunds up to $400 need no approval.\n"), 0o644))
	tool(t, dir, dbctl, "init", "agent.ctx")
	tool(t, dir, dbctl, "import", "agent.ctx", "acme/support", "notes")
	require.Contains(t, tool(t, dir, dbctl, "assemble", "agent.ctx", "acme/support", "what may I refund?", "--budget", "2000"), "Refunds up to $400 need no approval.")
	tool(t, dir, dbctl, "check", "agent.ctx")
}

func TestArchive(t *testing.T) {
	f, err := os.Open(one(t, "*_linux_amd64.tar.gz"))
	require.NoError(t, err)
	defer f.Close()
	dir := filepath.Join(unpack(t, f), "dbctl_0.1.0_linux_amd64")
	for _, name := range strings.Fields("LICENSE README.md CHANGELOG.md install.md completions/dbctl.bash completions/_dbctl completions/dbctl.fish man/man1/dbctl.1 man/man1/dbctl-review-approve.1") {
		require.FileExists(t, filepath.Join(dir, name))
	}
	program := filepath.Join(dir, "dbctl")
	var v struct{ Version, Time, Platform string }
	require.NoError(t, json.Unmarshal([]byte(tool(t, dir, program, "version", "--json")), &v))
	require.Equal(t, version, v.Version, "the stamp of the release")
	require.Equal(t, time.Unix(epoch, 0).UTC().Format(time.RFC3339), v.Time)
	info, err := os.Stat(program)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	t.Logf("dbctl: %d bytes", info.Size())
	require.LessOrEqual(t, info.Size(), int64(maxProgram))
	e, err := elf.Open(program)
	require.NoError(t, err)
	defer e.Close()
	require.Nil(t, e.Section(".interp"), "the program is static")
	firstContext(t, program)
}

func TestZip(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeZip(&b, []entry{{"d/dbctl.exe", 0o755, []byte("x")}}, time.Unix(epoch, 0)))
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	require.Len(t, z.File, 1)
	require.Equal(t, "d/dbctl.exe", z.File[0].Name)
	require.Equal(t, os.FileMode(0o755), z.File[0].Mode())
}

// A user of a Debian package: it is installed, shown, used to the first context, and removed.
func TestDebianPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed")
	}
	deb := one(t, "*.deb")
	require.Contains(t, tool(t, t.TempDir(), "dpkg-deb", "--info", deb), "Version: 0.1.0")
	root := t.TempDir()
	if os.Getuid() != 0 {
		t.Log("not root: the package is unpacked, not installed")
		tool(t, root, "dpkg-deb", "--extract", deb, root)
		firstContext(t, filepath.Join(root, "usr/bin/dbctl"))
		return
	}
	for _, dir := range []string{"info", "updates"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	tool(t, root, "dpkg", "--root="+root, "--force-script-chrootless", "--install", deb)
	require.Contains(t, tool(t, root, "dpkg", "--root="+root, "--status", "ctxpage"), "Status: install ok installed")
	for _, name := range strings.Fields("share/man/man1/dbctl.1.gz share/man/man1/dbctl-put.1.gz share/bash-completion/completions/dbctl share/zsh/vendor-completions/_dbctl share/doc/ctxpage/copyright") {
		require.FileExists(t, filepath.Join(root, "usr", name))
	}
	firstContext(t, filepath.Join(root, "usr/bin/dbctl"))
	tool(t, root, "dpkg", "--root="+root, "--purge", "ctxpage")
	require.NoFileExists(t, filepath.Join(root, "usr/bin/dbctl"))
}

// Packages of other systems are read with the tools that are here: apk is a tar.gz, and rpm has its own magic and a tool.
func TestOtherPackages(t *testing.T) {
	f, err := os.Open(one(t, "*.apk"))
	require.NoError(t, err)
	defer f.Close()
	dir := unpack(t, f)
	b, err := os.ReadFile(filepath.Join(dir, ".PKGINFO"))
	require.NoError(t, err)
	require.Contains(t, string(b), "pkgver = 0.1.0")
	require.FileExists(t, filepath.Join(dir, "usr/bin/dbctl"))
	rpm := one(t, "*.rpm")
	b, err = os.ReadFile(rpm)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(b, []byte{0xed, 0xab, 0xee, 0xdb}))
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Log("rpm is not installed: the package is not read")
		return
	}
	require.Contains(t, tool(t, t.TempDir(), "rpm", "-qpl", rpm), "/usr/bin/dbctl")
	tool(t, t.TempDir(), "rpm", "-K", "--nosignature", rpm)
}

// The image is read back by a library that did not write it.
func TestImage(t *testing.T) {
	f, err := os.Open(one(t, "*_oci.tar"))
	require.NoError(t, err)
	defer f.Close()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = io.Copy(z, f)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	all, err := ocilayout.ImageIndexFromPath(unpack(t, &packed))
	require.NoError(t, err)
	require.NoError(t, validate.Index(all))
	top, err := all.IndexManifest()
	require.NoError(t, err)
	inner, err := all.ImageIndex(top.Manifests[0].Digest)
	require.NoError(t, err)
	m, err := inner.IndexManifest()
	require.NoError(t, err)
	require.Len(t, m.Manifests, 1)
	require.Equal(t, "linux/amd64", m.Manifests[0].Platform.String())
	img, err := inner.Image(m.Manifests[0].Digest)
	require.NoError(t, err)
	require.NoError(t, validate.Image(img))
	c, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", c.Config.User)
	require.Equal(t, []string{"/dbctl"}, c.Config.Entrypoint)
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	size, err := layers[0].Size()
	require.NoError(t, err)
	t.Logf("image: %d bytes", size)
	require.LessOrEqual(t, size, int64(maxImage))
	content, err := layers[0].Compressed()
	require.NoError(t, err)
	defer content.Close()
	root := unpack(t, content)
	require.DirExists(t, filepath.Join(root, "data"))
	firstContext(t, filepath.Join(root, "dbctl"))
}

// The manual has a page for each verb of the help, and each page only macros that man(7) knows.
func TestManual(t *testing.T) {
	r := &release{version: version, date: time.Unix(epoch, 0).UTC()}
	known := map[string]bool{".TH": true, ".SH": true, ".PP": true, ".TP": true, ".B": true, ".BR": true, ".br": true}
	pages := map[string]bool{}
	for _, p := range r.manual() {
		pages[p.name] = true
		for line := range strings.Lines(string(p.data)) {
			if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
				require.True(t, known[strings.Fields(line)[0]], "%s: %q", p.name, line)
			}
		}
		require.Contains(t, string(p.data), ".SH SYNOPSIS", p.name)
	}
	for _, name := range strings.Fields("dbctl.1 dbctl-init.1 dbctl-put.1 dbctl-assemble.1 dbctl-review.1 dbctl-review-approve.1 dbctl-manifest-verify.1") {
		require.True(t, pages[name], name)
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Log("groff is not installed: the pages are not formatted")
		return
	}
	for _, p := range r.manual() {
		cmd := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z")
		cmd.Stdin = bytes.NewReader(p.data)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, p.name)
		require.Empty(t, string(out), p.name)
	}
}

func TestRoff(t *testing.T) {
	require.Equal(t, `\&.so /etc/passwd`, roff(".so /etc/passwd"))
	require.Equal(t, `a\eb \-\-json`, roff(`a\b --json`))
	require.Equal(t, `caf\[u00E9]\[u2026]`, roff("café…"))
	require.Equal(t, `"say \(dqx\(dq"`, quoted(`say "x"`))
}

// The parts list has the modules that the program itself names.
func TestPartsList(t *testing.T) {
	out := t.TempDir()
	require.NoError(t, run(context.Background(), []string{"-version", version, "-out", out, "-only", "sbom", "-targets", "linux/amd64"}, io.Discard))
	b, err := os.ReadFile(filepath.Join(out, "dbctl_0.1.0_linux_amd64.cdx.json"))
	require.NoError(t, err)
	var list struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct{ Name, Version string }
		Metadata   struct {
			Component struct{ Name, Version string }
		}
	}
	require.NoError(t, json.Unmarshal(b, &list))
	require.Equal(t, "CycloneDX", list.BOMFormat)
	require.Equal(t, version, list.Metadata.Component.Version)
	names := map[string]bool{}
	for _, c := range list.Components {
		names[c.Name] = true
	}
	require.True(t, names["go.etcd.io/bbolt"], string(b))
	for name := range names {
		require.False(t, strings.Contains(name, "nfpm") || strings.Contains(name, "pgx"), "%s is in the tool", name)
	}
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "-version"},
		{[]string{"-version", "0.1"}, "expected a version such as v0.1.0"},
		{[]string{"-version", version, "-only", "tarball"}, "-only: got \"tarball\""},
		{[]string{"-version", version, "-targets", "plan9/386"}, "-targets: got \"plan9/386\""},
		{[]string{"-version", version, "-root", t.TempDir()}, "no checkout of ctxpage"},
		{[]string{"-version", "v9.9.9", "-only", "wheels", "-out", t.TempDir()}, "change it there"},
		{[]string{"-version", "v9.9.9", "-only", "npm", "-out", t.TempDir()}, "change it there"},
		{[]string{"-version", version, "-only", "deb", "-targets", "darwin/arm64", "-out", t.TempDir()}, "expected linux/amd64"},
	} {
		require.ErrorContains(t, run(context.Background(), c.args, io.Discard), c.want, c.args)
	}
	var said bytes.Buffer
	out := filepath.Join(t.TempDir(), "none")
	require.NoError(t, run(context.Background(), []string{"-version", version, "-dry-run", "-out", out}, &said))
	require.Contains(t, said.String(), "windows/arm64")
	require.NoDirExists(t, out)
}

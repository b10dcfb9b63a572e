// Command release builds what a release of ctxpage consists of: archives of dbctl for seven platforms, packages for Debian, Fedora and
// Alpine, an image for containers, wheels and npm packages, the parts list (SBOM) and the checksums. The same commit and the same Go make
// the same bytes, in any folder.
//
//	go -C tools/release run . -version v0.1.0 -out ../../dist
//	go -C tools/release run . -version v0.1.0 -only archives,deb -targets linux/amd64
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is one run of the tool.
type release struct {
	root    string    // of the sources
	out     string    // folder of what is made
	version string    // v0.1.0
	commit  string    // full hash, or empty: the sources are no checkout
	date    time.Time // of every file that is made
	targets []target
	parts   []string
	dry     bool
	say     io.Writer
	built   map[target]string // the programs of this run
	work    string
}

// target is a platform as Go names it.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// targets are the platforms of a release.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}, {"freebsd", "amd64"},
}

// parts are the steps of a release, in their order. sums comes last: it covers the others.
var parts = []struct {
	name string
	does string
	run  func(context.Context, *release) error
}{
	{"archives", "tar.gz and zip of dbctl, its manual and completions", archives},
	{"deb", "packages for Debian and Ubuntu", packager("deb")},
	{"rpm", "packages for Fedora, RHEL and SUSE", packager("rpm")},
	{"apk", "packages for Alpine", packager("apk")},
	{"image", "a container image as an OCI archive", image},
	{"sbom", "parts lists of the programs (CycloneDX)", sbom},
	{"wheels", "Python packages (needs python3 with pip and hatchling)", wheels},
	{"npm", "npm packages (needs node and npm)", npmPackages},
	{"sums", "SHA256SUMS", sums},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, say io.Writer) (err error) {
	r, err := parse(ctx, args, say)
	if err != nil {
		return err
	}
	if r.dry {
		r.plan()
		return nil
	}
	if r.work, err = os.MkdirTemp("", "ctxpage-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for i, p := range parts {
		if !slices.Contains(r.parts, p.name) {
			continue
		}
		begun := time.Now()
		fmt.Fprintf(say, "[%d/%d] %s: %s\n", i+1, len(parts), p.name, p.does)
		if err := p.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(say, "      %.1f s\n", time.Since(begun).Seconds())
	}
	return nil
}

// versions is what a release may be called: a semantic version, as Go modules have it.
var versions = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func parse(ctx context.Context, args []string, say io.Writer) (*release, error) {
	r := &release{say: say, built: map[target]string{}}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.SetOutput(say)
	var only, platforms string
	fs.StringVar(&r.version, "version", "", "version, such as v0.1.0 (required)")
	fs.StringVar(&r.root, "root", "../..", "folder of the sources")
	fs.StringVar(&r.out, "out", "../../dist", "folder of what is made")
	fs.StringVar(&only, "only", "", "only these parts, by comma: "+strings.Join(partNames(), ","))
	fs.StringVar(&platforms, "targets", "", "only these platforms, by comma, such as linux/amd64")
	fs.BoolVar(&r.dry, "dry-run", false, "print what would be made, and make nothing")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("got the argument %q, expected flags alone", fs.Arg(0))
	}
	if !versions.MatchString(r.version) {
		return nil, fmt.Errorf("-version: got %q, expected a version such as v0.1.0", r.version)
	}
	var err error
	if r.parts, err = choose("-only", only, partNames()); err != nil {
		return nil, err
	}
	var all []string
	for _, t := range targets {
		all = append(all, t.String())
	}
	chosen, err := choose("-targets", platforms, all)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if slices.Contains(chosen, t.String()) {
			r.targets = append(r.targets, t)
		}
	}
	if r.root, err = filepath.Abs(r.root); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(r.root, "cmd", "dbctl")); err != nil {
		return nil, fmt.Errorf("-root: %s is no checkout of ctxpage: %w", r.root, err)
	}
	return r, r.source(ctx)
}

// choose returns those of all that are named, and all if none is.
func choose(flag, named string, all []string) ([]string, error) {
	if named == "" {
		return all, nil
	}
	var out []string
	for _, name := range strings.Split(named, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s: got %q, expected some of %s", flag, name, strings.Join(all, ", "))
		}
		out = append(out, name)
	}
	return out, nil
}

// source finds commit and date: of the checkout, or SOURCE_DATE_EPOCH where the sources are none.
func (r *release) source(ctx context.Context) error {
	r.date = time.Unix(0, 0).UTC()
	if _, err := os.Stat(filepath.Join(r.root, ".git")); err == nil {
		line, err := r.output(ctx, r.root, nil, "git", "log", "-1", "--format=%H %ct")
		if err != nil {
			return fmt.Errorf("the commit of the sources: %w", err)
		}
		hash, seconds, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return fmt.Errorf("git log: got %q, expected a hash and seconds: %w", line, err)
		}
		r.commit, r.date = hash, time.Unix(n, 0).UTC()
	}
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: got %q, expected seconds since 1970: %w", s, err)
		}
		r.date = time.Unix(n, 0).UTC()
	}
	return nil
}

// plan prints what a run would make.
func (r *release) plan() {
	fmt.Fprintf(r.say, "ctxpage %s, commit %s of %s, from %s into %s\n", r.version, cmpOr(r.commit, "unknown"), r.date.Format(time.RFC3339), r.root, r.out)
	for _, p := range parts {
		if slices.Contains(r.parts, p.name) {
			fmt.Fprintf(r.say, "%-9s %s\n", p.name, p.does)
		}
	}
	for _, t := range r.targets {
		fmt.Fprintln(r.say, "platform ", t)
	}
}

func cmpOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// number is the version without its v, as packages have it.
func (r *release) number() string { return r.version[1:] }

// output runs a program and returns what it prints.
func (r *release) output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()+string(out)))
	}
	return string(out), nil
}

// wrote notes a file that was made, with its size.
func (r *release) wrote(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.say, "      %-48s %6.1f MB\n", filepath.Base(path), float64(info.Size())/1e6)
	return nil
}

// create writes a file of the release.
func (r *release) create(name string, write func(io.Writer) error) error {
	path := filepath.Join(r.out, name)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.wrote(path)
}

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// stamped is the variable of the tool that takes version, commit and time. `go install …@VERSION` needs no stamp: Go notes the version
// of the module in the program.
const stamped = "github.com/ctxpage/ctxpage/internal/dbctl.stamp"

// program builds dbctl for a platform, once in a run, and returns its path.
func (r *release) program(ctx context.Context, t target) (string, error) {
	if path := r.built[t]; path != "" {
		return path, nil
	}
	path := filepath.Join(r.work, t.os+"_"+t.arch, "dbctl"+t.exe())
	fmt.Fprintln(r.say, "      building dbctl for", t)
	flags := alignment + "-s -w -X '" + stamped + "=" + strings.Join([]string{r.version, r.commit, r.date.Format(time.RFC3339)}, ",") + "'"
	env := []string{"CGO_ENABLED=0", "GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off"}
	// Not buildvcs: it would tell a checkout from sources that were unpacked.
	build := []string{"build", "-trimpath", "-buildvcs=false", "-tags", buildTags, "-ldflags", flags, "-o", path}
	for _, p := range seldom {
		build = append(build, "-gcflags", p+"=-l")
	}
	if _, err := r.output(ctx, r.root, env, "go", append(build, "./cmd/dbctl")...); err != nil {
		return "", fmt.Errorf("dbctl for %s: %w", t, err)
	}
	r.built[t] = path
	return path, nil
}

// buildTags leaves HTTP/2 out: the servers are on loopback or behind a proxy, and what dbctl fetches comes over HTTP/1.1 as well.
const buildTags = "nethttpomithttp2"

// alignment is that of functions, in bytes: the default of amd64 leaves twice as much empty between them, .2 MB of dbctl.
const alignment = "-funcalign=16 "

// seldom are packages whose time nobody notices: what reads files of other systems, prints, and shakes hands. Copies of their
// functions where these are called would take .8 MB of dbctl.
var seldom = []string{
	"github.com/ctxpage/ctxpage/internal/dbctl", "github.com/ctxpage/ctxpage/internal/foreign", "github.com/ctxpage/ctxpage/internal/portable",
	"github.com/ctxpage/ctxpage/internal/eraseplan", "github.com/ctxpage/ctxpage/internal/handoff", "github.com/ctxpage/ctxpage/ui",
	"github.com/ctxpage/ctxpage/compat/...", "github.com/ctxpage/ctxpage/ops",
	"github.com/schollz/progressbar/v3", "github.com/google/jsonschema-go/...", "github.com/segmentio/encoding/...",
	"github.com/modelcontextprotocol/go-sdk/...", "github.com/yosida95/uritemplate/v3", "golang.org/x/oauth2/...",
	"html/template", "text/template/...", "go/...", "encoding/asn1", "encoding/gob", "regexp/syntax", "crypto/tls", "crypto/x509/...",
}

func (t target) exe() string {
	if t.os == "windows" {
		return ".exe"
	}
	return ""
}

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// The image has the program and an empty folder for databases, and nothing else: no shell, no libraries. It does not run as root.
const (
	imageUser = 65532
	dataDir   = "data/"
)

// descriptor names a blob of an OCI layout (https://github.com/opencontainers/image-spec).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// layout collects the blobs of an image.
type layout struct{ files []entry }

func (l *layout) add(mediaType string, b []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(b))
	name := "blobs/sha256/" + sum
	if !slices.ContainsFunc(l.files, func(e entry) bool { return e.name == name }) {
		l.files = append(l.files, entry{name, 0o644, b})
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(b)}
}

func (l *layout) addJSON(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, b), nil
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// index lists images.
type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// image writes one archive with an image for each processor of Linux.
func image(ctx context.Context, r *release) error {
	l := &layout{files: []entry{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}}}
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		program, err := r.program(ctx, t)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		d, err := l.platform(r, t, b)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}
	if len(all.Manifests) == 0 {
		return fmt.Errorf("got no platform of Linux in -targets, expected linux/amd64 or linux/arm64")
	}
	d, err := l.addJSON(typeIndex, all)
	if err != nil {
		return err
	}
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.number(), "io.containerd.image.name": "ghcr.io/ctxpage/dbctl:" + r.number()}
	top, err := json.Marshal(index{2, typeIndex, []descriptor{d}})
	if err != nil {
		return err
	}
	l.files = append(l.files, entry{"index.json", 0o644, top})
	slices.SortFunc(l.files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return r.create("dbctl_"+r.number()+"_oci.tar", func(w io.Writer) error { return writeTar(w, l.files, r.date) })
}

// platform adds the image of one platform: a layer, its configuration, and the manifest that names both.
func (l *layout) platform(r *release, t target, program []byte) (descriptor, error) {
	var plain bytes.Buffer
	if err := writeTar(&plain, []entry{{dataDir, 0o700, nil}, {"dbctl", 0o755, program}, {"tmp/", 0o1777, nil}}, r.date); err != nil {
		return descriptor{}, err
	}
	packed, err := zipped(plain.Bytes())
	if err != nil {
		return descriptor{}, err
	}
	user := fmt.Sprintf("%d:%d", imageUser, imageUser)
	labels := map[string]string{"org.opencontainers.image.version": r.number(), "org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source": homepage, "org.opencontainers.image.licenses": licence, "org.opencontainers.image.title": "dbctl", "org.opencontainers.image.description": summary}
	config, err := l.addJSON(typeConfig, map[string]any{
		"created": r.date.Format(time.RFC3339), "architecture": t.arch, "os": t.os,
		"config": map[string]any{"User": user, "Entrypoint": []string{"/dbctl"}, "Cmd": []string{"--help"}, "WorkingDir": "/data", "Volumes": map[string]any{"/data": struct{}{}},
			"Env": []string{"HOME=/data", "PATH=/"}, "StopSignal": "SIGTERM", "Labels": labels},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))}},
		"history": []any{map[string]string{"created": r.date.Format(time.RFC3339), "created_by": "tools/release"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []descriptor{l.add(typeLayer, packed)}, "annotations": labels})
	d.Platform = map[string]string{"os": t.os, "architecture": t.arch}
	return d, err
}

func zipped(b []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(b)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

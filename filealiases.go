package ctxpage

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/manifest"
)

// Names of the embedded store that a user of the library writes.

type (
	Loss           = filestore.Loss
	RestoreOptions = filestore.RestoreOptions
	SalvageOptions = filestore.SalvageOptions
	Salvaged       = filestore.Salvaged
)

const (
	FormatVersion = filestore.FormatVersion
)

// Restore copies the database at backup to path; see filestore.Restore.
func Restore(ctx context.Context, backup, path string, opts RestoreOptions) (manifest.Head, error) {
	return filestore.Restore(ctx, backup, path, opts)
}

// OpenManifests opens the audit of the database at path beside a living agent; see filestore.OpenManifests.
func OpenManifests(ctx context.Context, path string) (*manifest.Reader, manifest.Report, error) {
	return filestore.OpenManifests(ctx, path)
}

// FollowManifests calls fn for each new leaf; see filestore.FollowManifests.
func FollowManifests(ctx context.Context, path string, from uint64, every time.Duration, fn func(*manifest.Record) error) error {
	return filestore.FollowManifests(ctx, path, from, every, fn)
}

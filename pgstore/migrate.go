package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the version of the newest file in migrations.
const schemaVersion = 1

const versionTable = "ctxpage_version"

// Step is a migration that was applied, or would be.
type Step struct {
	Version int64         `json:"version"`
	File    string        `json:"file"`
	Took    time.Duration `json:"took_ns,omitempty"`
}

// Migrate brings the schema in the search path of dsn to the version this program needs, and returns the steps it took. With
// dryRun it changes nothing and returns the steps it would take. Several callers at once take turns: the lock is a row of a
// table, so it works behind a pooler. ErrSchema: the schema is newer than this program.
func Migrate(ctx context.Context, dsn string, dryRun bool) ([]Step, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgstore: data source name: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	have, err := migrated(ctx, db.PingContext, func(ctx context.Context, sql string) (v int64, err error) {
		err = db.QueryRowContext(ctx, sql).Scan(&v)
		return v, err
	})
	if err != nil {
		return nil, err
	}
	if have > schemaVersion {
		return nil, &SchemaError{have, schemaVersion}
	}
	locker, err := lock.NewPostgresTableLocker(lock.WithTableName("ctxpage_version_lock"))
	if err != nil {
		return nil, err
	}
	opts := []goose.ProviderOption{goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true)}
	if !dryRun {
		opts = append(opts, goose.WithLocker(locker))
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, opts...)
	if err != nil {
		return nil, fmt.Errorf("pgstore: migrate: %w", err)
	}
	if dryRun {
		return due(p.ListSources(), have), nil
	}
	done, err := p.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgstore: migrate: %w", err)
	}
	var steps []Step
	for _, r := range done {
		steps = append(steps, Step{r.Source.Version, r.Source.Path, r.Duration})
	}
	return steps, nil
}

func due(sources []*goose.Source, have int64) (steps []Step) {
	for _, s := range sources {
		if s.Version > have {
			steps = append(steps, Step{Version: s.Version, File: s.Path})
		}
	}
	return steps
}

const (
	versionQuery = `SELECT coalesce(max(version_id), 0) FROM ` + versionTable + ` WHERE is_applied`
	oldQuery     = `SELECT count(to_regclass('ctxpage_schema'))` // before v0.1.0
)

// migrated returns the version of the schema; 0: there is none. ErrOldFormat: it was made before v0.1.0.
func migrated(ctx context.Context, ping func(context.Context) error, query func(ctx context.Context, sql string) (int64, error)) (int64, error) {
	if err := ping(ctx); err != nil {
		return 0, fmt.Errorf("pgstore: connect: %w", err)
	}
	v, err := query(ctx, versionQuery)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" { // no such table
		switch old, err := query(ctx, oldQuery); {
		case err != nil:
			return 0, fmt.Errorf("pgstore: look for a schema: %w", err)
		case old > 0:
			return 0, fmt.Errorf("%w: the schema in the search path; use another schema; copy the databases of this one to files with the program that made it (dbctl postgres copy, dbctl export), and import those", store.ErrOldFormat)
		}
		return 0, nil
	}
	if errors.As(err, &pg) && pg.Code == "42501" { // made by another role, and no rights were given
		return 0, fmt.Errorf("pgstore: this login has no rights on the tables; the role that migrated must GRANT them (docs/postgres.md has the statements): %w", err)
	}
	if err != nil {
		return 0, fmt.Errorf("pgstore: read the version of the schema: %w", err)
	}
	return v, nil
}

// checkSchema is asked before a program uses the tables.
func checkSchema(ctx context.Context, conn interface {
	Ping(context.Context) error
	QueryRow(context.Context, string, ...any) pgx.Row
}) error {
	have, err := migrated(ctx, conn.Ping, func(ctx context.Context, sql string) (v int64, err error) {
		err = conn.QueryRow(ctx, sql).Scan(&v)
		return v, err
	})
	if err == nil && have != schemaVersion {
		err = &SchemaError{have, schemaVersion}
	}
	return err
}

// Command dbctl is dbctl for databases on PostgreSQL, too: every verb takes a postgres:// URL in place of a file, and dbctl postgres has
// the verbs for the server itself.
package main

import (
	"context"
	"errors"
	"net/url"
	"os"

	"github.com/ctxpage/ctxpage/internal/dbctl"
	"github.com/ctxpage/ctxpage/pgstore"
	"github.com/ctxpage/ctxpage/store"
)

func main() {
	os.Exit(new(flags).tool().Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// flags are those that this build adds to all verbs.
type flags struct {
	Database string `help:"PostgreSQL: database in the schema." default:"main" env:"CTXPAGE_DATABASE"`
	Host     string `help:"PostgreSQL: name of this host, the same at each start; file: sources are checked only on the host that read them. Default: that of the machine." env:"CTXPAGE_HOST"`
	Cache    string `help:"PostgreSQL: directory of a cache that is kept, so that the next start is fast. One process uses it at a time. Default: a temporary one." placeholder:"DIR" type:"path"`

	Postgres postgresCmd `cmd:"" help:"Work on a PostgreSQL server: schema, databases, copies, images, followers."`
}

// options returns the options of a store. short: it writes no images.
func (f *flags) options(short bool) pgstore.Options {
	o := pgstore.Options{Name: f.Database, Host: f.Host, CacheDir: f.Cache, MustExist: true}
	if short {
		o.ImageBytes = -1
	}
	return o
}

func (f *flags) tool() dbctl.Tool {
	f.Postgres.flags(f)
	return dbctl.Tool{Server: &dbctl.Server{
		Schemes: []string{"postgres", "postgresql"},
		Grammar: f,
		Label:   f.label,
		Again:   f.again,
		Open: func(ctx context.Context, url string, o dbctl.Opening) (store.Store, error) {
			opts := f.options(!o.Stay)
			opts.MustExist = !o.Create
			return pgstore.Open(ctx, url, opts)
		},
		Kind: func(err error) string {
			if errors.Is(err, pgstore.ErrSchema) {
				return "schema"
			}
			return ""
		},
		Instead: map[string]string{
			"backup":  "use the server's own backup (pg_basebackup, pg_dump), keep a head elsewhere (dbctl manifest head), or make a file with dbctl postgres copy",
			"restore": "restore the server's own backup, then compare it with a head: dbctl manifest verify --head",
			"salvage": "restore the server's own backup, then compare it with a head: dbctl manifest verify --head",
			"compact": "use the server's own VACUUM",
			"key":     "use the server's own encryption",
		},
	}}
}

// label names a database without its password and the parameters of the connection.
func (f *flags) label(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return "postgres database " + f.Database
	}
	return "postgres://" + u.Host + u.Path + " database " + f.Database
}

func (f *flags) again() (words []string) {
	for _, v := range []struct{ flag, value string }{{"--database", f.Database}, {"--host", f.Host}, {"--cache", f.Cache}} {
		if v.value != "" {
			words = append(words, v.flag+"="+v.value)
		}
	}
	return words
}

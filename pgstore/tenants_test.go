package pgstore

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// grants are the statements of docs/postgres.md that give a role its rights.
func grants(t *testing.T, role string) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/postgres.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```sql\n(-- rights of a tenant.*?)```").FindSubmatch(doc)
	require.NotNil(t, found, "docs/postgres.md says which rights a tenant needs")
	return strings.ReplaceAll(string(found[1]), "acme_agents", pgx.Identifier{role}.Sanitize())
}

// tenant makes a login with the rights that docs/postgres.md gives, and returns its data source name.
func tenant(t *testing.T, role string) (dsn string) {
	t.Helper()
	_, err := shared.exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" LOGIN")
	require.NoError(t, err)
	for sql := range strings.SplitSeq(grants(t, role), ";") {
		_, err = shared.exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	u, err := url.Parse(shared.s.dsn("postgres"))
	require.NoError(t, err)
	u.User = url.User(role)
	return u.String()
}

// A login sees its own databases and those of roles it is a member of. By plain SQL it can neither read, change, delete nor add
// a row of another tenant in any table, nor take over a database.
func TestTenants(t *testing.T) {
	t.Parallel()
	ctx, admin := t.Context(), onServer(t)
	name := ownName(t)
	mine, theirs := tenant(t, name+" mine"), tenant(t, name+" theirs")
	a, b := onHost(t, mine, name+" a", nil), onHost(t, theirs, name+" b", nil)
	for _, st := range []*Store{a, b} {
		mustPut(t, st, "page", "words of "+st.opts.Name)
		_, err := st.WriteImage(ctx, nil)
		require.NoError(t, err)
	}
	// The policies hold for a login with more rights, too.
	_, err := shared.exec(ctx, "GRANT UPDATE ON ctxpage_records, ctxpage_inbox, ctxpage_images, ctxpage_image_parts TO "+pgx.Identifier{name + " mine"}.Sanitize())
	require.NoError(t, err)
	// A leaf of another database that nobody numbers, so that no table is empty.
	_, err = shared.exec(ctx, "INSERT INTO ctxpage_inbox (db, host, ticket, body) VALUES ($1, gen_random_uuid(), 1, '')", a.db.num+1e6)
	require.NoError(t, err)

	conn, err := pgx.Connect(ctx, mine)
	require.NoError(t, err)
	defer conn.Close(ctx)
	count := func(conn *pgx.Conn, sql string, args ...any) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, sql, args...).Scan(&n))
		return n
	}
	operator, err := pgx.Connect(ctx, admin)
	require.NoError(t, err)
	defer operator.Close(ctx)
	tables := []string{"ctxpage_db", "ctxpage_turn", "ctxpage_records", "ctxpage_inbox", "ctxpage_hosts", "ctxpage_images", "ctxpage_image_parts"}
	var all int
	require.NoError(t, operator.QueryRow(ctx, "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'ctxpage\\_%' AND tablename NOT LIKE 'ctxpage\\_version%' AND schemaname = 'public'").Scan(&all))
	require.Len(t, tables, all, "a new table needs a policy and a line here")
	require.NotZero(t, count(operator, "SELECT count(*) FROM ctxpage_inbox WHERE db <> $1", a.db.num))
	for _, table := range tables {
		if table != "ctxpage_inbox" {
			require.NotZero(t, count(conn, "SELECT count(*) FROM "+table+" WHERE db = $1", a.db.num), table)
			require.NotZero(t, count(operator, "SELECT count(*) FROM "+table+" WHERE db = $1", b.db.num), "the control: there is something to see in %s", table)
		}
		require.Zero(t, count(conn, "SELECT count(*) FROM "+table+" WHERE db <> $1", a.db.num), table)
		for _, sql := range []string{"DELETE FROM " + table, "UPDATE " + table + " SET db = db"} {
			tag, err := conn.Exec(ctx, sql+" WHERE db = $1", b.db.num)
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "42501" && pg.Code != "428C9" { // no right to update, or an identity column, which takes no update at all
				require.NoError(t, err, sql)
			}
			require.Zero(t, tag.RowsAffected(), sql)
		}
		tag, err := conn.Exec(ctx, "SELECT db FROM "+table+" WHERE db = $1 FOR UPDATE", b.db.num)
		require.NoError(t, err)
		require.Zero(t, tag.RowsAffected(), "the lock of another tenant's turn")
	}
	for _, sql := range []string{
		"INSERT INTO ctxpage_db (db, name, id, secret, created) OVERRIDING SYSTEM VALUE VALUES (%d + 1000000, 'x', 'x', '', now())",
		"INSERT INTO ctxpage_db (name, id, secret, created, owner) VALUES ('x', '%d', '', now(), 'postgres')",
		"UPDATE ctxpage_db SET db = DEFAULT WHERE db <> %d",
		"INSERT INTO ctxpage_turn VALUES (%d)",
		"INSERT INTO ctxpage_records (db, seq, kind, body, chain) VALUES (%d, 99, 0, '', '')",
		"INSERT INTO ctxpage_inbox (db, host, ticket, body) VALUES (%d, gen_random_uuid(), 1, '')",
		"INSERT INTO ctxpage_hosts (db, host, name, applied, seen) VALUES (%d, gen_random_uuid(), 'x', 0, now())",
		"INSERT INTO ctxpage_images (db, seq, bytes, host) VALUES (%d, 99, 0, 'x')",
		"INSERT INTO ctxpage_image_parts (db, seq, file, part, body) VALUES (%d, 99, 'x', 0, '')",
		"UPDATE ctxpage_records SET db = %d WHERE seq = 1",
		"UPDATE ctxpage_db SET owner = '" + name + " theirs' WHERE db <> %d",
		"UPDATE ctxpage_db SET owner = NULL WHERE db <> %d",
	} {
		_, err := conn.Exec(ctx, fmt.Sprintf(sql, b.db.num))
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, sql)
		require.Equal(t, "42501", pg.Code, "%s: %v", sql, err)
	}
	for _, sql := range []string{ // a listing of all tenants must be able to read the row
		"INSERT INTO ctxpage_db (name, id, secret, created) VALUES ('endless', 'x', '', 'infinity')",
		"UPDATE ctxpage_hosts SET seen = 'infinity'", "UPDATE ctxpage_hosts SET seen = '10000-01-01'",
	} {
		_, err := conn.Exec(ctx, sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, sql)
		require.Equal(t, "23514", pg.Code, sql)
	}
	_, err = conn.Exec(ctx, "ALTER TABLE ctxpage_records DISABLE ROW LEVEL SECURITY")
	require.ErrorContains(t, err, "must be owner")
	_, err = conn.Exec(ctx, "SET row_security = off")
	require.NoError(t, err)
	_, err = conn.Exec(ctx, "SELECT count(*) FROM ctxpage_records")
	require.Error(t, err, "switching it off ends in an error, not in the rows of others")

	listed, err := List(ctx, mine)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, name+" a", listed[0].Name)
	_, err = Open(ctx, mine, Options{Name: name + " b", MustExist: true})
	require.ErrorIs(t, err, store.ErrNotExist)
	_, err = Open(ctx, mine, Options{Name: name + " b"})
	require.ErrorIs(t, err, store.ErrNotExist)
	require.ErrorContains(t, err, "another role")

	// A member of the owner sees the database, and one without an owner is everybody's.
	_, err = shared.exec(ctx, "GRANT "+pgx.Identifier{name + " theirs"}.Sanitize()+" TO "+pgx.Identifier{name + " mine"}.Sanitize())
	require.NoError(t, err)
	member := onHost(t, mine, name+" b", nil)
	mustFind(t, member, "page")
	mustPut(t, member, "of a member", "words")
	require.NoError(t, member.Close())
	stranger := tenant(t, name+" stranger")
	_, err = Open(ctx, stranger, Options{Name: name + " b", MustExist: true})
	require.ErrorIs(t, err, store.ErrNotExist)
	_, err = shared.exec(ctx, "UPDATE ctxpage_db SET owner = NULL WHERE db = $1", b.db.num)
	require.NoError(t, err)
	mustFind(t, onHost(t, stranger, name+" b", nil), "of a member")
	// A role that no longer exists hides the database and breaks nothing.
	_, err = shared.exec(ctx, "UPDATE ctxpage_db SET owner = 'no such role' WHERE db = $1", b.db.num)
	require.NoError(t, err)
	listed, err = List(ctx, stranger)
	require.NoError(t, err)
	require.Empty(t, listed)
}

// A login that was given no rights is told what is missing.
func TestLoginWithoutRights(t *testing.T) {
	t.Parallel()
	onServer(t)
	role := ownName(t)
	_, err := shared.exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" LOGIN")
	require.NoError(t, err)
	u, err := url.Parse(shared.s.dsn("postgres"))
	require.NoError(t, err)
	u.User = url.User(role)
	_, err = Open(t.Context(), u.String(), Options{Name: role})
	require.ErrorContains(t, err, "GRANT")
	_, err = List(t.Context(), u.String())
	require.ErrorContains(t, err, "GRANT")
}

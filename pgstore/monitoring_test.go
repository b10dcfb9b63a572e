package pgstore

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// monitoring returns the queries of docs/postgres.md, by the comment before each.
func monitoring(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../docs/postgres.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```sql\n(-- databases, log.*?)```").FindSubmatch(doc)
	require.NotNil(t, found)
	out := map[string]string{}
	for _, part := range regexp.MustCompile(`(?s)-- ([^\n]*)\n(.*?);\n`).FindAllStringSubmatch(string(found[1]), -1) {
		out[part[1]] = part[2]
	}
	return out
}

// Each query of docs/postgres.md runs, and says of a database at work what its comment says.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	name := ownName(t)
	st := onHost(t, dsn, name, func(o *Options) { o.Host = "seen" })
	mustPut(t, st, "a", "words")
	_, err := st.WriteImage(ctx, nil)
	require.NoError(t, err)
	mustPut(t, st, "b", "words")
	require.NoError(t, st.Append(ctx, []*manifest.Record{{Type: manifest.TypeGet, Trace: "read", Scope: "acme", Time: 1}}, store.Written))
	require.NoError(t, st.log.Sync(ctx, 0, nil))
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)
	holder, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer holder.Close(ctx)
	_, err = holder.Exec(ctx, "BEGIN")
	require.NoError(t, err)
	_, err = holder.Exec(ctx, "SELECT db FROM ctxpage_turn WHERE db = $1 FOR UPDATE", st.db.num)
	require.NoError(t, err)

	all := monitoring(t)
	require.Len(t, all, 7)
	for what, sql := range all {
		rows, err := conn.Query(ctx, sql)
		require.NoError(t, err, what)
		found, err := pgx.CollectRows(rows, pgx.RowToMap)
		require.NoError(t, err, what)
		one := func(column string, value any) map[string]any {
			for _, row := range found {
				if row[column] == value {
					return row
				}
			}
			t.Fatalf("%s: no row has %s = %v: %v", what, column, value, found)
			return nil
		}
		switch word, _, _ := strings.Cut(what, " "); word {
		case "databases,":
			require.EqualValues(t, 3, one("name", name)["last"], what)
		case "hosts:":
			require.NotNil(t, one("name", "seen")["silent"], what)
		case "the":
			if strings.HasPrefix(what, "the newest image") {
				require.EqualValues(t, 2, one("name", name)["behind_it"], what)
			}
		case "who":
			one("pid", int32(holder.PgConn().PID()))
		case "sizes,":
			one("relname", "ctxpage_records")
		case "standbys:": // the server of the tests has none
			require.Empty(t, found)
		default:
			t.Fatalf("no case for %q", what)
		}
	}
}

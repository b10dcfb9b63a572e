package pgstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
)

// onPostgres is a database of its own on the server of the tests.
type onPostgres struct {
	dsn, name string
	cfg       storetest.Config
}

func (p *onPostgres) Open(t testing.TB) store.Store {
	st, err := Open(t.Context(), p.dsn, Options{Name: p.name, Now: p.cfg.Now, Rand: p.cfg.Rand, State: p.cfg.State, beat: 300 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// Crash ends a host. Its lease is over at once: the other hosts would heed what its readers hold until then.
func (p *onPostgres) Crash(t testing.TB, st store.Store) {
	s := st.(*Store)
	s.kill()
	_, err := shared.exec(t.Context(), "DELETE FROM ctxpage_hosts WHERE host = $1", s.log.host)
	require.NoError(t, err)
}

func TestContract(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	storetest.Run(t, func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &onPostgres{dsn: dsn, name: ownName(t), cfg: cfg}
	})
}

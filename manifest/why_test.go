package manifest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiff(t *testing.T) {
	page := func(num uint64, change func(*Page)) Page {
		p := Page{Num: num, Version: 1, Tokens: 10, Score: 500, Reason: "score"}
		if change != nil {
			change(&p)
		}
		return p
	}
	a := &Record{Type: TypeAssemble, Trace: "a", Time: 1, LSN: 4, Budget: 100, Tier: 1, Pages: []Page{page(1, nil), page(2, nil), page(3, nil)}}
	b := &Record{Type: TypeAssemble, Trace: "b", Time: 2, LSN: 5, Budget: 80, Tier: 2, Pages: []Page{
		page(4, nil), page(3, nil), page(2, func(p *Page) { p.Form, p.Score, p.Refetched, p.Version = FormStub, 400, true, 2 }),
	}}
	require.Equal(t, Difference{
		Fields:  []FieldChange{{"lsn", "4", "5"}, {"budget", "100", "80"}, {"tier", "1", "2"}},
		In:      []Page{b.Pages[0]},
		Out:     []Page{a.Pages[0]},
		Changed: []Change{{A: a.Pages[1], B: b.Pages[2], What: []string{"version 1 → 2", "form full → stub", "score 0.00763 → 0.00610", "source clean → refetched"}}},
	}, Diff(a, b))
	require.Zero(t, Diff(a, a))
}

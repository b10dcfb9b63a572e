package manifest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for ty := Type(1); int(ty) < len(typeNames); ty++ {
		back, err := ParseType(ty.String())
		require.NoError(t, err)
		require.Equal(t, ty, back)
		require.NotEmpty(t, typeNames[ty])
	}
	_, err := ParseType("type-77")
	require.Error(t, err)
	require.Error(t, new(Form).UnmarshalText([]byte("half")))
	require.Error(t, new(Tag).UnmarshalText([]byte("mauve")))
	require.True(t, TypeExport.Reads() && !TypeCommit.Reads())
	require.Equal(t, "form-9 tag-9", Form(9).String()+" "+Tag(9).String())
}

func TestQuantise(t *testing.T) {
	for f, want := range map[float64]Score{0: 0, 1: 65535, -3: 0, 7: 65535, 0.5: 32768, math.Inf(1): 65535, math.Inf(-1): 0} {
		require.Equal(t, want, Quantise(f), "%v", f)
	}
	require.Zero(t, Quantise(math.NaN()))
	for i := range 65536 {
		s := Score(i)
		b, err := s.MarshalJSON()
		if q := Quantise(s.Float()); err != nil || q != s {
			t.Fatalf("%d: %d, %v", s, q, err)
		}
		var back Score
		if err := back.UnmarshalJSON(b); err != nil || back != s {
			t.Fatalf("%d: %d, %v", s, back, err)
		}
	}
	require.Error(t, new(Score).UnmarshalJSON([]byte("1.5")))
}

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

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

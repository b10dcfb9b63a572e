package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSmoke runs every job on a tiny scale. The jobs read back what they stored and check what they found, so that a
// run that ends without an error has measured systems that work; here the report must be whole as well.
func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	data, drawn := filepath.Join(dir, "out.json"), filepath.Join(dir, "out.svg")
	var out bytes.Buffer
	require.NoError(t, command(context.Background(), []string{"--rounds", "2", "--turn", "20ms", "--seconds", "0.1", "--sizes", "600",
		"--chat", "200", "--dir", dir, "--json", data, "--svg", drawn}, &out, io.Discard))

	var rep report
	b, err := os.ReadFile(data)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &rep))
	var jobs []string
	for _, j := range rep.Jobs {
		jobs = append(jobs, j.Label)
		require.Equal(t, "ctxpage", j.Systems[0].System, "%s: ratios are those of the first system", j.Label)
		for _, m := range j.Systems {
			require.NotEmpty(t, m.Rounds, "%s, %s", j.Label, m.System)
			for _, r := range m.Rounds {
				require.Positive(t, r.Ops, "%s, %s", j.Label, m.System)
				require.Positive(t, r.PerSec)
				require.LessOrEqual(t, r.P50, r.P999)
				require.LessOrEqual(t, r.P999, r.Max)
			}
		}
		require.Contains(t, out.String(), "### "+j.Label)
	}
	require.Equal(t, []string{"put, 1 writers", "put, 8 writers", "put, 64 writers", "sustained, 64 writers",
		"get, hot, 1 readers", "get, hot, 8 readers", "search of 50, 600 pages of 130 B",
		"open and first search, 600 pages of 130 B", "open and first search, 600 pages of 130 B, page cache dropped"}, jobs)
	for _, f := range rep.Facts {
		if f.Job == "disk" || f.Job == "chat" || f.Label == "applied at the end" && f.System != "ctxpage" {
			require.Positive(t, f.Value, "%s, %s, %s", f.Job, f.Label, f.System)
		}
		if f.Label == "600 pages of 130 B" {
			require.Greater(t, f.Value, float64(shortPage)*.5, "%s keeps less than its pages: the files were not counted", f.System)
		}
	}

	picture, err := os.ReadFile(drawn)
	require.NoError(t, err)
	for dec := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "peers-*"))
	require.NoError(t, err)
	require.Empty(t, left, "databases of the run were left behind")
}

// forgetful is a system that says it stored, and did not.
type forgetful struct{ page }

func (f *forgetful) put(context.Context, string, string) error { return nil }
func (f *forgetful) fill(context.Context, []string, []string) error {
	return nil
}

// TestNothingStored is the control of the checks: a system that keeps nothing is refused before it is timed.
func TestNothingStored(t *testing.T) {
	ctx := context.Background()
	f := &forgetful{}
	require.NoError(t, f.open(t.TempDir()))
	defer f.close()
	require.Error(t, stored(ctx, f, "page-1", "dobe kati"))
	require.Error(t, finds(ctx, f, "page-1", "dobe kati."))

	kept := &page{}
	require.NoError(t, kept.open(t.TempDir()))
	defer kept.close()
	require.NoError(t, stored(ctx, kept, "page-1", "dobe kati."))
	require.NoError(t, finds(ctx, kept, "page-1", "dobe kati."))
}

// TestSameAnswers holds the searches to one job: systems that are asked the same mostly find the same pages.
func TestSameAnswers(t *testing.T) {
	ctx, c := context.Background(), config{dir: t.TempDir(), progress: io.Discard}
	texts := newWords(1).texts(1500, shortPage)
	all, drop, err := c.openAll(made(searchers...))
	require.NoError(t, err)
	defer drop()
	for _, o := range all {
		require.NoError(t, fillAll(ctx, o, texts))
	}
	w := newWords(9)
	same := make([]int, len(all))
	const questions, k = 30, 10
	for range questions {
		q := w.question()
		var first []string
		for i, o := range all {
			ids, err := o.search(ctx, q, k)
			require.NoError(t, err)
			require.Len(t, ids, k, o.name())
			if i == 0 {
				first = ids
			}
			for _, id := range ids {
				if slices.Contains(first, id) {
					same[i]++
				}
			}
		}
	}
	for i, o := range all {
		require.Greater(t, same[i], questions*k*6/10, "%s finds other pages", o.name())
	}
}

func TestQuantiles(t *testing.T) {
	require.Equal(t, 2., median([]float64{3, 1, 2}))
	require.Equal(t, 1.5, median([]float64{2, 1}))
	r := &result{Systems: []*measure{{Rounds: []round{{PerSec: 20}, {PerSec: 10}, {PerSec: 30}}}, {Rounds: []round{{PerSec: 10}, {PerSec: 10}, {PerSec: 10}}}}}
	require.Equal(t, ratio{2, 1}, r.against(r.Systems[1]))
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"--rounds", "0"}, {"--sizes", "10"}, {"--only", "nothing"}, {"stray"}} {
		require.Error(t, command(context.Background(), args, io.Discard, io.Discard), "%q", args)
	}
}

// Command peers measures ctxpage beside the systems that people would use instead, all in one process, by turns, each
// over its public interface.
//
//	go run ./cmd/peers                                   # everything, about a quarter of an hour
//	go run -tags sqlite_fts5 ./cmd/peers                 # SQLite compiled from C, which is faster; needs a C compiler
//	go run ./cmd/peers --only put,get --rounds 9         # some jobs
//	go run ./cmd/peers --sizes 10000,1000000             # other sizes for search, open, disk and memory
//	go run ./cmd/peers --json out.json --svg out.svg     # all rounds, and a picture of the ratios
//
// The jobs: put (durable puts of 1 KiB by 1, 8 and 64 writers), sustained (64 writers for --seconds), get (1 and 8
// readers), search (50 pages; assembly of a context beside it), open (open and the first search, with the page cache of
// the files kept and dropped), disk and memory (per page), chat (turns of 150 bytes).
//
// Markdown tables go to standard output, progress to standard error. A ratio is ctxpage's figure over that of the other
// system in the same round, turned so that above 1 ctxpage is better: the median of the rounds, and the worst of them. CPU
// times have such ratios too: on a machine that others use they say more than the clock. Files are counted when closed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

type config struct {
	rounds        int
	length        time.Duration // of one turn
	seconds       float64       // of the sustained run
	sizes         []int
	chat          int // turns
	only          []string
	dir           string
	json, svg     string
	out, progress io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	c := config{out: out, progress: progress}
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(progress)
	f.IntVar(&c.rounds, "rounds", 7, "rounds, in each of which every system has its turn")
	f.DurationVar(&c.length, "turn", 300*time.Millisecond, "length of one turn of puts, gets and searches")
	f.Float64Var(&c.seconds, "seconds", 10, "length of the sustained run of each system")
	f.IntVar(&c.chat, "chat", 20_000, "turns of the conversation")
	only := f.String("only", "", "jobs, separated by commas: put, sustained, get, search, open, disk, memory, chat; empty: all")
	sizes := f.String("sizes", "10000,100000", "pages in the databases of search, open, disk and memory, separated by commas")
	f.StringVar(&c.dir, "dir", "", "directory for the databases; empty: the temporary directory. Not a tmpfs, where a sync is free")
	f.StringVar(&c.json, "json", "", "file for all rounds")
	f.StringVar(&c.svg, "svg", "", "file for the picture")
	if err := f.Parse(args); err != nil {
		return err
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 100 {
			return fmt.Errorf("--sizes: %q is not a number of at least 100 pages", s)
		}
		c.sizes = append(c.sizes, n)
	}
	if c.rounds < 1 || f.NArg() > 0 {
		return fmt.Errorf("expected at least one round and no arguments, got %d and %q", c.rounds, f.Args())
	}
	if *only != "" {
		c.only = strings.Split(*only, ",")
	}
	rep, err := c.measure(ctx)
	if err != nil {
		return err
	}
	return c.write(rep)
}

// report is all that was measured.
type report struct {
	Started time.Time `json:"started"`
	Took    float64   `json:"took_s"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	SQLite  string    `json:"sqlite"`
	Load    string    `json:"load"`
	Rounds  int       `json:"rounds"`
	Jobs    []*result `json:"jobs"`
	Facts   []fact    `json:"facts"`
}

// result is one timed job: the rounds of every system.
type result struct {
	Job     string     `json:"job"`
	Label   string     `json:"label"`
	Systems []*measure `json:"systems"`
	byTime  bool       // ratios are of the medians of single operations, not of operations a second
}

type measure struct {
	System string  `json:"system"`
	Rounds []round `json:"rounds"`
}

// fact is a figure that a round does not change: bytes and shares.
type fact struct {
	Job    string  `json:"job"`
	Label  string  `json:"label"`
	System string  `json:"system"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
}

func (c config) measure(ctx context.Context) (*report, error) {
	rep := &report{Started: time.Now(), CPUs: runtime.NumCPU(), Go: runtime.Version(), SQLite: driverName, Rounds: c.rounds, Load: load()}
	jobs := []struct {
		name string
		run  func(context.Context, *report) error
	}{{"put", c.puts}, {"sustained", c.sustained}, {"get", c.gets}, {"search", c.sized}, {"open", nil}, {"disk", nil}, {"memory", nil}, {"chat", c.chats}}
	for _, name := range c.only {
		if !slices.ContainsFunc(jobs, func(j struct {
			name string
			run  func(context.Context, *report) error
		}) bool {
			return j.name == name
		}) {
			return nil, fmt.Errorf("--only: there is no job %q", name)
		}
	}
	for _, j := range jobs {
		wanted := c.wants(j.name) || j.name == "search" && (c.wants("open") || c.wants("disk") || c.wants("memory"))
		if j.run == nil || !wanted {
			continue
		}
		if err := j.run(ctx, rep); err != nil {
			return nil, fmt.Errorf("%s: %w", j.name, err)
		}
		debug.FreeOSMemory()
	}
	rep.Took = time.Since(rep.Started).Seconds()
	return rep, nil
}

func (c config) wants(job string) bool { return len(c.only) == 0 || slices.Contains(c.only, job) }

func (c config) say(format string, args ...any) {
	fmt.Fprintf(c.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func (c config) write(rep *report) error {
	if c.json != "" {
		b, err := json.MarshalIndent(rep, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.json, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if c.svg != "" {
		if err := os.WriteFile(c.svg, []byte(picture(rep)), 0o644); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c.out, rep.tables())
	return err
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:1], "")
}

// Command fleet computes what a fleet of tenants needs: servers, memory, disk, cost and the knee, where one process is full.
// It drives real databases for a sample of the tenants, and computes the rest from what it measured.
//
//	go run ./bench/fleet                                       # a million tenants, 1 % active, in about a minute
//	go run ./bench/fleet -price 70 -price-source 'offer of …'  # with the cost of a tenant
//	go run ./bench/fleet -json
//
// Sizes of tenants, and who is active, follow Zipf's law. Two ways are compared: all tenants as scopes of one database for
// each server, and a database each, of which a process keeps open those that were used last. The sample has tenants at equal
// distances by size. Who becomes active, and whether their database is open then, is simulated from the seed. What is
// measured differs from run to run; read it as ratios on a busy machine. README.md of bench has the figures.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Report is what -json prints.
type Report struct {
	Fleet  Fleet  `json:"fleet"`
	Sample Sample `json:"sample"`
	Server Server `json:"server"`
	Pages  int    `json:"pages"` // of all tenants
	Ways   []Way  `json:"ways"`
}

// Way is one way of keeping tenants.
type Way struct {
	Name     string   `json:"name"`
	Measured Measured `json:"measured"`
	Cost     Cost     `json:"cost"`
	Open     float64  `json:"open"` // share of the tenants that are open
	Cold     float64  `json:"cold"` // share of the arriving tenants that are cold
	Need     Need     `json:"need"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var r Report
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&r.Fleet.Tenants, "tenants", 1_000_000, "tenants")
	flags.Float64Var(&r.Fleet.Skew, "zipf", 1, "exponent of sizes and of activity; 0: all are alike")
	flags.IntVar(&r.Fleet.MinPages, "min-pages", 10, "pages of the smallest tenant")
	flags.IntVar(&r.Fleet.MaxPages, "max-pages", 100_000, "pages of the largest tenant")
	flags.Float64Var(&r.Fleet.Active, "active", .01, "share of the tenants that are active at a time")
	flags.Float64Var(&r.Fleet.Stay, "stay", 600, "seconds that a tenant stays active")
	flags.Float64Var(&r.Fleet.Puts, "puts", .1, "puts a second of an active tenant")
	flags.Float64Var(&r.Fleet.Contexts, "contexts", .1, "contexts a second of an active tenant")
	flags.Float64Var(&r.Fleet.Keep, "keep", 2, "databases kept open for each active tenant")
	flags.Uint64Var(&r.Fleet.Seed, "seed", 1, "seed of the sample and the simulation")
	flags.IntVar(&r.Sample.Scopes, "scopes", 2000, "sample: tenants in one database")
	flags.IntVar(&r.Sample.Files, "files", 100, "sample: databases in one process")
	flags.IntVar(&r.Sample.Ops, "ops", 4000, "sample: puts, and contexts")
	flags.IntVar(&r.Sample.Writers, "writers", 8, "sample: writers")
	flags.IntVar(&r.Sample.Bytes, "bytes", 300, "sample: bytes of a page")
	flags.Float64Var(&r.Server.Cores, "cores", 8, "cores of a server")
	memory := flags.Float64("memory", 32, "GiB of memory of a server")
	space := flags.Float64("disk", 1000, "GiB of disk of a server")
	flags.Float64Var(&r.Server.Use, "use", .6, "share of a server that is planned with")
	flags.Float64Var(&r.Server.Price, "price", 0, "price of a server and month; with -price-source")
	flags.StringVar(&r.Server.Source, "price-source", "", "where the price is from")
	dir := flags.String("dir", os.Getenv("BENCHDIR"), "directory for the databases; not a tmpfs, where a sync costs nothing")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		flags.SetOutput(out)
		flags.PrintDefaults()
		return err
	}
	r.Server.Memory, r.Server.Disk = *memory*(1<<30), *space*(1<<30)
	if err := r.check(); err != nil {
		return err
	}
	var err error
	if r.Sample.dir, err = os.MkdirTemp(*dir, "fleet-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.Sample.dir)
	if err := r.measure(context.Background()); err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(out)
}

func (r *Report) check() error {
	f, s := &r.Fleet, &r.Sample
	switch {
	case f.Tenants < 1 || f.MinPages < 1 || f.MaxPages < f.MinPages:
		return fmt.Errorf("-tenants %d, -min-pages %d, -max-pages %d: expected at least 1, and a largest that is not below the smallest", f.Tenants, f.MinPages, f.MaxPages)
	case !(f.Active > 0 && f.Active <= 1) || !(r.Server.Use > 0 && r.Server.Use <= 1):
		return fmt.Errorf("-active %g, -use %g: expected shares above 0, at most 1", f.Active, r.Server.Use)
	case !(f.Stay > 0) || !(f.Keep > 0) || f.Skew < 0 || f.Puts < 0 || f.Contexts < 0:
		return fmt.Errorf("-stay %g, -keep %g, -zipf %g, -puts %g, -contexts %g: expected -stay and -keep above 0, the others from 0", f.Stay, f.Keep, f.Skew, f.Puts, f.Contexts)
	case s.Scopes < 8 || s.Scopes > f.Tenants || s.Files < 1 || s.Files > f.Tenants:
		return fmt.Errorf("-scopes %d, -files %d: expected 8 or more and 1 or more, at most the tenants", s.Scopes, s.Files)
	case s.Ops < 1 || s.Writers < 1 || s.Bytes < 1:
		return fmt.Errorf("-ops %d, -writers %d, -bytes %d: expected at least 1", s.Ops, s.Writers, s.Bytes)
	case r.Server.Price < 0 || r.Server.Price > 0 && r.Server.Source == "":
		return fmt.Errorf("-price %g: expected a price with its -price-source: this program knows none", r.Server.Price)
	}
	return nil
}

func (r *Report) measure(ctx context.Context) error {
	r.Pages = r.Fleet.total()
	shared := Way{Name: "scopes in one database", Open: 1, Cold: 1}
	each := Way{Name: "a database each", Cold: r.Fleet.misses()}
	each.Open = min(1, r.Fleet.Keep*float64(r.Fleet.active())/float64(r.Fleet.Tenants))
	var err error
	if shared.Measured, shared.Cost, err = scopes(ctx, &r.Fleet, &r.Sample); err != nil {
		return err
	}
	if each.Measured, each.Cost, err = files(ctx, &r.Fleet, &r.Sample); err != nil {
		return err
	}
	for _, w := range []Way{shared, each} {
		w.Need = plan(&r.Fleet, r.Pages, w.Cost, r.Server, w.Open, w.Cold)
		r.Ways = append(r.Ways, w)
	}
	return nil
}

func (r *Report) print(out io.Writer) error {
	f, s := &r.Fleet, &r.Server
	fmt.Fprintf(out, "%d tenants, %d pages (%d to %d each), %d active at a time, for %g s each; %g puts and %g contexts a second of each\n",
		f.Tenants, r.Pages, f.pages(f.Tenants-1), f.pages(0), f.active(), f.Stay, f.Puts, f.Contexts)
	fmt.Fprintf(out, "a server has %g cores, %g GiB of memory and %g GiB of disk, of which %g is planned with\n\n", s.Cores, s.Memory/(1<<30), s.Disk/(1<<30), s.Use)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what, format string, of func(w *Way) float64) {
		fmt.Fprint(w, what)
		for i := range r.Ways {
			fmt.Fprintf(w, "\t"+format, of(&r.Ways[i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "measured\t%s\t%s\n", r.Ways[0].Name, r.Ways[1].Name)
	row("tenants", "%.0f", func(w *Way) float64 { return float64(w.Measured.Tenants) })
	row("pages", "%.0f", func(w *Way) float64 { return float64(w.Measured.Pages) })
	row("put: CPU, µs", "%.0f", func(w *Way) float64 { return w.Cost.PutCPU * 1e6 })
	row("put: p50, ms", "%.2f", func(w *Way) float64 { return w.Measured.Put * 1e3 })
	row("context: CPU, µs", "%.0f", func(w *Way) float64 { return w.Cost.ContextCPU * 1e6 })
	row("context: p50, ms", "%.2f", func(w *Way) float64 { return w.Measured.Context * 1e3 })
	row("first context of a tenant: p50, ms", "%.2f", func(w *Way) float64 { return w.Measured.Cold * 1e3 })
	row("open of a database: CPU, ms", "%.2f", func(w *Way) float64 { return w.Measured.OpenCPU * 1e3 })
	row("a tenant becomes active: more CPU, ms", "%.2f", func(w *Way) float64 { return w.Cost.ArriveCPU * 1e3 })
	row("heap of an open tenant, KiB", "%.1f", func(w *Way) float64 { return w.Measured.Heap / float64(w.Measured.Tenants) / 1024 })
	row("heap of another page, B", "%.0f", func(w *Way) float64 { return w.Cost.PageMem })
	row("disk a page, B", "%.0f", func(w *Way) float64 { return w.Measured.DiskPage })
	row("disk of a database: open, KiB", "%.0f", func(w *Way) float64 { return w.Measured.DiskOpen / 1024 })
	row("disk of a database: closed, KiB", "%.0f", func(w *Way) float64 { return w.Measured.DiskClosed / 1024 })
	row("descriptors, goroutines of a database", "%.1f", func(w *Way) float64 { return w.Measured.Descriptors })
	row("", "%.1f", func(w *Way) float64 { return w.Measured.Goroutines })
	fmt.Fprint(w, "\t\t\ncomputed\t\t\n")
	row("cores busy", "%.2f", func(w *Way) float64 { return w.Need.Cores })
	row("memory, GiB", "%.2f", func(w *Way) float64 { return w.Need.Memory / (1 << 30) })
	row("disk, GiB", "%.1f", func(w *Way) float64 { return w.Need.Disk / (1 << 30) })
	row("cold tenants a second", "%.2f", func(w *Way) float64 { return w.Need.Arrivals })
	row("knee: tenants of a process by cores", "%.0f", func(w *Way) float64 { return w.Need.KneeCores })
	row("by memory", "%.0f", func(w *Way) float64 { return w.Need.KneeMemory })
	row("by disk", "%.0f", func(w *Way) float64 { return w.Need.KneeDisk })
	fmt.Fprintf(w, "bound by\t%s\t%s\n", r.Ways[0].Need.Bound, r.Ways[1].Need.Bound)
	row("CPU of a server to open it all again, s", "%.1f", func(w *Way) float64 { return w.Need.Restart })
	row("servers", "%.0f", func(w *Way) float64 { return float64(w.Need.Servers) })
	if s.Price > 0 {
		row("price of a tenant and month", "%.6f", func(w *Way) float64 { return w.Need.Price })
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if s.Price > 0 {
		_, err := fmt.Fprintf(out, "\nprice of a server: %g a month (%s)\n", s.Price, s.Source)
		return err
	}
	_, err := fmt.Fprintln(out, "\nno price was given: -price and -price-source add the cost of a tenant")
	return err
}

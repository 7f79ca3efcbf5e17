package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/session"
)

type benchLoadOptions struct {
	bench.LoadOptions
	placement, shuffle string // or "all"
}

func newBenchLoadCommand(a *app) *cobra.Command {
	var o benchLoadOptions
	c := &cobra.Command{
		Use:   "load STORE",
		Short: "Measure how fast training rows are loaded, in several ways from each placement",
		Long: "Load measures how long the loader takes for an epoch of the training rows. These are its ways (--variants):\n\n" +
			"  baseline       rows are reshuffled, and copied one by one\n" +
			"  fused          rows are reshuffled, and gathered by one operation a batch\n" +
			"  double-buffer  as fused, while the previous batch is computed on\n" +
			"  mapped         as double-buffer, but a GPU gathers the rows of host memory by itself\n" +
			"  chunk          chunks are reshuffled; the only way from storage\n\n" +
			"Figures are those of the median round. memcpy is the rate at which this machine copies memory. With --json,\n" +
			"each result is one object on a line of its own.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) { return runBenchLoad(ctx, a, args[0], o) }),
	}
	f := c.Flags()
	a.declareDevices(f)
	f.StringVar(&o.placement, "placement", "all", "where the input lives: device, host, storage or all")
	f.StringVar(&o.shuffle, "shuffle", "all", "what is reshuffled each epoch: rr (rows), chunk or all")
	f.StringSliceVar(&o.Variants, "variants", bench.LoadVariants(), "ways to load: baseline, fused, double-buffer, mapped, chunk")
	f.IntVar(&o.BatchRows, "batch", 8000, batchUsage)
	f.IntVar(&o.ChunkRows, "chunk-rows", 0, chunkRowsUsage)
	f.Lookup("chunk-rows").DefValue = "0" // which help leaves out
	f.IntVar(&o.Buffers, "buffers", 2, "batch buffers on the device, in the ways to load that use more than one")
	f.IntVar(&o.Rounds, "rounds", 3, roundsUsage)
	f.DurationVar(&o.Compute, "compute", 0, "time to keep each batch, as if a device computed on it")
	f.BoolVar(&o.Unchecked, "unchecked", false, "do not compare the checksums of what is read from storage")
	return c
}

// loadResults are a line each, as JSON too.
type loadResults []bench.LoadResult

func (l loadResults) text(w io.Writer) {
	fmt.Fprintln(w, "variant\tfrom\treshuffled\tGB/s\trows/s\tcore-s/GB\tepoch\trounds\twaited")
	for _, r := range l {
		from, shuffle, rows := string(r.Placement), r.Shuffle, fmt.Sprintf("%.3g", r.RowsPerSecond)
		if r.Variant == bench.Memcpy { // which knows no rows
			from, shuffle, rows = "-", "-", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\t%.3f\t%.3g s%s\t%.3g to %.3g s\t%.3g s\n", r.Variant, from, shuffle,
			r.BytesPerSecond/1e9, rows, r.CoreSecondsPerGB, r.EpochSeconds, noiseMark(r.WithinNoise),
			r.RoundSeconds[0], r.RoundSeconds[len(r.RoundSeconds)-1], r.WaitSeconds)
	}
	if slices.ContainsFunc(l, func(r bench.LoadResult) bool { return r.WithinNoise }) {
		fmt.Fprintln(w, "\n~ its rounds overlap those of the fastest: the difference may be noise")
	}
}

// noiseMark follows a figure whose difference to another may be noise.
func noiseMark(withinNoise bool) string {
	if withinNoise {
		return " ~"
	}
	return ""
}

// benchPlacements are those that --placement names.
func benchPlacements(name string) (placements []loader.Placement, err error) {
	names := []string{"all"}
	for _, p := range loader.Placements() {
		names = append(names, string(p))
		if name == "all" || name == string(p) {
			placements = append(placements, p)
		}
	}
	return placements, oneOf("placement", name, names...)
}

// checkBenchStore refuses a store that has nothing to load, and chunks that it cannot
// give where storage must be among the placements.
func checkBenchStore(store *format.Dir, chunkRows int, fromStorage bool) error {
	if r, ok := store.Region(format.RegionTrain); !ok || r.Rows == 0 {
		return usagef("%s has no training rows: propagate with another --split", store.Path())
	}
	if rows := store.Layout().ChunkRows; fromStorage && chunkRows%rows != 0 {
		return fmt.Errorf("%w: storage is read in whole chunks, so --chunk-rows must be a multiple of %d, or --placement leave storage out", placement.ErrContradiction, rows)
	}
	return nil
}

// checkLoadMemory refuses placements that memory does not allow, by what needs most.
func checkLoadMemory(o *bench.LoadOptions, m session.Machine) error {
	f := m.Facts()
	f.Devices = 1
	n, err := session.Options{
		Matrices: o.Matrices, Rows: []loader.Rows{{Region: o.Region}}, Train: true,
		BatchRows: o.BatchRows, Buffers: o.Buffers, ChunkRows: o.ChunkRows,
	}.Needs(o.Store, f.Devices)
	if err != nil {
		return err
	}
	o.MemoryBytes = int64(max(1, f.Budget.Bytes-machine.ProgramBytes))
	var refused error
	var most units.Bytes
	for _, p := range o.Placements {
		asked := placement.Override{Placement: string(p)}
		if _, err := placement.Choose(f, n, asked); err != nil && n.Least(f, asked) >= most {
			refused, most = err, n.Least(f, asked)
		}
	}
	return refused
}

func runBenchLoad(ctx context.Context, a *app, dir string, o benchLoadOptions) (_ result, err error) {
	if o.Placements, err = benchPlacements(o.placement); err != nil {
		return nil, err
	}
	o.Shuffles = bench.LoadShuffles()
	if o.shuffle != "all" {
		o.Shuffles = []string{o.shuffle}
	}
	if err := oneOf("shuffle", o.shuffle, append(bench.LoadShuffles(), "all")...); err != nil {
		return nil, err
	}
	for _, v := range o.Variants {
		if err := oneOf("variants", v, bench.LoadVariants()...); err != nil {
			return nil, err
		}
	}
	if o.Rounds < 1 || o.Buffers < 1 || o.BatchRows < 1 || o.ChunkRows < 0 || o.Compute < 0 {
		return nil, usagef("--rounds %d, --buffers %d, --batch %d, --chunk-rows %d, --compute %v: want 1 or more, and no negative ones",
			o.Rounds, o.Buffers, o.BatchRows, o.ChunkRows, o.Compute)
	}
	store, err := a.openStore(dir, "bench load")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := checkBenchStore(store, o.ChunkRows, slices.Contains(o.Placements, loader.Storage)); err != nil {
		return nil, err
	}
	m := a.machine(ctx)
	opened, err := m.Devices.Open(1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, devices.Close(opened)) }()
	o.Device, o.Store, o.Matrices, o.Region = opened[0], store, store.Matrices(), format.RegionTrain
	o.Threads, o.Seed, o.Progress = a.threads, a.seed, a.progress()
	if err := checkLoadMemory(&o.LoadOptions, m); err != nil {
		return nil, err
	}
	results, err := bench.Load(ctx, o.LoadOptions)
	if why := o.Device.Usage().NotLocked; why != "" {
		a.note("pinned memory is not all locked: %s", why)
	}
	if err != nil {
		return nil, err
	}
	if !a.json {
		return loadResults(results), nil
	}
	for _, r := range results {
		if err := json.NewEncoder(a.stdout).Encode(r); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

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
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/bench"
)

type benchLoadOptions struct {
	bench.LoadOptions
	placement, shuffle string // or "all"
}

func newBenchLoadCommand(a *app) *cobra.Command {
	var o benchLoadOptions
	c := &cobra.Command{
		Use:   "load STORE",
		Short: "Load the training rows of a hop store, in several ways from each placement",
		Long: "Load measures epochs of training rows. Rows are reshuffled, and copied one by one (baseline), gathered\n" +
			"at once (fused), or gathered while the batch before is computed on (double-buffer); or chunks are\n" +
			"reshuffled (chunk), which is all that storage has. Figures are those of the median round; memcpy is how\n" +
			"fast this machine copies memory, measured beside what is loaded from memory. With --json, there is one\n" +
			"object a line for each.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) { return runBenchLoad(ctx, a, args[0], o) }),
	}
	f := c.Flags()
	f.StringVar(&o.placement, "placement", "all", "where rows are loaded from: device, host, storage or all")
	f.StringVar(&o.shuffle, "shuffle", "all", "what is reshuffled: rr (rows), chunk or all")
	f.StringSliceVar(&o.Variants, "variants", bench.LoadVariants(), "ways to load")
	f.IntVar(&o.BatchRows, "batch", 8000, "rows of a batch")
	f.IntVar(&o.ChunkRows, "chunk-rows", 0, "rows that are reshuffled together (default the store's chunks)")
	f.Lookup("chunk-rows").DefValue = "0" // which help leaves out
	f.IntVar(&o.Buffers, "buffers", 2, "batches on the device, where there is more than one")
	f.IntVar(&o.Rounds, "rounds", 3, "times that everything is measured")
	f.DurationVar(&o.Compute, "compute", 0, "time that each batch is kept for, as if a device computed on it")
	f.BoolVar(&o.Unchecked, "unchecked", false, "do not compare the checksums of what is read from storage")
	return c
}

// loadResults are a line each, as JSON too.
type loadResults []bench.LoadResult

func (l loadResults) text(w io.Writer) {
	fmt.Fprintln(w, "variant\tfrom\treshuffled\tGB/s\trows/s\tcore-s/GB\tepoch\twaited")
	for _, r := range l {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%.3g\t%.3f\t%.2f s\t%.2f s\n", r.Variant, r.Placement, r.Shuffle,
			r.BytesPerSecond/1e9, r.RowsPerSecond, r.CoreSecondsPerGB, r.EpochSeconds, r.WaitSeconds)
	}
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
	device, err := a.openDevice()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	o.Device, o.Store, o.Matrices, o.Region = device, store, store.Matrices(), format.RegionTrain
	o.Threads, o.Seed, o.Progress = a.threads, a.seed, a.progress()
	results, err := bench.Load(ctx, o.LoadOptions)
	if why := device.Usage().NotLocked; why != "" {
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

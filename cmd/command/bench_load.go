package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/session"
)

type benchLoadOptions struct {
	bench.LoadOptions
	placement, shuffle string // or "all"
}

func newBenchLoadCommand(a *app) *cobra.Command {
	var o benchLoadOptions
	c := a.verb("load STORE", "Measure how fast training rows are loaded, in several ways from each placement",
		`Load measures how long the loader takes for an epoch of the training rows, in these ways (--variants):

  baseline       rows are reshuffled, and copied one by one
  fused          rows are reshuffled, and gathered by one operation a batch
  double-buffer  as fused, while the previous batch is computed on
  mapped         as double-buffer, but a GPU gathers the rows of host memory by itself
  chunk          chunks are reshuffled; the only way from storage

Figures come from the median round. memcpy is the rate at which this machine copies memory. With --json, each
result is one object on a line of its own.`, o.do)
	f := c.Flags()
	a.declareDevices(f)
	f.StringVar(&o.placement, "placement", "all", "where the input lives: device, host, storage or all")
	f.StringVar(&o.shuffle, "shuffle", "all", "what is reshuffled each epoch: rr (rows), chunk or all")
	f.StringSliceVar(&o.Variants, "variants", bench.LoadVariants(),
		"ways to load: baseline, fused, double-buffer, mapped, chunk")
	f.IntVar(&o.BatchRows, "batch", 8000, batchUsage)
	f.IntVar(&o.ChunkRows, "chunk-rows", 0, chunkRowsUsage)
	f.Lookup("chunk-rows").DefValue = "0" // which help leaves out
	f.IntVar(&o.Buffers, "buffers", 2, "batch buffers on the device, in the ways to load that use more than one")
	f.IntVar(&o.Rounds, "rounds", 3, roundsUsage)
	f.DurationVar(&o.Compute, "compute", 0, "time to keep each batch, as if a device computed on it")
	f.BoolVar(&o.Unchecked, "unchecked", false, "do not compare the checksums of what is read from storage")
	among(f, "shuffle", append(bench.LoadShuffles(), "all")...)
	atLeast(f, 1, "batch", "buffers", "rounds")
	atLeast(f, 0, "chunk-rows", "compute")
	return c
}

// benchPlacements lists the placements that --placement names.
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

func (o *benchLoadOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	if o.Placements, err = benchPlacements(o.placement); err != nil {
		return nil, err
	}
	o.Shuffles = bench.LoadShuffles()
	if o.shuffle != "all" {
		o.Shuffles = []string{o.shuffle}
	}
	for _, v := range o.Variants {
		if err := oneOf("variants", v, bench.LoadVariants()...); err != nil {
			return nil, err
		}
	}
	var results []bench.LoadResult
	fromStorage := slices.Contains(o.Placements, loader.Storage)
	err = a.measureStore(ctx, args[0], "bench load", &o.Options, fromStorage, func(m session.Machine) (err error) {
		o.Matrices = o.Store.Matrices()
		if err := o.CheckMemory(m); err != nil {
			return err
		}
		results, err = bench.Load(ctx, o.LoadOptions)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lines(a, results, bench.LoadTable(results))
}

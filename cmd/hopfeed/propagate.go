package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
)

type propagateOptions struct {
	graph, output string
	hops          int
	operators     string
	tolerance     float64
	rows          string
	dtype         string
	chunkRows     int
	split         int
	force         bool
	dryRun        bool
}

func newPropagateCommand(a *app) *cobra.Command {
	var o propagateOptions
	c := &cobra.Command{
		Use:   "propagate GRAPH -o STORE --hops R --operator LIST",
		Short: "Compute propagated features and write a hop store",
		Long: "Propagate computes B^r X for each operator B and hop r = 1..R, and writes these matrices, and X, for\n" +
			"the rows that training reads, in the order in which it reads them.\n\n" +
			"Operators: sym, D^-1/2 (A+I) D^-1/2; rw, D^-1 (A+I); col, (A+I) D^-1; and two series of sym,\n" +
			"cut off where --tolerance allows: ppr:alpha=0.15, personalized PageRank, and heat:t=3, the heat kernel.\n" +
			"With :reverse edges are turned round, with :undirected they go both ways, with :noloops no self-loops are added.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) {
			o.graph = args[0]
			return runPropagate(ctx, a, o)
		}),
	}
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "hop store to write")
	f.IntVar(&o.hops, "hops", 2, "number of hops")
	f.StringVar(&o.operators, "operator", "sym", "operators, separated by commas")
	f.Float64Var(&o.tolerance, "tolerance", preprop.DefaultTolerance, "share of the coefficients of ppr and heat that may be left out")
	f.StringVar(&o.rows, "rows", "labeled", "rows to store: labeled (those with a label or in a split) or all")
	f.StringVar(&o.dtype, "dtype", "", "type to store: float32, float16 or bfloat16 (default: that of the graph)")
	f.IntVar(&o.chunkRows, "chunk-rows", 0, "rows of a chunk, the unit of reading (default 1000, fewer where rows are long)")
	f.IntVar(&o.split, "split", 0, "split of the graph that the regions follow")
	f.BoolVar(&o.force, "force", false, "replace a hop store that is there")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what it takes, and write nothing")
	c.MarkFlagRequired("output")
	return c
}

// propagated is the result of propagate.
type propagated struct {
	*preprop.Result
	PeakRSSBytes     int64    `json:"peak_rss_bytes"`
	PredictedSeconds *float64 `json:"predicted_seconds"` // null: nothing is predicted

	dryRun bool
}

func (p *propagated) text(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s of %s (%s): the input", p.Output, count(p.Rows, "row"), count(int64(p.Features), "feature"), p.DType)
	if p.Hops > 0 {
		fmt.Fprintf(w, ", and %s of %s", count(int64(p.Hops), "hop"), strings.Join(p.Operators, ", "))
	}
	fmt.Fprintln(w)
	for i, operator := range p.Operators {
		products, off := p.ProductsPerHop[i], p.TruncationErrors[i]
		switch {
		case off > 0:
			fmt.Fprintf(w, "\t%s: %d products a hop, hop r is off by at most r * %.2g\n", operator, products, off)
		case p.dryRun:
			fmt.Fprintf(w, "\t%s: %d product a hop\n", operator, products)
		}
	}
	if p.dryRun {
		fmt.Fprintf(w, "\twould take %s of memory (%s may be used) and %s of disk\n",
			units.Bytes(p.MemoryNeededBytes), units.Bytes(p.MemoryBudgetBytes), units.Bytes(p.DiskNeededBytes))
		return
	}
	for i, seconds := range p.HopSeconds {
		fmt.Fprintf(w, "\t%s hop %d: %.2f s, %s\n", p.Operators[i/p.Hops], i%p.Hops+1, seconds, count(p.EdgesProcessed[i], "edge"))
	}
	fmt.Fprintf(w, "\t%s read, %s written, at most %s of memory\n\tin %.1f s\n",
		units.Bytes(p.BytesRead), units.Bytes(p.BytesWritten), units.Bytes(p.PeakRSSBytes), p.Seconds)
}

func runPropagate(ctx context.Context, a *app, o propagateOptions) (result, error) {
	operators, err := preprop.ParseOperators(o.operators, o.tolerance)
	if err != nil {
		return nil, usagef("%s", err)
	}
	t, err := parseDType(o.dtype)
	if err != nil {
		return nil, err
	}
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	budget, _ := a.budget()
	r, err := preprop.Propagate(ctx, a.fs, o.graph, o.output, preprop.Options{
		Hops: o.hops, Operators: operators, Rows: o.rows, DType: t,
		ChunkRows: o.chunkRows, Split: o.split, Seed: a.seed,
		Threads: a.threads, MemoryBytes: int64(budget), Force: o.force, DryRun: o.dryRun, Progress: a.progress(),
	})
	if err != nil {
		return nil, err
	}
	return &propagated{Result: r, PeakRSSBytes: machine.PeakRSS(), dryRun: o.dryRun}, nil
}

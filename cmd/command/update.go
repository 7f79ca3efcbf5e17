package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/ingest"
)

type updateOptions struct {
	ingest.UpdateOptions
	output, scratch string
	force           bool
}

func newUpdateCommand(a *app) *cobra.Command {
	var o updateOptions
	c := a.verb("update GRAPH -o GRAPH2", "Make a graph from another one and what changed in it",
		`Update writes the graph that an import of the changed data would make, and shares the files that stay the same
with GRAPH: as hard links where it can, else as copies. GRAPH stays as it is.

Tables are those of import csv and import parquet, with the same names of columns and flags. Ids are what they
are in GRAPH: the ids of its import if it kept these, else the numbers of the nodes. An edge of an undirected
graph stands for both directions. Edges are removed before others are added, so an edge in both tables gets its
new weight; an added edge that is there already is treated as GRAPH's import treated duplicates.

Ids in --edges or --nodes that GRAPH does not have are new nodes, which need features. The table of nodes has
the column of ids, and columns of what changes: labels, splits, features. A row changes those of its node; an
empty label says that the node has no label.

Of a typed graph, --edges and --remove-edges name folders with a table for each relation that changes, such as
author__writes__paper.csv, and --nodes one with a table for each type, such as author.csv. Where import
added the reverse of a relation, the reverse changes too.`, o.do)
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "graph directory to write")
	c.MarkFlagRequired("output")
	f.StringVar(&o.scratch, "scratch", "", scratchUsage+" (default: GRAPH2/.job and GRAPH2.scratch)")
	f.BoolVar(&o.force, "force", false, forceUsage)
	o.UpdateOptions.Declare(f)
	return c
}

func (o *updateOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	for _, source := range []string{args[0], o.Edges, o.Remove, o.Nodes} {
		if source == "" {
			continue
		}
		if err := a.refuseInside(o.output, source); err != nil {
			return nil, err
		}
	}
	scratch := ingest.ScratchOptions{Output: o.output, Scratch: o.scratch, Force: o.force,
		MemoryBytes: int64(a.budget.Bytes), Progress: a.progress()}
	g, counts := graphOptions{output: o.output}, ingest.UpdateCounts{}
	open := func() (source ingest.Source, err error) {
		source, counts, err = ingest.OpenTypedUpdate(ctx, a.fs, args[0], scratch, o.UpdateOptions)
		return source, err
	}
	if !format.IsTyped(a.fs, args[0]) {
		graph, failed := format.OpenGraph(a.fs, args[0])
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, graph.Close()) }()
		g.dtype, g.Options = graph.Manifest.DType, ingest.OptionsOf(&graph.Manifest)
		open = func() (ingest.Source, error) {
			source, err := ingest.OpenUpdate(ctx, graph, scratch, o.UpdateOptions)
			if err != nil {
				return nil, err
			}
			counts = source.UpdateCounts
			return source, nil
		}
	}
	g.Scratch, g.Force = o.scratch, o.force
	made, err := a.ingest(ctx, open, g)
	if err != nil {
		return nil, err
	}
	if from, err := a.fs.Resolve(args[0]); err == nil { // where it cannot be kept, propagate --from asks for it
		_ = a.fs.SetAttribute(o.output, format.UpdatedFrom, from)
	}
	return updated{made.(imported), counts}, nil
}

// updated is the result of update.
type updated struct {
	imported
	ingest.UpdateCounts
}

func (u updated) Text(w io.Writer) {
	u.imported.Text(w)
	fmt.Fprintf(w, "\t%s added, %s given anew; %s added, %s removed\n", units.Count(u.NodesAdded, "node"),
		units.Count(u.NodesChanged, "node"), units.Count(u.EdgesAdded, "edge"),
		units.Count(u.EdgesRemoved, "stored edge"))
}

package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
)

func newRepairCommand(a *app) *cobra.Command {
	var graph string
	c := a.verb("repair STORE --graph GRAPH", "Repair damaged files of a hop store",
		`Repair verifies a hop store and computes damaged or missing chunks again, from the graph that the store
was made from. Each repaired file is, byte for byte, what it was. The rows of a damaged matrix, and of the hops before
it, are written to STORE/.job meanwhile. manifest.json and index.arrow cannot be repaired.`, func(ctx context.Context, a *app, args []string) (result, error) {
			r, err := preprop.Repair(ctx, a.uncached(), args[0], graph, preprop.Options{
				Threads: a.threads, MemoryBytes: int64(a.budget.Bytes), Progress: a.progress(),
			})
			if err != nil {
				return nil, err
			}
			if len(r.Left) > 0 {
				err = fmt.Errorf("%s: %w: %s cannot be repaired", args[0], format.ErrCorrupt,
					units.Count(int64(len(r.Left)), "problem"))
			}
			return (*repaired)(r), err
		})
	c.Flags().StringVar(&graph, "graph", "", "graph that the store was made from")
	c.MarkFlagRequired("graph")
	return c
}

type repaired preprop.Repaired

func (r *repaired) Text(w io.Writer) {
	if len(r.Files)+len(r.Left) == 0 {
		fmt.Fprintf(w, "%s\tis not damaged: nothing was done\n", r.Store)
		return
	}
	fmt.Fprintf(w, "%s\t%s written again, %s computed again\n", r.Store, units.Count(int64(len(r.Files)), "file"),
		units.Count(int64(r.Chunks), "chunk"))
	for _, file := range r.Files {
		fmt.Fprintf(w, "\t%s\n", file)
	}
	for i := range r.Left {
		fmt.Fprintf(w, "\tnot repaired: %s\n", r.Left[i].Error())
	}
	if len(r.Left) > 0 {
		fmt.Fprintln(w, "\tremove files that the manifest does not list; if the manifest or the index is damaged, "+
			"propagate again with --force")
	}
}

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop"
)

func newRepairCommand(a *app) *cobra.Command {
	var graph string
	c := &cobra.Command{
		Use:   "repair STORE --graph GRAPH",
		Short: "Mend what is damaged in a hop store",
		Long: "Repair verifies a hop store, computes the chunks that are damaged or missing anew from the graph that it was made\n" +
			"from, and writes the files that they are in again, byte for byte as they were.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) {
			budget, _ := a.budget()
			r, err := preprop.Repair(ctx, a.fs, args[0], graph, preprop.Options{
				Threads: a.threads, MemoryBytes: int64(budget), Progress: a.progress(),
			})
			if err != nil {
				return nil, err
			}
			if len(r.Left) > 0 {
				err = fmt.Errorf("%s: %w: %s cannot be repaired", args[0], format.ErrCorrupt, count(int64(len(r.Left)), "thing"))
			}
			return (*repaired)(r), err
		}),
	}
	c.Flags().StringVar(&graph, "graph", "", "graph that the store was made from")
	c.MarkFlagRequired("graph")
	return c
}

type repaired preprop.Repaired

func (r *repaired) text(w io.Writer) {
	if len(r.Files)+len(r.Left) == 0 {
		fmt.Fprintf(w, "%s\tis sound: nothing was to be done\n", r.Store)
		return
	}
	fmt.Fprintf(w, "%s\t%s written again, %s computed anew\n", r.Store, count(int64(len(r.Files)), "file"), count(int64(r.Chunks), "chunk"))
	for _, file := range r.Files {
		fmt.Fprintf(w, "\t%s\n", file)
	}
	for i := range r.Left {
		fmt.Fprintf(w, "\tnot repaired: %s\n", r.Left[i].Error())
	}
	if len(r.Left) > 0 {
		fmt.Fprintln(w, "\tfiles that the manifest does not list can be removed; what the manifest or the index says is lost: propagate again with --force")
	}
}

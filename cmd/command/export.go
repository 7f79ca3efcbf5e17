package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/export"
)

type exportOptions struct {
	output string
	force  bool
}

func newExportCommand(a *app) *cobra.Command {
	var o exportOptions
	c := a.verb("export npy GRAPH|STORE -o DIR", "Write a graph or hop store as NumPy arrays",
		"Export writes a graph, typed or not, as the arrays that import npy reads, and a hop store as one array for each\n"+
			"matrix (<operator>_hop-<r>.npy), rows in stored order, with node_id.npy beside them.", o.do)
	c.Flags().StringVarP(&o.output, "output", "o", "", "directory to write")
	c.Flags().BoolVar(&o.force, "force", false, forceUsage)
	c.MarkFlagRequired("output")
	return c
}

// exported is the result of export.
type exported struct{ *export.Result }

func (e exported) Text(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s, %s\n", e.Output, units.Count(int64(len(e.Files)), "file"), units.Bytes(e.Bytes))
}

func (o *exportOptions) do(ctx context.Context, a *app, args []string) (result, error) {
	if args[0] != "npy" {
		return nil, usagef("there is no export format %q (there is: npy)", args[0])
	}
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	r, err := export.NPY(ctx, a.fs, args[1], o.output,
		export.Options{Force: o.force, MemoryBytes: int64(a.budget.Bytes), Progress: a.progress()})
	if err != nil {
		return nil, err
	}
	return exported{r}, nil
}

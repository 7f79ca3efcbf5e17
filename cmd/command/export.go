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
	format, dir, output string
	force               bool
}

func newExportCommand(a *app) *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export npy GRAPH|STORE -o DIR",
		Short: "Write a graph or hop store as NumPy arrays",
		Long: "Export writes a graph as the arrays that import npy reads, and a hop store as one array for each\n" +
			"matrix (<operator>_hop-<r>.npy), rows in stored order, with node_id.npy beside them.",
		Args: cobra.ExactArgs(2),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) {
			o.format, o.dir = args[0], args[1]
			return runExport(ctx, a, o)
		}),
	}
	c.Flags().StringVarP(&o.output, "output", "o", "", "directory to write")
	c.Flags().BoolVar(&o.force, "force", false, forceUsage)
	c.MarkFlagRequired("output")
	return c
}

// exported is the result of export.
type exported struct{ *export.Result }

func (e exported) text(w io.Writer) {
	fmt.Fprintf(w, "%s\t%d files, %s\n", e.Output, len(e.Files), units.Bytes(e.Bytes))
}

func runExport(ctx context.Context, a *app, o exportOptions) (result, error) {
	if o.format != "npy" {
		return nil, usagef("there is no export format %q (there is: npy)", o.format)
	}
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	r, err := export.NPY(ctx, a.fs, o.dir, o.output,
		export.Options{Force: o.force, MemoryBytes: int64(a.budget.Bytes), Progress: a.progress()})
	if err != nil {
		return nil, err
	}
	return exported{r}, nil
}

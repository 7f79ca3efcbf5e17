package command

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/version"
)

// versionResult is the result of version.
type versionResult struct {
	Version string `json:"version"`
	Format  int    `json:"format"` // of graphs and stores
	Go      string `json:"go"`
	System  string `json:"system"`
	Kernels string `json:"kernels"` // instruction set of the inner loops
}

func newVersionCommand(a *app) *cobra.Command {
	return a.verb("version", "Print the version of the program, of its file format, and of the kernels it uses here", "",
		func(context.Context, *app, []string) (result, error) {
			return versionResult{version.Version, format.Version, runtime.Version(),
				runtime.GOOS + "/" + runtime.GOARCH, kernel.Name()}, nil
		})
}

func (v versionResult) Text(w io.Writer) {
	fmt.Fprintf(w, "hopfeed %s (format %d, %s, %s, %s kernels)\n", v.Version, v.Format, v.Go, v.System, v.Kernels)
}

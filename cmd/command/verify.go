package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
)

func newVerifyCommand(a *app) *cobra.Command {
	return a.verb("verify GRAPH|STORE", "Read every byte of a graph or hop store and check it",
		`Verify reads every byte of a graph or hop store. It compares all checksums, compares the Arrow files with
manifest and index, checks that values are in range, and looks for files that the manifest does not list.
It prints a line for each damage, with exit status 3. Files that file managers and editors leave are notes.`, runVerify)
}

// verified is the result of verify.
type verified struct{ *format.VerifyReport }

func (v verified) Text(w io.Writer) {
	for _, b := range v.Bad {
		fmt.Fprintln(w, b.Error())
	}
	for _, n := range v.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	verdict := "all is well"
	if len(v.Bad) > 0 {
		verdict = faults(len(v.Bad))
	}
	fmt.Fprintf(w, "%s, %s, %s read: %s\n", units.Count(int64(v.Files), "file"), units.Count(int64(v.Chunks), "chunk"),
		units.Bytes(v.Bytes), verdict)
}

func faults(n int) string { return units.Count(int64(n), "fault") }

func runVerify(ctx context.Context, a *app, args []string) (result, error) {
	dir := args[0]
	if err := a.refuseModel(dir); err != nil {
		return nil, err
	}
	verify := format.Verify
	if format.IsTyped(a.fs, dir) {
		verify = format.VerifyTyped
	}
	report, err := verify(ctx, a.uncached(), dir, a.threads, a.progress())
	if err != nil {
		return nil, err
	}
	if n := len(report.Bad); n > 0 {
		err = fmt.Errorf("%s: %w: %s", dir, format.ErrCorrupt, faults(n))
		if report.Remedy != "" {
			err = fmt.Errorf("%w (%s)", err, report.Remedy)
		}
	}
	return verified{report}, err
}

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
)

func newVerifyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify GRAPH|STORE",
		Short: "Read every byte of a graph or hop store and check it",
		Long: "Verify checks all checksums, that the Arrow files hold what manifest and index say, that\n" +
			"values are in range, and that no file is there that nobody listed. What is bad is printed, a\n" +
			"line each, and the exit status is 3.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) { return runVerify(ctx, a, args[0]) }),
	}
}

// verified is the result of verify.
type verified struct {
	Files  int   `json:"files"`
	Chunks int   `json:"chunks"`
	Bytes  int64 `json:"bytes"`
	Bad    []bad `json:"bad"`
}

// bad is one place of damage; Chunk is -1 where no single chunk is concerned.
type bad struct {
	File   string `json:"file"`
	Chunk  int    `json:"chunk"`
	Reason string `json:"reason"`
}

func (v *verified) text(w io.Writer) {
	for _, b := range v.Bad {
		e := format.CorruptError(b)
		fmt.Fprintln(w, e.Error())
	}
	verdict := "all is well"
	if len(v.Bad) > 0 {
		verdict = fmt.Sprintf("%d places are bad", len(v.Bad))
	}
	fmt.Fprintf(w, "%d files, %d chunks, %s read: %s\n", v.Files, v.Chunks, units.Bytes(v.Bytes), verdict)
}

func runVerify(ctx context.Context, a *app, dir string) (result, error) {
	report, err := format.Verify(ctx, a.fs, dir, a.threads, a.progress())
	if err != nil {
		return nil, err
	}
	v := &verified{Files: report.Files, Chunks: report.Chunks, Bytes: report.Bytes, Bad: []bad{}}
	for _, b := range report.Bad {
		v.Bad = append(v.Bad, bad(b))
	}
	if len(v.Bad) > 0 {
		return v, fmt.Errorf("%s: %w: %d places are bad", dir, format.ErrCorrupt, len(v.Bad))
	}
	return v, nil
}

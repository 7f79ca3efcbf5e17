package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
)

func newStatusCommand(a *app) *cobra.Command {
	var scratch string
	c := &cobra.Command{
		Use:   "status STORE",
		Short: "Tell how far a propagation is",
		Long: "Status tells, from any shell or machine that sees the directory, whether a hop store is complete, whether a process\n" +
			"is at work on it, and how much of it is done. It disturbs nobody.",
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(_ context.Context, args []string) (result, error) {
			s, err := preprop.JobStatus(a.fs, args[0], scratch)
			if err != nil {
				return nil, err
			}
			return (*status)(s), nil
		}),
	}
	c.Flags().StringVar(&scratch, "scratch", "", "folder for scratch files that the job was given")
	return c
}

type status preprop.Status

func (s *status) text(w io.Writer) {
	switch {
	case !s.Unfinished && s.Complete:
		fmt.Fprintf(w, "%s\tcomplete\n", s.Store)
		return
	case !s.Unfinished:
		fmt.Fprintf(w, "%s\tnothing has begun\n", s.Store)
		return
	case len(s.Shards) > 0:
		fmt.Fprintf(w, "%s\tat work: %s %s\n", s.Store, "shards", strings.Join(s.Shards, ", "))
	case s.Running:
		fmt.Fprintf(w, "%s\tat work\n", s.Store)
	default:
		fmt.Fprintf(w, "%s\tinterrupted: the same propagate goes on with it\n", s.Store)
	}
	if s.Complete {
		fmt.Fprintln(w, "\tan earlier version is complete, to which the job adds")
	}
	if s.Columns > 0 {
		fmt.Fprintf(w, "\t%s, %s of %s\n", s.Operators, count(s.Rows, "row"), count(int64(s.Features), "feature"))
		fmt.Fprintf(w, "\t%.0f %% done: %d of %d matrices whole\n", 100*float64(s.DoneColumns)/float64(s.Columns), s.Finished, s.Matrices)
	}
	fmt.Fprintf(w, "\t%s on disk\n", units.Bytes(s.Bytes))
}

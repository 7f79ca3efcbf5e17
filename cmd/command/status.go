package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
)

func newStatusCommand(a *app) *cobra.Command {
	var scratch string
	c := a.verb("status STORE", "Tell how far a propagation is",
		`Status tells whether a hop store is complete, whether a process is computing it, and how much of it is
finished. It takes no locks and changes nothing: run it at any time, on any machine that sees the
directory.`, func(_ context.Context, a *app, args []string) (result, error) {
			s, err := preprop.JobStatus(a.fs, args[0], scratch)
			if err != nil {
				return nil, err
			}
			return (*status)(s), nil
		})
	c.Flags().StringVar(&scratch, "scratch", "",
		"the job's --scratch folder, if it has another name on this machine")
	return c
}

type status preprop.Status

func (s *status) Text(w io.Writer) {
	switch {
	case !s.Unfinished && s.Complete:
		fmt.Fprintf(w, "%s\tcomplete\n", s.Store)
		return
	case !s.Unfinished:
		fmt.Fprintf(w, "%s\tno propagation has begun\n", s.Store)
		return
	case s.Running:
		fmt.Fprintf(w, "%s\trunning\n", s.Store)
	case s.Tasks:
		fmt.Fprintf(w, "%s\tdivided into tasks: propagate --tasks with the job's options lists which are to do\n", s.Store)
	default:
		fmt.Fprintf(w, "%s\tinterrupted: run the same propagate command again to go on\n", s.Store)
	}
	if s.Complete {
		fmt.Fprintln(w, "\tthe version before this job is complete and can be read")
	}
	if s.Columns > 0 {
		fmt.Fprintf(w, "\t%s, %s of %s\n", s.Operators, units.Count(s.Rows, "row"),
			units.Count(int64(s.Features), "feature"))
		fmt.Fprintf(w, "\t%.0f %% of the columns finished, %d of %d matrices complete\n",
			100*float64(s.DoneColumns)/float64(s.Columns), s.Finished, s.Matrices)
	}
	fmt.Fprintf(w, "\t%s on disk\n", units.Bytes(s.Bytes))
	if s.Uploads > 0 {
		fmt.Fprintf(w, "\t%s that a killed process has left: the next job aborts them\n", units.Count(int64(s.Uploads),
			"unfinished upload"))
	}
}

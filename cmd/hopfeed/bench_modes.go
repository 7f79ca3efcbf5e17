package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/tune"
)

func newBenchModesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "modes TRIALS",
		Short: "Fit the equations of A3GNN's modes to trials",
		Long: "Modes fits the times and memory that a3gnn's Equations 2 to 5 give its three modes to a file with trials, the\n" +
			"trials.jsonl of a search that varied --schedule (sequential, mode-1, mode-2) and --workers, and prints them beside\n" +
			"what was measured. Times of stages and parts of memory are proportional to the rows of a batch.",
		Example: "  hopfeed bench modes tuning/trials.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: a.verb(func(_ context.Context, args []string) (result, error) {
			trials, err := a.readTrials(args[0])
			if err != nil {
				return nil, err
			}
			fit, err := papers.FitModes(trials)
			if err != nil {
				return nil, usagef("%s: %s", args[0], err)
			}
			return (*fittedModes)(fit), nil
		}),
	}
}

// readTrials reads a file with the trials of a search.
func (a *app) readTrials(path string) ([]tune.Trial, error) {
	text, err := a.readSmall(path)
	if err != nil {
		return nil, err
	}
	if len(text) == maxConfigBytes {
		return nil, usagef("%s: it is too large for a table of trials", path)
	}
	trials, err := tune.Decode(text)
	if err != nil {
		return nil, usagef("%s: %s (want trials.jsonl of a search)", path, err)
	}
	if len(trials) == 0 {
		return nil, usagef("%s has no trials", path)
	}
	return trials, nil
}

// fittedModes is the result of bench modes.
type fittedModes papers.ModeFit

func (f *fittedModes) text(w io.Writer) {
	m := f.Model
	fmt.Fprintf(w, "a row\tsampling %.3g us, batch %.3g us, training %.3g us; contention of workers %.2f; %.3g ms a batch beside\n", 1e6*m.Sample, 1e6*m.Batch, 1e6*m.Train, m.Contention, 1e3*m.Overhead)
	for _, mode := range papers.Modes() {
		if p, ok := m.Memory[mode]; ok {
			fmt.Fprintf(w, "memory, %s\t%.0f bytes a cached row, %.0f a row in buffers, %.0f a row trained on, %s beside\n", mode, p.Cache, p.Batch, p.Model, units.Bytes(p.Runtime))
		}
	}
	fmt.Fprintf(w, "mean error\ttime %.1f %%, memory %.1f %%, of %s\n", 100*f.TimeError, 100*f.MemoryError, count(int64(len(f.Runs)), "trial"))
	fmt.Fprintln(w, "mode\tworkers\tbatch\ttime, predicted\tmemory, predicted")
	for _, r := range f.Runs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.4g s, %.4g s\t%s, %s\n", r.Mode, r.Workers, r.BatchRows, r.Seconds, r.Predicted, units.Bytes(r.MemoryBytes), units.Bytes(r.PredictedMemory))
	}
}

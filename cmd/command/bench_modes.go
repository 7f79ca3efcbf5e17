package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/tune"
)

const modesFigure = "modes.svg"

func newBenchModesCommand(a *app) *cobra.Command {
	output := ""
	c := a.verb("modes TRIALS", "Fit the equations of A3GNN's modes to trials",
		`Modes fits a3gnn's Equations 2 to 5, which give time and memory of its three modes, to trials.jsonl of
a search that varied --schedule (sequential, mode-1, mode-2) and --workers. It prints measured and predicted
times and memory. It predicts memory for workers that are threads and, as in the paper, for processes. The times of
stages and the parts of memory are proportional to the rows of a batch. --output draws a3gnn's Figure 8, `+modesFigure+`.`,
		func(_ context.Context, a *app, args []string) (result, error) {
			trials, err := a.readTrials(args[0])
			if err != nil {
				return nil, err
			}
			if err := a.checkOutputs(output, []string{modesFigure}); err != nil {
				return nil, err
			}
			fit, err := papers.FitModes(trials)
			if err != nil {
				return nil, usagef("%s: %s", args[0], err)
			}
			return fit, a.writeOutputs(output, []string{modesFigure}, fit.Figure().File())
		})
	c.Flags().StringVarP(&output, "output", "o", "", "directory for charts")
	c.Example = "  hopfeed bench modes tuning/trials.jsonl"
	return c
}

// readTrials reads a file with the trials of a search.
func (a *app) readTrials(path string) ([]tune.Trial, error) {
	text, err := a.readSmall(path)
	if err != nil {
		return nil, err
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

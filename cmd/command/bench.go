package command

import (
	"encoding/json"

	"github.com/spf13/cobra"
)

func newBenchCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast this machine loads, trains and propagates, simulate schedules, and compare searches",
	}
	c.AddCommand(newBenchLoadCommand(a), newBenchPropagateCommand(a), newBenchAblationCommand(a),
		newBenchScheduleCommand(a), newBenchTuneCommand(a), newBenchModesCommand(a),
		newBenchSurrogateCommand(a))
	refuseUnknown(c)
	return c
}

// lines are results that --json prints as an object on a line each, and that are a table otherwise.
func lines[T any](a *app, all []T, table result) (result, error) {
	if !a.json {
		return table, nil
	}
	for _, r := range all {
		if err := json.NewEncoder(a.stdout).Encode(r); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

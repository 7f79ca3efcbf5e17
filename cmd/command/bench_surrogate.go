package command

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/tune"
)

type benchSurrogateOptions struct {
	output, throughput string
	resident           bool
}

func newBenchSurrogateCommand(a *app) *cobra.Command {
	var o benchSurrogateOptions
	c := a.verb("surrogate TRIALS ...", "Learn from trials on several graphs to predict trainings on another",
		`Surrogate learns throughput, memory and metric of trainings from trials.jsonl of searches on several
graphs, by their settings and by size, density, degree and features of the graphs (a3gnn §III-C). It predicts the trials
of each graph from those of all others, and prints R2 (a3gnn Table III). --output saves a surrogate learnt from all
graphs, for tune --surrogate. If trials vary --bias, it fits a3gnn's Equation 1, the accuracy drop.`, o.do)
	c.Args = cobra.MinimumNArgs(1)
	c.Example = "  hopfeed bench surrogate a/trials.jsonl b/trials.jsonl c/trials.jsonl -o surrogate.json"
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "file for the surrogate")
	_ = f.SetAnnotation("output", fileOutput, []string{"true"}) // the flag is there
	f.StringVar(&o.throughput, "throughput", wallTime, throughputUsage)
	f.BoolVar(&o.resident, "resident", false, "count the resident memory of the process instead of device memory")
	among(f, "throughput", wallTime, processorTime)
	return c
}

func (o *benchSurrogateOptions) do(_ context.Context, a *app, args []string) (result, error) {
	var trials []tune.Trial
	for _, path := range args {
		table, err := a.readTrials(path)
		if err != nil {
			return nil, err
		}
		trials = append(trials, table...)
	}
	dir, name := filepath.Dir(o.output), filepath.Base(o.output)
	if o.output != "" {
		if err := a.checkOutputs(dir, []string{name}); err != nil {
			return nil, err
		}
	}
	g := tune.Goals{ProcessorTime: o.throughput == processorTime, DeviceMemory: !o.resident}
	r, surrogate, err := papers.FitSurrogates(trials, g)
	if err != nil {
		return nil, usagef("%s", err)
	}
	if r.Output = o.output; o.output != "" {
		text, err := json.Marshal(surrogate)
		if err == nil {
			err = folder.WriteFiles(a.fs, dir, []string{name}, [][]byte{text})
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

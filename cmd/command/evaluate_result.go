package command

import (
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/trainer"
)

// evaluated is the result of evaluate. Its fields about the training come from the checkpoint.
type evaluated struct {
	trained
	trainer.Score                          // on all rows
	Parts         map[string]trainer.Score `json:"parts"`   // of the split
	RowsOf        string                   `json:"rows_of"` // which rows these are, in words
	Warnings      []string                 `json:"warnings,omitempty"`
	SameNodes     bool                     `json:"same_nodes"`
	TrainedRows   int64                    `json:"trained_rows"` // rows that the model was trained on

	names   []string // of parts, in order
	applied applied
}

func (e *evaluated) Text(w io.Writer) {
	e.applied.write(w, e.Model, e.Dataset, e.Placement, e.Load, e.Warnings)
	fmt.Fprintf(w, "rows\t%s\n", e.RowsOf)
	if e.TrainedRows > 0 {
		fmt.Fprintf(w, "warning\tthe model was trained on %d of these rows: expect worse results on new ones\n",
			e.TrainedRows)
	}
	for _, name := range e.names {
		fmt.Fprintf(w, "%s\t%s %s (%d rows)\n", name, e.Metric, trainer.MetricText(e.Metric, e.Parts[name].Value),
			e.Parts[name].Rows)
	}
	if len(e.names) > 1 {
		fmt.Fprintf(w, "all\t%s %s (%d rows)\n", e.Metric, trainer.MetricText(e.Metric, e.Value), e.Rows)
	}
	fmt.Fprintf(w, "time\t%.2f s, %.0f rows/s\n", e.Seconds, *e.RowsPerSecond)
}

func number(n int) *float64 {
	f := float64(n)
	return &f
}

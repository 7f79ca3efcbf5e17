package trainer

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
)

// metrics are what models can be selected and judged by: more is better. To add one, write it in a
// file of its own, and add it here.
var metrics = map[string]metric{"accuracy": accuracy}

const defaultMetric = "accuracy"

// metric makes the meter of one device, for batches of up to batchRows rows, and gets memory for what
// it counts.
type metric func(mem *memory, s Spec, batchRows int) (meter, error)

// meter counts, on a device, what a metric is computed from.
type meter interface {
	// reset enqueues that nothing is counted yet, and add that rows are counted: out is what the
	// model puts out for them, [rows, classes], labels are those of loader.Batch. Rows without a
	// label do not count.
	reset(s gds.Stream)
	add(s gds.Stream, out, labels gds.Tensor)
	// read waits for all work of the stream, and returns what was counted.
	read(ctx context.Context, s gds.Stream) (tally, error)
}

// tally is what was counted of some rows: it can be added to that of other rows.
type tally interface {
	add(other tally) tally
	score() Score
}

// Score is the value of a metric, and the number of labelled rows that it was computed on.
type Score struct {
	Value *float64 // a fraction of 1; nil if there are no such rows
	Rows  int64
}

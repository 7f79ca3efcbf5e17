package scheduler

import (
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/internal/units"
)

// WriteText prints what came of a schedule, in columns that tabs separate.
func (r *Report) WriteText(w io.Writer) {
	measured := "no epoch ran as a whole"
	if r.MeasuredSeconds != nil {
		measured = fmt.Sprintf("%.4g s measured in %s", *r.MeasuredSeconds, units.Count(int64(r.Epochs), "epoch"))
	}
	if r.Refined > 0 { // so what is measured may be of another plan than the reason
		measured += fmt.Sprintf(" (the plan changed after %d of them, by the durations that were measured)", r.Refined)
	}
	fmt.Fprintf(w, "schedule\t%s: %s\n", r.Name, units.Printable(r.Reason))
	fmt.Fprintf(w, "\tan epoch %.4g s predicted, %s; %s by the processor, %d by the device; busy: processor %.0f "+
		"%%, link %.0f %%, device %.0f %%\n",
		r.PredictedSeconds, measured, units.Count(int64(r.CPUBatches),
			"batch"), r.GPUBatches, 100*r.CPUBusy, 100*r.LinkBusy, 100*r.GPUBusy)
}

// WriteText prints what came of queues, where training on an epoch took so long.
func (r *QueueReport) WriteText(w io.Writer, trainSeconds float64) {
	fmt.Fprintf(w, "schedule\t%s: %s\n", MultiQueue, units.Printable(r.Reason))
	fmt.Fprintf(w, "\ttraining on an epoch %.4g s predicted (%.4g s without stale gradients), %.4g s measured\n",
		r.Predicted, r.PredictedBy, trainSeconds)
	fmt.Fprintf(w, "\t%s\n", r.Reproducible())
}

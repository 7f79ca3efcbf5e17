package trainer

import (
	"context"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// HostBytes is what the model takes of host memory at most: for each device, three copies of its
// parameters (gradients that meet on the host, their sum, and the best values so far).
func (s Spec) HostBytes(devices int) (int64, error) {
	parameters, err := s.Parameters()
	return 3 * 4 * parameters * int64(devices), err
}

// StepSeconds measures steps as MeasureSteps does, on the first batch of these sets, of which there
// is one for each device, with shares of up to shareRows rows.
func (s Spec) StepSeconds(ctx context.Context, devices []gds.Device, sets []*loader.Set, shareRows int) (train, evaluate float64, err error) {
	ranks := make([]Rank, len(devices))
	for i, device := range devices {
		ranks[i] = Rank{Device: device, Data: Data{Train: sets[i], BatchRows: shareRows}}
	}
	r, err := MeasureSteps(ctx, ranks, s)
	return r.TrainSeconds, r.ValidSeconds, err
}

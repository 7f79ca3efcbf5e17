package trainer

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/gds"
)

// profile tells what an epoch of training spends its time on (preprop-gnn
// Figure 5). It keeps the device from working ahead, and several devices from working
// at a time, which costs time itself. A nil profile does nothing.
type profile struct {
	since   time.Time
	seconds map[string]float64
}

func newProfile() *profile {
	return &profile{since: time.Now(), seconds: map[string]float64{}}
}

// lap waits for a device, and adds the time since the lap before to a step. What
// fails stays with the stream, for whoever waits for it next.
func (p *profile) lap(stream gds.Stream, step string) {
	if p == nil {
		return
	}
	_ = stream.Synchronize(context.Background())
	now := time.Now()
	p.seconds[step] += now.Sub(p.since).Seconds()
	p.since = now
}

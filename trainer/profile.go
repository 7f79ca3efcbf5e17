package trainer

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/gds"
)

// profile tells what an epoch of training spends its time on (preprop-gnn
// Figure 5). It keeps the device from working ahead, which costs a little time
// itself. A nil profile does nothing.
type profile struct {
	stream  gds.Stream
	since   time.Time
	seconds map[string]float64
}

func newProfile(stream gds.Stream) *profile {
	return &profile{stream: stream, since: time.Now(), seconds: map[string]float64{}}
}

// lap waits for the device, and adds the time since the lap before to a step. What
// fails stays with the stream, for whoever waits for it next.
func (p *profile) lap(step string) {
	if p == nil {
		return
	}
	_ = p.stream.Synchronize(context.Background())
	now := time.Now()
	p.seconds[step] += now.Sub(p.since).Seconds()
	p.since = now
}

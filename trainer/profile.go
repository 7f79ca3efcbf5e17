package trainer

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/gds"
)

// profile measures the time of each step of training (preprop-gnn Figure 5). To do so it waits
// for the device after each step, which makes training slower. A nil profile does nothing.
type profile struct {
	since   time.Time
	seconds map[string]float64
}

// lap waits for a device, and adds the time since the previous lap to a step. An error stays
// with the stream, and is returned to whoever waits for it next.
func (p *profile) lap(stream gds.Stream, step string) {
	if p == nil {
		return
	}
	_ = stream.Synchronize(context.Background())
	now := time.Now()
	p.seconds[step] += now.Sub(p.since).Seconds()
	p.since = now
}

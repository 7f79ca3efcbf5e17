package sampling

import (
	"fmt"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
)

// scarceDevice never has room for more than what is needed: it gives what it was asked for with room before.
type scarceDevice struct {
	gds.Device
	scarce bool

	mu      sync.Mutex
	refused map[int64]bool // bytes
}

func (d *scarceDevice) refuses(bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.scarce || bytes == 0 || d.refused[gds.Room(bytes)] {
		return nil
	}
	d.refused[bytes] = true
	return fmt.Errorf("%w: %d bytes", gds.ErrOutOfMemory, bytes)
}

func (d *scarceDevice) Alloc(bytes int64) (gds.Buffer, error) {
	if err := d.refuses(bytes); err != nil {
		return nil, err
	}
	return d.Device.Alloc(bytes)
}

func (d *scarceDevice) AllocPinned(bytes int64) (gds.Buffer, error) {
	if err := d.refuses(bytes); err != nil {
		return nil, err
	}
	return d.Device.AllocPinned(bytes)
}

// Memory of batches grows by more than they need, but where there is no more it is as much as they need: by the
// pipeline, by a schedule, on the device that samples by itself, and where storage is behind a cache.
func TestBatchesTakeWhatTheyNeedWhereThereIsNoMore(t *testing.T) {
	for _, c := range []struct {
		name               string
		discrete, onDevice bool
		schedule           bool
	}{{"host", false, false, false}, {"device", true, false, false}, {"schedule", true, false, true},
		{"device samples", true, true, false}, {"schedule of both", true, true, true}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, toy, c.discrete, false)
			if c.onDevice {
				b = newUnifiedBench(t, toy)
			}
			d := &scarceDevice{Device: b.device, refused: map[int64]bool{}}
			b.device = d
			m := b.method("neighbor", Options{Fanouts: []int{3, 2}})
			l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Workers: 1, Buffers: Buffers(5, 3)})
			s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, Seed: 9})
			b.must(err)
			if c.onDevice {
				b.must(l.PrepareOnDevice(m, nil))
			}
			if c.schedule || c.onDevice {
				share := 0.0 // that the device prepares
				if c.onDevice {
					share = 1
				}
				if c.schedule {
					share /= 2
				}
				s.SetSchedule(&Schedule{Rules: byChance(s.Batches(), share, 4)})
			}
			stream := b.stream()
			d.scarce = true
			batches := 0
			for _, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
				b.must(err)
				batches++
			}
			if batches != s.Batches() || len(d.refused) == 0 {
				t.Errorf("%d of %d batches, %d requests were refused", batches, s.Batches(), len(d.refused))
			}
		})
	}
}

package placement

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// pacedDevice is an emulated card whose operations take the time that its rates say.
type pacedDevice struct {
	gds.Device
	copies, gathers, conversions units.Rate
}

func (d pacedDevice) NewStream() (gds.Stream, error) {
	s, err := d.Device.NewStream()
	return pacedStream{s, d}, err
}

type pacedStream struct {
	gds.Stream
	device pacedDevice
}

// take lets the time pass that the rows of a tensor take.
func take(t gds.Tensor, rate units.Rate) {
	bytes := float64(t.Rows * t.Cols * t.DType.Size())
	time.Sleep(time.Duration(bytes / float64(rate) * float64(time.Second)))
}

func (s pacedStream) Copy(dst, src gds.Tensor) {
	s.Stream.Copy(dst, src)
	take(dst, s.device.copies)
}

func (s pacedStream) Gather(dst, src, index gds.Tensor) {
	s.Stream.Gather(dst, src, index)
	take(dst, s.device.gathers)
}

func (s pacedStream) Convert(dst, src gds.Tensor) {
	s.Stream.Convert(dst, src)
	take(src, s.device.conversions)
}

// The time is a synctest bubble's, which work does not advance, however busy the machine is: all
// that passes is what the link and the operations take.
func TestMeasuredRatesOfACardAreThoseThatItHas(t *testing.T) {
	for _, c := range []struct {
		name                                  string
		dtype                                 format.DType
		link, copying, gathering, conversions units.Rate
	}{
		{"a slow link", format.Float32, 1 << 20, 2 << 30, 1 << 30, 0},
		{"a link as fast as the memory", format.Float32, 1 << 30, 1 << 30, 1 << 30, 0},
		{"half floats", format.Float16, 400 << 20, 8 << 30, 4 << 30, 3 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				card, err := host.New(host.Options{Discrete: true, LinkBytesPerSecond: int64(c.link)})
				if err != nil {
					t.Fatal(err)
				}
				store := newStore(t, vfs.NewMem(), c.dtype)
				region, _ := store.Region(format.RegionRest)
				r, err := Measure(t.Context(), pacedDevice{card, c.copying, c.gathering, c.conversions}, Sample{
					Store: store, Matrices: sampled, Region: region, Rows: region.Rows, BatchRows: 100, ChunkRows: 64,
					Threads:   2,
					HostBytes: 1, // too few to measure host memory, which takes none of this time
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := card.Close(); err != nil {
					t.Error(err)
				}
				for _, rate := range []struct {
					name      string
					got, want units.Rate
				}{
					{"link", r.Link, c.link}, {"copying on the device", r.DeviceCopy, c.copying},
					{"gathering on the device", r.DeviceGather, c.gathering}, {"conversion", r.Convert, c.conversions},
					{"between devices", r.Peer, c.link},
				} {
					// A link that stood idle is a millisecond ahead, of 40 that are measured; durations are
					// whole nanoseconds.
					if rate.want == 0 && rate.got != 0 || rate.want > 0 &&
						math.Abs(float64(rate.got)/float64(rate.want)-1) > 0.05 {
						t.Errorf("%s: measured %s, and it is %s", rate.name, rate.got, rate.want)
					}
				}
			})
		})
	}
}

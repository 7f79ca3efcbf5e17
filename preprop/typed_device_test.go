package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// The bytes of a typed graph's store are the same on a device, whatever stays in its memory; where a step does not
// fit, the result says so.
func TestStoresOfTypedGraphsAreTheSameBytesOnADevice(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 2500)
	rw, sym := []operator.Operator{{Name: operator.RW}}, []operator.Operator{{Name: operator.Sym}}
	for i, o := range []Options{{Hops: 3, Operators: rw}, {Hops: 2, Operators: sym, DType: format.Float16},
		{Hops: 2, RelationsSubsets: 4, Rows: format.RowsAll}, {Hops: 2, LabelHops: 2, Operators: sym}} {
		o.Threads = 2
		want := propagated(t, fsys.CrashClone(), "store", o)
		mixed, whole := 0, 0
		for _, free := range []int64{0, 1 << 20, 300_000, 100_000, 60_000, 50_000, 45_000, 40_000, 1 << 10} {
			if testing.Short() && i > 0 && free != 0 && free != 100_000 && free != 45_000 {
				continue
			}
			name := fmt.Sprintf("options %d, %d bytes", i, free)
			last, opened := gds.Usage{}, 0
			o.Device = func(float64) (*Device, error) {
				d := aDevice(free, &last)
				open := d.Open
				d.Open = func() (gds.Device, error) { opened++; return open() }
				return d, nil
			}
			disk := fsys.CrashClone()
			r, err := Propagate(context.Background(), disk, "graph", "store", o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !sameFiles(files(t, disk, "store"), want) {
				t.Errorf("%s: other bytes", name)
			}
			on := map[string]int{}
			for _, m := range r.Metapaths {
				if on[m.Device]++; (m.Device == CPU) != strings.Contains(m.DeviceReason, "memory free") {
					t.Errorf("%s: %+v", name, m)
				}
			}
			if on["card"]+on[CPU] != len(r.Metapaths) || r.Plan.Device.Name != "card" || free == 0 && on[CPU] > 0 ||
				free == 1<<10 && on["card"] > 0 {
				t.Errorf("%s: on %v of %d, and %+v", name, on, len(r.Metapaths), r.Plan.Device)
			}
			if on["card"] > 0 && on[CPU] > 0 {
				mixed++
			}
			if on[CPU] == 0 {
				whole++
			}
			used := on["card"] > 0 // of a metapath that is not stored, a step may be
			if last.InUse != 0 || last.PinnedInUse != 0 || opened > 1 || last.Peak > r.Plan.Device.Bytes ||
				last.PinnedPeak > r.Plan.Device.PinnedBytes+4096 || used && (last.Peak < r.Plan.Device.Bytes/2 ||
				r.TransferredBytes < r.Rows || opened != 1 || r.Time.Transfers <= 0) {
				t.Errorf("%s: opened %d times, %+v, planned %+v, %d bytes were transferred", name, opened, last,
					r.Plan.Device, r.TransferredBytes)
			}
		}
		if !testing.Short() && (mixed == 0 || whole < 3) {
			t.Errorf("options %d: %d jobs on both, %d on the device alone", i, mixed, whole)
		}
	}
}

// A device that is lost ends a job on a typed graph, and the processor goes on to the same bytes.
func TestATypedJobOnADeviceThatIsLostGoesOnOnTheProcessor(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 300)
	for _, o := range []Options{{Hops: 2, Threads: 2}, {Hops: 2, Threads: 2, RelationsSubsets: 3}} {
		want := propagated(t, fsys.CrashClone(), "store", o)
		resumed := 0
		for n := 0; ; n = n*2 + 1 {
			disk, left := fsys.CrashClone(), n
			card := aDevice(0, nil)
			open := card.Open
			card.Open = func() (gds.Device, error) {
				d, err := open()
				return failing{Device: d, left: &left}, err
			}
			o.Device = func(float64) (*Device, error) { return card, nil }
			_, err := Propagate(context.Background(), disk, "graph", "store", o)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrDevice) || !errors.Is(err, errLost) || !strings.Contains(err.Error(), "--device cpu") {
				t.Fatalf("after %d waits: %v", n, err)
			}
			o.Device = nil
			r, err := Propagate(context.Background(), disk, "graph", "store", o)
			if err != nil || !sameFiles(files(t, disk, "store"), want) {
				t.Fatalf("after %d waits, on the processor: %v, or other bytes", n, err)
			}
			if r.Resumed {
				resumed++
			}
			if slices.ContainsFunc(r.Metapaths, func(m Metapath) bool { return m.Device != CPU && m.Device != "" }) {
				t.Errorf("on the processor: %v", r.Metapaths)
			}
		}
		if resumed == 0 {
			t.Error("nothing was kept of any job")
		}
	}
}

// A device that does not open is an error that names it, and leaves nothing open.
func TestATypedJobSaysThatItsDeviceDoesNotOpen(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 30)
	o := Options{Hops: 1, Device: func(float64) (*Device, error) {
		return &Device{Name: "card", Open: func() (gds.Device, error) { return nil, errLost }}, nil
	}}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, ErrDevice) ||
		!errors.Is(err, errLost) || !strings.Contains(err.Error(), "card") {
		t.Error(err)
	}
	seconds := 0.0
	o.Device = func(all float64) (*Device, error) {
		seconds = all
		return &Device{Name: CPU, Reason: "so it was said"}, nil
	}
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil || seconds <= 0 || r.Plan.Device.Name != CPU || r.Plan.Device.Reason != "so it was said" ||
		r.Metapaths[0].Device != CPU || r.Metapaths[0].DeviceReason != "" {
		t.Errorf("%v: %+v, by %g s", err, r, seconds)
	}
}

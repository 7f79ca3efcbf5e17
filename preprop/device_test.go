package preprop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/device"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// aDevice is a device with memory of its own; a job may take some bytes of it. last is its usage when
// it was closed.
func aDevice(free int64, last *gds.Usage) *Device {
	return &Device{Name: "card", Reason: "a test", FreeBytes: free, Open: func() (gds.Device, error) {
		d, err := testdevice.New(host.Options{Discrete: true, Name: "card"})
		if err != nil {
			return nil, err
		}
		return watched{d, last}, nil
	}}
}

// always chooses such a device.
func always(free int64, last *gds.Usage) func(float64) (*Device, error) {
	return func(float64) (*Device, error) { return aDevice(free, last), nil }
}

// watched is a device whose usage is noted when it is closed.
type watched struct {
	gds.Device
	last *gds.Usage
}

func (w watched) Close() error {
	if w.last != nil {
		*w.last = w.Usage()
	}
	return w.Device.Close()
}

// memoryFor finds how much memory gives each kind of plan to a job, with one range of columns and with several.
func memoryFor(t *testing.T, fsys vfs.FS, o Options) map[string]int64 {
	t.Helper()
	out, w := map[string]int64{}, workOf(t, fsys, o)
	for free := int64(16 << 20); ; free = free * 9 / 10 {
		p, err := w.PlanOn(always(free, nil), 0, &plan.DefaultRates)
		if errors.Is(err, machine.ErrDoesNotFit) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		d := p.Device
		out[fmt.Sprintf("matrices %t, topology %t, several ranges %t", d.MatricesOnDevice, d.TopologyOnDevice,
			d.Columns < p.PanelColumns)] = free
	}
}

// The bytes of a store are the same on a device, whatever stays in its memory.
func TestStoresAreTheSameBytesOnADevice(t *testing.T) {
	for i, o := range []Options{
		{Hops: 3, Operators: allOperators[:2]},
		{Hops: 1, Operators: append(allOperators[2:5:5], oneOfEachGraph...), Rows: format.RowsAll},
		{Hops: 2, Operators: allOperators[:1], DType: format.Float16},
		{Hops: 2, Operators: allOperators[3:7], DType: format.BFloat16, Rows: format.RowsAll},
		{Hops: 2, Operators: someSeries},
		{Hops: 2, Operators: someSeries[1:5], DType: format.Float16, Rows: format.RowsAll},
		{Hops: 1, Operators: []operator.Operator{{Name: operator.Sym, Graph: operator.Undirected},
			{Name: operator.Heat, Parameter: 1, Tolerance: 0.01, Graph: operator.Reverse}}, DType: format.BFloat16},
	} {
		if testing.Short() && i%3 != 1 {
			continue
		}
		for seed := range seeds() { // unweighted and weighted
			if !testing.Short() && int(seed) != i%2 && i > 0 {
				continue
			}
			fsys := vfs.NewMem()
			randomGraph(seed, 250, 9+i).write(t, fsys, "graph")
			o.Threads = 2
			want := propagated(t, fsys.CrashClone(), "store", o)
			sizes := memoryFor(t, fsys, o)
			if len(sizes) < 4 {
				t.Errorf("options %d: plans of %d kinds: %v", i, len(sizes), sizes)
			}
			sizes["unlimited"] = 0
			for kind, free := range sizes {
				for _, planned := range []func(*Plan){nil, outOfCore} {
					if planned != nil && (kind != "unlimited" &&
						free > sizes["matrices false, topology false, several ranges true"] || i%2 == 1) {
						continue
					}
					name := fmt.Sprintf("options %d, seed %d, %s (%d bytes), out of core %t", i, seed, kind, free,
						planned != nil)
					var last gds.Usage
					o.Device, o.Planned = always(free, &last), planned
					disk := fsys.CrashClone()
					r, err := Propagate(context.Background(), disk, "graph", "store", o)
					o.Device, o.Planned = nil, nil
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if !sameFiles(files(t, disk, "store"), want) {
						t.Errorf("%s: other bytes", name)
					}
					if planned != nil {
						continue // the device was planned for other panels
					}
					if last.InUse != 0 || last.PinnedInUse != 0 || last.Peak > r.Plan.Device.Bytes ||
						last.Peak < r.Plan.Device.Bytes/2 || last.PinnedPeak > r.Plan.Device.PinnedBytes+4096 ||
						last.PinnedPeak == 0 {
						t.Errorf("%s: the device had %+v, and the plan is %+v", name, last, r.Plan.Device)
					}
					if r.TransferredBytes < int64(len(o.Operators))*int64(o.Hops)*r.Rows*int64(r.Features) ||
						r.Time.Transfers <= 0 {
						t.Errorf("%s: %d bytes went to and from the device, in %g s", name, r.TransferredBytes,
							r.Time.Transfers)
					}
				}
			}
		}
	}
}

// A list of terms that is longer than a block is computed by the processor.
func TestListsThatADeviceHasNoRoomForAreAddedByTheProcessor(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomGraph(1, 3000, 4)
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym},
		{Name: operator.PPR, Parameter: 0.3, Tolerance: 0.1}}, Threads: 2, Rows: format.RowsAll}
	want := propagated(t, fsys.CrashClone(), "store", o)
	for kind, free := range memoryFor(t, fsys, o) {
		o.Device = always(free, nil)
		p, err := workOf(t, fsys, o).PlanOn(o.Device, 0, &plan.DefaultRates)
		if err != nil {
			t.Fatal(err)
		}
		if p.Device.TopologyOnDevice || p.Device.TransferTerms > 2000 {
			continue
		}
		disk := fsys.CrashClone()
		if got := propagated(t, disk, "store", o); !sameFiles(got, want) {
			t.Errorf("%s: other bytes", kind)
		}
		return
	}
	t.Error("no plan has short blocks")
}

func TestADeviceWhoseMemoryIsTooSmallIsAnErrorOrLeftOut(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 1000, 4).write(t, fsys, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Device: always(4<<10, nil)}
	_, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "card has 4 KiB") ||
		!strings.Contains(err.Error(), "--device cpu") {
		t.Errorf("a device of 4 KiB: %v", err)
	}
	o.Device = func(seconds float64) (*Device, error) {
		d := aDevice(4<<10, nil)
		d.Optional = true
		if seconds <= 0 || seconds > 10 {
			t.Errorf("products of a small graph take %g s", seconds)
		}
		return d, nil
	}
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil || r.Plan.Device.Name != CPU || !strings.Contains(r.Plan.Device.Reason, "4 KiB") {
		t.Errorf("an optional one: %+v, %v", r, err)
	}
	o.Force = true
	o.Device = func(float64) (*Device, error) {
		return &Device{Name: CPU, Reason: "so it was said"}, nil
	}
	if r, err = Propagate(context.Background(), fsys, "graph", "store", o); err != nil || r.Plan.Device.Name != CPU ||
		r.Plan.Device.Reason != "so it was said" {
		t.Errorf("the processor: %+v, %v", r, err)
	}
	o.Device = always(1<<20, nil)
	if r, err = Propagate(context.Background(), fsys, "graph", "store", o); err != nil ||
		r.Plan.Device.Name != "card" || r.Plan.Device.Reason != "a test" {
		t.Errorf("a device: %+v, %v", r, err)
	}
}

func TestNumbersThatAreNotFiniteHaveTheSameErrorOnADevice(t *testing.T) {
	g := randomGraph(1, 900, 6)
	for i := range g.x {
		g.x[i] *= 1e38
	}
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	for _, dt := range []format.DType{format.Float32, format.BFloat16} {
		o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Col}}, DType: dt, Threads: 2,
			Rows: format.RowsAll}
		_, want := Propagate(context.Background(), fsys.CrashClone(), "graph", "store", o)
		if !errors.Is(want, ErrInvalid) {
			t.Fatalf("on the processor: %v", want)
		}
		for kind, free := range memoryFor(t, fsys.CrashClone(), o) {
			if strings.HasSuffix(kind, "ranges true") {
				continue // the first row of the first columns is another one
			}
			o.Device = always(free, nil)
			_, got := Propagate(context.Background(), fsys.CrashClone(), "graph", "store", o)
			if got == nil || got.Error() != want.Error() {
				t.Errorf("%v, %s: %v, want %v", dt, kind, got, want)
			}
		}
	}
}

// failing is a device whose n-th wait from now on fails, and all that follow.
type failing struct {
	gds.Device
	left *int
}

var failures sync.Mutex // of left

var errLost = errors.New("the card fell out")

func (f failing) NewStream() (gds.Stream, error) {
	s, err := f.Device.NewStream()
	return failingStream{s, f.left}, err
}

type failingStream struct {
	gds.Stream
	left *int
}

func (s failingStream) Record() gds.Event { return failingEvent{s.Stream.Record(), s.left} }

func (s failingStream) WaitEvent(e gds.Event) { s.Stream.WaitEvent(e.(failingEvent).Event) }

type failingEvent struct {
	gds.Event
	left *int
}

func (e failingEvent) Elapsed(since gds.Event) (time.Duration, error) {
	return e.Event.Elapsed(since.(failingEvent).Event)
}

func (e failingEvent) Wait(ctx context.Context) error {
	if err := e.Event.Wait(ctx); err != nil {
		return err
	}
	failures.Lock()
	defer failures.Unlock()
	if *e.left--; *e.left < 0 {
		return errLost
	}
	return nil
}

// A device that is lost at any moment is an error that names it, and the processor goes on to the same bytes.
func TestAJobOnADeviceThatIsLostGoesOnOnTheProcessor(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 400, 6).write(t, fsys, "graph")
	for _, rows := range []string{format.RowsAll, format.RowsLabeled} {
		o := Options{Hops: 3, Operators: []operator.Operator{{Name: operator.Sym},
			{Name: operator.Heat, Parameter: 1, Tolerance: 0.1}}, Rows: rows, Threads: 2}
		want := propagated(t, fsys.CrashClone(), "store", o)
		for _, free := range memoryFor(t, fsys, o) {
			if testing.Short() && (free > 200_000 || rows == format.RowsAll) {
				continue
			}
			resumed, ticks := 0, new(atomic.Int64)
			for n := 0; ; n = n*3 + 1 {
				disk, left := fsys.CrashClone(), n
				card := aDevice(free, nil)
				open := card.Open
				card.Open = func() (gds.Device, error) {
					d, err := open()
					return failing{Device: d, left: &left}, err
				}
				o.Device = func(float64) (*Device, error) { return card, nil }
				o.clock = ticking(ticks)
				_, err := Propagate(context.Background(), disk, "graph", "store", o)
				o.clock = nil
				if err == nil {
					break
				}
				if !errors.Is(err, ErrDevice) || !errors.Is(err, errLost) || !strings.Contains(err.Error(), "card: ") ||
					!strings.Contains(err.Error(), "--device cpu") {
					t.Fatalf("after %d waits: %v", n, err)
				}
				o.Device = nil
				r, err := Propagate(context.Background(), disk, "graph", "store", o)
				if err != nil {
					t.Fatalf("after %d waits, on the processor: %v", n, err)
				}
				if r.Resumed {
					resumed++
				}
				if !sameFiles(files(t, disk, "store"), want) {
					t.Errorf("after %d waits, the processor goes on to other bytes", n)
				}
			}
			if resumed == 0 {
				t.Errorf("%s rows, %d bytes: nothing was kept of any job", rows, free)
			}
		}
	}
}

func TestAJobOnADeviceGoesOnAfterACrashAtAnyOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("as on the processor")
	}
	graph := vfs.NewMem()
	randomGraph(1, 50, 3).write(t, graph, "graph")
	crashAtAnyOperation(t, graph, 0, Options{
		Hops: 1, Operators: []operator.Operator{{Name: operator.Heat, Parameter: 0.5, Tolerance: 0.01}}, Threads: 1,
		clock: ticking(new(atomic.Int64)), Device: always(0, nil),
	})
}

// Time slots are enough on a device too: it pauses within a product.
func TestAJobOnADeviceEndsInSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("as on the processor")
	}
	graph := vfs.NewMem()
	randomGraph(0, 3000, 2).write(t, graph, "graph")
	ticks := new(atomic.Int64)
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym},
		{Name: operator.RW, Graph: operator.Reverse}}, Threads: 1, clock: ticking(ticks), Device: always(400_000, nil)}
	disk := graph.CrashClone()
	want := propagated(t, disk, "whole", o)
	o.MaxTime = max(time.Duration(ticks.Load())*tick/4, 6*tick)
	slots := 1
	for ; slots < 20; slots++ {
		ticks.Store(0)
		_, err := Propagate(context.Background(), disk, "graph", "store", o)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrMaxTime) || errors.Is(err, ErrTooShort) {
			t.Fatalf("slot %d: %v", slots, err)
		}
	}
	if slots < 3 || !sameFiles(files(t, disk, "store"), want) {
		t.Errorf("%d slots, or another store", slots)
	}
}

func TestADeviceThatIsMeasuredHasRates(t *testing.T) {
	for _, free := range []int64{0, 1 << 20, 1 << 10} {
		var last gds.Usage
		d := aDevice(free, &last)
		m := device.Measured(d)
		if known := m.LinkBytesPerSecond > 0 && m.GatherBytesPerSecond > 0; known != (free != 1<<10) {
			t.Errorf("%d bytes: %g bytes/s come, %g are added", free, m.LinkBytesPerSecond, m.GatherBytesPerSecond)
		}
		if last.InUse != 0 || last.PinnedInUse != 0 || free > 0 && last.Peak > free || d.LinkBytesPerSecond != 0 {
			t.Errorf("%d bytes: %+v, %+v", free, last, d)
		}
		d.LinkBytesPerSecond = 7
		if m := device.Measured(d); m.LinkBytesPerSecond != 7 {
			t.Errorf("a link that is known is measured: %g", m.LinkBytesPerSecond)
		}
	}
	bad := errors.New("lost")
	d := &Device{Name: "card", Open: func() (gds.Device, error) { return nil, bad }}
	if m := device.Measured(d); m.LinkBytesPerSecond != 0 || m.GatherBytesPerSecond != 0 {
		t.Errorf("a device that does not open: %+v", m)
	}
}

// Memory that was free when the job was planned may be taken since: the error says so, wherever it shows.
func TestAJobOnADeviceWhoseMemoryIsTakenGoesOnOnTheProcessor(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 500, 7).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym},
		{Name: operator.PPR, Parameter: 0.3, Tolerance: 0.1}}, Rows: format.RowsAll, Threads: 2}
	want := propagated(t, fsys.CrashClone(), "store", o)
	full := 0
	for memory := int64(4 << 10); ; memory = memory * 5 / 4 {
		o.Device = func(float64) (*Device, error) {
			return &Device{Name: "card", Open: func() (gds.Device, error) {
				return testdevice.New(host.Options{Discrete: true, MemoryBytes: memory})
			}}, nil
		}
		disk := fsys.CrashClone()
		_, err := Propagate(context.Background(), disk, "graph", "store", o)
		if err == nil {
			break
		}
		full++
		if !errors.Is(err, ErrDevice) || !errors.Is(err, gds.ErrOutOfMemory) ||
			!strings.Contains(err.Error(), "card: ") {
			t.Fatalf("%d bytes: %v", memory, err)
		}
		o.Device = nil
		if got := propagated(t, disk, "store", o); !sameFiles(got, want) {
			t.Errorf("%d bytes: the processor goes on to other bytes", memory)
		}
	}
	if full < 5 {
		t.Errorf("memory was full %d times", full)
	}
}

// A device that need not be used is not used where it is predicted to take longer, and what is predicted is said.
func TestTheProcessorTakesAJobThatADeviceWouldSlowDown(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(2, 900, 24).write(t, fsys, "graph")
	slow := plan.DefaultRates // of the processor, so that products count
	slow.Edge *= 1000
	for _, c := range []struct {
		link, gather float64
		optional     bool
		name         string
	}{
		{1e3, 1e12, true, CPU}, {1e12, 1e3, true, CPU}, {1e12, 1e12, true, "card"},
		{1e3, 1e3, false, "card"}, {1e3, 0, true, "card"}, {0, 1e3, true, "card"}, // which asks for it, or is not known
	} {
		w := workOf(t, fsys, Options{Hops: 2, Operators: allOperators[:1]})
		p, err := w.PlanOn(func(float64) (*Device, error) {
			d := aDevice(16<<20, nil)
			d.LinkBytesPerSecond, d.GatherBytesPerSecond, d.Optional = c.link, c.gather, c.optional
			return d, nil
		}, 0, &slow)
		if err != nil {
			t.Fatal(err)
		}
		if p.Device.Name != c.name || (w.Device == nil) != (c.name == CPU) || c.name == CPU &&
			!strings.Contains(p.Device.Reason, "s on card") {
			t.Errorf("%+v: %+v", c, p.Device)
		}
	}
}

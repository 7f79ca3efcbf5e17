package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/trainer"
)

// makeFiles makes a store of three matrices [rows,5] in memory, in chunks of 16 rows, with one split.
func makeFiles(t *testing.T, dtypes ...format.DType) *vfs.Mem {
	t.Helper()
	files, o := vfs.NewMem(), preprop.Options{ChunkRows: 16}
	if len(dtypes) > 0 {
		o.DType = dtypes[0]
	}
	graph := ingest.GenerateOptions{Nodes: 240, Edges: 900, Features: 5, Classes: 3, Labeled: 1, Seed: 3}
	if err := makeStore(t.Context(), files, ".", graph, o); err != nil {
		t.Fatal(err)
	}
	return files
}

func openStore(t *testing.T, fsys vfs.FS) *format.Dir {
	t.Helper()
	store, err := format.OpenStore(fsys, "store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// thisMachine has a budget that depends on no machine.
func thisMachine(t *testing.T, budget units.Bytes, emulate string) Machine {
	t.Helper()
	var e host.Emulation
	if emulate != "" {
		if err := e.Set(emulate); err != nil {
			t.Fatal(err)
		}
	}
	return ThisMachine(t.Context(), machine.Limit{Bytes: budget, By: "the test"}, 2, devices.Options{Emulate: e})
}

const enough = units.Bytes(1 << 30)

func training(m Machine, store *format.Dir) Options {
	return Options{
		Machine: m, Matrices: store.Matrices(), Train: true, BatchRows: 37,
		Rows: []loader.Rows{{Region: format.RegionTrain}, {Region: format.RegionValid}},
	}
}

// storedRows are label and features of rows of a store, as text, with how often each is there.
func storedRows(t *testing.T, store *format.Dir, wanted func(row int64) bool) map[string]int {
	t.Helper()
	layout := store.Layout()
	rows := make([]string, store.Manifest.Rows)
	for _, region := range layout.Regions {
		labels := make([]int32, region.Rows)
		if err := store.ReadLabels(t.Context(), region, labels); err != nil {
			t.Fatal(err)
		}
		for i, label := range labels {
			rows[region.FirstRow+int64(i)] = fmt.Sprint(label)
		}
	}
	for _, id := range store.Matrices() {
		m, err := store.Matrix(id)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for k := range m.Chunks() {
			first, n := m.ChunkRowRange(k)
			data := make([]byte, m.Extent(k).Length)
			if err := m.ReadChunk(k, data); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				rows[first+int64(i)] += fmt.Sprint(dtype.Float32s(data)[i*layout.Features : (i+1)*layout.Features])
			}
		}
	}
	count := map[string]int{}
	for i, text := range rows {
		if wanted(int64(i)) {
			count[text]++
		}
	}
	return count
}

// loadedRows are the same of one epoch of sets, of which there is one for each device.
func loadedRows(t *testing.T, s *Session, sets []*loader.Set) map[string]int {
	t.Helper()
	count := map[string]int{}
	for rank, set := range sets {
		device := s.Devices[rank]
		stream, err := device.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range set.Epoch(t.Context(), stream, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Rows > s.ShareRows() {
				t.Errorf("a share of %d rows, beyond %d", b.Rows, s.ShareRows())
			}
			rows := make([]string, b.Rows)
			for i, label := range dtype.Int32s(read(t, device, stream, b.Labels)) {
				rows[i] = fmt.Sprint(label)
			}
			for _, x := range b.X {
				values := dtype.Float32s(read(t, device, stream, x))
				for i := range rows {
					rows[i] += fmt.Sprint(values[i*x.Cols : (i+1)*x.Cols])
				}
			}
			for _, row := range rows {
				count[row]++
			}
		}
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return count
}

// read copies a tensor to host memory.
func read(t *testing.T, device gds.Device, stream gds.Stream, x gds.Tensor) []byte {
	t.Helper()
	bytes := gds.Bytes(x.Rows, x.Cols, x.DType)
	pinned, err := device.AllocPinned(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Free()
	stream.Copy(gds.NewTensor(pinned, x.Rows, x.Cols, x.DType), x)
	if err := stream.Synchronize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(pinned.Bytes()[:bytes])
}

func inRegion(t *testing.T, store *format.Dir, name string) func(int64) bool {
	t.Helper()
	r, ok := store.Region(name)
	if !ok || r.Rows == 0 {
		t.Fatalf("no %s rows", name)
	}
	return func(row int64) bool { return row >= r.FirstRow && row < r.FirstRow+r.Rows }
}

// Who computes elsewhere gets every row once from wherever the input lives, and devices that have
// lent anything say so when they are closed.
func TestWithoutAModelEveryRowComesOnceFromEveryPlacement(t *testing.T) {
	store := openStore(t, makeFiles(t))
	for _, c := range []struct {
		emulate, placement, shuffle string
		devices                     int
		sharded                     bool
		chosen                      string
	}{
		{"", "", "", 1, false, "device rr"},
		{"", placement.Storage, "", 1, false, "storage chunk"},
		{"gpu=1,mem=1MiB", placement.Device, placement.CR, 1, false, "device chunk"},
		{"gpu=2,mem=1MiB", placement.Host, placement.RR, 2, false, "host rr"},
		{"gpu=2,mem=1MiB", placement.Storage, placement.Auto, 1, false, "storage chunk"},
		{"gpu=2,mem=30KiB", "", placement.RR, 2, true, "device rr"},
	} {
		t.Run(c.emulate+" "+c.placement, func(t *testing.T) {
			o := training(thisMachine(t, enough, c.emulate), store)
			o.Placement, o.Shuffle = c.placement, c.shuffle
			s, err := Open(t.Context(), store, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Plan.Placement + " " + s.Plan.Shuffle; got != c.chosen || len(s.Devices) != c.devices ||
				s.Plan.Sharded != c.sharded {
				t.Errorf("%s on %d devices, sharded %t: %q", got, len(s.Devices), s.Plan.Sharded, s.Plan.Reasons)
			}
			if want := map[string]int{placement.RR: 1,
				placement.CR: 16}[s.Plan.Shuffle]; s.ChunkRows != want || s.BatchRows != 37 {
				t.Errorf("batches of %d rows, %d shuffled together, want %d", s.BatchRows, s.ChunkRows, want)
			}
			for i, order := range []chunk.Order{chunk.Shuffled, chunk.Sequential} {
				sets, err := s.Sets(o.Rows[i], order, 9)
				if err != nil {
					t.Fatal(err)
				}
				want := storedRows(t, store, inRegion(t, store, o.Rows[i].Region))
				if got := loadedRows(t, s, sets); !maps.Equal(got, want) {
					t.Errorf("%s: %d different rows were loaded, %d are stored", o.Rows[i].Region, len(got), len(want))
				}
			}
			if s.PeakBytes() <= 0 {
				t.Error("no memory was used")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBatchesHaveWhatIsAskedFor(t *testing.T) {
	store := openStore(t, makeFiles(t, dtype.Float16))
	table, err := store.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := training(thisMachine(t, enough, ""), store)
	o.Placement = placement.Host
	plain, err := o.Needs(store.Layout(), store, 1)
	if err != nil {
		t.Fatal(err)
	}
	o.AsStored, o.RowNumbers, o.NodeIDs, o.Buffers = true, true, true, 3
	s, err := Open(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := s.Plan.Needs; n.Convert || !plain.Convert || !strings.Contains(fmt.Sprint(s.Plan.Reasons),
		"3 batch buffers") {
		t.Errorf("%+v, %q", n, s.Plan.Reasons)
	}
	sets, err := s.Sets(o.Rows[0], chunk.Shuffled, 1)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Devices[0].NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for b, err := range sets[0].Epoch(t.Context(), stream, 0) {
		if err != nil {
			t.Fatal(err)
		}
		rows, nodes := dtype.Uint32s(read(t, s.Devices[0], stream, b.RowNumbers)), dtype.Uint32s(read(t, s.Devices[0],
			stream, b.NodeIDs))
		if b.X[0].DType != gds.Float16 || len(rows) != b.Rows || len(nodes) != b.Rows {
			t.Fatalf("batch %d of %d rows: %v, rows %v, nodes %v", b.Index, b.Rows, b.X, rows, nodes)
		}
		for i, row := range rows {
			if nodes[i] != table.NodeID[row] {
				t.Errorf("row %d is of node %d, not %d", row, table.NodeID[row], nodes[i])
			}
		}
	}
}

func TestEvaluationReadsInOrder(t *testing.T) {
	store := openStore(t, makeFiles(t))
	o := training(thisMachine(t, enough, ""), store)
	o.Train, o.Shuffle = false, placement.CR // which goes for training
	s, err := Open(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Plan.Shuffle != "" || s.Plan.Needs.TrainRows != 0 {
		t.Errorf("%+v", s.Plan.Decision)
	}
}

// fixedModel is a model of known needs.
type fixedModel struct {
	deviceBytes, hostBytes int64
	step                   func(devices []gds.Device, sets []*loader.Set, shareRows int) error
}

func (m fixedModel) DeviceBytes(batchRows int, train bool) (int64, error) {
	return m.deviceBytes, nil
}

func (m fixedModel) HostBytes(devices int) (int64, error) { return int64(devices) * m.hostBytes, nil }

func (m fixedModel) StepSeconds(_ context.Context, devices []gds.Device, sets []*loader.Set, shareRows int) (train,
	evaluate float64, err error) {
	return 2e-3, 1e-3, m.step(devices, sets, shareRows)
}

var _ Model = trainer.Spec{}

func TestAModelAddsItsMemoryAndTimeToThePlan(t *testing.T) {
	store := openStore(t, makeFiles(t))
	for _, c := range []struct {
		emulate string
		devices int
	}{{"", 1}, {"gpu=3,mem=1MiB", 3}} {
		o := training(thisMachine(t, enough, c.emulate), store)
		o.ValidRows = 10
		without, err := MakePlan(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		if without.ComputeSeconds != 0 || without.LoadSeconds <= 0 || without.Facts.Rates.Storage <= 0 ||
			without.Needs.TrainRows <= 0 {
			t.Errorf("without a model: %+v", without)
		}
		const peak = 400 << 10
		calls := 0
		o.Model = fixedModel{10_000, 500, func(devices []gds.Device, sets []*loader.Set, shareRows int) error {
			if calls++; len(devices) != c.devices || len(sets) != c.devices || shareRows != shareRows37(c.devices) ||
				sets[0].Rows() == 0 {
				t.Errorf("%d devices, %d sets, shares of %d rows", len(devices), len(sets), shareRows)
			}
			for _, d := range devices {
				b, err := d.Alloc(peak)
				if err != nil {
					return err
				}
				if err := b.Free(); err != nil {
					return err
				}
			}
			return nil
		}}
		before, err := o.Needs(store.Layout(), store, c.devices)
		if err != nil {
			t.Fatal(err)
		}
		n := without.Needs
		if before.Work != n.Work+10_000 || before.ShareWork != n.ShareWork+10_000 ||
			before.Common.Sum(1, false).HostBytes != n.Common.Sum(1, false).HostBytes+int64(500*c.devices) ||
			before.Input != n.Input {
			t.Errorf("needs with a model %+v, without %+v", before, n)
		}
		with, err := MakePlan(t.Context(), store, o)
		if err != nil || calls != 1 {
			t.Fatal(calls, err)
		}
		want := placement.Compute{TrainSeconds: 2e-3, ValidSeconds: 1e-3}
		if with.Needs.Compute != want || with.ComputeSeconds <= 0 || with.Needs.WorkOn(c.devices) < peak {
			t.Errorf("with a model: %+v", with.Needs)
		}
		// Open does not measure for so small an input.
		s, err := Open(t.Context(), store, o)
		if err != nil || calls != 1 {
			t.Fatal(calls, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func shareRows37(devices int) int { return map[int]int{1: 37, 3: 13}[devices] }

func TestAModelThatCannotBeMeasuredHasNoTimes(t *testing.T) {
	store := openStore(t, makeFiles(t))
	bad := errors.New("bad step")
	for _, c := range []struct {
		name   string
		err    error
		passed bool
	}{
		{"because memory is too small", fmt.Errorf("a layer: %w", gds.ErrOutOfMemory), true},
		{"because it fails", bad, false},
	} {
		o := training(thisMachine(t, enough, ""), store)
		o.Model = fixedModel{step: func([]gds.Device, []*loader.Set, int) error { return c.err }}
		p, err := MakePlan(t.Context(), store, o)
		if c.passed && (err != nil || p.ComputeSeconds != 0) || !c.passed && !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %+v", c.name, err, p.Decision)
		}
	}
}

func TestADescribedMachineIsPlannedForWithoutAStore(t *testing.T) {
	store := openStore(t, makeFiles(t))
	facts := placement.Facts{Device: gds.Info{Name: "card"}, DeviceFree: 1 << 20,
		Budget: machine.Limit{Bytes: enough, By: "the test"},
		Rates:  placement.Rates{Storage: 1 << 30, HostCopy: 1 << 30, HostGather: 1 << 30, Link: 1 << 30}}
	p, err := DescribedPlan(facts, store.Layout(), placement.Compute{TrainSeconds: 1}, training(Machine{}, store))
	if err != nil || p.Placement != placement.Device || p.ComputeSeconds != float64(p.Needs.TrainRows) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWhatCannotBeOpenedSaysWhy(t *testing.T) {
	store := openStore(t, makeFiles(t))
	for _, c := range []struct {
		name    string
		budget  units.Bytes
		emulate string
		change  func(*Options)
		is      error
		says    string
	}{
		{"a budget that is the program's", machine.ProgramBytes, "", func(*Options) {}, machine.ErrDoesNotFit,
			"by the test"},
		{"a device that is too small for batches", enough, "gpu=1,mem=4KiB", func(*Options) {}, machine.ErrDoesNotFit,
			`device "emulated gpu 0"`},
		{"a placement that does not fit", enough, "gpu=1,mem=20KiB",
			func(o *Options) { o.Placement = placement.Device }, machine.ErrDoesNotFit, "placement device does not fit"},
		{"rows shuffled from storage", enough, "", func(o *Options) {
			o.Placement, o.Shuffle = placement.Storage,
				placement.RR
		}, placement.ErrContradiction, "shuffle chunk"},
		{"chunks that are cut", enough, "", func(o *Options) { o.Placement, o.ChunkRows = placement.Storage, 5 },
			placement.ErrContradiction, "chunk rows"},
		{"an unknown placement", enough, "", func(o *Options) { o.Placement = "tape" }, placement.ErrContradiction,
			"tape"},
		{"no rows", enough, "", func(o *Options) { o.Rows = nil }, ErrOptions, "no rows"},
		{"a region that is not there", enough, "", func(o *Options) { o.Rows = []loader.Rows{{Region: "night"}} }, nil,
			`"night"`},
		{"no matrices", enough, "", func(o *Options) { o.Matrices = nil }, nil, "no matrices"},
		{"empty batches", enough, "", func(o *Options) { o.BatchRows = 0 }, nil, "batches of 0 rows"},
		{"no device", enough, "",
			func(o *Options) { o.Machine.Devices.Count, o.Machine.Devices.WhyNone = 0, "it was sold" }, nil, "it was sold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := training(thisMachine(t, c.budget, c.emulate), store)
			c.change(&o)
			s, err := Open(t.Context(), store, o)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if strings.Contains(fmt.Sprint(err), "--") {
				t.Errorf("a library knows no flags: %v", err)
			}
			if s != nil {
				t.Error("a session beside an error")
			}
		})
	}
}

// What fails while a session is planned and opened, on disk or on a device, is the error, and the
// devices, which would report what they have lent, add nothing to it. The bubble sees goroutines
// that are left.
func TestAFailedOpenLeavesNothing(t *testing.T) {
	files := makeFiles(t)
	each := func(t *testing.T, run func(at int) (ended bool)) {
		t.Helper()
		at := 1
		for ; !run(at); at++ {
		}
		if at < 10 {
			t.Errorf("only %d steps", at)
		}
	}
	open := func(t *testing.T, store *format.Dir, m Machine, placed string) error {
		o := training(m, store)
		o.Placement = placed
		s, err := Open(t.Context(), store, o)
		if err == nil {
			return s.Close()
		}
		return err
	}
	for _, c := range []struct{ emulate, placement string }{
		{"", placement.Device}, {"", placement.Storage}, {"gpu=2,mem=1MiB", placement.Device}, {"gpu=2,mem=1MiB",
			placement.Host},
	} {
		t.Run("disk "+c.emulate+" "+c.placement, func(t *testing.T) {
			each(t, func(at int) (ended bool) {
				synctest.Test(t, func(t *testing.T) {
					disk := vfs.NewFault(files)
					store, err := format.OpenStore(disk, "store")
					if err != nil {
						t.Fatal(err)
					}
					last := disk.Operations() + int64(at)
					disk.FailAt(last, syscall.EIO)
					err = open(t, store, thisMachine(t, enough, c.emulate), c.placement)
					if ended = disk.Operations() < last; ended != (err == nil) || err != nil && (!errors.Is(err,
						syscall.EIO) || strings.Contains(err.Error(), "closed with")) {
						t.Errorf("operation %d: %v", at, err)
					}
					store.Close()
				})
				return ended
			})
		})
		t.Run("device "+c.emulate+" "+c.placement, func(t *testing.T) {
			each(t, func(at int) (ended bool) {
				synctest.Test(t, func(t *testing.T) {
					store := openStore(t, files)
					m := thisMachine(t, enough, c.emulate)
					var failing gdstest.FailingDevice
					failing.FailAt(at)
					device := m.Devices.Device
					m.Devices.Device = func(i, n int) (gds.Device, error) {
						d, err := device(i, n)
						if i < n-1 || err != nil {
							return d, err
						}
						failing.Device = d
						return &failing, nil
					}
					err := open(t, store, m, c.placement)
					if ended = !failing.Failed(); ended != (err == nil) || err != nil && (!failing.Is(err) ||
						strings.Contains(err.Error(), "closed with")) {
						t.Errorf("step %d: %v", at, err)
					}
				})
				return ended
			})
		})
	}
}

func TestAZeroMachineIsAllOfThisOne(t *testing.T) {
	m := ThisMachine(t.Context(), machine.Limit{}, 0, devices.Options{})
	f := m.Facts()
	if m.Threads < 1 || m.Budget.Bytes <= 0 || m.Budget.By == "" || f.Device.Name != "host" || f.Devices != 1 ||
		f.Budget != m.Budget || f.DeviceFree != m.Budget.Bytes-machine.ProgramBytes {
		t.Errorf("%+v, %+v", m, f)
	}
}

package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Most tests run in a synctest bubble: it fails when all goroutines wait for one
// another, and when one is left at the end.

var placements = []struct {
	name      string
	placement Placement
	unified   bool
	mapped    bool
}{
	{"device, unified", Device, true, false},
	{"device, discrete", Device, false, false},
	{"host, unified", Host, true, false},
	{"host, discrete", Host, false, false},
	{"host, discrete, gathered by the device", Host, false, true},
	{"storage, unified", Storage, true, false},
	{"storage, discrete", Storage, false, false},
}

// plans are the plans that a placement takes, for one size of batch.
func plans(p Placement, chunkRows, batchRows int) []chunk.Plan {
	out := []chunk.Plan{
		{BatchRows: batchRows},
		{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: chunkRows, Seed: 1},
		{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: 3 * chunkRows, Seed: 2},
		{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: chunkRows, Seed: 3, Rank: 1, World: 3},
		{BatchRows: min(batchRows, 9), Order: chunk.Shuffled, ChunkRows: chunkRows, Seed: 4, DropLast: true},
	}
	if p != Storage {
		out = append(out,
			chunk.Plan{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: 1, Seed: 5},
			chunk.Plan{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: chunkRows - 1, Seed: 6})
	}
	return out
}

func TestEveryPlacementGivesTheBatchesOfThePlan(t *testing.T) {
	for _, spec := range []storeSpec{
		{format.Float32, 8, 5, 1, 0}, {format.Float16, 8, 5, 1, 0}, {format.BFloat16, 20, 3, 1, 0},
		{format.Float32, 100, 1, 1, 0},
	} {
		store := newStore(t, spec)
		for _, p := range placements {
			t.Run(fmt.Sprintf("%v, chunks of %d, %s", spec.dtype, spec.chunkRows, p.name), func(t *testing.T) {
				testdevice.Bubble(t, func(t *testing.T) {
					device := newDevice(t, p.unified, host.Options{Threads: 2})
					for i, batchRows := range []int{1, 3, 7, 8, 9, 20, 52, 53, 1000} {
						l := mustOpen(t, Options{
							Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
							Mapped:    p.mapped,
							BatchRows: batchRows, Buffers: i % 4, Threads: 3,
						})
						for n, plan := range plans(p.placement, spec.chunkRows, batchRows) {
							for _, r := range store.Layout().Regions {
								s := mustSet(t, l, Rows{Region: r.Name}, plan)
								plan.Rows = r.Rows
								if s.Rows() != r.Rows || s.Batches() != plan.Batches() {
									t.Fatalf("%d rows, %d batches", s.Rows(), s.Batches())
								}
								for _, first := range []int{0, plan.Batches() / 2} {
									got, err := collect(t, device, s, n, first)
									if err != nil {
										t.Fatal(err)
									}
									compare(t, got, plan, n, first, spec.features, from(int(r.FirstRow)))
								}
							}
						}
					}
				})
			})
		}
	}
}

func TestLongSpansAreCopiedToTheSameBatches(t *testing.T) {
	for _, dtype := range []format.DType{format.Float32, format.BFloat16} {
		spec := storeSpec{dtype, 100, 3, 1, 730}
		store := newStore(t, spec)
		for _, p := range placements {
			testdevice.Bubble(t, func(t *testing.T) {
				device := newDevice(t, p.unified, host.Options{Threads: 2})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
					Mapped: p.mapped, BatchRows: 350})
				plan := chunk.Plan{Rows: 730, BatchRows: 350, ChunkRows: 100, Order: chunk.Shuffled}
				s := mustSet(t, l, Rows{Region: "train"}, plan)
				for b := range plan.Epoch(0) {
					if s.bySpan() == (p.placement == Host && p.unified) || b.Rows == 350 && len(b.Spans()) < 2 {
						t.Fatalf("the plan does not test what it should: %+v", b)
					}
				}
				got, err := collect(t, device, s, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, 0, 0, spec.features, from(0))
				want := ""
				if p.placement == Host && !p.unified {
					want = map[bool]string{false: "host", true: "device"}[p.mapped]
				}
				if got := l.Stats().Gather; got != want {
					t.Errorf("%s: rows are gathered by %q, want %q", p.name, got, want)
				}
			})
		}
	}
}

func TestTheNaiveLoaderGivesTheSameBatches(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, Mapped: p.mapped,
				BatchRows: 7, Buffers: 1, BySpan: true}
			if p.placement == Storage {
				if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not rows one by one") {
					t.Errorf("from storage: %v", err)
				}
				return
			}
			l := mustOpen(t, o)
			for _, plan := range plans(p.placement, 8, 7) {
				got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				plan.Rows = 53
				compare(t, got, plan, 0, 0, spec.features, from(0))
			}
			list := someRows(40)
			plan := chunk.Plan{Order: chunk.Shuffled, BatchRows: 7}
			got, err := collect(t, device, mustSet(t, l, Rows{List: list}, plan), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			plan.Rows = 40
			compare(t, got, plan, 0, 0, spec.features, func(p int64) int { return int(list[p]) })
		})
	}
}

func TestASetRunsOverAListOfRows(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
				Mapped: p.mapped, BatchRows: 7})
			list := someRows(40)
			plan := chunk.Plan{Order: chunk.Shuffled, BatchRows: 7, ChunkRows: 8}
			s, err := l.Set(Rows{List: list}, plan)
			if p.placement == Storage {
				if err == nil || !strings.Contains(err.Error(), "propagate again with that split") {
					t.Errorf("from storage: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := collect(t, device, s, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			plan.Rows = 40
			compare(t, got, plan, 0, 0, spec.features, func(r int64) int { return int(list[r]) })
		})
	}
}

func TestALoaderHoldsOnlyItsRegions(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{
				Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, Mapped: p.mapped,
				BatchRows: 4,
				Regions:   []string{"rest", "valid"},
			})
			for _, name := range []string{"valid", "rest"} {
				r, _ := store.Region(name)
				plan := chunk.Plan{Rows: r.Rows, BatchRows: 4}
				got, err := collect(t, device, mustSet(t, l, Rows{Region: name}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, 0, 0, spec.features, from(int(r.FirstRow)))
			}
			if p.placement != Storage {
				if want := int64(26 * allColumns(5) * 4); l.Stats().BytesRead != want {
					t.Errorf("read %d bytes, want %d", l.Stats().BytesRead, want)
				}
				plan := chunk.Plan{Rows: 2, BatchRows: 4}
				got, err := collect(t, device, mustSet(t, l, Rows{List: []uint32{78, 53}}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, 0, 0, spec.features, func(r int64) int { return []int{78, 53}[r] })
				if _, err := l.Set(Rows{List: []uint32{53, 52}}, plan); err == nil ||
					!strings.Contains(err.Error(), "row 52, at place 1") {
					t.Errorf("a row of another region: %v", err)
				}
			}
			if _, err := l.Set(Rows{Region: "train"}, chunk.Plan{BatchRows: 4}); err == nil ||
				!strings.Contains(err.Error(), `not for "train"`) {
				t.Errorf("another region: %v", err)
			}
		})
	}
}

// faultyStore has chunks of most of a page, so that half a read is not enough.
var faultyStore = storeSpec{dtype: format.Float16, chunkRows: 8, features: 250, labels: 1}

// faulty runs Open and an epoch on a file system that has been armed, and checks
// that what comes before an error is right and nothing is left.
func faulty(t *testing.T, fsys vfs.FS, p Placement, unified bool, arm func()) (err error) {
	testdevice.Bubble(t, func(t *testing.T) {
		store, openErr := format.OpenStore(fsys, "store")
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer store.Close()
		device := newDevice(t, unified, host.Options{Threads: 2})
		arm()
		var l *Loader
		l, err = Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: p,
			BatchRows: 5})
		if err != nil {
			return
		}
		defer func() {
			if closed := l.Close(); closed != nil {
				t.Errorf("close: %v", closed)
			}
		}()
		plan := chunk.Plan{Rows: 53, BatchRows: 5, ChunkRows: 8, Order: chunk.Shuffled}
		var got []copied
		got, err = collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
		k := 0
		for want := range plan.Epoch(0) {
			if k == len(got) {
				break
			}
			if differs := got[k].differs(want, faultyStore.features, from(0)); differs != nil {
				t.Errorf("before the error %v: %v", err, differs)
			}
			k++
		}
		if err == nil && k != plan.Batches() {
			t.Errorf("%d batches and no error", k)
		}
	})
	return err
}

func TestAnyOperationThatFailsIsAnErrorAndNeverAHang(t *testing.T) {
	mem := vfs.NewMem()
	writeStore(t, mem, "store", faultyStore)
	for _, p := range placements {
		for n := int64(1); ; n++ {
			fault := vfs.NewFault(mem)
			err := faulty(t, fault, p.placement, p.unified, func() { fault.FailAt(fault.Operations()+n, syscall.EIO) })
			if err == nil {
				if n < 10 {
					t.Errorf("%s: only %d operations", p.name, n)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: operation %d fails: %v", p.name, n, err)
			}
		}
	}
}

func TestAnyReadThatIsShortOrWrongIsCorruption(t *testing.T) {
	mem := vfs.NewMem()
	writeStore(t, mem, "store", faultyStore)
	for _, p := range placements {
		for _, flips := range []bool{false, true} {
			for n := int64(1); ; n++ {
				fault, before := vfs.NewFault(mem), int64(0)
				err := faulty(t, fault, p.placement, p.unified, func() {
					before = fault.Reads()
					if flips {
						fault.FlipBit(before+n, 3)
					} else {
						fault.ShortenRead(before + n)
					}
				})
				if fault.Reads()-before < n {
					if err != nil {
						t.Error(err)
					}
					break
				}
				if !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s: read %d, flips %v: %v", p.name, n, flips, err)
				}
			}
		}
	}
}

func TestStatsSayWhatWasDone(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
				Mapped: p.mapped, BatchRows: 5})
			train := mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 5, ChunkRows: 8, Order: chunk.Shuffled})
			for n := range 2 {
				if _, err := collect(t, device, train, n, 0); err != nil {
					t.Fatal(err)
				}
			}
			s := l.Stats()
			if s.Placement != p.placement || s.Batches != 22 || s.Rows != 106 || len(s.Stages) != 2 ||
				s.Stages[1].Name != "assemble" {
				t.Errorf("%+v", s)
			}
			bytes, path := int64(testRows*allColumns(5)*4), "buffered"
			if p.placement == Storage {
				// An epoch reads each chunk of its region once, and no other.
				bytes, path = int64(2*53*allColumns(5)*4), "direct"
			}
			if s.BytesRead != bytes || len(s.Reads) != 1 || s.Reads[0].Path != path || s.Reads[0].Files != 3 {
				t.Errorf("read %d bytes, want %d by path %s: %+v", s.BytesRead, bytes, path, s.Reads)
			}
			if _, err := json.Marshal(s); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheBytesThatMoveAreCounted(t *testing.T) {
	const train = 384
	vectors := int64(train * allColumns(5) * 2) // three matrices, as stored
	store := newStore(t, storeSpec{dtype: format.Float16, chunkRows: 64, features: 5, labels: 1, train: train})
	for _, c := range []struct {
		name                string
		placement           Placement
		unified, naive      bool
		chunkRows           int
		assembled, copiedIn int64 // by the row: labels are 4 bytes, row numbers too
	}{
		{"rows of device memory are gathered by number", Device, false, false, 1, 0, 8 * train},
		{"chunks of device memory are not", Device, false, false, 64, 0, 4 * train},
		{"rows of host memory are gathered, then copied", Host, false, false, 1, vectors, vectors + 4*train},
		{"chunks of host memory are copied at once", Host, false, false, 64, 0, vectors + 4*train},
		{"rows one by one too", Host, false, true, 1, 0, vectors + 4*train},
		{"chunks of storage are copied from where they were read to", Storage, false, false, 64, 0, vectors + 4*train},
		{"rows are gathered into memory that is one", Host, true, false, 1, vectors, 4 * train},
		{"chunks are copied there by the host", Host, true, false, 64, vectors, 4 * train},
		{"and those of storage", Storage, true, false, 64, vectors, 4 * train},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := newDevice(t, c.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Regions: []string{"train"},
				Placement: c.placement, BatchRows: 128, BySpan: c.naive})
			set := mustSet(t, l, Rows{Region: "train"},
				chunk.Plan{BatchRows: 128, ChunkRows: c.chunkRows, Order: chunk.Shuffled})
			for n := range 2 {
				if _, err := collect(t, device, set, n, 0); err != nil {
					t.Fatal(err)
				}
			}
			if s := l.Stats(); s.AssembledBytes != 2*c.assembled || s.CopiedInBytes != 2*c.copiedIn {
				t.Errorf("in two epochs %d bytes were assembled and %d copied in, want %d and %d", s.AssembledBytes,
					s.CopiedInBytes, 2*c.assembled, 2*c.copiedIn)
			}
			var got Traffic
			stream := mustStream(t, device)
			for b, err := range set.Epoch(t.Context(), stream, 2) {
				if err != nil {
					t.Fatal(err)
				}
				got.Add(b.Traffic)
			}
			if err := stream.Close(); err != nil {
				t.Fatal(err)
			}
			want := Traffic{Rows: 3 * train}
			if want.AddBytes(c.placement, vectors); got != want || got.Bytes() != vectors {
				t.Errorf("the batches of an epoch had %+v, want %+v", got, want)
			}
		})
	}
}

func TestWhatCannotBeLoadedIsRefused(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no store", func(o *Options) { o.Store = nil }, "no store"},
		{"no matrices", func(o *Options) { o.Matrices = nil }, "no matrices"},
		{"a matrix that is not stored", func(o *Options) { o.Matrices = []MatrixID{{Operator: "sym", Hop: 2}} },
			"sym/hop-2"},
		{"a region that is not there", func(o *Options) { o.Regions = []string{"all"} }, `no region "all"`},
		{"an unknown placement", func(o *Options) { o.Placement = "tape" },
			`"tape" (want one of [device host memory storage])`},
		{"empty batches", func(o *Options) { o.BatchRows = 0 }, "batches of 0 rows"},
		{"negative buffers", func(o *Options) { o.Buffers = -1 }, "-1 buffers"},
	} {
		device := newDevice(t, true, host.Options{Threads: 2})
		o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage, BatchRows: 20}
		test.change(&o)
		for _, p := range []Placement{Device, Host, Storage} {
			if o.Placement != "tape" {
				o.Placement = p
			}
			l, err := Open(t.Context(), o)
			if l != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v, want %q", test.name, p, err, test.want)
			}
		}
	}
}

func TestSetsThatCannotBeAreRefused(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	l := mustOpen(t, Options{Device: newDevice(t, true, host.Options{Threads: 2}), Store: store, Matrices: testMatrices,
		Placement: Storage, BatchRows: 10})
	for _, test := range []struct {
		name string
		rows Rows
		plan chunk.Plan
		want string
	}{
		{"a region that is not there", Rows{Region: "all"}, chunk.Plan{BatchRows: 1},
			`no region "all" (it has ["train" "valid" "test" "rest"])`},
		{"a plan that is none", Rows{Region: "train"}, chunk.Plan{}, "batches of 0 rows"},
		{"batches that are too large", Rows{Region: "train"}, chunk.Plan{BatchRows: 11}, "batches of 11 rows from a " +
			"loader that was opened for 10"},
		{"shares that are too large", Rows{Region: "train"}, chunk.Plan{BatchRows: 31, World: 3},
			"batches of 11 rows from a loader that was opened for 10"},
		{"rows reshuffled from storage", Rows{Region: "train"}, chunk.Plan{BatchRows: 1, Order: chunk.Shuffled},
			"chunks of a multiple of 8 rows, not of 0"},
		{"parts of chunks from storage", Rows{Region: "train"},
			chunk.Plan{BatchRows: 1, Order: chunk.Shuffled, ChunkRows: 12},
			"chunks of a multiple of 8 rows, not of 12"},
	} {
		if _, err := l.Set(test.rows, test.plan); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	// A region smaller than the batch, and shares that fit.
	mustSet(t, l, Rows{Region: "rest"}, chunk.Plan{BatchRows: 1000})
	mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 30, World: 3})
}

func TestRowsWithoutLabelsAreUnlabelled(t *testing.T) {
	testdevice.Bubble(t, func(t *testing.T) {
		store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 0})
		device := newDevice(t, true, host.Options{Threads: 2})
		l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Host, BatchRows: 10})
		got, err := collect(t, device, mustSet(t, l, Rows{Region: "valid"}, chunk.Plan{BatchRows: 10}), 0, 0)
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		for _, label := range got[0].labels {
			if label != -1 {
				t.Errorf("labels %v", got[0].labels)
			}
		}
	})
}

func TestMemoryThatIsMissingIsSaidAndNothingKept(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	for _, p := range []Placement{Device, Storage} {
		succeeded := false
		for pages := int64(1); pages < 60; pages++ {
			device, err := host.New(host.Options{MemoryBytes: pages * 4096})
			if err != nil {
				t.Fatal(err)
			}
			l, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: p,
				BatchRows: 10})
			if err == nil {
				succeeded = true
				err = l.Close()
			} else if errors.Is(err, gds.ErrOutOfMemory) && !succeeded {
				err = nil
			}
			if err := errors.Join(err, device.Close()); err != nil {
				t.Errorf("%s, %d pages: %v", p, pages, err)
			}
		}
		if !succeeded {
			t.Errorf("%s: 60 pages are not enough", p)
		}
	}
}

func TestNeedIsWhatOpenTakesBesideTheInput(t *testing.T) {
	const page = 4096
	for _, spec := range []storeSpec{{format.Float32, 8, 300, 1, 0}, {format.Float16, 8, 300, 1, 0}} {
		store := newStore(t, spec)
		for _, p := range placements {
			t.Run(fmt.Sprintf("%v, %s", spec.dtype, p.name), func(t *testing.T) {
				device := newDevice(t, p.unified, host.Options{})
				o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
					Mapped: p.mapped, BatchRows: 20, Buffers: 3}
				need, err := Need(o.Store.Layout(), o, 1)
				if err != nil {
					t.Fatal(err)
				}
				o.MostBuffers = o.Buffers + 1
				l := mustOpen(t, o)
				used, want := device.Usage(), need.Batches
				if err := l.Grow(); err != nil {
					t.Fatal(err)
				}
				grown := device.Usage()
				if more := grown.InUse + grown.PinnedInUse - used.InUse - used.PinnedInUse; p.unified &&
					more != need.Buffer {
					t.Errorf("one more buffer takes %d bytes, want %d", more, need.Buffer)
				}
				allocations := int64(3 * o.Buffers)
				switch {
				case p.placement == Device:
					want += int64(testRows * allColumns(spec.features) * spec.dtype.Size())
					allocations += int64(len(testMatrices))
				case p.placement == Storage && p.unified:
					want += need.Chunks
				case p.placement == Storage && used.PinnedInUse < need.Chunks:
					t.Errorf("%d bytes are pinned, need is %+v", used.PinnedInUse, need)
				case p.placement == Host && !p.unified:
					pinned := int64(testRows*allColumns(spec.features)*spec.dtype.Size()) + need.Staging
					if used.PinnedInUse < pinned || used.PinnedInUse >= pinned+8*page {
						t.Errorf("%d bytes are pinned, want %d and less than 8 pages", used.PinnedInUse, pinned)
					}
				}
				if used.Peak != used.InUse {
					t.Errorf("%d bytes of the device are in use, and %d were", used.InUse, used.Peak)
				}
				if used.InUse < want || used.InUse >= want+allocations*page {
					t.Errorf("%d bytes of the device are in use, want %d and less than a page for each of %d "+
						"allocations", used.InUse, want, allocations)
				}
			})
		}
	}
}

package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// shared are the ways in which ranks have the input.
var shared = []struct {
	name      string
	placement Placement
	sharded   bool
	mapped    bool
}{
	{"on each device", Device, false, false},
	{"sharded over devices", Device, true, false},
	{"in one host memory", Host, false, false},
	{"in one host memory that devices gather from", Host, false, true},
	{"on storage", Storage, false, false},
}

func newDevices(t testing.TB, n int) []gds.Device {
	t.Helper()
	devices := make([]gds.Device, n)
	for i := range devices {
		devices[i] = newDevice(t, false, host.Options{Threads: 1 + i%2})
	}
	return devices
}

func mustOpenRanks(t testing.TB, o Options, devices []gds.Device) Ranks {
	t.Helper()
	ranks, err := OpenRanks(t.Context(), o, devices)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ranks.Close(); err != nil {
			t.Errorf("closing the loaders: %v", err)
		}
	})
	return ranks
}

// beside collects an epoch of all ranks at the same time.
func beside(t *testing.T, devices []gds.Device, ranks Ranks, rows Rows, plan chunk.Plan, epoch int) [][]copied {
	t.Helper()
	got := make([][]copied, len(ranks))
	var g errgroup.Group
	plan.World = len(ranks)
	for rank, l := range ranks {
		plan.Rank = rank
		set := mustSet(t, l, rows, plan)
		g.Go(func() (err error) {
			got[rank], err = collect(t, devices[rank], set, epoch, 0)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return got
}

// asRows is what tells the rows of some ranks' shares of a batch apart.
func asRows(shares []copied, features int) (rows []string) {
	for _, c := range shares {
		for i := range c.rows {
			row := fmt.Sprint(c.labels[i])
			for m, x := range c.x {
				columns := columnsOf(m, features)
				row += fmt.Sprint(x[i*columns : (i+1)*columns])
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func TestRanksMakeUpTheBatchesOfOne(t *testing.T) {
	for _, spec := range []storeSpec{{format.Float32, 8, 5, 1, 0}, {format.Float16, 8, 5, 1, 0},
		{format.Float32, 100, 3, 1, 730}} {
		store := newStore(t, spec)
		train, _ := store.Region(format.RegionTrain)
		batchRows := int(train.Rows)/3 - 1
		list := someRows(40)
		for _, s := range shared {
			for _, world := range []int{1, 2, 3, 8} {
				t.Run(fmt.Sprintf("%v, chunks of %d, %s, %d ranks", spec.dtype, spec.chunkRows, s.name, world),
					func(t *testing.T) {
						testdevice.Bubble(t, func(t *testing.T) {
							alone := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: Device,
								BatchRows: batchRows}, newDevices(t, 1))
							devices := newDevices(t, world)
							ranks := mustOpenRanks(t,
								Options{Store: store, Matrices: testMatrices, Placement: s.placement,
									Sharded: s.sharded, Mapped: s.mapped, BatchRows: batchRows, Threads: 3}, devices)
							for n, plan := range plans(s.placement, spec.chunkRows, batchRows) {
								for _, rows := range []Rows{{Region: "train"}, {Region: "valid"}, {List: list}} {
									if plan.DropLast && rows.Region == "valid" || rows.List != nil &&
										s.placement == Storage {
										continue
									}
									plan.World, plan.Rank = 1, 0
									set := mustSet(t, alone[0], rows, plan)
									want, err := collect(t, alone[0].o.Device, set, n, 0)
									if err != nil {
										t.Fatal(err)
									}
									got := beside(t, devices, ranks, rows, plan, n)
									for k := range want {
										var shares []copied
										for rank := range got {
											if len(got[rank]) != len(want) || got[rank][k].index != k ||
												got[rank][k].global != want[k].rows {
												t.Fatalf("rank %d, batch %d of %d: %+v", rank, k, len(want),
													got[rank][k])
											}
											if want, of := got[rank][k].rows,
												want[k].rows; want != of/world && want != of/world+1 {
												t.Fatalf("rank %d has %d rows of %d", rank, want, of)
											}
											shares = append(shares, got[rank][k])
										}
										a, b := asRows(want[k:k+1], spec.features), asRows(shares, spec.features)
										if s.sharded {
											slices.Sort(a)
											slices.Sort(b)
										}
										if !slices.Equal(a, b) {
											t.Fatalf("%+v, batch %d: rows\n%v\nwant\n%v", plan, k, b, a)
										}
									}
								}
							}
						})
					})
			}
		}
	}
}

func TestRanksAreNotClosedWhileOneIsInAnEpoch(t *testing.T) {
	store := newStore(t, storeSpec{format.Float32, 8, 5, 1, 0})
	for _, s := range shared {
		t.Run(s.name, func(t *testing.T) {
			devices := newDevices(t, 2)
			ranks := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: s.placement,
				Sharded: s.sharded, Mapped: s.mapped, BatchRows: 20}, devices)
			plan := plans(s.placement, 8, 20)[0]
			plan.World, plan.Rank = 2, 1
			set := mustSet(t, ranks[1], Rows{Region: "train"}, plan)
			want, err := collect(t, devices[1], set, 0, 0)
			if err != nil || len(want) < 2 {
				t.Fatalf("%d batches, %v", len(want), err)
			}
			stream := mustStream(t, devices[1])
			defer stream.Close()
			batches := 0
			for b, err := range set.Epoch(t.Context(), stream, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if err := ranks.Close(); err == nil || !strings.Contains(err.Error(), "another epoch is running") {
					t.Fatalf("all ranks were closed while one is in an epoch: %v", err)
				}
				if ranks[0].Close() == nil {
					t.Fatal("the rank that has the others' memory was closed")
				}
				if b.Rows != want[batches].rows {
					t.Errorf("batch %d has %d rows, want %d", batches, b.Rows, want[batches].rows)
				}
				batches++
			}
			if batches != len(want) {
				t.Errorf("%d batches, want %d", batches, len(want))
			}
			for _, l := range ranks { // none was closed
				if got, err := collect(t, l.o.Device,
					mustSet(t, l, Rows{Region: "valid"}, chunk.Plan{BatchRows: 20, World: 2, Rank: l.rank}), 0,
					0); err != nil || len(got) == 0 {
					t.Errorf("rank %d: %d batches, %v", l.rank, len(got), err)
				}
			}
		})
	}
}

func TestRowsThatOthersHoldAreFewAndCounted(t *testing.T) {
	spec := storeSpec{format.Float16, 100, 3, 1, 730}
	store := newStore(t, spec)
	list := someRows(40)
	testdevice.Bubble(t, func(t *testing.T) {
		const world = 3
		devices := newDevices(t, world)
		ranks := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: Device, Sharded: true,
			BatchRows: 100}, devices)
		total := int64(0)
		for _, rows := range []Rows{{Region: "train"}, {List: list}} {
			place := func(row int64) int {
				if rows.List != nil {
					return int(list[row] % world)
				}
				return int(row % world)
			}
			plan := chunk.Plan{BatchRows: 100, Order: chunk.Shuffled, World: world}
			want, moved, all := int64(0), int64(0), int64(0)
			sets := make([]*Set, world)
			for rank := range sets {
				plan.Rank = rank
				sets[rank] = mustSet(t, ranks[rank], rows, plan)
				if _, err := collect(t, devices[rank], sets[rank], 4, 0); err != nil {
					t.Fatal(err)
				}
				had, remote := sets[rank].Remote()
				all, moved = all+had, moved+remote
			}
			// The rows of a batch that a rank holds beyond its share have to move, and no more.
			whole := chunk.Plan{Rows: sets[0].Rows(), BatchRows: 100, Order: chunk.Shuffled}
			for b := range whole.Epoch(4) {
				var held [world]int
				for _, s := range b.Spans() {
					for row := s.First; row < s.First+int64(s.Rows); row++ {
						held[place(row)]++
					}
				}
				for rank, n := range held {
					quota := b.Rows / world
					if rank < b.Rows%world {
						quota++
					}
					want += int64(max(0, n-quota))
				}
			}
			if moved != want || want == 0 || all != sets[0].Rows() {
				t.Errorf("%d of %d rows moved, want %d", moved, all, want)
			}
			total += moved
		}
		rows, bytes := int64(0), int64(0)
		for _, l := range ranks {
			s := l.Stats()
			rows, bytes = rows+s.RemoteRows, bytes+s.RemoteBytes
		}
		if rows != total || bytes != total*int64(allColumns(3)*2) {
			t.Errorf("%d rows, %d bytes: want %d rows of %d bytes", rows, bytes, total, allColumns(3)*2)
		}
	})
}

func TestRanksHoldTheInputOnceOrAPartEach(t *testing.T) {
	const world = 3
	spec := storeSpec{format.Float32, 100, 100, 1, 730}
	store := newStore(t, spec)
	input := int64((730 + 17 + 9) * allColumns(100) * 4)
	for _, s := range shared {
		devices := newDevices(t, world)
		ranks := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: s.placement,
			Sharded: s.sharded, Mapped: s.mapped, BatchRows: 3, Buffers: 1}, devices)
		for rank, d := range devices {
			var device, pinned, read int64
			switch {
			case s.sharded:
				device = (input + world - 1) / world
			case s.placement == Device:
				device = input
			case s.placement == Host && rank == 0:
				pinned = input
			}
			if s.placement != Storage && rank == 0 {
				read = input
			}
			const little = 64 << 10 // a batch, and the ends of pages
			u := d.Usage()
			if u.InUse < device || u.InUse > device+little || s.placement != Storage &&
				(u.PinnedInUse < pinned || u.PinnedInUse > pinned+little) {
				t.Errorf("%s, rank %d: %+v, want %d on the device, %d pinned", s.name, rank, u, device, pinned)
			}
			if got := ranks[rank].Stats().BytesRead; got != read {
				t.Errorf("%s, rank %d read %d bytes, want %d", s.name, rank, got, read)
			}
		}
	}
}

func TestRanksThatCannotBeAreRefused(t *testing.T) {
	store := newStore(t, storeSpec{format.Float32, 8, 5, 1, 0})
	o := Options{Store: store, Matrices: testMatrices, Placement: Device, Sharded: true, BatchRows: 10}
	two := newDevices(t, 2)
	for _, c := range []struct {
		name    string
		devices []gds.Device
		change  func(*Options)
		want    string
	}{
		{"no device", nil, func(*Options) {}, "0 devices"},
		{"a device that is none", []gds.Device{two[0], nil}, func(*Options) {}, "no device"},
		{"host memory that is sharded", two, func(o *Options) { o.Placement = Host }, "shares of the input need devices"},
		{"memory of the host that is sharded", []gds.Device{newDevice(t, true, host.Options{}), two[0]},
			func(*Options) {}, "shares of the input need devices"},
		{"rows of device memory that the device gathers from the host's", two,
			func(o *Options) { o.Sharded, o.Mapped = false, true }, "only devices with memory"},
		{"a device that reaches no host memory", []gds.Device{testdevice.Host(t,
			host.Options{Discrete: true, Unmapped: true})}, func(o *Options) {
			o.Sharded, o.Mapped, o.Placement = false, true, Host
		}, "only devices with memory"},
		{"a device that is too small", []gds.Device{two[0], newDevice(t, false, host.Options{MemoryBytes: 8 << 10})},
			func(*Options) {}, "out of device memory"},
		{"a matrix that is not there", two, func(o *Options) { o.Matrices = []MatrixID{{Operator: "none", Hop: 1}} },
			"none"},
	} {
		o := o
		c.change(&o)
		if ranks, err := OpenRanks(t.Context(), o, c.devices); err == nil || ranks != nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	ranks := mustOpenRanks(t, o, two)
	for _, plan := range []chunk.Plan{{BatchRows: 10}, {BatchRows: 10, World: 2, Rank: 1}, {BatchRows: 10, World: 3}} {
		if _, err := ranks[0].Set(Rows{Region: "train"}, plan); err == nil ||
			!strings.Contains(err.Error(), "share of rank 0 of 2") {
			t.Errorf("%+v: %v", plan, err)
		}
	}
}

func TestAnyReadThatFailsEndsTheOpeningOfAllRanks(t *testing.T) {
	mem := vfs.NewMem()
	writeStore(t, mem, "store", storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1})
	for _, s := range shared[:3] {
		for n := int64(1); ; n++ {
			fault := vfs.NewFault(mem)
			failed := false
			testdevice.Bubble(t, func(t *testing.T) {
				store := openStore(t, fault, "store")
				devices := newDevices(t, 3)
				fault.FailAt(fault.Operations()+n, syscall.EIO)
				ranks, err := OpenRanks(t.Context(),
					Options{Store: store, Matrices: testMatrices, Placement: s.placement, Sharded: s.sharded,
						Mapped: s.mapped, BatchRows: 9}, devices)
				if err == nil {
					if err := ranks.Close(); err != nil {
						t.Error(err)
					}
					return
				}
				if failed = true; !errors.Is(err, syscall.EIO) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: operation %d: %v", s.name, n, err)
				}
			})
			if !failed {
				if n < 10 {
					t.Errorf("%s: only %d operations", s.name, n)
				}
				break
			}
		}
	}
}

// What fails on a device that holds rows of another rank is that rank's error, and its consumer's.
func TestMemoryThatIsGoneEndsTheRanksThatNeedItsRows(t *testing.T) {
	store := newStore(t, storeSpec{format.Float32, 8, 5, 1, 0})
	plan := chunk.Plan{BatchRows: 7, Order: chunk.Shuffled, Seed: 2, World: 2}
	testdevice.Bubble(t, func(t *testing.T) {
		devices := newDevices(t, 2)
		ranks := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: Device, Sharded: true,
			BatchRows: 7}, devices)
		set := mustSet(t, ranks[0], Rows{Region: "train"}, plan)
		if err := ranks[1].memory.Free(); err != nil {
			t.Fatal(err)
		}
		stream := mustStream(t, devices[0])
		var failed error
		for _, err := range set.Epoch(t.Context(), stream, 0) {
			failed = err
		}
		for _, err := range []error{failed, stream.Close()} {
			if !errors.Is(err, gds.ErrClosed) || !strings.Contains(err.Error(), "Copy(") {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestARankThatStopsLeavesTheOthersBe(t *testing.T) {
	store := newStore(t, storeSpec{format.Float16, 8, 5, 1, 0})
	for _, s := range shared[:3] {
		for at := range 4 {
			testdevice.Bubble(t, func(t *testing.T) {
				devices := newDevices(t, 3)
				ranks := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: s.placement,
					Sharded: s.sharded, Mapped: s.mapped, BatchRows: 14}, devices)
				enough := errors.New("enough")
				plan := chunk.Plan{BatchRows: 14, Order: chunk.Shuffled, World: 3}
				var g errgroup.Group
				for rank, l := range ranks {
					plan.Rank = rank
					set := mustSet(t, l, Rows{Region: "train"}, plan)
					g.Go(func() error {
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						stream := mustStream(t, devices[rank])
						defer stream.Close()
						count := 0
						for _, err := range set.Epoch(ctx, stream, 0) {
							if rank == 1 && err == nil && count == at {
								cancel(enough)
							}
							if err != nil {
								if rank != 1 || !errors.Is(err, enough) {
									return fmt.Errorf("rank %d: %w", rank, err)
								}
								return nil
							}
							count++
						}
						if rank == 1 && at < 3 || count != 4 {
							return fmt.Errorf("rank %d: %d batches", rank, count)
						}
						return nil
					})
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

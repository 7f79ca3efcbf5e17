package host

import (
	"context"
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// A gate in a stream's queue shows, without a clock, what goes on around work
// that does not end.
func TestABlockedStreamBlocksNobodyElse(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := func() *stream {
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		return s.(*stream)
	}
	blocked, waiting, free := open(), open(), open()
	gate := newEvent()
	blocked.WaitEvent(gate)
	event := blocked.Record()
	waiting.WaitEvent(event)
	for range 10_000 {
		waiting.Fill(gds.Tensor{}, 0)
		blocked.Fill(gds.Tensor{}, 0)
	}
	if err := free.Synchronize(context.Background()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, e := range map[string]gds.Event{"the blocked stream": event,
		"the stream that waits for it": waiting.Record()} {
		if err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s has got on: %v", name, err)
		}
	}
	gate.reach(nil)
	for _, s := range []*stream{waiting, blocked, free} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestMemoryThatCannotBeLockedIsReported(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.lock = func(*offheap.Buffer) error { return nil }
	locked, err := d.AllocPinned(3 * page)
	if err != nil {
		t.Fatal(err)
	}
	d.lock = func(*offheap.Buffer) error { return syscall.ENOMEM }
	refused, err := d.AllocPinned(page)
	if err != nil {
		t.Fatal(err)
	}
	u := d.Usage()
	if u.PinnedInUse != 4*page || u.PinnedLocked != 3*page ||
		!strings.Contains(u.NotLocked, "4 KiB could not be locked") || !strings.Contains(u.NotLocked, "ulimit -l") {
		t.Errorf("usage %+v", u)
	}
	if err := errors.Join(locked.Free(), refused.Free()); err != nil {
		t.Error(err)
	}
	if u := d.Usage(); u.PinnedInUse != 0 || u.PinnedLocked != 0 {
		t.Errorf("usage %+v after everything was freed", u)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// seconds is how long run takes by the clock of a synctest bubble.
func seconds(run func()) float64 {
	start := time.Now()
	run()
	return time.Since(start).Seconds()
}

func TestALinkCarriesItsBytesASecondEachWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const second = 1 << 20 // of bytes
		d, err := New(Options{Discrete: true, LinkBytesPerSecond: second})
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Alloc(4 * second)
		if err != nil {
			t.Fatal(err)
		}
		pinned, err := d.AllocPinned(4 * second)
		if err != nil {
			t.Fatal(err)
		}
		var streams [2]gds.Stream
		for i := range streams {
			if streams[i], err = d.NewStream(); err != nil {
				t.Fatal(err)
			}
		}
		wait := func() {
			for _, s := range streams {
				if err := s.Synchronize(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
		other, err := New(Options{Discrete: true, LinkBytesPerSecond: 2 * second})
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := other.Alloc(4 * second)
		if err != nil {
			t.Fatal(err)
		}
		part := func(b gds.Buffer, i, of int) gds.Tensor {
			return gds.NewTensor(b, 4*second, 1, gds.Uint8).Slice(i*4*second/of, (i+1)*4*second/of)
		}
		for _, c := range []struct {
			name string
			run  func()
			want float64
		}{
			{"one copy", func() { streams[0].Copy(part(b, 0, 1), part(pinned, 0, 1)) }, 4},
			{"many small ones", func() {
				for i := range 1000 {
					streams[0].Copy(part(b, i, 1000), part(pinned, i, 1000))
				}
			}, 4},
			{"two streams one way", func() {
				for i, s := range streams {
					s.Copy(part(b, i, 2), part(pinned, i, 2))
				}
			}, 4},
			{"two streams two ways", func() {
				streams[0].Copy(part(b, 0, 2), part(pinned, 0, 2))
				streams[1].Copy(part(pinned, 1, 2), part(b, 1, 2))
			}, 2},
			{"within the device", func() { streams[0].Copy(part(b, 0, 2), part(b, 1, 2)) }, 0},
			{"within host memory", func() { streams[0].Copy(part(pinned, 0, 2), part(pinned, 1, 2)) }, 0},
			{"to a device with a faster link", func() { streams[0].Copy(part(theirs, 0, 1), part(b, 0, 1)) }, 4},
			{"to that device from the host, by a stream of this one",
				func() { streams[0].Copy(part(theirs, 0, 1), part(pinned, 0, 1)) }, 2},
			{"from two devices to the host", func() {
				streams[0].Copy(part(pinned, 0, 2), part(b, 0, 2))
				streams[1].Copy(part(pinned, 1, 2), part(theirs, 1, 2))
			}, 2},
		} {
			if got := seconds(func() { c.run(); wait() }); got < c.want-0.01 || got > c.want+0.01 {
				t.Errorf("%s: %.3f s, want %v", c.name, got, c.want)
			}
		}

		before := streams[0].Record()
		streams[0].Copy(part(b, 0, 4), part(pinned, 0, 4))
		after := streams[0].Record()
		wait()
		if elapsed, err := after.Elapsed(before); err != nil || math.Abs(elapsed.Seconds()-1) > 0.01 {
			t.Errorf("%v between events around a copy of a second, %v", elapsed, err)
		}

		disk := vfs.NewMem()
		f, err := disk.Create("file")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 2*second)); err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		file, err := d.OpenFile(disk, "file")
		if err != nil {
			t.Fatal(err)
		}
		for to, want := range map[gds.Buffer]float64{b: 2, pinned: 0} {
			got := seconds(func() {
				if err := file.ReadInto(to, 0, 2*second, 0); err != nil {
					t.Error(err)
				}
			})
			if got < want-0.01 || got > want+0.01 {
				t.Errorf("a read took %.3f s, want %v", got, want)
			}
		}
		if err := errors.Join(file.Close(), streams[0].Close(), streams[1].Close(), b.Free(), theirs.Free(),
			pinned.Free(), d.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestFreeWaitsForTheOperationThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		allocated, err := d.Alloc(8)
		b, freed := allocated.(*buffer), false
		_, used := b.use()
		if err := errors.Join(err, used); err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := b.Free(); err != nil {
				t.Error(err)
			}
			freed = true
		}()
		synctest.Wait()
		if freed {
			t.Error("freed in use")
		}
		b.leave()
		synctest.Wait()
		if _, err := b.use(); !freed || !errors.Is(err, gds.ErrClosed) {
			t.Errorf("freed: %v; then: %v", freed, err)
		}
	})
}

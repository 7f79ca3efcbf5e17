package placement

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// pacedDisk is a disk with a clock, which each read of a chunk advances by what it
// takes: reads come one after another.
type pacedDisk struct {
	vfs.FS
	takes func(read, bytes int) time.Duration

	mu    sync.Mutex
	clock time.Time
	reads int // of chunks
}

func (d *pacedDisk) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clock
}

func (d *pacedDisk) Open(path string) (vfs.File, error) {
	f, err := d.FS.Open(path)
	return pacedFile{f, d}, err
}

type pacedFile struct {
	vfs.File
	disk *pacedDisk
}

func (f pacedFile) ReadAt(b []byte, at int64) (int, error) {
	if len(b) >= shortChunk {
		f.disk.mu.Lock()
		f.disk.reads++
		f.disk.clock = f.disk.clock.Add(f.disk.takes(f.disk.reads, len(b)))
		f.disk.mu.Unlock()
	}
	return f.File.ReadAt(b, at)
}

// Bytes of the chunks of newStore.
const (
	storedChunk = 64 * 24 * 4
	shortChunk  = 1000 % 64 * 24 * 4
)

func TestStorageIsMeasuredForWhatItIsForLong(t *testing.T) {
	// at is what so many bytes take at a rate.
	at := func(bytes int, rate float64) time.Duration {
		return time.Duration(float64(bytes) / rate * float64(time.Second))
	}
	const round = 16 * 2 // chunks of the two matrices
	for _, c := range []struct {
		name        string
		takes       func(read, bytes int) time.Duration
		want        float64 // bytes a second
		least, most int     // reads
	}{
		{"a steady disk, in all rounds",
			func(_, n int) time.Duration { return at(n, 1e9) }, 1e9, storageRounds * round, storageRounds * round},
		{"a disk that is quick at first", func(read, n int) time.Duration {
			if read < 40 {
				return at(n, 1e10)
			}
			return at(n, 1e9)
		}, 1e9, storageRounds * round, storageRounds * round},
		{"a disk that stands still for a moment", func(read, n int) time.Duration {
			if read == 50 {
				return 200 * time.Millisecond
			}
			return at(n, 1e9)
		}, 1e9, storageRounds * round, storageRounds * round},
		{"a disk that is busy in every other round", func(read, n int) time.Duration {
			if (read-1)/round%2 == 1 {
				return at(n, 1e8)
			}
			return at(n, 1e9)
		}, 1e9, storageRounds * round, storageRounds * round},
		{"a slow disk, for a few chunks", func(_, n int) time.Duration { return at(n, 1e4) }, 1e4, storageReaders,
			storageReaders},
		{"a disk that takes some rounds for its time", func(_, n int) time.Duration { return at(n, 1e6) }, 1e6,
			2*round + storageReaders, 3 * round},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := &pacedDisk{FS: vfs.NewMem(), takes: func(int, int) time.Duration { return 0 }}
			store := newStore(t, disk, format.Float32)
			device, err := host.New(host.Options{})
			if err != nil {
				t.Fatal(err)
			}
			region, _ := store.Region(format.RegionRest)
			p := &probe{Sample: Sample{Store: store, Matrices: sampled, Region: region, Threads: 2}, ctx: t.Context(),
				device: device, memory: gds.Memory{Device: device}, unified: true,
				rowBytes: int64(len(sampled)) * 24 * 4, now: disk.now}
			disk.takes, disk.reads = c.takes, 0
			start := disk.now()
			var r Rates
			if err := p.measureStorage(&r); err != nil {
				t.Fatal(err)
			}
			if math.Abs(float64(r.Storage)/c.want-1) > 0.1 {
				t.Errorf("reads %s, want %s", r.Storage, units.Rate(c.want))
			}
			if disk.reads < c.least || disk.reads > c.most {
				t.Errorf("%d chunks were read, want %d to %d", disk.reads, c.least, c.most)
			}
			longest := max(storageTime, storageReaders*c.takes(1, storedChunk)) + 250*time.Millisecond
			if took := disk.now().Sub(start); took > longest {
				t.Errorf("it took %v, want %v at most", took, longest)
			}
			if err := p.close(); err != nil {
				t.Error(err)
			}
			if err := device.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

package placement

import (
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Storage is read in rounds, and the median round counts: a disk can be faster for a moment (from
// its cache, or by burst credit) and slower for another. The round in which the time ends is cut
// short, but reads at least as many chunks as there are readers.
const (
	storageRounds  = 7
	storageBytes   = 64 << 20 // a round
	storageTime    = 500 * time.Millisecond
	storageReaders = 8 // reads on their way, as in a loader
)

// chunkRead is a chunk of one matrix to be read.
type chunkRead struct {
	matrix *format.Matrix
	file   gds.File
	chunk  int
}

func (c chunkRead) extent() format.Extent { return c.matrix.Extent(c.chunk) }

// measureStorage reads chunks of all matrices in random order with several readers, by direct I/O
// if possible, and checks them.
func (p *probe) measureStorage(r *Rates) (err error) {
	chunkBytes := int64(p.Store.Layout().ChunkRows) * p.rowBytes / int64(len(p.Matrices))
	stride := gds.Aligned(chunkBytes)
	count := min(int64(p.Region.Chunks)*int64(len(p.Matrices)),
		max(1, p.affordableBytes(storageBytes, p.unified)/stride))
	if count == 0 {
		return nil
	}
	alloc := p.device.AllocPinned
	if p.unified {
		alloc = p.device.Alloc
	}
	memory, err := p.track(alloc(count * stride))
	if err != nil {
		return err
	}
	clear(memory.Bytes()) // so that it is there
	reads, closeAll, err := p.chunkReads(int(count) * storageRounds)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	var reading, checking []units.Rate
	end := p.now().Add(storageTime)
	for round := range slices.Chunk(reads, int(count)) {
		if len(reading) > 0 && !p.now().Before(end) {
			break
		}
		read := make([]bool, count)
		var taken atomic.Int64
		rate, err := p.timeChunks(storageReaders, round, func(i int64) (int64, error) {
			if taken.Add(1) > storageReaders && !p.now().Before(end) {
				return 0, nil
			}
			e := round[i].extent()
			read[i] = true
			return e.Length, round[i].file.ReadInto(memory, i*stride, e.Length, e.Offset)
		})
		if err != nil {
			return err
		}
		reading = append(reading, rate)
		if rate, err = p.timeChunks(p.Threads, round, func(i int64) (int64, error) {
			if !read[i] {
				return 0, nil
			}
			length := round[i].extent().Length
			return length, round[i].matrix.CheckChunk(round[i].chunk, memory.Bytes()[i*stride:i*stride+length])
		}); err != nil {
			return err
		}
		checking = append(checking, rate)
	}
	r.Storage, r.Check = median(reading), median(checking)
	return nil
}

// timeChunks measures the rate at which threads work on the chunks of a round; each returns the
// number of bytes that it worked on.
func (p *probe) timeChunks(threads int, round []chunkRead, each func(i int64) (bytes int64, err error)) (units.Rate,
	error) {
	var bytes atomic.Int64
	start := p.now()
	err := parallel.For(p.ctx, threads, int64(len(round)), 1, func(i, _ int64) error {
		n, err := each(i)
		bytes.Add(n)
		return err
	})
	// Clocks are not as fine as memory is fast.
	return units.Rate(float64(bytes.Load()) / max(p.now().Sub(start), time.Microsecond).Seconds()), err
}

func median(rates []units.Rate) units.Rate {
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// chunkReads draws chunks of the region to read, and opens their files.
func (p *probe) chunkReads(count int) (reads []chunkRead, closeAll func() error, err error) {
	matrices := make([]*format.Matrix, len(p.Matrices))
	files := map[string]gds.File{}
	closeAll = func() (err error) {
		for _, m := range matrices {
			if m != nil {
				err = errors.Join(err, m.Close())
			}
		}
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	for i, id := range p.Matrices {
		if matrices[i], err = p.Store.Matrix(id); err != nil {
			return nil, closeAll, err
		}
	}
	for _, place := range randomNumbers(count, p.Region.Chunks*len(matrices)) {
		c := chunkRead{matrix: matrices[int(place)%len(matrices)],
			chunk: p.Region.FirstChunk + int(place)/len(matrices)}
		path := c.extent().File
		if files[path] == nil {
			f, err := p.device.OpenFile(p.Store.FS(), filepath.Join(p.Store.Path(), filepath.FromSlash(path)))
			if err != nil {
				return nil, closeAll, err
			}
			files[path] = f
		}
		c.file = files[path]
		reads = append(reads, c)
	}
	return reads, closeAll, nil
}

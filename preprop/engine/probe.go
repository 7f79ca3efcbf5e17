package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Measure measures the rates of this machine in some two seconds: reading the input, writing a file without a name to
// the folder scratch, using new memory, and hops over a random graph with as many edges a node. It uses at most half of
// the memory that budget leaves, and at most an eighth of the memory that the job's plan needs. Caches hold less of a
// larger matrix.
func Measure(ctx context.Context, fsys vfs.FS, in *Input, scratch string, w *plan.Work, p *plan.Plan,
	budget int64) (*plan.Rates, error) {
	// less than most may be at hand from a moment ago, which a machine that is shared takes its time to give
	const least, most = 128 << 20, 4 << 30
	r, room := plan.DefaultRates, max(least, min(most, p.MemoryBytes/8))
	if budget > 0 {
		room = max(8<<20, min(room, (budget-plan.ProcessBytes-w.PickedBytes)/2)) // rows have been picked
	}
	var err error
	readers := min(int64(plan.DiskReaders(w.Threads)), room/max(w.InputChunk(), 1))
	if r.Read, err = MeasureRead(ctx, in, int(max(1, readers))); err != nil {
		return nil, err
	}
	if rate, err := measureWrite(fsys, scratch); err == nil {
		r.Write = rate
	} // else the folder cannot be written, which the job, if there is to be one, tells better
	const narrow, wide = 64, 512
	var matrices [2]*product.Matrix // most of the room is for the one that is read at random, and not by caches
	for i, rows := range [2]int64{room * 7 / 8 / wide, room / 8 / wide} {
		if matrices[i], err = product.NewMatrix(rows, wide/w.Stored.DType.Size(), w.Stored.DType); err != nil {
			return nil, err
		}
		defer matrices[i].Buf.Free()
	}
	if r.Touch, err = measureTouch(ctx, matrices, w.Threads); err != nil || len(w.Sequences) == 0 || w.Nodes == 0 {
		return &r, err
	}
	short, err := measureHop(ctx, w, narrow, matrices)
	if err != nil {
		return nil, err
	}
	long, err := measureHop(ctx, w, wide, matrices)
	r.Byte = max(0, (long-short)/(wide-narrow))
	r.Edge = max(0, short-float64(r.Byte*narrow))
	return &r, err
}

// rate is bytes a second since start.
func rate(bytes int64, start time.Time) float64 {
	return float64(max(1, bytes)) / max(1e-9, time.Since(start).Seconds())
}

// MeasureRead measures reading some chunks, far from each other, in bytes a second.
func MeasureRead(ctx context.Context, in *Input, threads int) (float64, error) {
	const most, longest = 512 << 20, 500 * time.Millisecond
	chunk := int64(in.Layout.ChunkRows * in.Layout.Features * in.Layout.DType.Size())
	buffers, err := product.NewBuffers(threads, vfs.WholePages(chunk))
	if err != nil {
		return 0, err
	}
	defer buffers.Free()
	n := int64(in.Chunks())
	count := min(n, most/max(1, chunk)+1)
	var read atomic.Int64
	start := time.Now()
	err = parallel.For(ctx, threads, count, 1, func(i, _ int64) error {
		if time.Since(start) > longest {
			return nil
		}
		buffer, k := buffers.Get(), int(i*n/count)
		defer buffers.Put(buffer)
		length := in.chunkBytes(k)
		read.Add(length)
		return in.ReadChunk(k, buffer[:length])
	})
	return rate(read.Load(), start), err
}

// measureWrite measures writing a file durably, by a stream as the job's files. The file loses its name before it is
// written, so nothing is left if the process is killed. The name is random, since processes may measure there at the
// same time.
func measureWrite(fsys vfs.FS, folder string) (float64, error) {
	const bytes, step = 64 << 20, 1 << 20
	at, err := machine.NearestFolder(fsys, folder)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(at, fmt.Sprintf(".hopfeed-probe-%x", rand.Uint64()))
	start := time.Now()
	f, err := vfs.CreateStream(fsys, path, bytes)
	if err != nil {
		return 0, err
	}
	defer f.Abort()
	if err := fsys.Remove(path + vfs.TempSuffix); err != nil {
		return 0, err
	}
	data := make([]byte, step)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	for range bytes / step {
		if _, err := f.Write(data); err != nil {
			return 0, err
		}
	}
	// Commit makes the bytes durable, and then finds no name to change.
	if err := f.Commit(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return rate(bytes, start), nil
}

// measureTouch measures using the memory of matrices for the first time: the kernel allocates a page when it is
// written to.
func measureTouch(ctx context.Context, matrices [2]*product.Matrix, threads int) (float64, error) {
	start, total := time.Now(), int64(0)
	for _, m := range matrices {
		b := m.Buf.Bytes()
		err := parallel.For(ctx, threads, int64(len(b)), 4<<20, func(lo, hi int64) error {
			for ; lo < hi; lo += vfs.PageBytes {
				b[lo] = 0
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		total += int64(len(b))
	}
	return rate(total, start), nil
}

// measureHop measures the seconds that a hop takes for an edge, with rows of rowBytes in two matrices, whose widths
// it sets: the shortest of three, since other programs may get the cores meanwhile. Sources are random rows of all that
// the first matrix has room for, destinations the first rows of the second.
func measureHop(ctx context.Context, w *plan.Work, rowBytes int, matrices [2]*product.Matrix) (float64, error) {
	src, dst := matrices[0], matrices[1]
	room := int64(len(src.Buf.Bytes()))
	nodes := min(w.Nodes, room/int64(rowBytes))
	edges := min(2<<20, room/16)
	degree := max(1, min(w.Edges/w.Nodes, 64))
	rows := min(nodes, max(1, edges/degree), int64(len(dst.Buf.Bytes())/rowBytes))
	g, err := product.NewMemoryTopology(nodes, rows*degree, false)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	random, first := rand.New(rand.NewPCG(1, 2)), product.NewNodeSet(nodes) // dst has no room for others
	for v := range rows {
		first.Add(v)
	}
	for v := range nodes {
		g.Offsets[v+1] = min(v+1, rows) * degree
	}
	for e := range g.Neighbors {
		g.Neighbors[e] = random.Uint32N(uint32(nodes))
	}
	src.Features, dst.Features = rowBytes/src.DType.Size(), rowBytes/dst.DType.Size()
	p := &product.Propagator{Graph: g}
	shortest := math.Inf(1)
	for range 3 {
		var passed atomic.Int64
		start := time.Now()
		if _, _, err = p.HopFrom(ctx, dst, src, nil, first, 0, w.Threads, func(cost int64) bool {
			return passed.Add(cost) >= rows*(degree+1)
		}); err != nil {
			return 0, err
		}
		shortest = min(shortest, time.Since(start).Seconds()/float64(rows*degree))
	}
	return shortest, nil
}

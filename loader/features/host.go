package features

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/gather"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Host has all rows in host memory, as they are stored.
type Host struct {
	shape
	rowsOf []byte       // [rows, columns]
	pinned gds.Buffer   // of rowsOf, if devices read it by themselves
	free   func() error // of rowsOf, if it is its own
	pool   *gather.Pool

	gathered atomic.Int64 // rows
}

// LoadHost reads and checks the features of a graph. Unless the device is nil, they are in pinned memory, which it and
// others of its kind read by themselves. threads 0 is parallel.Threads.
func LoadHost(ctx context.Context, graph *format.Dir, device gds.Device, threads int) (_ *Host, err error) {
	h := &Host{}
	if h.shape, err = newShape(graph); err != nil {
		return nil, err
	}
	m, err := graph.Matrix(format.Input)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	read := func(memory *offheap.Buffer) error { return readChunks(ctx, m, memory.Bytes(), h.rowBytes(), threads) }
	if device == nil {
		memory, err := graph.Hold(ctx, format.HeldFeatures, h.rows*h.rowBytes(), read)
		if err != nil {
			return nil, fmt.Errorf("features of %d nodes: %w", h.rows, err)
		}
		h.rowsOf, h.free = memory.Bytes(), memory.Free
	} else {
		if h.pinned, err = device.AllocPinned(h.rows * h.rowBytes()); err != nil {
			return nil, fmt.Errorf("features of %d nodes: %w", h.rows, err)
		}
		h.rowsOf, h.free = h.pinned.Bytes(), h.pinned.Free
		if err := readChunks(ctx, m, h.rowsOf, h.rowBytes(), threads); err != nil {
			return nil, errors.Join(err, h.free())
		}
	}
	h.pool = gather.NewPool(threads)
	return h, nil
}

// readChunks reads and checks all chunks of a matrix to rows.
func readChunks(ctx context.Context, m *format.Matrix, rows []byte, rowBytes int64, threads int) error {
	return parallel.For(ctx, threads, int64(m.Chunks()), 1, func(k, _ int64) error {
		first, count := m.ChunkRowRange(int(k))
		return m.ReadChunk(int(k), rows[first*rowBytes:][:int64(count)*rowBytes])
	})
}

// Pinned is the rows, [rows, columns], in memory that devices read by themselves; false if they are not in such memory.
func (h *Host) Pinned() (gds.Tensor, bool) {
	return gds.NewTensor(h.pinned, int(h.rows), h.columns, h.dtype), h.pinned != nil
}

// InMemory are rows of float32 in memory that stays the caller's, until Close. threads 0 is parallel.Threads.
func InMemory(rows []byte, columns, threads int) *Host {
	s := shape{rows: int64(len(rows)) / gds.Bytes(1, columns, gds.Float32), columns: columns, dtype: gds.Float32}
	return &Host{shape: s, rowsOf: rows, pool: gather.NewPool(threads)}
}

// Gather copies rows from memory; see Source.
func (h *Host) Gather(_ context.Context, dst []byte, as gds.DType, nodes []uint32) error {
	if err := h.check(dst, as, nodes); err != nil || len(nodes) == 0 {
		return err
	}
	if as == h.dtype {
		h.pool.Start(dst, h.rowsOf, int(h.rowBytes()), nodes).Wait()
	} else {
		h.pool.StartDecode(dtype.Float32s(dst), h.rowsOf, h.dtype, h.columns, nodes).Wait()
	}
	h.gathered.Add(int64(len(nodes)))
	return nil
}

// Stats counts gathered rows.
func (h *Host) Stats() Stats {
	rows := h.gathered.Load()
	return Stats{Rows: rows, Bytes: rows * h.rowBytes(), Path: "memory"}
}

// Close frees the rows.
func (h *Host) Close() error {
	h.pool.Close()
	if h.free == nil {
		return nil
	}
	return h.free()
}

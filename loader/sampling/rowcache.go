package sampling

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
)

// rowCache is the memory of the slots of a cache, as rows are stored: of the device, or of the host,
// where storage is behind it.
type rowCache struct {
	l      *Loader
	t      *typeRows
	memory gds.Memory // of the device, and pinned
	device gds.Buffer // nil: host
	table  gds.Buffer // on the device, cache.Table, where the device looks rows up; else nil
	host   *offheap.Buffer

	misses *offheap.Buffer // rows of a batch that the host's slots do not have
	// For load: rows in pinned memory, and on the device, with their slots behind them.
	staging, arrival gds.Buffer
	loadRows         int // the most at a time
}

// maxLoadRows is how many rows are loaded at a time, unless there are fewer slots.
const maxLoadRows = 4096

// RowCacheNeed is the memory of the slots of a cache, divided among types: of a device with memory of its own, which
// may look rows up by itself (routed), or else of the host, with storage behind them and batches of batchRows of each
// type.
func RowCacheNeed(spec cache.Spec, types []cache.Rows, batchRows []int64, unified, routed bool) need.Terms {
	var load, cached, missed, tables int64
	for i, one := range spec.Divide(types) {
		t := types[i]
		slots := one.Slots(t.Nodes, t.Bytes)
		load += min(maxLoadRows, slots) * (t.Bytes + 4)
		if cached += slots * t.Bytes; slots > 0 {
			missed += gds.Room(batchRows[i] * t.Bytes)
		}
		if routed {
			tables += 4 * t.Nodes
		}
	}
	terms := need.Terms{{Name: "rows on their way to the cache", Place: need.Pinned, Bytes: load}}
	if unified {
		return append(terms, need.Term{Name: "cached rows", Place: need.OffHeap, Bytes: cached},
			need.Term{Name: "rows that miss the cache", Place: need.OffHeap, Bytes: missed})
	}
	return append(terms, need.Term{Name: "cached rows", Place: need.Device, Bytes: cached + load + tables})
}

// newRowCache allocates the slots of the cache of a type; nil if there are none, or nothing is to be
// gained by rows in other memory.
func newRowCache(l *Loader, t *typeRows) (*rowCache, error) {
	stored := features.Stored(t.Features)
	if t.Cache == nil || t.Cache.Slots() == 0 || l.unified && !stored || t.there.Cols > 0 {
		return nil, nil
	}
	slots := t.Cache.Slots()
	r := &rowCache{l: l, t: t, memory: gds.Memory{Device: l.o.Device}, loadRows: min(maxLoadRows, slots)}
	what, bytes, load := fmt.Sprintf("a cache of %d rows", slots), int64(slots)*t.rowBytes(),
		int64(r.loadRows)*(t.rowBytes()+4)
	if l.unified {
		var err error
		if r.host, err = offheap.Alloc(bytes); err != nil {
			return nil, fmt.Errorf("memory for %s: %w", what, err)
		}
	} else {
		r.device, r.arrival = r.memory.Alloc(what, bytes), r.memory.Alloc(what, load)
	}
	if r.staging = r.memory.Pin(what, load); r.memory.Err != nil {
		return nil, errors.Join(r.memory.Err, r.close())
	}
	return r, nil
}

func (r *rowCache) onDevice() bool { return r.device != nil }

// tensor is the slots on the device.
func (r *rowCache) tensor() gds.Tensor {
	f := r.t.Features
	return gds.NewTensor(r.device, r.t.Cache.Slots(), f.Columns(), f.DType())
}

// slots is the table of the cache on the device.
func (r *rowCache) slots() gds.Tensor {
	return gds.NewTensor(r.table, 1, int(r.t.Features.Rows()), gds.Uint32)
}

// slot is the memory of a slot of the host.
func (r *rowCache) slot(i uint32) []byte {
	size := r.t.rowBytes()
	return r.host.Bytes()[int64(i)*size:][:size]
}

// load brings rows into their slots, after what is enqueued on stream.
func (r *rowCache) load(ctx context.Context, stream gds.Stream, rows cache.Load) error {
	f, size := r.t.Features, r.t.rowBytes()
	for len(rows.Nodes) > 0 {
		n := min(r.loadRows, len(rows.Nodes))
		memory := r.staging.Bytes()
		if err := f.Gather(ctx, memory[:int64(n)*size], f.DType(), rows.Nodes[:n]); err != nil {
			return err
		}
		if r.onDevice() {
			behind := int64(r.loadRows) * size
			bytes := int(behind) + 4*n
			copy(dtype.Uint32s(memory[behind:][:4*n]), rows.Slots[:n])
			stream.Copy(gds.NewTensor(r.arrival, 1, bytes, gds.Uint8), gds.NewTensor(r.staging, 1, bytes, gds.Uint8))
			slots := gds.NewTensor(r.arrival, 1, n, gds.Uint32)
			slots.Offset = behind
			stream.Scatter(r.tensor(), gds.NewTensor(r.arrival, n, f.Columns(), f.DType()), slots)
			if err := stream.Record().Wait(ctx); err != nil {
				return err
			}
		} else {
			for i, slot := range rows.Slots[:n] {
				copy(r.slot(slot), memory[int64(i)*size:][:size])
			}
		}
		rows.Nodes, rows.Slots = rows.Nodes[n:], rows.Slots[n:]
	}
	return nil
}

// gather writes the rows of a batch as float32: from slots in host memory, or from storage.
func (r *rowCache) gather(ctx context.Context, dst []byte, l *cache.Lookup) error {
	r.l.lookup.Lock() // misses
	defer r.l.lookup.Unlock()
	f, size, slots := r.t.Features, r.t.rowBytes(), uint32(r.t.Cache.Slots())
	need := int64(len(l.Misses)) * size
	if r.misses == nil || int64(len(r.misses.Bytes())) < need {
		if r.misses != nil {
			if err := r.misses.Free(); err != nil {
				return err
			}
		}
		if err := gds.AllocateRoom(need, gds.Room(need), func(bytes int64) (err error) {
			r.misses, err = offheap.Alloc(bytes)
			return err
		}); err != nil {
			r.misses = nil
			return fmt.Errorf("memory for %d rows that are read: %w", len(l.Misses), err)
		}
	}
	misses := r.misses.Bytes()
	if err := f.Gather(ctx, misses[:need], f.DType(), l.Misses); err != nil {
		return err
	}
	out, cols := dtype.Float32s(dst), int64(f.Columns())
	const grain = 1024
	err := parallel.For(ctx, r.l.o.Workers, int64(len(l.Index)), grain, func(lo, hi int64) error {
		for i := lo; i < hi; i++ {
			at := l.Index[i]
			row := misses[int64(max(at, slots)-slots)*size:]
			if at < slots {
				row = r.slot(at)
			}
			dtype.Decode(out[i*cols:][:cols], row[:size], f.DType())
		}
		return nil
	})
	for i, slot := range l.Into {
		copy(r.slot(slot), misses[int64(i)*size:][:size])
	}
	return err
}

func (r *rowCache) close() error {
	err := r.memory.Free()
	for _, b := range []*offheap.Buffer{r.host, r.misses} {
		if b != nil {
			err = errors.Join(err, b.Free())
		}
	}
	return err
}

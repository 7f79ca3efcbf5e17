package sampling

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// ErrHeld is returned, with gds.ErrOutOfMemory, when the batches of a loader that grows leave no memory for the next:
// batches that are held or made ahead. The epoch can go on from the next when some are released.
var ErrHeld = errors.New("the batches that are held leave")

// LoaderOptions describe a loader of sampled mini-batches.
type LoaderOptions struct {
	Device gds.Device
	// Types are the rows of the nodes of each type: of one, unless all sets are of methods with Options.ByType.
	Types []TypeRows
	// Labels of all nodes; nil: batches have none. In a typed graph, all seeds are of one type: First is its first node,
	// and Labels has a row for each of its nodes.
	Labels  *loader.Labels
	First   uint32
	Buffers int // batches on the device; 0: 2
	// MostBuffers is how many there can be after calls of Grow; 0: Buffers.
	MostBuffers int
	// MaxBatchBytes bounds the device memory of one batch, and Buffers * MaxBatchBytes bounds all batches; 0: the
	// device's own bound. If device memory is host memory and MostBuffers is 0, all of it is allocated at once (pages
	// that no batch needs are never touched), and batches stay where they are until Close.
	MaxBatchBytes int64
	Workers       int // that sample at a time; 0: parallel.Threads
	// Samples is how many samples there are at a time, from the first stage to the last, and as many more
	// where a cache looks ahead; 0: MostSamples.
	Samples int
	NodeIDs bool // batches tell which nodes their rows and inputs are
}

// TypeRows are the rows of features of the nodes of a type.
type TypeRows struct {
	// Features has the rows of all nodes of the type, and stays open as long as the loader. Rows that are in the Device's
	// own memory (features.Resident) it gathers itself; a Cache then counts alone. With features.Sparse, which is for one
	// type, batches have sparse rows, and there is no Cache.
	Features features.Source
	// Cache says which rows are in fast memory; nil: none. On a device with memory of its own these
	// rows are there. Else, if the features are in storage, they are in host memory. Else the cache
	// only counts what a device would find.
	Cache *cache.Cache
}

// typeRows are the rows of a type in a loader.
type typeRows struct {
	TypeRows
	there  gds.Tensor // Features that the device gathers by itself; the zero Tensor: the host does
	cached *rowCache  // nil: no rows are cached
	began  bool       // the cache
}

// MostSamples is the most samples between the first stage of a loader and the last: see Set.rules.
func MostSamples(workers, buffers int) int { return 2*workers + 6 + buffers }

// Loader brings sampled mini-batches to a device. Its Sets are used one at a time; Stats may be called at any time.
type Loader struct {
	o       LoaderOptions
	unified bool // the host can write to device memory
	types   []*typeRows
	sparse  *features.Sparse // the rows of the one type, if they are sparse; else nil
	form    form
	buffers *epoch.Buffers[*batchBuffer]
	lookup  sync.Mutex // of caches

	copiedIn   atomic.Int64
	batchBytes atomic.Int64 // device memory of all batch buffers, in whole pages

	jobs   pool[job]
	pinned pool[epoch.Growing]

	mu        sync.Mutex
	stats     loader.Stats
	traffic   loader.Traffic // of all batches
	assembled int64          // bytes of their rows

	onDevice *deviceSampler // by which the device prepares batches; nil: it prepares none
}

// Open opens a loader.
func Open(o LoaderOptions) (*Loader, error) {
	switch {
	case o.Device == nil || len(o.Types) == 0 || slices.ContainsFunc(o.Types, func(t TypeRows) bool {
		return t.Features == nil
	}):
		return nil, errors.New("loader of samples: no device or no features")
	case o.Buffers < 0 || o.Workers < 0 || o.Samples < 0 || o.MaxBatchBytes < 0:
		return nil, fmt.Errorf("loader of samples: %d buffers, %d workers, %d samples, batches of %d bytes (want 0 "+
			"or more)",
			o.Buffers, o.Workers, o.Samples, o.MaxBatchBytes)
	}
	if l := o.Labels; l != nil && len(o.Types) == 1 && int64(len(l.Data)) != countNodes(o.Types)*int64(l.RowBytes()) {
		return nil, fmt.Errorf("loader of samples: %d bytes of labels for %d nodes of %d", len(l.Data), countNodes(o.Types),
			l.RowBytes())
	}
	if o.Buffers == 0 {
		o.Buffers = 2
	}
	o.MostBuffers = max(o.MostBuffers, o.Buffers)
	if o.Workers == 0 {
		o.Workers = parallel.Threads()
	}
	if most := MostSamples(o.Workers, o.Buffers); o.Samples == 0 || o.Samples > most {
		o.Samples = most
	}
	o.Workers = min(o.Workers, o.Samples)
	l := &Loader{o: o, unified: o.Device.Info().Unified}
	l.form = form{unified: l.unified, nodeIDs: o.NodeIDs}
	if o.Labels != nil {
		l.form.labels = loader.Labels{Type: o.Labels.Type, Columns: o.Labels.Columns}
	}
	for _, rows := range o.Types {
		t, f := &typeRows{TypeRows: rows, there: features.Resident(rows.Features)}, rows.Features
		sparse, is := f.(*features.Sparse)
		if is && (rows.Cache != nil || len(o.Types) > 1) {
			return nil, errors.Join(errors.New("loader of samples: a cache of sparse rows, or sparse rows of a type"),
				l.closeCaches())
		}
		var err error
		if t.cached, err = newRowCache(l, t); err != nil {
			return nil, errors.Join(err, l.closeCaches())
		}
		l.types, l.sparse = append(l.types, t), sparse
		l.form.types = append(l.form.types, typeForm{columns: f.Columns(), dtype: f.DType(), sparse: is,
			cached: t.cached != nil && t.cached.onDevice(), gathers: t.there.Cols > 0})
	}
	l.buffers = epoch.NewBuffers[*batchBuffer](o.MostBuffers)
	for range o.Buffers {
		l.buffers.Add(&batchBuffer{l: l})
	}
	return l, nil
}

// countNodes is the number of nodes of all types.
func countNodes(types []TypeRows) (n int64) {
	for _, t := range types {
		n += t.Features.Rows()
	}
	return n
}

// Grow adds a batch buffer, for a caller who holds batches. It is called between epochs, or in the
// loop of one, and returns loader.ErrFull where there are MostBuffers, or where memory has no room for
// one more of the largest batch so far.
func (l *Loader) Grow() error {
	largest := int64(0)
	for _, b := range l.buffers.All() {
		largest = max(largest, b.bytes.Load())
	}
	if l.buffers.Full() || l.roomBytes() < gds.Room(largest) {
		return loader.ErrFull
	}
	l.buffers.Add(&batchBuffer{l: l})
	return nil
}

// roomBytes is how much device memory the batches may still take when buffers are added.
func (l *Loader) roomBytes() int64 {
	if l.o.MaxBatchBytes == 0 || l.o.MostBuffers == l.o.Buffers {
		return math.MaxInt64
	}
	return int64(l.o.Buffers)*l.o.MaxBatchBytes - l.batchBytes.Load() - gds.Align // by which the next is rounded up
}

// Stats are the statistics of a loader, over all epochs that have ended.
type Stats struct {
	loader.Stats
	Traffic    loader.Traffic `json:"traffic"` // of the batches that were yielded
	Cache      *CacheStats    `json:"cache,omitempty"`
	Features   features.Stats `json:"features"`
	BatchBytes int64          `json:"batch_bytes"` // device memory of the largest batch
}

// CacheStats count rows of batches that were yielded: looked up in a cache, found there, and loaded into it before
// batches; missed rows that were put into slots are not counted as loaded.
type CacheStats struct {
	Policy  string `json:"policy"`
	Slots   int    `json:"slots"`
	Lookups int64  `json:"lookups"`
	Hits    int64  `json:"hits"`
	Loaded  int64  `json:"loaded"`
}

// Stats tells what the loader did so far.
func (l *Loader) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Stats: l.stats, Traffic: l.traffic}
	s.Stages = append([]loader.StageStats(nil), s.Stages...)
	s.Memory, s.CopiedInBytes, s.AssembledBytes = l.o.Device.Usage(), l.copiedIn.Load(), l.assembled
	for i, t := range l.types {
		s.Features.Add(t.Features.Stats())
		if i == 0 || t.Features.Columns() > 0 {
			s.Placement = t.placement()
		}
		if c := t.Cache; c != nil {
			if s.Cache == nil {
				s.Cache = &CacheStats{c.Policy(), 0, s.Traffic.Rows, s.Traffic.CachedRows, s.Traffic.LoadedRows}
			}
			s.Cache.Slots += c.Slots()
		}
	}
	s.LoaderWaitSeconds = l.buffers.Waited().Seconds()
	if f := s.Features; f.Reads > 0 {
		s.BytesRead = f.ReadBytes
		s.Reads = []loader.ReadStats{{Path: f.Path, Reason: f.Reason, Reads: f.Reads, Bytes: f.ReadBytes}}
	}
	for _, b := range l.buffers.All() {
		s.BatchBytes = max(s.BatchBytes, b.bytes.Load())
	}
	return s
}

// placement is where the features are.
func (t *typeRows) placement() loader.Placement {
	switch {
	case features.Stored(t.Features):
		return loader.Storage
	case t.there.Cols > 0:
		return loader.Device
	}
	return loader.Host
}

// rowBytes is the size of a stored row.
func (t *typeRows) rowBytes() int64 {
	return gds.Bytes(1, t.Features.Columns(), t.Features.DType())
}

// Close waits for the work on the last batches, and releases memory. While an epoch runs, or batches
// are held, it returns loader.ErrInUse.
func (l *Loader) Close() error {
	if _, err := l.buffers.BeginClose(); err != nil {
		return err
	}
	l.buffers.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, b := range l.buffers.All() {
		errs = append(errs, b.release())
	}
	for _, p := range l.pinned.all {
		errs = append(errs, p.Free())
	}
	if l.onDevice != nil {
		errs = append(errs, l.onDevice.close())
	}
	return errors.Join(append(errs, l.closeCaches())...)
}

// closeCaches frees the rows that are cached.
func (l *Loader) closeCaches() error {
	var errs []error
	for _, t := range l.types {
		if t.cached != nil {
			errs = append(errs, t.cached.close())
		}
	}
	return errors.Join(errs...)
}

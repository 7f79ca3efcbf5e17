// Package loader brings batches of a hop store into device memory. One pipeline
// executor runs every loader; loaders differ only in where the rows come from
// (source.go). Batches are assembled into a ring of device buffers while earlier
// ones are computed on (preprop-gnn section 4.1, double buffering).
//
// A Loader numbers the rows of the regions that it was opened for from 0, region
// after region; spans, indices and labels inside the package mean these numbers.
package loader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
)

// MatrixID names one feature matrix of a store.
type MatrixID = format.MatrixID

// Placement is where the input of training lives.
type Placement string

const (
	Device  Placement = "device"  // preloaded into device memory
	Host    Placement = "host"    // in pinned host memory
	Storage Placement = "storage" // read from the store's files, chunk by chunk
)

// Options describe a loader.
type Options struct {
	Device    gds.Device
	Store     *format.Dir
	Matrices  []MatrixID // what each batch holds, in this order
	Regions   []string   // whose rows the sets run over; nil: all of the store
	Placement Placement
	Buffers   int // batch buffers on the device; 0: 2
	BatchRows int // most rows that a batch can have on this rank
	// ChunkSlots is how many chunks (of every matrix) Storage holds at a time;
	// 0: those of a batch being assembled and of one being read.
	ChunkSlots int
	// Sharded tells that, of several ranks, each holds a part of the rows on its device
	// and fetches others from where they are; else each holds all.
	Sharded bool
	Threads int // for reading and gathering; 0: GOMAXPROCS
	// Unchecked leaves the checksums of what Storage reads uncompared.
	Unchecked bool
	// BySpan has each span of a batch copied by an operation of its own, however
	// short. Where rows are reshuffled that is the naive loader, against which others
	// are measured (preprop-gnn Figure 6a). Not from Storage.
	BySpan bool
}

// Loader is an open store on its way to a device. Its Sets are used one at a
// time; Stats may be called at any time.
type Loader struct {
	o       Options // defaults filled in
	backend backend
	layout  format.Layout
	regions []region
	rows    int64   // of all regions
	labels  []int32 // [rows]
	memory  memory
	frames  []*frame
	source  source
	ranks   Ranks // that it is one of
	rank    int
	// Of its rows, the device has those with a number of part modulo parts.
	part, parts int64

	assembled, copiedIn atomic.Int64 // bytes: see Stats

	mu     sync.Mutex
	busy   bool // an epoch is running
	closed bool
	stats  Stats
}

// region is a region of the store and where its rows are in the loader.
type region struct {
	format.Region
	at int64
}

// memory is what a loader has allocated.
type memory struct {
	device  gds.Device
	buffers []gds.Buffer
}

func (m *memory) alloc(bytes int64) (gds.Buffer, error) {
	return m.keep(m.device.Alloc(max(bytes, 1)))
}

func (m *memory) pin(bytes int64) (gds.Buffer, error) {
	return m.keep(m.device.AllocPinned(max(bytes, 1)))
}

func (m *memory) keep(b gds.Buffer, err error) (gds.Buffer, error) {
	if err == nil {
		m.buffers = append(m.buffers, b)
	}
	return b, err
}

func (m *memory) free() error {
	var err error
	for _, b := range m.buffers {
		err = errors.Join(err, b.Free())
	}
	m.buffers = nil
	return err
}

// Memory is what a loader takes beside the input, in bytes.
type Memory struct {
	Batches int64 // of the device
	// Chunks are those on their way where the input is read from storage: of the
	// device if its memory is the host's, else pinned.
	Chunks int64
	// Staging is pinned where batches are gathered in host memory for a device with
	// memory of its own.
	Staging int64
}

// Need tells what Open will take with these options for a store of this layout.
// Device, Store and Placement do not matter.
func Need(layout format.Layout, o Options) (Memory, error) {
	l := &Loader{o: o, layout: layout}
	if err := l.settle(); err != nil {
		return Memory{}, err
	}
	slots, err := l.slots()
	var frame int64
	features, stored, numbers := l.frameBytes()
	for _, bytes := range []int64{features, stored, numbers} {
		frame += (bytes + gds.Align - 1) / gds.Align * gds.Align // as devices count
	}
	return Memory{
		Batches: int64(l.o.Buffers) * frame,
		Chunks:  int64(slots) * int64(len(l.o.Matrices)) * l.slotStride(),
		Staging: int64(l.stagings()) * l.stagingBytes(),
	}, err
}

// Open prepares the source: what is preloaded is read (and checked) here. The
// store must stay open as long as the loader.
func Open(ctx context.Context, o Options) (*Loader, error) {
	ranks, err := OpenRanks(ctx, o, []gds.Device{o.Device})
	if err != nil {
		return nil, err
	}
	return ranks[0], nil
}

// open makes the loader of one of some ranks, of which those before it are there.
// Its memory is still to be filled.
func open(ctx context.Context, o Options, ranks Ranks, rank int) (*Loader, error) {
	l := &Loader{o: o, memory: memory{device: o.Device}, ranks: ranks, rank: rank, parts: 1}
	if o.Sharded {
		l.part, l.parts = int64(rank), int64(len(ranks))
	}
	err := l.configure()
	if err == nil {
		err = l.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

func (l *Loader) open(ctx context.Context) error {
	if err := l.readLabels(ctx); err != nil {
		return err
	}
	for range l.o.Buffers {
		f, err := newFrame(l)
		if err != nil {
			return fmt.Errorf("buffers for %d batches of %d rows: %w", l.o.Buffers, l.o.BatchRows, err)
		}
		l.frames = append(l.frames, f)
	}
	var err error
	l.source, err = l.backend.open(l)
	return err
}

// configure checks the options and fills in what follows from them.
func (l *Loader) configure() error {
	o := &l.o
	var known bool
	l.backend, known = backends[o.Placement]
	switch {
	case o.Device == nil || o.Store == nil:
		return errors.New("loader: no device or no store")
	case !known:
		return fmt.Errorf("loader: unknown placement %q (want one of %v)", o.Placement, Placements())
	case o.Sharded && (o.Placement != Device || o.Device.Info().Unified):
		return errors.New("loader: only what is on devices with memory of their own is sharded")
	case o.BySpan && o.Placement == Storage:
		return errors.New("loader: from storage chunks are read, not rows one by one")
	}
	l.layout = o.Store.Layout()
	for _, name := range o.Regions {
		if _, ok := o.Store.Region(name); !ok {
			return l.noRegion(name)
		}
	}
	return l.settle()
}

// settle fills in what follows from options and layout.
func (l *Loader) settle() error {
	o := &l.o
	switch {
	case len(o.Matrices) == 0:
		return errors.New("loader: no matrices")
	case o.BatchRows < 1:
		return fmt.Errorf("loader: batches of %d rows (want 1 or more)", o.BatchRows)
	case o.Buffers < 0 || o.ChunkSlots < 0 || o.Threads < 0:
		return fmt.Errorf("loader: %d buffers, %d chunk slots, %d threads (want 0 or more)", o.Buffers, o.ChunkSlots, o.Threads)
	}
	if o.Buffers == 0 {
		o.Buffers = 2
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	for _, r := range l.layout.Regions {
		if o.Regions == nil || slices.Contains(o.Regions, r.Name) {
			l.regions = append(l.regions, region{r, l.rows})
			l.rows += r.Rows
		}
	}
	o.BatchRows = int(max(1, min(int64(o.BatchRows), l.rows)))
	return nil
}

func (l *Loader) noRegion(name string) error {
	var names []string
	for _, r := range l.layout.Regions {
		names = append(names, r.Name)
	}
	return fmt.Errorf("%s has no region %q (it has %q)", l.o.Store.Path(), name, names)
}

// readLabels reads the labels of the loader's rows; all are -1 in a store that
// has none.
func (l *Loader) readLabels(ctx context.Context) error {
	if l.rank > 0 {
		l.labels = l.ranks[0].labels
		return nil
	}
	if n := l.o.Store.Manifest.Labels; n > 1 {
		return fmt.Errorf("%s is multi-label (%d labels a row), which cannot be trained on yet", l.o.Store.Path(), n)
	}
	l.labels = make([]int32, l.rows)
	for _, r := range l.regions {
		if err := l.o.Store.ReadLabels(ctx, r.Region, l.labels[r.at:r.at+r.Rows]); err != nil {
			return err
		}
	}
	return nil
}

// rowBytes is the size of a row of one matrix, in the stored type.
func (l *Loader) rowBytes() int64 { return int64(l.layout.Features) * int64(l.layout.DType.Size()) }

// joinedColumns and joinedBytes are the elements and the size of a row of all
// matrices.
func (l *Loader) joinedColumns() int { return len(l.o.Matrices) * l.layout.Features }
func (l *Loader) joinedBytes() int64 { return int64(len(l.o.Matrices)) * l.rowBytes() }

// unified tells that what is stored on the device can be written by the host.
func (l *Loader) unified() bool { return l.o.Device.Info().Unified }

// enter begins what only one may do at a time: an epoch, or Close.
func (l *Loader) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("loader used after Close")
	}
	if l.busy {
		return errors.New("loader: another epoch is running (the sets of a loader are used one at a time)")
	}
	l.busy = true
	return nil
}

func (l *Loader) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
}

// Close releases buffers and files, once the work on the last batches is done.
// No epoch may be running.
func (l *Loader) Close() error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.release()
}

func (l *Loader) release() error {
	for _, f := range l.frames {
		_ = f.settle(context.Background())
	}
	var err error
	if l.source != nil {
		err = l.source.close()
	}
	return errors.Join(err, l.memory.free())
}

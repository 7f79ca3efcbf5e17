// Package loader brings batches of a hop store into device memory. One core (loader/internal/epoch) runs every loader
// by the rules of internal/schedule; loaders differ only in where the rows come from (source.go). Batches are assembled
// into free device buffers while earlier ones are computed on (preprop-gnn section 4.1, double buffering).
//
// A Loader numbers the rows of the regions that it was opened for from 0, region
// after region; spans, indices and labels inside the package mean these numbers.
package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
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

// ErrInUse is returned when a loader cannot be closed, or begin an epoch, before an epoch that runs
// has ended or batches that are held are released.
var ErrInUse = epoch.ErrInUse

// ErrFull is returned when a loader has as many batch buffers as it may have.
var ErrFull = errors.New("the loader has all the batch buffers that it may have")

// Options describe a loader.
type Options struct {
	Device    gds.Device
	Store     *format.Dir
	Matrices  []MatrixID // what each batch holds, in this order
	Regions   []string   // whose rows the sets run over; nil: all of the store
	Placement Placement
	Buffers   int // batch buffers on the device; 0: 2
	// MostBuffers is how many there can be after calls of Grow; 0: Buffers.
	MostBuffers int
	BatchRows   int // most rows that a batch can have on this rank
	// Sharded: with several ranks, each device holds a part of the rows and copies the others
	// from the devices that hold them; else each device holds all rows.
	Sharded bool
	// Mapped: with placement Host, the device gathers the rows of a batch from pinned memory by itself,
	// and the host does not; for devices with memory of their own whose Info has MapsPinned.
	Mapped  bool
	Threads int // for reading and gathering; 0: parallel.Threads
	// ChunksOnDevice: Storage reads chunks into memory of the device, and checks them there, if the device
	// reads all files of the store by a path of its own ("gds" or "gds-compat" in gds.Receipt) and has the
	// memory; else into pinned memory, as without it.
	ChunksOnDevice bool
	// Unchecked: do not check the checksums of chunks that Storage reads.
	Unchecked bool
	// Owned: the memory of a batch is its own, so it may be written to. Else a batch may be a view of preloaded memory.
	Owned bool
	// AsStored: the matrices of batches have the stored type. Else they are float32.
	AsStored bool
	// NoLabels: batches have no labels, and none are read.
	NoLabels bool
	// RowNumbers, NodeIDs: batches tell which rows of the store they have, and which nodes.
	RowNumbers, NodeIDs bool
	// BySpan: copy each span of a batch by an operation of its own, however short. With rows reshuffled, this is the
	// baseline that other loaders are compared with (preprop-gnn Figure 6a). Not for Storage.
	BySpan bool
}

// Loader brings batches of a store to a device. Its Sets are used one at a time; Stats may be called at any time.
type Loader struct {
	o       Options // defaults filled in
	layout  format.Layout
	regions []region
	rows    int64 // of all regions
	starts  []int // the first column of each matrix where all are side by side; last, the number of columns
	columns rowColumns
	memory  gds.Memory // of all but the batch buffers
	buffers *epoch.Buffers[*batchBuffer]
	source  source
	ranks   Ranks // that it is one of
	rank    int
	// The device holds row i if i % holders == holder: see Sharded.
	holder, holders int64

	assembled, copiedIn atomic.Int64 // bytes: see Stats

	mu    sync.Mutex
	stats Stats
}

// region is a region of the store, and the number of its first row in the loader.
type region struct {
	format.Region
	firstRow int64
}

// Memory is the memory that a loader allocates beside the input, in bytes.
type Memory struct {
	Batches int64 // of the device
	// Chunks is for chunks being read when the input is in storage: device memory if the device is unified, else
	// pinned.
	Chunks int64
	// Staging is pinned memory for batches that are gathered in host memory for a device with memory of its own.
	Staging int64
	// Host is what every placement takes of host memory, for all ranks: labels and node ids, the columns of batches,
	// and, until it is open, the chunks through which the input is loaded.
	Host int64
	// Buffer is the device and host memory of one more batch buffer.
	Buffer int64
}

// Need computes the memory that each rank allocates with these options for a store of this layout.
// It uses Store for the number of labels (nil: one a row), and does not use Device and Placement.
func Need(layout format.Layout, o Options, ranks int) (Memory, error) {
	l := &Loader{o: o, layout: layout}
	if err := l.fillDefaults(); err != nil {
		return Memory{}, err
	}
	features, stored, columns := l.batchBufferBytes()
	staging := int64(0)
	if !l.o.Mapped {
		staging = int64(l.stagingCount()) * l.stagingBytes()
	}
	host := gds.Aligned(int64(l.columns.labels.RowBytes()) * l.rows)
	if l.o.NodeIDs {
		host += gds.Aligned(4 * l.rows)
	}
	return Memory{
		Batches: int64(l.o.Buffers) * (gds.Aligned(features) + gds.Aligned(stored) + gds.Aligned(columns)),
		Chunks:  int64(l.slots()) * l.slotSize(),
		Staging: staging,
		Host: host + int64(ranks*l.o.Buffers)*gds.Aligned(columns) +
			int64(l.preloadChunks(ranks))*gds.Aligned(l.mostChunkBytes()),
		Buffer: gds.Aligned(features) + gds.Aligned(stored) + 2*gds.Aligned(columns),
	}, nil
}

// Open opens a loader. With the placements Device and Host, it reads and checks the whole input.
// The store must stay open as long as the loader.
func Open(ctx context.Context, o Options) (*Loader, error) {
	ranks, err := OpenRanks(ctx, o, []gds.Device{o.Device})
	if err != nil {
		return nil, err
	}
	return ranks[0], nil
}

// open makes the loader of one rank; the ranks before it are open. It does not fill its memory.
func open(ctx context.Context, o Options, ranks Ranks, rank int) (*Loader, error) {
	l := &Loader{o: o, memory: gds.Memory{Device: o.Device}, ranks: ranks, rank: rank, holders: 1}
	if o.Sharded {
		l.holder, l.holders = int64(rank), int64(len(ranks))
	}
	err := l.configure()
	if err == nil {
		err = l.readColumns(ctx)
	}
	if err == nil {
		err = l.openBuffers()
	}
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

func (l *Loader) openBuffers() error {
	l.buffers = epoch.NewBuffers[*batchBuffer](l.o.MostBuffers)
	for range l.o.Buffers {
		if err := l.Grow(); err != nil {
			return err
		}
	}
	return nil
}

// Grow adds a batch buffer, for a caller who holds batches. It is called between epochs, or in the
// loop of one, and returns ErrFull where there are Options.MostBuffers.
func (l *Loader) Grow() error {
	if l.buffers.Full() {
		return ErrFull
	}
	f, err := newBatchBuffer(l)
	if err == nil {
		l.buffers.Add(f)
	}
	return err
}

// configure checks the options and sets the fields that follow from them.
func (l *Loader) configure() error {
	o := &l.o
	_, known := backends[o.Placement]
	switch {
	case o.Device == nil || o.Store == nil:
		return errors.New("loader: no device or no store")
	case !known:
		return fmt.Errorf("loader: unknown placement %q (want one of %v)", o.Placement, Placements())
	case o.Sharded && (o.Placement != Device || o.Device.Info().Unified):
		return errors.New("loader: shares of the input need devices with memory of their own")
	case o.Mapped && (o.Placement != Host || o.Device.Info().Unified || !o.Device.Info().MapsPinned):
		return errors.New("loader: only devices with memory of their own gather rows of host memory by themselves, " +
			"if they reach it")
	}
	l.layout = o.Store.Layout()
	for _, name := range o.Regions {
		if _, ok := o.Store.Region(name); !ok {
			return l.noRegion(name)
		}
	}
	return l.fillDefaults()
}

// fillDefaults checks numbers, sets defaults, and sets the fields that follow from the layout.
func (l *Loader) fillDefaults() error {
	o := &l.o
	switch {
	case len(o.Matrices) == 0:
		return errors.New("loader: no matrices")
	case o.BatchRows < 1:
		return fmt.Errorf("loader: batches of %d rows (want 1 or more)", o.BatchRows)
	case o.Buffers < 0 || o.Threads < 0:
		return fmt.Errorf("loader: %d buffers, %d threads (want 0 or more)", o.Buffers, o.Threads)
	}
	for i := range len(o.Matrices) + 1 {
		l.starts = append(l.starts, l.layout.Columns(o.Matrices[:i]))
	}
	if o.Buffers == 0 {
		o.Buffers = 2
	}
	o.MostBuffers = max(o.MostBuffers, o.Buffers)
	if o.Threads == 0 {
		o.Threads = parallel.Threads()
	}
	for _, r := range l.layout.Regions {
		if o.Regions == nil || slices.Contains(o.Regions, r.Name) {
			l.regions = append(l.regions, region{r, l.rows})
			l.rows += r.Rows
		}
	}
	o.BatchRows = int(max(1, min(int64(o.BatchRows), l.rows)))
	l.columns = newRowColumns(o)
	return nil
}

func (l *Loader) noRegion(name string) error {
	var names []string
	for _, r := range l.layout.Regions {
		names = append(names, r.Name)
	}
	return fmt.Errorf("%s has no region %q (it has %q)", l.o.Store.Path(), name, names)
}

// width is the number of columns of a matrix.
func (l *Loader) width(matrix int) int { return l.starts[matrix+1] - l.starts[matrix] }

// rowBytes is the size of a row of a matrix, in the stored type, and chunkBytes that of a chunk.
func (l *Loader) rowBytes(matrix int) int64   { return int64(l.width(matrix) * l.layout.DType.Size()) }
func (l *Loader) chunkBytes(matrix int) int64 { return int64(l.layout.ChunkRows) * l.rowBytes(matrix) }

// mostChunkBytes is the size of a chunk of the widest matrix.
func (l *Loader) mostChunkBytes() (bytes int64) {
	for m := range l.o.Matrices {
		bytes = max(bytes, l.chunkBytes(m))
	}
	return bytes
}

// joinedColumns and joinedBytes are the elements and the bytes of a row of all matrices.
func (l *Loader) joinedColumns() int { return l.starts[len(l.o.Matrices)] }
func (l *Loader) joinedBytes() int64 { return int64(l.joinedColumns() * l.layout.DType.Size()) }

// unified tells that the host can write to device memory.
func (l *Loader) unified() bool { return l.o.Device.Info().Unified }

// Close closes the loader, and with it all ranks that it is one of: see Ranks.Close.
func (l *Loader) Close() error { return l.ranks.Close() }

func (l *Loader) release() error {
	var errs []error
	if l.buffers != nil {
		l.buffers.Close()
		for _, f := range l.buffers.All() {
			errs = append(errs, f.memory.Free())
		}
	}
	if l.source.close != nil {
		errs = append(errs, l.source.close())
	}
	return errors.Join(append(errs, l.memory.Free())...)
}

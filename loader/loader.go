// Package loader brings batches of a hop store into device memory. One pipeline
// executor runs every loader; loaders differ only in where the bytes come from
// (Source). Batches are assembled into a ring of device buffers while earlier
// ones are computed on (preprop-gnn section 4.1, double buffering).
package loader

import (
	"context"
	"errors"
	"iter"

	"github.com/hopfeed/hopfeed/chunk"
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
	Placement Placement
	Buffers   int // batch buffers on the device; 0: 2
	BatchRows int // most rows that a batch can have on this rank
	Threads   int // for reading and gathering; 0: GOMAXPROCS
}

// Loader is an open store on its way to a device. Its Sets are used one at a time.
type Loader struct{}

// Rows says which rows of the store a Set runs over: a region, or, if List is
// not nil, these row numbers (which Storage cannot do).
type Rows struct {
	Region string
	List   []uint32
}

// Batch is what one step of training sees. It is valid for work enqueued on the
// stream that was given to Epoch, until the loop asks for the next batch.
type Batch struct {
	Index      int
	Rows       int          // of this rank; may be 0
	GlobalRows int          // over all ranks: what the loss is divided by
	X          []gds.Tensor // [Rows, F] float32, one for each of Options.Matrices
	Labels     gds.Tensor   // int32 [1, Rows]
}

// Set is the epochs over some rows of a loader's store.
type Set struct{}

var errUnbuilt = errors.New("being built")

// Open prepares the source: what is preloaded is read (and checked) here.
func Open(ctx context.Context, o Options) (*Loader, error) { return nil, errUnbuilt }

// Set plans epochs over rows: plan.Rows is filled in.
func (l *Loader) Set(rows Rows, plan chunk.Plan) (*Set, error) { return nil, errUnbuilt }

// Close releases buffers and files. No epoch may be running.
func (l *Loader) Close() error { return nil }

// Rows is the number of rows of an epoch.
func (s *Set) Rows() int64 { return 0 }

// Epoch yields the batches of epoch n in the plan's order. Before a batch is
// yielded, stream is made to wait until its data are there; the buffers are
// reused once the work that stream has when the loop comes back is done. An
// error is yielded once, last; leaving the loop early, or the end of ctx, stops
// the pipeline and leaves nothing behind.
func (s *Set) Epoch(ctx context.Context, stream gds.Stream, n int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) { yield(nil, errUnbuilt) }
}

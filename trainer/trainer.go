// Package trainer trains models on hop-wise propagated features (PP-GNNs, preprop-gnn section 2.5) and applies them:
// layers, models, the training loop and metrics.
//
// It computes only through gds.Stream, so that it runs on every device, and it sees batches (loader.Batch), never
// files. A model is one file and one line in the table of kinds (model.go). Everything random is a function of a seed,
// and what the device computes does not depend on the number of threads, so a run repeated is the same run, bit for
// bit.
//
// Several devices train one model by sharing each batch (see Rank). Which rows form
// a batch, and in which order batches come, does not depend on their number; what
// is dropped out does, and the order in which floating-point numbers are added.
//
// Fit trains from beginning to end. Start and Resume give a Fitting, which can be stopped between any
// two batches, and whose State goes on elsewhere, to the same bits.
//
// Functions may be called at the same time from several goroutines as long as their data sets are not shared.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// ErrOptions is returned when a model or a training with these options is impossible.
var ErrOptions = errors.New("unusable options")

// MatrixID names one feature matrix of a store.
type MatrixID = loader.MatrixID

// Epocher is a set of rows that yields the batches of any number of epochs. *loader.Set
// implements it, and documents the contract.
type Epocher interface {
	// Rows is the number of rows of an epoch, over all ranks.
	Rows() int64
	// EpochFrom yields the batches of epoch n, the first being 0, from batch first on.
	EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error]
}

var _ Epocher = (*loader.Set)(nil)

// Data is the rows that a rank trains on, validates and tests with. Valid and Test may be nil
// or have no rows. No set runs two epochs at a time.
type Data struct {
	Train, Valid, Test Epocher
	BatchRows          int // most rows that a batch of any of them has
	// TrainLabelled is how many of Train's rows have a label, over all ranks; 0: all. The loss of a batch is divided by
	// its rows times that part of rows, and so the loss of an epoch is the mean over labelled rows.
	TrainLabelled int64
}

// hasRows tells whether a set exists and has rows.
func hasRows(e Epocher) bool { return e != nil && e.Rows() > 0 }

// memory is device memory that is freed all at once. Without a device it is only counted. err is the first error of an
// allocation, after which there are no more: check it when all is allocated.
type memory struct {
	dev         gds.Device
	bufs        []gds.Buffer
	bytes       int64 // of the device, in pages of gds.Align bytes
	pinnedBytes int64 // of the host, also in pages
	err         error
}

// matrix allocates a dense matrix of zeros; errors say what it is for.
func (m *memory) matrix(what string, rows, cols int, t gds.DType) gds.Tensor {
	bytes := gds.Bytes(rows, cols, t)
	m.bytes += gds.Aligned(bytes)
	if buf := m.add("memory for "+what, bytes, gds.Device.Alloc); buf != nil {
		return gds.NewTensor(buf, rows, cols, t)
	}
	return gds.Tensor{}
}

// pinned allocates pinned host memory, which is freed with the rest.
func (m *memory) pinned(what string, bytes int64) gds.Buffer {
	m.pinnedBytes += gds.Aligned(bytes)
	return m.add("pinned memory for "+what, bytes, gds.Device.AllocPinned)
}

// add allocates a buffer; nil: there is no device, or an error.
func (m *memory) add(what string, bytes int64, allocate func(gds.Device, int64) (gds.Buffer, error)) gds.Buffer {
	if m.dev == nil || m.err != nil {
		return nil
	}
	buf, err := allocate(m.dev, bytes)
	if err != nil {
		m.err = fmt.Errorf("%s: %w", what, err)
		return nil
	}
	m.bufs = append(m.bufs, buf)
	return buf
}

// free frees all of it. Work that uses it must be done.
func (m *memory) free() error {
	var errs []error
	for _, b := range m.bufs {
		errs = append(errs, b.Free())
	}
	m.bufs, m.err = nil, nil
	return errors.Join(errs...)
}

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

// Package chunk plans epochs: which rows form which batch, in which order. A
// plan is a pure function of a few integers, needs no memory for the order, and
// does no I/O. Random reshuffling (SGD-RR) is chunk reshuffling (SGD-CR;
// preprop-gnn section 4.2) with chunks of one row.
package chunk

import "iter"

// Span is a run of consecutive rows, relative to the first row of the plan.
type Span struct {
	First int64
	Rows  int
}

// Order says how the chunks of an epoch are ordered.
type Order uint8

const (
	Sequential Order = iota // ascending: evaluation
	Shuffled                // a new permutation each epoch: training
)

// Plan describes the epochs over a set of rows. The zero values of Rank, World
// and DropLast mean one rank that also gets the last, short batch.
type Plan struct {
	Rows      int64
	ChunkRows int // rows that stay together; 1 is SGD-RR
	BatchRows int // of the global batch, over all ranks
	Order     Order
	Seed      uint64
	DropLast  bool
	Rank      int
	World     int
}

// Batch is one rank's share of a global batch. Spans are in training order and
// may be empty where a batch has fewer rows than ranks.
type Batch struct {
	Index      int // within the epoch
	GlobalRows int // over all ranks: what the loss is divided by
	Rows       int // of this rank
	Spans      []Span
}

var _ iter.Seq[Batch] // (*Plan).Epoch is written against it

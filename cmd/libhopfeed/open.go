//go:build cgo && (linux || darwin)

package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
)

// batchOptions are the options of open, plan and sample.
type batchOptions struct {
	resources
	BatchRows int    `json:"batch_rows"`
	World     int    `json:"world"`
	Rank      int    `json:"rank"`
	Placement string `json:"placement"`
	Shuffle   string `json:"shuffle"`
	Seed      uint64 `json:"seed"`
	DropLast  bool   `json:"drop_last"`
	Buffers   int    `json:"buffers"`
	Owned     bool   `json:"owned"`
}

// check refuses a share of each batch that there is not, and fills in how many buffers there are, and may be.
func (o *batchOptions) check() (mostBuffers int, err error) {
	switch {
	case o.BatchRows < 1:
		return 0, fmt.Errorf("%w: batches of %d rows: want 1 or more", session.ErrOptions, o.BatchRows)
	case o.World < 1 || o.Rank < 0 || o.Rank >= o.World:
		return 0, fmt.Errorf("%w: rank %d of %d: ranks count from 0", session.ErrOptions, o.Rank, o.World)
	}
	o.Buffers = cmp.Or(o.Buffers, defaultBuffers)
	if o.Owned {
		mostBuffers = mostBatches
	}
	return mostBuffers, nil
}

// openOptions are the options of open and plan.
type openOptions struct {
	batchOptions
	Store    string   `json:"store"`
	Region   string   `json:"region"`
	Split    *int     `json:"split"`     // whose part the region is; nil: the one that the store is laid out by
	Chosen   []uint32 `json:"node_list"` // instead of a region
	Matrices [][2]any `json:"matrices"`
	Stored   bool     `json:"stored"`

	Nodes      bool `json:"nodes"`
	RowNumbers bool `json:"row_numbers"`
}

func defaultOpen() openOptions {
	return openOptions{Region: format.RegionTrain,
		batchOptions: batchOptions{World: 1, Placement: placement.Auto, Shuffle: placement.Auto}}
}

// defaultBuffers is one more than loaders have for a loop in Go: a batch that was released is taken
// back when the next is put into the ring.
const defaultBuffers = 3

// mostBatches is how many buffers a loader of owned batches may have: a process has some 65,000 memory
// maps, and a buffer takes up to 4.
const mostBatches = 4096

// inOrder is the shuffle that reads rows in the order of the store.
const inOrder = "none"

// session opens the store, and returns the options of a session of one rank. It holds this rank's share of each batch.
func (o *openOptions) session(ctx context.Context, j *job) (store *format.Dir, so session.Options, err error) {
	files, err := o.files(j)
	if err != nil {
		return nil, so, err
	}
	if store, err = format.OpenStore(files, o.Store); err != nil {
		return nil, so, err
	}
	j.opens(store)
	store.Share(&pool, j.holders(&o.resources))
	most, err := o.check()
	if err != nil {
		return nil, so, err
	}
	if o.World > 1 && o.Shuffle == placement.Auto {
		return nil, so, fmt.Errorf("%w: shuffle auto with %d ranks, which could decide differently: want rr, chunk or none",
			session.ErrOptions, o.World)
	}
	so = session.Options{
		Machine: j.machine, Train: o.Shuffle != inOrder,
		BatchRows: (o.BatchRows-1)/o.World + 1,
		Buffers:   o.Buffers, MostBuffers: most, AsStored: o.Stored, RowNumbers: o.RowNumbers, NodeIDs: o.Nodes,
		Placement: o.Placement, Owned: o.Owned,
	}
	if so.Train {
		so.Shuffle = o.Shuffle
	}
	so.Rows = make([]loader.Rows, 1)
	if o.Chosen != nil {
		so.Rows[0], err = session.RowsOfNodes(ctx, store, o.Chosen)
	} else {
		so.Rows[0], err = session.RowsOf(ctx, store, o.Region, o.Split)
	}
	if err == nil {
		so.Matrices, err = o.matrices(store)
	}
	return store, so, err
}

// matrices are the matrices asked for, or all.
func (o *openOptions) matrices(store *format.Dir) (out []format.MatrixID, err error) {
	if o.Matrices == nil {
		return store.Matrices(), nil
	}
	for _, m := range o.Matrices {
		operator, _ := m[0].(string)
		hop, _ := m[1].(float64)
		id := format.MatrixID{Operator: operator, Hop: int(hop)}
		if _, err := store.Matrix(id); err != nil {
			return nil, fmt.Errorf("%w: %v", session.ErrOptions, err)
		}
		out = append(out, id)
	}
	return out, nil
}

// planned is a plan as callers see it.
type planned struct {
	Placement    string                  `json:"placement"`
	Shuffle      string                  `json:"shuffle"`
	Reasons      []string                `json:"reasons"`
	Alternatives []placement.Alternative `json:"alternatives"`
	InputBytes   int64                   `json:"input_bytes"`
	Rows         int64                   `json:"rows"` // of an epoch
	Memory       *need.Memory            `json:"memory_plan"`
}

func describePlan(p session.Plan, rows int64) planned {
	return planned{p.Placement, p.Shuffle, p.Reasons, p.Alternatives, int64(p.Needs.Input), rows, p.Memory()}
}

type planOptions struct{ openOptions }

func (o *planOptions) run(ctx context.Context, j *job) (any, error) {
	store, so, err := o.session(ctx, j)
	if err != nil {
		return nil, err
	}
	p, err := session.MakePlan(ctx, store, so)
	if err != nil {
		return nil, err
	}
	return describePlan(p, session.CountRows(store.Layout(), so.Rows[0])), nil
}

// opened is the result of open and sample.
type opened struct {
	planned
	Loader      uint64   `json:"loader"`
	Batches     int      `json:"batches"` // of an epoch
	Buffers     int      `json:"buffers"`
	ChunkRows   int      `json:"chunk_rows"` // that are reshuffled together
	Layers      int      `json:"layers"`     // of a sampled batch
	Matrices    []string `json:"matrices"`
	Fingerprint string   `json:"fingerprint"` // of the store or graph
	identified
}

// identified holds what changes when other data replace a directory, but not when it gets further matrices.
type identified struct {
	RowsFingerprint string `json:"rows_fingerprint"`
}

func identify(d *format.Dir) identified { return identified{d.Manifest.RowsFingerprint()} }

func (o *openOptions) run(ctx context.Context, j *job) (any, error) {
	store, so, err := o.session(ctx, j)
	if err != nil {
		return nil, err
	}
	opening, err := session.Open(ctx, store, so)
	if err != nil {
		return nil, err
	}
	j.opens(opening)
	order := chunk.Sequential
	if so.Train {
		order = chunk.Shuffled
	}
	set, err := opening.Loaders[0].Set(so.Rows[0], chunk.Plan{
		BatchRows: o.BatchRows, ChunkRows: opening.ChunkRows, Order: order, Seed: o.Seed, Rank: o.Rank, World: o.World,
		DropLast: o.DropLast,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrOptions, err)
	}
	j.epochs, j.stats = set, func() any { return opening.Loaders[0].Stats() }
	if o.Owned {
		j.grow, j.memory = opening.Loaders[0].Grow, j.machine.Budget
	}
	out := &opened{
		planned: describePlan(opening.Plan, set.Rows()), Batches: set.Batches(), Buffers: so.Buffers,
		ChunkRows: opening.ChunkRows, Fingerprint: store.Manifest.Fingerprint, identified: identify(store),
	}
	if !so.Train {
		out.Shuffle = inOrder
	}
	if o.Owned {
		out.Reasons = append(out.Reasons,
			fmt.Sprintf("up to %d batches, of %s each, can be kept: as many as memory allows", opening.MostBuffers,
				opening.BufferBytes))
	}
	for _, m := range so.Matrices {
		out.Matrices = append(out.Matrices, m.String())
	}
	j.device = opening.Devices[0]
	return out, nil
}

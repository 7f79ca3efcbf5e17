//go:build cgo && linux

package main

// #include "ring.h"
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
)

// openOptions are those of open and plan.
type openOptions struct {
	resources
	Store     string   `json:"store"`
	Region    string   `json:"region"`
	Matrices  [][2]any `json:"matrices"`
	BatchRows int      `json:"batch_rows"`
	World     int      `json:"world"`
	Rank      int      `json:"rank"`
	Placement string   `json:"placement"`
	Shuffle   string   `json:"shuffle"`
	Seed      uint64   `json:"seed"`
	Stored    bool     `json:"stored"`
	Buffers   int      `json:"buffers"`

	Nodes      bool `json:"nodes"`
	RowNumbers bool `json:"row_numbers"`
}

// defaultBuffers is one more than loaders have for a loop in Go: a batch that was released is taken
// back when the next is put into the ring.
const defaultBuffers = 3

// inOrder is the shuffle that reads rows in the order of the store.
const inOrder = "none"

// session are the options of a session of one rank. It holds this rank's share of each batch.
func (o *openOptions) session(ctx context.Context, store *format.Dir) (so session.Options, err error) {
	bad := func(format string, args ...any) (session.Options, error) {
		return so, fmt.Errorf("%w: %s", session.ErrOptions, fmt.Sprintf(format, args...))
	}
	switch {
	case o.BatchRows < 1:
		return bad("batches of %d rows: want 1 or more", o.BatchRows)
	case o.World < 1 || o.Rank < 0 || o.Rank >= o.World:
		return bad("rank %d of %d: ranks count from 0", o.Rank, o.World)
	case o.World > 1 && o.Shuffle == placement.Auto:
		return bad("shuffle auto with %d ranks, which could decide differently: want rr, chunk or none", o.World)
	}
	so = session.Options{
		Rows: []loader.Rows{{Region: o.Region}}, Train: o.Shuffle != inOrder, BatchRows: (o.BatchRows-1)/o.World + 1,
		Buffers: cmp.Or(o.Buffers, defaultBuffers), AsStored: o.Stored, RowNumbers: o.RowNumbers, NodeIDs: o.Nodes, Placement: o.Placement,
	}
	if so.Train {
		so.Shuffle = o.Shuffle
	}
	if so.Matrices, err = o.matrices(store); err != nil {
		return so, err
	}
	so.Machine, err = o.machine(ctx)
	return so, err
}

// matrices are those that are asked for.
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
}

func describePlan(p session.Plan, rows int64) planned {
	return planned{p.Placement, p.Shuffle, p.Reasons, p.Alternatives, int64(p.Needs.Input), rows}
}

func plan(ctx context.Context, options []byte, _ *reports) (_ any, err error) {
	var o openOptions
	if err := parse(options, &o); err != nil {
		return nil, err
	}
	store, err := format.OpenStore(vfs.OS(), o.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	so, err := o.session(ctx, store)
	if err != nil {
		return nil, err
	}
	p, err := session.MakePlan(ctx, store, so)
	if err != nil {
		return nil, err
	}
	return describePlan(p, session.CountRows(store.Layout(), so.Rows[0])), nil
}

// opened is the result of open.
type opened struct {
	planned
	Loader      uint64   `json:"loader"`
	Batches     int      `json:"batches"` // of an epoch
	Buffers     int      `json:"buffers"`
	ChunkRows   int      `json:"chunk_rows"` // that are reshuffled together
	Matrices    []string `json:"matrices"`
	Fingerprint string   `json:"fingerprint"` // of the store
}

// client is an open loader of one rank. Its epochs put batches into a ring (ring.h), from which the
// caller takes them.
type client struct {
	store   *format.Dir
	session *session.Session
	set     *loader.Set
	stream  gds.Stream
	buffers int

	ring     *C.hopfeed_ring
	held     map[C.hopfeed_hold]*loader.Batch // all that are in the ring, or with the caller
	released []C.hopfeed_hold                 // room for as many as there are buffers

	stop context.CancelCauseFunc // ends serve
	done chan struct{}           // when it has ended
}

func open(ctx context.Context, options []byte, _ *reports) (_ any, err error) {
	var o openOptions
	if err := parse(options, &o); err != nil {
		return nil, err
	}
	c := &client{held: map[C.hopfeed_hold]*loader.Batch{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.store, err = format.OpenStore(vfs.OS(), o.Store); err != nil {
		return nil, err
	}
	so, err := o.session(ctx, c.store)
	if err != nil {
		return nil, err
	}
	if c.session, err = session.Open(ctx, c.store, so); err != nil {
		return nil, err
	}
	if !c.session.Devices[0].Info().Unified {
		return nil, errors.New("the batches would not lie in host memory")
	}
	if c.stream, err = c.session.Devices[0].NewStream(); err != nil {
		return nil, err
	}
	order := chunk.Sequential
	if so.Train {
		order = chunk.Shuffled
	}
	c.set, err = c.session.Loaders[0].Set(so.Rows[0], chunk.Plan{
		BatchRows: o.BatchRows, ChunkRows: c.session.ChunkRows, Order: order, Seed: o.Seed, Rank: o.Rank, World: o.World,
	})
	if err != nil {
		return nil, err
	}
	c.buffers = so.Buffers
	out := &opened{
		planned: describePlan(c.session.Plan, c.set.Rows()), Batches: c.set.Batches(), Buffers: c.buffers,
		ChunkRows: c.session.ChunkRows, Fingerprint: c.store.Manifest.Fingerprint,
	}
	if !so.Train {
		out.Shuffle = inOrder
	}
	for _, m := range so.Matrices {
		out.Matrices = append(out.Matrices, m.String())
	}
	out.Loader = clients.add(c)
	c.released = make([]C.hopfeed_hold, c.buffers)
	c.ring = C.hopfeed_ring_open(C.hopfeed_loader(out.Loader), C.int64_t(c.buffers), C.int64_t(out.Batches))
	c.done = make(chan struct{})
	ctx, c.stop = context.WithCancelCause(context.Background())
	go c.serve(ctx)
	return out, nil
}

// serve runs epochs as they are requested.
func (c *client) serve(ctx context.Context) {
	defer close(c.done)
	var epoch, batch C.int64_t
	for C.hopfeed_ring_wait(c.ring, &epoch, &batch) != 0 {
		if err := c.run(ctx, int(epoch), int(batch)); err != nil {
			C.hopfeed_ring_end(c.ring, status(err), C.CString(err.Error()))
		} else {
			C.hopfeed_ring_end(c.ring, C.HOPFEED_END, nil)
		}
	}
}

// run puts the batches of an epoch into the ring as soon as they are assembled, until another epoch
// is requested.
func (c *client) run(ctx context.Context, epoch, batch int) error {
	if !c.collect() {
		return nil
	}
	for b, err := range c.set.EpochFrom(ctx, c.stream, epoch, batch) {
		if err == nil {
			err = c.stream.Record().Wait(ctx)
		}
		if err != nil {
			return err
		}
		b.Hold()
		var described C.hopfeed_batch
		describe(b, &described)
		C.hopfeed_ring_put(c.ring, &described)
		c.held[described.hold] = b
		if !c.collect() {
			return nil
		}
	}
	return nil
}

// collect releases what the caller has released; while all buffers are taken, it waits for that. It
// reports whether the epoch is still wanted.
func (c *client) collect() bool {
	var released C.int64_t
	wanted := C.hopfeed_ring_collect(c.ring, &c.released[0], &released)
	for _, hold := range c.released[:released] {
		c.held[hold].Release(nil)
		delete(c.held, hold)
	}
	return wanted != 0
}

// close closes everything that is open.
func (c *client) close() (err error) {
	if c.ring != nil {
		c.stop(errInterrupted)
		C.hopfeed_ring_stop(c.ring)
		<-c.done
		C.hopfeed_ring_close(c.ring)
	}
	for _, b := range c.held {
		b.Release(nil)
	}
	if c.stream != nil {
		err = c.stream.Close()
	}
	if c.session != nil {
		err = errors.Join(err, c.session.Close())
	}
	if c.store != nil {
		err = errors.Join(err, c.store.Close())
	}
	return err
}

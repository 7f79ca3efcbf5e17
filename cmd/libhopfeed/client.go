//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
		Buffers: o.Buffers, AsStored: o.Stored, RowNumbers: o.RowNumbers, NodeIDs: o.Nodes, Placement: o.Placement,
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

// client is an open loader of one rank.
type client struct {
	store   *format.Dir
	session *session.Session
	set     *loader.Set
	stream  gds.Stream
	buffers int

	mu      sync.Mutex
	running *epoch        // the last that was begun
	held    map[hold]bool // batches that callers have
}

// epoch passes on batches, each of them held.
type epoch struct {
	batches chan *loader.Batch // closed at the end
	err     error              // then
	stop    context.CancelCauseFunc
	done    chan struct{}
}

// hold is a caller's hold on a batch.
type hold struct {
	c *client
	b *loader.Batch
}

func open(ctx context.Context, options []byte, _ *reports) (_ any, err error) {
	var o openOptions
	if err := parse(options, &o); err != nil {
		return nil, err
	}
	c := &client{held: map[hold]bool{}}
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
	if c.buffers = o.Buffers; c.buffers == 0 {
		c.buffers = placement.Buffers
	}
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
	return out, nil
}

// begin begins an epoch at a batch.
func (c *client) begin(number, first int) error {
	if number < 0 || first < 0 || first > c.set.Batches() {
		return fmt.Errorf("%w: epoch %d from batch %d: an epoch has %d batches", session.ErrOptions, number, first, c.set.Batches())
	}
	c.end()
	ctx, stop := context.WithCancelCause(context.Background())
	e := &epoch{batches: make(chan *loader.Batch), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		defer close(e.batches)
		e.err = c.run(ctx, e, number, first)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = e
	return nil
}

// run passes on the batches of an epoch as soon as they are assembled.
func (c *client) run(ctx context.Context, e *epoch, number, first int) error {
	for b, err := range c.set.EpochFrom(ctx, c.stream, number, first) {
		if err == nil {
			err = c.stream.Record().Wait(ctx)
		}
		if err != nil {
			return err
		}
		b.Hold()
		select {
		case e.batches <- b:
		case <-ctx.Done():
			b.Release(nil)
			return context.Cause(ctx)
		}
	}
	return nil
}

// end ends the epoch that runs, if any.
func (c *client) end() {
	c.mu.Lock()
	e := c.running
	c.running = nil
	c.mu.Unlock()
	if e != nil {
		e.stop(errInterrupted)
		<-e.done
	}
}

// next waits for the next batch, which the caller holds then.
func (c *client) next(over <-chan time.Time) (*loader.Batch, error) {
	c.mu.Lock()
	e, held := c.running, len(c.held)
	c.mu.Unlock()
	switch {
	case e == nil:
		return nil, fmt.Errorf("%w: no epoch was begun", session.ErrOptions)
	case held >= c.buffers:
		return nil, fmt.Errorf("%w: all %d batch buffers are held: release a batch, or open the loader with more buffers", session.ErrOptions, held)
	}
	select {
	case b, ok := <-e.batches:
		if !ok && e.err != nil {
			return nil, e.err
		} else if !ok {
			return nil, errEnd
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held[hold{c, b}] = true
		return b, nil
	case <-over:
		return nil, errWait
	}
}

// release gives a batch back, unless close has done so.
func (h hold) release() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.c.held[h] {
		delete(h.c.held, h)
		h.b.Release(nil)
	}
}

// close closes everything that is open.
func (c *client) close() (err error) {
	c.end()
	c.mu.Lock()
	for h := range c.held {
		h.b.Release(nil)
	}
	clear(c.held)
	c.mu.Unlock()
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

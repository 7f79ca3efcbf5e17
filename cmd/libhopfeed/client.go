//go:build cgo && (linux || darwin)

package main

// #include <stdlib.h>
// #include "ring.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"unsafe"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// client is an open loader of one rank. Its epochs put batches into a ring (ring.h), from which the
// caller takes them.
type client struct {
	epochs interface {
		EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error]
	}
	stats func() any
	// grow adds a batch buffer; nil: there are as many as there were at first.
	grow   func() error
	memory machine.Limit // by which it does not
	stream gds.Stream
	opened []io.Closer // in this order

	ring     *C.hopfeed_ring
	blocks   []C.hopfeed_block                // of the batch that is put into the ring, in memory of C
	held     map[C.hopfeed_hold]*loader.Batch // all that are in the ring, or with the caller
	released []C.hopfeed_hold                 // room for as many as there can be buffers
	buffers  int                              // there are

	stop context.CancelCauseFunc // ends serve
	done chan struct{}           // when it has ended
}

// opens notes what close closes.
func (c *client) opens(what io.Closer) { c.opened = append(c.opened, what) }

// start gives the client a number, and lets it serve, with batches that lie on the device.
func (c *client) start(about *opened, device gds.Device) (err error) {
	if !device.Info().Unified {
		return errors.New("the batches would not lie in host memory")
	}
	if c.stream, err = device.NewStream(); err != nil {
		return err
	}
	c.opens(c.stream)
	about.Loader = clients.add(c)
	c.buffers = about.Buffers
	most := c.buffers
	var full *C.char
	if c.grow == nil {
		full = C.CString("release a batch, or open the loader with more buffers")
	} else {
		most = max(most, mostBatches)
	}
	c.held, c.released = map[C.hopfeed_hold]*loader.Batch{}, make([]C.hopfeed_hold, most)
	if about.Layers > 0 {
		memory := C.calloc(C.size_t(about.Layers), C.sizeof_hopfeed_block)
		c.blocks = unsafe.Slice((*C.hopfeed_block)(memory), about.Layers)
	}
	c.ring = C.hopfeed_ring_open(C.hopfeed_loader(about.Loader), C.int64_t(about.Buffers), C.int64_t(most),
		C.int64_t(about.Batches), C.int64_t(about.Layers), full)
	c.done = make(chan struct{})
	var ctx context.Context
	ctx, c.stop = context.WithCancelCause(context.Background())
	go c.serve(ctx)
	return nil
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
// is requested. If assembled batches and batches with the caller leave no memory for the next, it drops what
// is not yet in the ring and goes on from there, at once or when the caller has released a batch.
func (c *client) run(ctx context.Context, epoch, batch int) error {
	wanted := c.collect()
	for wanted {
		next, err := c.runFrom(ctx, epoch, batch)
		if !errors.Is(err, sampling.ErrHeld) {
			return err
		}
		if next == batch && C.hopfeed_ring_starve(c.ring, C.CString(c.describeFull(err))) == 0 {
			return err
		}
		batch, wanted = next, c.collect()
	}
	return nil
}

// runFrom puts batches into the ring, and returns the one after the last.
func (c *client) runFrom(ctx context.Context, epoch, next int) (int, error) {
	for b, err := range c.epochs.EpochFrom(ctx, c.stream, epoch, next) {
		if err == nil {
			err = c.stream.Record().Wait(ctx)
		}
		if err != nil {
			return next, err
		}
		b.Hold()
		var described C.hopfeed_batch
		if err := c.describe(b, &described); err != nil {
			b.Release(nil)
			return next, err
		}
		C.hopfeed_ring_put(c.ring, &described)
		c.held[described.hold] = b
		next = b.Index + 1
		if !c.collect() {
			return next, nil
		}
	}
	return next, nil
}

// collect releases what the caller has released, and adds a buffer where the caller holds too many;
// while all are taken, it waits for either. It reports whether the epoch is still wanted.
func (c *client) collect() bool {
	for {
		var released C.int64_t
		var grow C.int32_t
		wanted := C.hopfeed_ring_collect(c.ring, &c.released[0], &released, &grow)
		for _, hold := range c.released[:released] {
			c.held[hold].Release(nil)
			delete(c.held, hold)
		}
		if grow == 0 {
			return wanted != 0
		}
		var full *C.char
		if err := c.grow(); err != nil {
			full = C.CString(c.describeFull(err))
		} else {
			c.buffers++
		}
		C.hopfeed_ring_grow(c.ring, full)
	}
}

// describeFull says why there is no further batch buffer, and what to do.
func (c *client) describeFull(err error) string {
	why := err.Error()
	switch {
	case c.buffers >= mostBatches:
		why = "a loader has no more"
	case errors.Is(err, loader.ErrFull), errors.Is(err, sampling.ErrHeld):
		why = fmt.Sprintf("%s, %s, allows no more", c.memory.By, c.memory.Bytes)
	}
	return "drop all arrays of some of these batches, and copy what is kept of them (" + why + ")"
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
	if c.blocks != nil {
		C.free(unsafe.Pointer(&c.blocks[0]))
	}
	for _, o := range slices.Backward(c.opened) {
		err = errors.Join(err, o.Close())
	}
	return err
}

// describe writes down a batch for C.
func (c *client) describe(b *loader.Batch, out *C.hopfeed_batch) error {
	x := b.X[0]
	*out = C.hopfeed_batch{
		index: C.int64_t(b.Index), rows: C.int64_t(b.Rows), global_rows: C.int64_t(b.GlobalRows),
		features: address(x), matrices: C.int64_t(len(b.X)), columns: C.int64_t(x.Cols),
		row_bytes: C.int64_t(x.Stride * x.DType.Size()), dtype: types[x.DType],
		labels: address(b.Labels), label_columns: 1, label_dtype: types[b.Labels.DType],
		row_numbers: (*C.uint32_t)(address(b.RowNumbers)), nodes: (*C.uint32_t)(address(b.NodeIDs)),
		feature_rows: C.int64_t(x.Rows), inputs: (*C.uint32_t)(address(b.InputIDs)),
		row_weights: (*C.float)(address(b.RowWeights)), trees: (*C.uint32_t)(address(b.Trees)),
		links: (*C.uint32_t)(address(b.Links)), link_ends: (*C.uint32_t)(address(b.LinkEnds)),
		ends: C.int64_t(b.LinkEnds.Cols),
	}
	if len(b.X) > 1 {
		out.matrix_bytes = C.int64_t(b.X[1].Offset - x.Offset) // the same for all: see loader.Batch
	}
	if b.Labels.DType != gds.Int32 {
		out.label_columns = C.int64_t(b.Labels.Cols)
	}
	if len(c.blocks) == 0 {
		return nil
	}
	clear(c.blocks)
	for i := range b.Blocks { // none of a rank without rows
		k := &b.Blocks[i]
		if int64(k.Indices.Cols) > math.MaxInt32 {
			return fmt.Errorf("batch %d: block %d has %d edges, more than the %d that are passed on: use fewer "+
				"seed nodes or smaller fanouts", b.Index, i, k.Indices.Cols, math.MaxInt32)
		}
		c.blocks[i] = C.hopfeed_block{
			destinations: C.int64_t(k.Destinations), sources: C.int64_t(k.Sources), edges: C.int64_t(k.Indices.Cols),
			offsets: (*C.int32_t)(address(k.Offsets)), indices: (*C.int32_t)(address(k.Indices)),
			weights: (*C.float)(address(k.Weights)), edge_ids: (*C.int64_t)(address(k.Edges)),
		}
	}
	out.layers, out.blocks = C.int64_t(len(c.blocks)), &c.blocks[0]
	return nil
}

// types are the element types as C knows them.
var types = map[gds.DType]C.int32_t{
	dtype.Float32: C.HOPFEED_FLOAT32, dtype.Float16: C.HOPFEED_FLOAT16, dtype.BFloat16: C.HOPFEED_BFLOAT16,
	dtype.Int32: C.HOPFEED_INT32, dtype.Int8: C.HOPFEED_INT8,
}

// address is where the elements of a tensor are.
func address(t gds.Tensor) unsafe.Pointer {
	if t.Rows == 0 || t.Cols == 0 {
		return nil
	}
	return unsafe.Pointer(&t.Buf.Bytes()[t.Offset])
}

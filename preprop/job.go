package preprop

import (
	"context"
	"fmt"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// job is one propagation in memory: hops are made in turns in two matrices.
type job struct {
	*Options
	graph  *format.Dir
	store  *format.Writer
	nodes  []uint32 // of the store's rows
	result Result

	gathered int64 // bytes of rows that were added up
}

func (j *job) run(ctx context.Context) error {
	m := &j.graph.Manifest
	var graphs topologies
	if j.Hops > 0 { // before the features, as it may take a while more than it keeps
		csc, err := j.graph.Topology(ctx, j.Threads)
		if err != nil {
			return err
		}
		j.result.BytesRead += folderBytes(m, "topology/") + folderBytes(m, "weights/")
		if graphs, err = newTopologies(ctx, csc, j.Operators, j.Threads); err != nil {
			return err
		}
		defer graphs.free()
	}
	x, err := newMatrix(m.Nodes, m.Features, j.DType)
	if err != nil {
		return err
	}
	defer x.buf.Free()
	if err := j.readInput(ctx, x); err != nil {
		return err
	}
	if err := j.write(ctx, x); err != nil || j.Hops == 0 {
		return err
	}
	y, err := newMatrix(m.Nodes, m.Features, j.DType)
	if err != nil {
		return err
	}
	defer y.buf.Free()
	var stored nodeSet
	if int64(len(j.nodes)) < m.Nodes {
		stored = newNodeSet(m.Nodes)
		for _, v := range j.nodes {
			stored.add(int64(v))
		}
	}
	products := map[Operator]*propagator{} // by base
	defer func() {
		for _, p := range products {
			p.buf.Free()
		}
	}()
	for i, o := range j.Operators {
		if i > 0 {
			if err := j.readInput(ctx, x); err != nil {
				return err
			}
		}
		p := products[o.base()]
		if p == nil {
			if p, err = newPropagator(ctx, graphs[o.Graph].CSC, o.base(), j.Threads); err != nil {
				return err
			}
			products[o.base()] = p
		}
		if err := j.propagate(ctx, p, o, x, y, stored); err != nil {
			return err
		}
	}
	seconds := 0.0
	for _, s := range j.result.HopSeconds {
		seconds += s
	}
	if seconds > 0 {
		j.result.GatheredBytesPerSecond = float64(j.gathered) / seconds
	}
	return nil
}

// propagate makes and writes the hops of one operator; x holds hop 0.
func (j *job) propagate(ctx context.Context, p *propagator, o Operator, x, y *matrix, stored nodeSet) error {
	terms := o.series()
	products := terms.products()
	need, err := p.needed(ctx, stored, j.Hops*products, j.Threads)
	if err != nil {
		return err
	}
	var spares []*matrix
	for range terms.spares(j.DType) {
		m, err := newMatrix(p.graph.Nodes(), x.features, format.Float32)
		if err != nil {
			return err
		}
		defer m.buf.Free()
		spares = append(spares, m)
	}
	for r := 1; r <= j.Hops; r++ {
		id := format.MatrixID{Operator: o.String(), Hop: r}
		cost := (p.graph.Nodes() + p.graph.Edges()) * x.rowBytes()
		task := j.Progress.Start(fmt.Sprintf("%s hop %d of %d", o, r, j.Hops), int64(products)*cost, progress.Bytes)
		start := time.Now()
		edges := int64(0)
		for i := 1; i <= products && err == nil; i++ {
			dst, src, with := terms.step(i, x, y, spares)
			dst.id = id
			var added int64
			added, err = p.hop(ctx, dst, src, with, need[(r-1)*products+i-1], j.Threads, func(cost int64) { task.Add(cost * x.rowBytes()) })
			edges += added
			j.gathered += added * src.rowBytes()
		}
		j.result.HopSeconds = append(j.result.HopSeconds, time.Since(start).Seconds())
		j.result.EdgesProcessed = append(j.result.EdgesProcessed, edges)
		task.Done()
		if err != nil {
			return err
		}
		if err := j.write(ctx, y); err != nil {
			return err
		}
		x, y = y, x
	}
	return nil
}

func (j *job) readInput(ctx context.Context, x *matrix) error {
	j.result.BytesRead += folderBytes(&j.graph.Manifest, "features/")
	return x.readInput(ctx, j.graph, j.Threads, j.Progress)
}

func (j *job) write(ctx context.Context, m *matrix) error {
	return m.write(ctx, j.store, j.nodes, j.Threads, j.Progress)
}

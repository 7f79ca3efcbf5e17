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
	for i, o := range j.Operators {
		if i > 0 {
			if err := j.readInput(ctx, x); err != nil {
				return err
			}
		}
		if err := j.propagate(ctx, graphs[o.Graph].CSC, o, x, y, stored); err != nil {
			return err
		}
	}
	seconds, edges := 0.0, int64(0)
	for i := range j.result.HopSeconds {
		seconds += j.result.HopSeconds[i]
		edges += j.result.EdgesProcessed[i]
	}
	if seconds > 0 {
		j.result.GatheredBytesPerSecond = float64(edges*x.rowBytes()) / seconds
	}
	return nil
}

// propagate makes and writes the hops of one operator; x holds hop 0.
func (j *job) propagate(ctx context.Context, csc *format.CSC, o Operator, x, y *matrix, stored nodeSet) error {
	p, err := newPropagator(ctx, csc, o, j.Threads)
	if err != nil {
		return err
	}
	defer p.buf.Free()
	need, err := p.needed(ctx, stored, j.Hops, j.Threads)
	if err != nil {
		return err
	}
	for r := 1; r <= j.Hops; r++ {
		y.id = format.MatrixID{Operator: o.String(), Hop: r}
		task := j.Progress.Start(fmt.Sprintf("%s hop %d of %d", o, r, j.Hops), (csc.Nodes()+csc.Edges())*x.rowBytes(), progress.Bytes)
		start := time.Now()
		edges, err := p.hop(ctx, y, x, need[r-1], j.Threads, func(cost int64) { task.Add(cost * x.rowBytes()) })
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

package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// topology is the edges of a source on their way into a graph.
type topology struct {
	src      Source
	info     Info
	reverses bool // of all edges are added
	o        Options

	weighted bool  // there will be weights
	edges    int64 // of the source
	entries  int64 // records of edges and their reverses; until they are gathered, the most that there can be
	loops    int64 // edges from a node to itself, when gathered
}

func newTopology(src Source, info Info, reverses bool, o Options) *topology {
	return &topology{src: src, info: info, reverses: reverses, o: o, weighted: info.Weighted || o.Duplicates == SumDuplicates}
}

// write sorts the edges by destination and source, and writes what becomes of
// them. It returns the number of edges stored in dir, where other bytes are still
// to come.
func (t *topology) write(ctx context.Context, fsys vfs.FS, dir string, w *format.Writer, other int64) (edges int64, err error) {
	if err := t.count(ctx); err != nil {
		return 0, err
	}
	plan, err := t.planSort()
	if err != nil {
		return 0, err
	}
	topology := func(edges int64) int64 { return 8*t.info.Nodes + t.edgeBytes(edges) }
	if plan.onDisk {
		scratch, buckets := dir, t.bucketBytes()
		if t.o.Scratch != "" {
			scratch = t.o.Scratch
		} else { // they go before the rest is written
			buckets = topology(t.entries) + max(buckets, other)
		}
		if err := checkSpace(fsys, scratch, buckets); err != nil {
			return 0, err
		}
	}
	folder, err := t.scratchFolder(fsys, dir, w)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, fsys.RemoveAll(folder)) }()
	s, err := t.sort(ctx, fsys, folder, plan)
	if err != nil {
		return 0, err
	}
	defer s.free()
	if !plan.onDisk || t.o.Scratch != "" {
		if err := checkSpace(fsys, dir, topology(s.stored)+other); err != nil {
			return 0, err
		}
	}
	return s.stored, s.write(ctx, w)
}

// scratchFolder makes the folder for scratch files. Nobody else has it, since w has dir.
func (t *topology) scratchFolder(fsys vfs.FS, dir string, w *format.Writer) (string, error) {
	if t.o.Scratch == "" {
		return w.Scratch()
	}
	folder, err := scratchFolder(fsys, t.o.Scratch, dir)
	if err != nil {
		return "", err
	}
	folder += "-edges"
	return folder, fsys.MkdirAll(folder)
}

// edgeBytes is what edges take in the graph, where nodes take 8 bytes each.
func (t *topology) edgeBytes(edges int64) int64 {
	if t.weighted {
		return 8 * edges
	}
	return 4 * edges
}

// workingBytes is a bound on the buffers that reading and writing take, and on
// the program itself.
func workingBytes(o Options) int64 { return 32<<20 + int64(o.Threads)*4<<20 }

// count streams the edges to count them, where the source does not know.
func (t *topology) count(ctx context.Context) (err error) {
	if t.edges = t.info.Edges; t.edges == 0 {
		task := t.o.Progress.Start("count edges", 0, progress.Items)
		defer task.Done()
		var edges atomic.Int64
		err = t.src.Edges(ctx, t.o.Threads, func(e Edges) error {
			edges.Add(int64(len(e.Dst)))
			task.Add(int64(len(e.Dst)))
			return nil
		})
		t.edges = edges.Load()
	}
	if t.entries = t.edges; t.reverses {
		t.entries *= 2
	}
	return err
}

// notes says what became of edges that are not among those stored.
func (t *topology) notes(stored int64) (notes []string) {
	if merged := t.entries - stored; merged > 0 {
		verb := map[Duplicates]string{MergeDuplicates: "merged", SumDuplicates: "added up"}[t.o.Duplicates]
		notes = append(notes, fmt.Sprintf("%d duplicate edges were %s", merged, verb))
	}
	if t.loops > 0 && t.o.SelfLoops == DropLoops {
		notes = append(notes, fmt.Sprintf("%d self-loops were dropped", t.loops))
	}
	return notes
}

// errChanged is returned when there are not as many edges as there were.
var errChanged = fmt.Errorf("%w: the edges have changed while they were read", ErrInvalid)

func errDegree(v uint64) error {
	return fmt.Errorf("%w: node %d has more than %d edges", ErrInvalid, v, uint32(math.MaxUint32))
}

// lowestNode is the lowest node with a sum of weights that is infinite, plus 1.
type lowestNode struct{ atomic.Int64 }

func (l *lowestNode) add(v int64) {
	for old := l.Load(); old == 0 || v+1 < old; old = l.Load() {
		if l.CompareAndSwap(old, v+1) {
			return
		}
	}
}

func (l *lowestNode) err(weights string) error {
	v := l.Load()
	if v == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: the weights of duplicate edges to node %d add up to more than float32 holds", ErrInvalid, weights, v-1)
}

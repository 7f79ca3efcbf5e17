package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// topology makes the topology of a graph from the edges of a source.
type topology struct {
	src      Source
	info     Info
	reverses bool // the reverse of every edge is added
	o        Options

	weighted    bool  // there will be weights
	recordCount int64 // records to sort: edges and their reverses; an upper bound until they are distributed
	loops       int64 // edges from a node to itself; known when the edges are distributed
}

func newTopology(src Source, info Info, reverses bool, o Options) *topology {
	records := info.Edges
	if reverses {
		records *= 2
	}
	weighted := info.Weighted || o.Duplicates == SumDuplicates
	return &topology{src: src, info: info, reverses: reverses, o: o, weighted: weighted, recordCount: records}
}

// write sorts the edges by destination and source, merges duplicates as asked, and writes the topology to w, the graph
// in dir. It returns the number of edges stored. other is the bytes that the caller will write to dir afterwards, for
// the check of free space.
func (t *topology) write(ctx context.Context, fsys vfs.FS, dir string, w *format.Writer,
	other int64) (edges int64, err error) {
	plan, err := t.planSort()
	if err != nil {
		return 0, err
	}
	if plan.onDisk {
		place, buckets := dir, t.bucketBytes()
		if t.o.Scratch != "" {
			place = t.o.Scratch
		} else { // the buckets are removed before the other bytes are written
			buckets = t.outputBytes(t.recordCount) + max(buckets, other)
		}
		if err := machine.CheckSpace(fsys, place, buckets); err != nil {
			return 0, err
		}
	}
	scratch, err := t.openScratch(fsys, dir, w)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	s, err := t.sort(ctx, fsys, scratch, plan)
	if err != nil {
		return 0, err
	}
	defer s.free()
	if !plan.onDisk || t.o.Scratch != "" {
		if err := machine.CheckSpace(fsys, dir, t.outputBytes(s.storedEdges)+other); err != nil {
			return 0, err
		}
	}
	return s.storedEdges, s.write(ctx, w)
}

// beside tells whether the topology can be made while the features are written, which keeps the processor busy while
// these wait for the disk: if edges can be sorted in the memory that features leave, and both have room on the disk.
// That memory is then all that the topology takes.
func (t *topology) beside(fsys vfs.FS, dir string, featureBytes int64) bool {
	if t.o.MemoryBytes > 0 {
		within := *t
		within.o.MemoryBytes = max(1, t.o.MemoryBytes-featureMemory(t.info, t.o))
		if plan, err := within.planSort(); err != nil || plan.onDisk {
			return false
		}
		*t = within
	}
	return machine.CheckSpace(fsys, dir, t.outputBytes(t.recordCount)+featureBytes) == nil
}

// openScratch makes the folder for scratch files. No other process uses it, since w has locked dir.
func (t *topology) openScratch(fsys vfs.FS, dir string, w *format.Writer) (*folder.Scratch, error) {
	var path string
	var err error
	if t.o.Scratch == "" {
		path, err = w.Scratch()
	} else if path, err = scratchFolder(fsys, t.o.Scratch, dir); err == nil {
		path += "-edges"
	}
	if err != nil {
		return nil, err
	}
	return folder.OpenScratch(fsys, path)
}

// outputBytes is the size of the files that write adds to the graph.
func (t *topology) outputBytes(edges int64) int64 { return 8*(t.info.Nodes+1) + t.edgeBytes(edges) }

// edgeBytes is the size of edges in the graph's topology; nodes have 8 bytes each on top.
func (t *topology) edgeBytes(edges int64) int64 {
	if t.weighted {
		return 8 * edges
	}
	return 4 * edges
}

func (t *topology) notes(stored int64) (notes []string) {
	if merged := t.recordCount - stored; merged > 0 {
		verb := map[Duplicates]string{MergeDuplicates: "merged", SumDuplicates: "added up"}[t.o.Duplicates]
		notes = append(notes, fmt.Sprintf("%d duplicate edges were %s", merged, verb))
	}
	if t.loops > 0 && t.o.SelfLoops == DropLoops {
		notes = append(notes, fmt.Sprintf("%d self-loops were dropped", t.loops))
	}
	return notes
}

// errChanged is returned when there are more or fewer edges than the source said, or other ones than it read before.
var errChanged = fmt.Errorf("%w: the edges changed while they were read: leave the input as it is and import again",
	ErrInvalid)

func errDegree(v uint64) error {
	return fmt.Errorf("%w: node %d has more than %d in-neighbours", ErrInvalid, v, uint32(math.MaxUint32))
}

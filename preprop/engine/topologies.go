package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Topologies are the topologies that the operators of a job use, by Operator.Graph.
type Topologies map[string]product.Topology

// Close closes all of them.
func (t Topologies) Close() error {
	var err error
	for _, one := range t {
		err = errors.Join(err, one.Close())
	}
	return err
}

// openTopologies is OpenTopologies, and keeps in memory what the plan holds of those on disk.
func (j *Job) openTopologies(ctx context.Context, used map[string]int) (Topologies, error) {
	t, err := j.OpenTopologies(ctx, used)
	if err != nil {
		return nil, err
	}
	_, held, _ := j.Plan.Work.HeldShares(j.Plan)
	for graph, made := range t {
		if disk, ok := made.(*product.DiskTopology); ok && err == nil {
			err = disk.Hold(held[graph])
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// OpenTopologies opens or derives each topology that is used, in memory or on disk.
func (j *Job) OpenTopologies(ctx context.Context, used map[string]int) (Topologies, error) {
	t := Topologies{}
	if len(used) == 0 {
		return t, nil
	}
	task := j.Progress.Start("read topology", 0, progress.Bytes)
	defer task.Done()
	given, err := j.openGiven(ctx, used)
	if err != nil {
		return nil, err
	}
	t[operator.AsGiven] = given
	for _, graph := range operator.GraphFlags {
		if used[graph] == 0 {
			continue
		}
		made, err := j.Derive(ctx, given, graph)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t[graph] = made
	}
	if used[operator.AsGiven] == 0 {
		err = given.Close()
		delete(t, operator.AsGiven)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (j *Job) openGiven(ctx context.Context, used map[string]int) (product.Topology, error) {
	if given := j.Given; given != nil && used[operator.AsGiven] > 0 {
		j.Given = nil
		return given, nil
	}
	if used[operator.AsGiven] > 0 && j.Plan.TopologyInMemory {
		csc, err := j.Graph.Topology(ctx, j.Threads)
		if err != nil {
			return nil, err
		}
		return &product.MemoryTopology{CSC: csc}, nil
	}
	file, err := j.Graph.OpenUnchecked(ctx, plan.StreamRangeBytes) // the first walk checks it
	if err != nil {
		return nil, err
	}
	return &product.DiskTopology{TopologyFile: file}, nil
}

// Derive makes the reversed or undirected topology, in memory or in scratch files.
func (j *Job) Derive(ctx context.Context, given product.Topology, graph string) (product.Topology, error) {
	most := given.Edges()
	if graph == operator.Undirected {
		most *= 2 // pages beyond the edges that there turn out to be are never touched
	}
	room := plan.DeriveRoom(j.Plan.TopologyInMemory, given.Edges(), given.Weighted())
	if j.Plan.TopologyInMemory {
		made, err := product.NewMemoryTopology(given.Nodes(), most, given.Weighted())
		if err != nil {
			return nil, err
		}
		neighbors, weights := made.Neighbors[:0], made.Weights[:0] // they have room for most
		err = product.Derive(ctx, given, graph, room, j.Threads, func(b *format.NodeRange) error {
			for i, offset := range b.Offsets {
				made.Offsets[b.First+int64(i)] = int64(len(neighbors)) + offset - b.Offsets[0]
			}
			neighbors, weights = append(neighbors, b.Neighbors...), append(weights, b.Weights...)
			return nil
		})
		if err != nil {
			return nil, errors.Join(err, made.Close())
		}
		made.Neighbors, made.Weights = neighbors, weights
		return made, nil
	}
	w, err := newTopologyWriter(j.Fsys, filepath.Join(j.Scratch, "topology-"+graph+"-"+j.Name), given.Nodes(), most,
		given.Weighted())
	if err != nil {
		return nil, err
	}
	if err := product.Derive(ctx, given, graph, room, j.Threads, w.add); err != nil {
		return nil, errors.Join(err, w.file.Abort())
	}
	return w.open(ctx)
}

// topologyWriter writes a topology to a scratch file, which is removed when the topology is closed: offsets,
// neighbours, and weights in the place after as many neighbours as there may be.
type topologyWriter struct {
	fsys vfs.FS
	path string
	file vfs.PendingFile
	raw  format.RawTopology // without its file; it has the edges so far
	sums [3]uint32          // CRC-32C of the offsets, neighbours and weights that were written
}

// newTopologyWriter begins a topology of up to most edges.
func newTopologyWriter(fsys vfs.FS, path string, nodes, most int64, weighted bool) (*topologyWriter, error) {
	w := &topologyWriter{fsys: fsys, path: path + folder.Suffix}
	w.raw = format.RawTopology{Nodes: nodes, NeighborsAt: 8 * (nodes + 1)}
	if weighted {
		w.raw.WeightsAt = w.raw.NeighborsAt + 4*most
	}
	var err error
	if w.file, err = fsys.Create(w.path); err != nil {
		return nil, err
	}
	if err := w.write(0, 0, make([]byte, 8)); err != nil { // without nodes there is still an offset
		return nil, errors.Join(err, w.file.Abort())
	}
	return w, nil
}

// write writes the next offsets (part 0), neighbours (1) or weights (2).
func (w *topologyWriter) write(part int, at int64, data []byte) error {
	w.sums[part] = kernel.CRC32C(w.sums[part], data)
	_, err := w.file.WriteAt(data, at)
	return err
}

// add appends a node range.
func (w *topologyWriter) add(b *format.NodeRange) error {
	at := 8 * (b.First + 1) // of the second offset: the first is the last of the node range before
	for part := range slices.Chunk(b.Offsets[1:], 1<<16) {
		offsets := make([]int64, len(part))
		for i, offset := range part {
			offsets[i] = w.raw.Edges + offset - b.Offsets[0]
		}
		if err := w.write(0, at, dtype.BytesOf(offsets)); err != nil {
			return err
		}
		at += 8 * int64(len(part))
	}
	err := w.write(1, w.raw.NeighborsAt+4*w.raw.Edges, dtype.BytesOf(b.Neighbors))
	if err == nil && w.raw.WeightsAt > 0 {
		err = w.write(2, w.raw.WeightsAt+4*w.raw.Edges, dtype.BytesOf(b.Weights))
	}
	w.raw.Edges += b.Edges()
	return err
}

// open opens the topology that was written. Its file never gets its final name, as no other process uses it.
func (w *topologyWriter) open(ctx context.Context) (product.Topology, error) {
	w.raw.Expect(w.sums[0], w.sums[1], w.sums[2])
	var err error
	if w.raw.File, err = w.fsys.Open(w.path + vfs.TempSuffix); err == nil && w.raw.WeightsAt > 0 {
		if w.raw.Weights, err = w.fsys.Open(w.path + vfs.TempSuffix); err != nil {
			err = errors.Join(err, w.raw.File.Close())
		}
	}
	var file *format.TopologyFile
	if err == nil {
		file, err = format.NewTopologyFile(ctx, w.raw, plan.StreamRangeBytes)
	}
	if errors.Is(err, format.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", err, folder.ErrDamaged)
	}
	if err != nil {
		return nil, errors.Join(err, w.file.Abort())
	}
	return &product.DiskTopology{TopologyFile: file, Remove: w.file.Abort}, nil
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

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

// topologies are the topologies that the operators of a job use, by Operator.Graph.
type topologies map[string]product.Topology

func (t topologies) Close() error {
	var err error
	for _, one := range t {
		err = errors.Join(err, one.Close())
	}
	return err
}

// openTopologies opens or derives each topology that is used, in memory or on disk.
func (j *Job) openTopologies(ctx context.Context, used map[string]int) (topologies, error) {
	t := topologies{}
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
	return t, err
}

func (j *Job) openGiven(ctx context.Context, used map[string]int) (product.Topology, error) {
	if used[operator.AsGiven] > 0 && j.Plan.TopologyInMemory {
		csc, err := j.Graph.Topology(ctx, j.Threads)
		if err != nil {
			return nil, err
		}
		return &product.MemoryTopology{CSC: csc, Free: csc.Close}, nil
	}
	file, err := j.Graph.OpenTopology(ctx, plan.StreamRangeBytes)
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
		edges := int64(0)
		err = product.Derive(ctx, given, graph, room, j.Threads, func(b *format.NodeRange) error {
			for i, offset := range b.Offsets {
				made.Offsets[b.First+int64(i)] = edges + offset - b.Offsets[0]
			}
			copy(made.Neighbors[edges:], b.Neighbors)
			copy(made.Weights[min(edges, int64(len(made.Weights))):], b.Weights)
			edges += b.Edges()
			return nil
		})
		if err != nil {
			return nil, errors.Join(err, made.Close())
		}
		made.Neighbors = made.Neighbors[:edges]
		if made.Weights != nil {
			made.Weights = made.Weights[:edges]
		}
		return made, nil
	}
	w, err := newTopologyWriter(j.Fsys, filepath.Join(j.Scratch, "topology-"+graph+"-"+j.Process), given.Nodes(),
		given.Weighted())
	if err != nil {
		return nil, err
	}
	if err := product.Derive(ctx, given, graph, room, j.Threads, w.add); err != nil {
		return nil, errors.Join(err, w.abort())
	}
	return w.open(ctx)
}

// topologyWriter writes a topology to scratch files, which are removed when it is closed.
type topologyWriter struct {
	fsys         vfs.FS
	path         string
	nodes, edges int64
	lists        vfs.PendingFile // offsets, then neighbours
	weights      vfs.PendingFile // or nil

	offsetsSum, neighborsSum, weightsSum uint32 // CRC-32C of what was written
}

func newTopologyWriter(fsys vfs.FS, path string, nodes int64, weighted bool) (*topologyWriter, error) {
	w := &topologyWriter{fsys: fsys, path: path, nodes: nodes}
	var err error
	if w.lists, err = fsys.Create(w.listsPath()); err != nil {
		return nil, err
	}
	if weighted {
		if w.weights, err = fsys.Create(w.weightsPath()); err != nil {
			return nil, errors.Join(err, w.abort())
		}
	}
	// Without nodes there is still an offset.
	zero := make([]byte, 8)
	w.offsetsSum = kernel.CRC32C(0, zero)
	if _, err := w.lists.WriteAt(zero, 0); err != nil {
		return nil, errors.Join(err, w.abort())
	}
	return w, nil
}

func (w *topologyWriter) listsPath() string   { return w.path + folder.Suffix }
func (w *topologyWriter) weightsPath() string { return w.path + "-weights" + folder.Suffix }
func (w *topologyWriter) neighborsAt() int64  { return 8 * (w.nodes + 1) }
func (w *topologyWriter) abort() (err error) {
	if err = w.lists.Abort(); w.weights != nil {
		err = errors.Join(err, w.weights.Abort())
	}
	return err
}

// add appends a node range.
func (w *topologyWriter) add(b *format.NodeRange) error {
	const most = 1 << 16
	offsets := make([]int64, 0, most)
	for i := 1; i < len(b.Offsets); i += len(offsets) { // the first is the last of the node range before
		offsets = offsets[:0]
		for _, offset := range b.Offsets[i:min(i+most, len(b.Offsets))] {
			offsets = append(offsets, w.edges+offset-b.Offsets[0])
		}
		w.offsetsSum = kernel.CRC32C(w.offsetsSum, dtype.BytesOf(offsets))
		if _, err := w.lists.WriteAt(dtype.BytesOf(offsets), 8*(b.First+int64(i))); err != nil {
			return err
		}
	}
	w.neighborsSum = kernel.CRC32C(w.neighborsSum, dtype.BytesOf(b.Neighbors))
	w.weightsSum = kernel.CRC32C(w.weightsSum, dtype.BytesOf(b.Weights))
	if _, err := w.lists.WriteAt(dtype.BytesOf(b.Neighbors), w.neighborsAt()+4*w.edges); err != nil {
		return err
	}
	if w.weights != nil {
		if _, err := w.weights.WriteAt(dtype.BytesOf(b.Weights), 4*w.edges); err != nil {
			return err
		}
	}
	w.edges += b.Edges()
	return nil
}

// open opens the topology that was written. Its files never get their final names, as no other process uses them.
func (w *topologyWriter) open(ctx context.Context) (product.Topology, error) {
	raw := format.RawTopology{Nodes: w.nodes, Edges: w.edges, NeighborsAt: w.neighborsAt()}
	raw.Expect(w.offsetsSum, w.neighborsSum, w.weightsSum)
	var err error
	if raw.File, err = w.fsys.Open(w.listsPath() + vfs.TempSuffix); err != nil {
		return nil, errors.Join(err, w.abort())
	}
	if w.weights != nil {
		if raw.Weights, err = w.fsys.Open(w.weightsPath() + vfs.TempSuffix); err != nil {
			return nil, errors.Join(err, raw.File.Close(), w.abort())
		}
	}
	file, err := format.NewTopologyFile(ctx, raw, plan.StreamRangeBytes)
	if errors.Is(err, format.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", err, folder.ErrDamaged)
	}
	if err != nil {
		return nil, errors.Join(err, w.abort())
	}
	return &product.DiskTopology{TopologyFile: file, Remove: w.abort}, nil
}

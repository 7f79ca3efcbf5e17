package trainer

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// HostBytes is the host memory that the model takes at most: for each device, three copies of its parameters (gradients
// that meet on the host, their sum, and the best values so far).
func (s Spec) HostBytes(devices int) (int64, error) {
	parameters, err := s.Parameters()
	return 3 * 4 * parameters * int64(devices), err
}

// PinnedBytes is the pinned memory that a model takes on all devices together: for batches of up to batchRows rows, for
// sums over devices, and for gradients that wait: this number for each device, and as many sums.
func (s Spec) PinnedBytes(batchRows, devices, gradients int, train bool) (int64, error) {
	n, err := s.counted(batchRows, train)
	if err != nil {
		return 0, err
	}
	vectors := gradients
	if devices > 1 && train {
		vectors++
	}
	return int64(devices)*n.mem.PinnedBytes + int64((devices+1)*vectors)*gds.Bytes(1, n.params.count, gds.Float32), nil
}

// BlockBytes is the device memory of a model that reads a graph, in addition to DeviceBytes, for training on batches
// with these rows and blocks, and of a typed graph inputs of each type: activations and gradients. sparse tells whether
// the features are.
func (s Spec) BlockBytes(rows int, blocks []loader.Block, inputs []int64, sparse bool) (int64, error) {
	b := &loader.Batch{Rows: rows, Blocks: blocks}
	for _, n := range inputs {
		b.X = append(b.X, gds.Tensor{Rows: int(n)})
	}
	return s.graphBytes([]*loader.Batch{b}, sparse, true)
}

// EdgeWorkBytes is gds.EdgeWorkBytes of the model's layers.
func (s Spec) EdgeWorkBytes(sources, edges int64) int64 {
	return gds.EdgeWorkBytes(sources, edges, int64(s.Settings["heads"]))
}

// GraphBytes is the device memory of a model that reads a graph, in addition to DeviceBytes, to compute a layer for all
// nodes of a whole graph or of a chunk. some tells that it also computes neighborhoods of some, perhaps nearly all
// nodes.
func (s Spec) GraphBytes(nodes int, sparse, some bool) (int64, error) {
	whole := loader.WholeGraph{Blocks: []loader.Block{{Destinations: nodes, Sources: nodes}}}
	passes := []*loader.Batch{{Whole: &whole}}
	if some && !sparse {
		near := whole
		near.Inputs = gds.Tensor{Rows: 1, Cols: nodes}
		passes = append(passes, &loader.Batch{Whole: &near})
	}
	return s.graphBytes(passes, sparse, false)
}

// graphBytes is the memory of a model that computes these batches one after another.
func (s Spec) graphBytes(batches []*loader.Batch, sparse, train bool) (bytes int64, err error) {
	n, err := s.counted(max(1, batches[0].Rows), train)
	if err != nil {
		return 0, err
	}
	for _, b := range batches {
		if sparse {
			b.Sparse = &loader.SparseRows{Cols: s.Features}
		}
		if err := n.reserve(b); err != nil {
			return 0, err
		}
	}
	for _, a := range n.activations {
		bytes += a.mem.Bytes
	}
	return bytes, nil
}

// GraphShape is the sizes of a model for a graph that comes in chunks: layers along edges, the most columns of rows in
// chunks, and the columns of layer outputs for all nodes in host memory.
func (s Spec) GraphShape(sparse bool) (layers, chunkColumns, stateColumns int, err error) {
	_, b, err := s.normalized()
	if err == nil && b.messages == nil {
		err = errors.New(s.Model + " does not read a graph")
	}
	if err != nil {
		return 0, 0, 0, err
	}
	m := b.messages
	o := m.chunkOrder(sparse)
	chunkColumns = max(s.Features, m.widest())
	if o == multiplyFirst {
		chunkColumns = max(m.productColumns(), m.widest())
	}
	columns := m.stateColumns(o)
	return b.blocks, chunkColumns, columns[0] + columns[1], nil
}

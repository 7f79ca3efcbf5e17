// Package features gathers feature rows of a graph's nodes, by node id: from host memory, or from the
// files of the graph. Rows in a device's own memory are gathered by that (Resident).
package features

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
)

// Source has the feature rows of all nodes. It is safe for concurrent use; each call uses all threads.
type Source interface {
	Rows() int64
	Columns() int
	DType() gds.DType // as stored
	// Gather writes the rows of nodes, in their order and without gaps, to dst: as they are stored, or
	// as float32. Nodes must be below Rows, and dst long enough.
	Gather(ctx context.Context, dst []byte, as gds.DType, nodes []uint32) error
	Stats() Stats
	Close() error
}

// Stats count the work of a source so far.
type Stats struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"` // of these rows, as stored
	// Reads and ReadBytes count reads of files after opening. Path and Reason are as in gds.Receipt.
	Reads     int64  `json:"reads"`
	ReadBytes int64  `json:"read_bytes"`
	Path      string `json:"path"`
	Reason    string `json:"reason,omitempty"`
}

// Add adds the work of another source.
func (s *Stats) Add(other Stats) {
	s.Rows, s.Bytes, s.Reads, s.ReadBytes = s.Rows+other.Rows, s.Bytes+other.Bytes, s.Reads+other.Reads,
		s.ReadBytes+other.ReadBytes
	if s.Path == "" || other.Reason != "" {
		s.Path, s.Reason = other.Path, other.Reason
	}
}

// shape describes the rows of a source.
type shape struct {
	rows      int64
	columns   int
	dtype     gds.DType
	chunkRows int64
}

func newShape(graph *format.Dir) (shape, error) {
	l := graph.Layout()
	if graph.Manifest.Kind != format.KindGraph {
		return shape{}, fmt.Errorf("%s is a store: only graphs have features by node", graph.Path())
	}
	if l.Features == 0 {
		return shape{}, fmt.Errorf("%s has no features", graph.Path())
	}
	return shape{rows: graph.Manifest.Nodes, columns: l.Features, dtype: l.DType, chunkRows: int64(l.ChunkRows)}, nil
}

func (s *shape) Rows() int64      { return s.rows }
func (s *shape) Columns() int     { return s.columns }
func (s *shape) DType() gds.DType { return s.dtype }

// rowBytes is the size of a stored row.
func (s *shape) rowBytes() int64 { return int64(s.columns) * int64(s.dtype.Size()) }

// None is a source of no columns, for batches without features.
type None struct{ shape }

// NewNone is the source of no columns for the nodes of a graph.
func NewNone(nodes int64) *None { return &None{shape{rows: nodes, dtype: gds.Float32}} }

func (*None) Gather(context.Context, []byte, gds.DType, []uint32) error { return nil }
func (*None) Stats() Stats                                              { return Stats{} }
func (*None) Close() error                                              { return nil }

// check refuses what Gather cannot do.
func (s *shape) check(dst []byte, as gds.DType, nodes []uint32) error {
	if as != s.dtype && as != gds.Float32 {
		return fmt.Errorf("features are %v, and can be gathered as that or as float32, not as %v", s.dtype, as)
	}
	if want := gds.Bytes(len(nodes), s.columns, as); int64(len(dst)) < want {
		return fmt.Errorf("%d bytes for %d rows of %d", len(dst), len(nodes), want)
	}
	for i, node := range nodes {
		if int64(node) >= s.rows {
			return fmt.Errorf("place %d of the rows to gather is node %d: the graph has %d nodes", i, node, s.rows)
		}
	}
	return nil
}

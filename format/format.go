// Package format is Hopfeed's data on disk: graph directories (what propagation and sampling need) and hop stores
// (what training needs). Both are manifests, an index of checksums, and plain Arrow files. docs/format.md gives the
// byte layout, the order of writes and what a crash may leave.
//
// Nothing read from disk is trusted: damage is an error that is ErrCorrupt and names file, chunk and reason. Readers
// are safe for concurrent use. What they return is memory of the caller, checked once, that later changes of the
// files cannot touch.
package format

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Version is the format that this package writes, and the only one it reads.
const Version = 2

// ErrCorrupt is returned when stored bytes differ from the written ones.
var ErrCorrupt = errors.New("corrupt data")

// ErrVersion is returned when a directory has a format version other than Version.
var ErrVersion = errors.New("another format version")

// ErrKind is returned when a directory is a graph where a store is wanted, or the other way round, or a typed graph.
var ErrKind = errors.New("wrong kind of directory")

// ErrIncomplete is returned when a directory has no manifest: the job that writes it has not finished, or it is
// neither a graph nor a store.
var ErrIncomplete = errors.New("incomplete: it has no manifest.json")

// ErrReplaced is returned when another job has replaced or extended a directory since it was opened, and a file of
// the opened version can no longer be read.
var ErrReplaced = errors.New("another command has replaced it, or added hops to it, since it was opened (run the " +
	"command again)")

// ErrExists is returned when a job may not write to its output, because something is there already.
var ErrExists = errors.New("output exists")

// CorruptError tells which file, and which of its chunks, is damaged, and how. It is ErrCorrupt.
type CorruptError struct {
	File   string `json:"file"`  // path
	Chunk  int    `json:"chunk"` // within the file; -1: no single chunk
	Reason string `json:"reason"`
}

func (e *CorruptError) Error() string {
	if e.Chunk < 0 {
		return units.Printable(fmt.Sprintf("%s: corrupt: %s", e.File, e.Reason))
	}
	return units.Printable(fmt.Sprintf("%s: chunk %d: corrupt: %s", e.File, e.Chunk, e.Reason))
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// DType is the element type of stored features.
type DType = dtype.DType

const (
	Float32  = dtype.Float32
	Float16  = dtype.Float16
	BFloat16 = dtype.BFloat16
)

// Kinds of directory.
const (
	KindGraph = "graph"
	KindStore = "store"
)

// MatrixID names one stored feature matrix: hop 0 is the input features, of operator FeaturesOperator; hop r >= 1 of
// an operator is B^r X (preprop-gnn Eq. 2).
type MatrixID struct {
	Operator string
	Hop      int
}

// FeaturesOperator is the operator name under which hop 0 is stored, once.
const FeaturesOperator = "x"

// Input is the identity of the input features.
var Input = MatrixID{FeaturesOperator, 0}

func (id MatrixID) String() string {
	if strings.Contains(id.Operator, "/") { // a column
		return id.Operator
	}
	return fmt.Sprintf("%s/hop-%d", id.Operator, id.Hop)
}

// Region is a run of consecutive rows that starts on a chunk boundary.
type Region struct {
	Name       string `json:"name"`
	FirstRow   int64  `json:"first_row"`
	Rows       int64  `json:"rows"`
	FirstChunk int    `json:"first_chunk"`
	Chunks     int    `json:"chunks"`
}

// Names of regions. A store has the first four, in this order; a graph has RegionAll.
const (
	RegionTrain = "train"
	RegionValid = "valid"
	RegionTest  = "test"
	RegionRest  = "rest"
	RegionAll   = "all"
)

// Split values of RowTable.Splits.
const (
	SplitNone  uint8 = 0
	SplitTrain uint8 = 1
	SplitValid uint8 = 2
	SplitTest  uint8 = 3
)

// Layout says how the rows of a directory are divided into regions and chunks. It is the same for its row table and
// each of its matrices.
type Layout struct {
	Regions   []Region
	ChunkRows int   // rows of a chunk; the last of a region may have fewer
	Features  int   // columns of each matrix, where Widths does not say otherwise; 0: there is no hop 0
	DType     DType // element type of each matrix
	// Widths are the columns of the matrices of operators, by name, that have not Features of them; nil: none.
	Widths map[string]int `json:",omitempty"`
	// SourceNodes is how many nodes the edges of a relation come from, of another type than its rows; 0: of the same.
	SourceNodes int64 `json:",omitempty"`
}

// Of is the layout of one matrix: its Features are the number of columns that this matrix has.
func (l Layout) Of(id MatrixID) Layout {
	if width := l.Widths[id.Operator]; width > 0 {
		l.Features = width
	}
	l.Widths = nil
	return l
}

// Columns is the number of columns of matrices together.
func (l Layout) Columns(matrices []MatrixID) (columns int) {
	for _, id := range matrices {
		columns += l.Of(id).Features
	}
	return columns
}

// widest is the layout of the matrix with most columns.
func (l Layout) widest() Layout {
	for _, width := range l.Widths {
		l.Features = max(l.Features, width)
	}
	l.Widths = nil
	return l
}

// Defaults and limits of a layout.
const (
	DefaultChunkRows = 1000
	MaxChunkBytes    = 8 << 20
	MaxFeatures      = 1 << 20
)

// ChunkRowsFor is the number of rows of a chunk: requested (0: DefaultChunkRows), or fewer where a chunk of one
// matrix would be larger than MaxChunkBytes.
func ChunkRowsFor(requested, features int, t DType) int {
	if requested <= 0 {
		requested = DefaultChunkRows
	}
	return max(1, min(requested, MaxChunkBytes/max(1, features*t.Size())))
}

// NewLayout is the layout of regions of these sizes. A chunk has ChunkRowsFor rows, or as many as the longest region
// where that is less.
func NewLayout(sizes []RegionSize, requestedChunkRows, features int, t DType) Layout {
	longest := int64(1)
	for _, s := range sizes {
		longest = max(longest, s.Rows)
	}
	chunkRows := int(min(int64(ChunkRowsFor(requestedChunkRows, features, t)), longest))
	return Layout{Regions: Regions(sizes, chunkRows), ChunkRows: chunkRows, Features: features, DType: t}
}

// RegionSize is the name of a region and its number of rows.
type RegionSize struct {
	Name string
	Rows int64
}

// Regions places regions one after another; each starts a new chunk.
func Regions(sizes []RegionSize, chunkRows int) []Region {
	out := make([]Region, len(sizes))
	row, chunk := int64(0), 0
	for i, s := range sizes {
		chunks := int((s.Rows + int64(chunkRows) - 1) / int64(chunkRows))
		out[i] = Region{Name: s.Name, FirstRow: row, Rows: s.Rows, FirstChunk: chunk, Chunks: chunks}
		row, chunk = row+s.Rows, chunk+chunks
	}
	return out
}

// RowTable holds everything about the rows but their features. A nil column is absent.
type RowTable struct {
	Rows         int64
	NodeID       []uint32  // [Rows]; nil in a graph, where row i is node i
	Labels       []int32   // [Rows], -1 unlabelled; nil if there are none or several a row
	MultiLabels  []int8    // [Rows, LabelColumns], -1 unlabelled
	LabelValues  []float32 // [Rows, LabelColumns], numbers to predict, NaN unlabelled
	LabelColumns int       // of MultiLabels or LabelValues
	Splits       []uint8   // [Rows, NumSplits]
	NumSplits    int
	OrigID       []string // [Rows], where ids were mapped at import
}

// CSC is a topology, by destination: the in-neighbours of node v are Neighbors[Offsets[v]:Offsets[v+1]], ascending.
// Weights, if any, are in the same order.
type CSC struct {
	Offsets   []int64 // [n+1]
	Neighbors []uint32
	Weights   []float32 // [m] or nil

	sources int64 // that neighbours are numbered by; 0: the nodes
	free    func() error
}

// Sources counts the nodes that edges may come from. In a relation between two types these are of the source type.
func (c *CSC) Sources() int64 { return cmp.Or(c.sources, c.Nodes()) }

// Nodes is the number of nodes n.
func (c *CSC) Nodes() int64 { return int64(len(c.Offsets)) - 1 }

// Edges is the number of edges m.
func (c *CSC) Edges() int64 { return int64(len(c.Neighbors)) }

// In is the in-neighbours of node v.
func (c *CSC) In(v int64) []uint32 { return c.Neighbors[c.Offsets[v]:c.Offsets[v+1]] }

// Close releases memory off the Go heap, if any. The slices are invalid after.
func (c *CSC) Close() error {
	if c.free == nil {
		return nil
	}
	free := c.free
	c.free = nil
	return free()
}

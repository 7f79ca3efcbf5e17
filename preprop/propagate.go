// Package preprop propagates node features over a graph, once, ahead of all
// training: hop r of an operator B is B^r X (preprop-gnn section 2.5, Eq. 2).
// It reads a graph directory and writes a hop store.
//
// A store is a pure function of the graph and the options that are named in its
// manifest: the same bytes for any number of threads on any processor.
package preprop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ErrOptions is returned when options contradict each other or the graph.
var ErrOptions = errors.New("unusable options")

// ErrInvalid is returned when a number is not finite, or too large for its type.
var ErrInvalid = errors.New("invalid data")

// Options say what to propagate. The zero value stores hop 0 of the labelled nodes.
type Options struct {
	Hops      int
	Operators []Operator   // each from hop 1 to Hops
	Rows      string       // format.RowsAll or, the default, format.RowsLabeled
	DType     format.DType // of the store; default that of the graph's features
	ChunkRows int          // default format.DefaultChunkRows; see format.NewLayout
	Split     int          // of the splits that the graph ships: what the regions follow
	Seed      uint64       // of the order of training rows

	Threads     int               // default GOMAXPROCS
	MemoryBytes int64             // may be used; 0: no limit
	Force       bool              // replace an existing store
	DryRun      bool              // plan, and write nothing
	Progress    progress.Reporter // default progress.Silent
}

// Result says what a propagation did. Lists have one element for each hop of
// the first operator, then each of the second, and so on.
type Result struct {
	Nodes     int64    `json:"nodes"`
	Edges     int64    `json:"edges"`
	Features  int      `json:"features"`
	Operators []string `json:"operators"`
	// ProductsPerHop and TruncationErrors are of each operator. See series for the
	// norm in which hop r of PPR and Heat is off by r times the error at most.
	ProductsPerHop   []int     `json:"products_per_hop"`
	TruncationErrors []float64 `json:"truncation_errors"`
	Hops             int       `json:"hops"`
	Rows             int64     `json:"rows"` // stored
	DType            string    `json:"dtype"`
	Seconds          float64   `json:"seconds"`
	HopSeconds       []float64 `json:"hop_seconds"` // from ready matrix to ready matrix
	// EdgesProcessed counts the terms added up, self-loops included.
	EdgesProcessed         []int64 `json:"edges_processed"`
	GatheredBytesPerSecond float64 `json:"gathered_bytes_per_second"` // EdgesProcessed rows, over HopSeconds
	MemoryBudgetBytes      int64   `json:"memory_budget_bytes"`
	MemoryNeededBytes      int64   `json:"memory_needed_bytes"` // as planned
	DiskNeededBytes        int64   `json:"disk_needed_bytes"`   // as planned
	BytesRead              int64   `json:"bytes_read"`          // of the graph
	BytesWritten           int64   `json:"bytes_written"`       // to the store, but for index and manifest
	ScratchBytes           int64   `json:"scratch_bytes"`
	Output                 string  `json:"output"`
	Resumed                bool    `json:"resumed"`
}

// withDefaults fills in and checks o against the graph.
func (o Options) withDefaults(graph *format.Manifest, features format.DType) (Options, error) {
	if o.Rows == "" {
		o.Rows = format.RowsLabeled
	}
	if o.DType == 0 {
		o.DType = features
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	switch {
	case o.Hops < 0 || o.Hops > format.MaxHops:
		return o, fmt.Errorf("%d hops: there can be 0 to %d", o.Hops, format.MaxHops)
	case o.Hops > 0 && len(o.Operators) == 0:
		return o, fmt.Errorf("%d hops, but no operator to propagate by", o.Hops)
	case o.Rows != format.RowsLabeled && o.Rows != format.RowsAll:
		return o, fmt.Errorf("row set %q: there are %s and %s", o.Rows, format.RowsLabeled, format.RowsAll)
	case !o.DType.IsFloat():
		return o, fmt.Errorf("features cannot be stored as %s (take float32, float16 or bfloat16)", o.DType)
	case o.ChunkRows < 0:
		return o, fmt.Errorf("%d rows a chunk: the number must not be negative", o.ChunkRows)
	case o.Split != 0 && graph.Splits == 0:
		return o, fmt.Errorf("split %d: the graph has no splits", o.Split)
	case o.Split < 0 || o.Split > 0 && o.Split >= graph.Splits:
		return o, fmt.Errorf("split %d: the graph has %d (0 to %d)", o.Split, graph.Splits, graph.Splits-1)
	}
	for i, a := range o.Operators {
		if back, err := ParseOperator(a.String()); err != nil {
			return o, err
		} else if back != a {
			return o, fmt.Errorf("operator %+v is not what %q means", a, a)
		}
		for _, b := range o.Operators[:i] {
			if a == b {
				return o, fmt.Errorf("operator %q is listed twice", a)
			}
		}
	}
	if o.Hops == 0 {
		o.Operators = nil
	}
	return o, nil
}

// checkApart fails where writing the store would change the graph: where one of
// the directories is the other or in it, by whatever path.
func checkApart(fsys vfs.FS, graphDir, storeDir string) error {
	graph, err := fsys.Resolve(graphDir)
	if err != nil {
		return err
	}
	store, err := fsys.Resolve(storeDir)
	if err != nil {
		return err
	}
	within := func(path, folder string) bool {
		inner, err := filepath.Rel(folder, path)
		return err == nil && filepath.IsLocal(inner)
	}
	switch {
	case graph == store:
		return fmt.Errorf("%s: %w: it is the graph that is read (give another directory)", storeDir, ErrOptions)
	case within(store, graph):
		return fmt.Errorf("%s: %w: it is in the graph that is read, %s (give another directory)", storeDir, ErrOptions, graphDir)
	case within(graph, store):
		return fmt.Errorf("%s: %w: the graph that is read, %s, is in it (give another directory)", storeDir, ErrOptions, graphDir)
	}
	return nil
}

// Propagate reads the graph in graphDir and writes the hop store storeDir. It
// holds two hops of all nodes in memory. Nothing is left when it fails or ctx
// ends. What does not fit into o.MemoryBytes or on the disk is refused with
// machine.ErrDoesNotFit before anything is written. A dry run ends there, with
// what is planned.
func Propagate(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) (*Result, error) {
	start := time.Now()
	graph, err := format.OpenAny(fsys, graphDir)
	if err != nil {
		return nil, err
	}
	defer graph.Close()
	g := &graph.Manifest
	if g.Kind != format.KindGraph {
		return nil, fmt.Errorf("%s: %w: it is a %s, and propagation reads a graph", graphDir, ErrOptions, g.Kind)
	}
	if err := checkApart(fsys, graphDir, storeDir); err != nil {
		return nil, err
	}
	if o, err = o.withDefaults(g, graph.Layout().DType); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", graphDir, ErrOptions, err)
	}

	table, err := graph.Rows(ctx)
	if err != nil {
		return nil, err
	}
	nodes, sizes := storeRows(table, o.Rows, o.Split, o.Seed)
	if len(nodes) == 0 && o.Rows == format.RowsLabeled {
		return nil, fmt.Errorf("%s: %w: no node has a label or is in a split, so there is nothing to store (to store all nodes, say --rows all)", graphDir, ErrOptions)
	}
	layout := format.NewLayout(sizes, o.ChunkRows, g.Features, o.DType)
	rows := int64(len(nodes))
	need := memoryNeeded(g, &o, graph.Layout().DType, rows)
	if o.MemoryBytes > 0 && need > o.MemoryBytes {
		return nil, fmt.Errorf("propagation %w: it needs %v of memory and may use %v (raise --memory)",
			machine.ErrDoesNotFit, units.Bytes(need), units.Bytes(o.MemoryBytes))
	}
	disk, err := diskNeeded(g, layout, rows, o.Operators, o.Hops)
	if err != nil {
		return nil, err
	}
	if err := checkDisk(fsys, storeDir, disk); err != nil {
		return nil, err
	}
	planned := Result{
		Nodes: g.Nodes, Edges: g.Edges, Features: g.Features,
		Operators: []string{}, ProductsPerHop: []int{}, TruncationErrors: []float64{}, Hops: o.Hops, Rows: rows, DType: o.DType.String(),
		HopSeconds: []float64{}, EdgesProcessed: []int64{},
		MemoryBudgetBytes: o.MemoryBytes, MemoryNeededBytes: need, DiskNeededBytes: disk,
		Output: storeDir,
	}
	for _, operator := range o.Operators {
		terms := operator.series()
		planned.Operators = append(planned.Operators, operator.String())
		planned.ProductsPerHop = append(planned.ProductsPerHop, terms.products())
		planned.TruncationErrors = append(planned.TruncationErrors, terms.bound)
	}
	if o.DryRun {
		return &planned, nil
	}

	store, err := format.Create(fsys, storeDir, layout, format.CreateOptions{Force: o.Force})
	if err != nil {
		return nil, err
	}
	defer store.Abort()
	if err := store.Rows(pickRows(table, nodes)); err != nil {
		return nil, err
	}
	j := job{Options: &o, graph: graph, store: store, nodes: nodes, result: planned}
	r := &j.result
	if err := j.run(ctx); errors.Is(err, ErrInvalid) {
		return nil, fmt.Errorf("%s: %w", graphDir, err)
	} else if err != nil {
		return nil, err
	}

	m := &format.Manifest{
		Kind: format.KindStore, Name: g.Name,
		Nodes: g.Nodes, Edges: g.Edges, Directed: g.Directed, Weighted: g.Weighted,
		Classes: g.Classes, Labels: g.Labels, Splits: g.Splits,
		Split: o.Split, RowSet: o.Rows, Seed: o.Seed,
		Input: map[string]string{"graph": g.Fingerprint},
	}
	for _, operator := range o.Operators {
		m.Operators = append(m.Operators, format.Operator{Name: operator.String(), Hops: o.Hops})
	}
	if err := store.Publish(m); err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		r.BytesWritten += f.Size
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

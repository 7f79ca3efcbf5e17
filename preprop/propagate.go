// Package preprop propagates node features over a graph, once, ahead of all
// training: hop r of an operator B is B^r X (preprop-gnn section 2.5, Eq. 2).
// It reads a graph directory and writes a hop store.
//
// A store is a pure function of the graph and the options that are named in its
// manifest: the same bytes for any number of threads on any processor.
package preprop

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ErrOptions is returned when options contradict each other or the graph.
var ErrOptions = errors.New("unusable options")

// ErrInvalid is returned when a number is not finite, or too large for its type.
var ErrInvalid = errors.New("invalid data")

// ErrUnfinished is returned when a job ended early that goes on when it is called again.
var ErrUnfinished = errors.New("what is done is kept, and the same command goes on from there")

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
	Scratch     string            // folder for scratch files, where they are too many for the store's
	Shard       Shard             // default all
	Assemble    bool              // compute nothing, but put together what shards have made
	Force       bool              // replace an existing store, or another job's unfinished one
	DryRun      bool              // plan, and write nothing
	Hardware    *machine.Hardware // to predict times for; default this machine, which is measured
	Planned     func(*Plan)       // called before the work begins
	Progress    progress.Reporter // default progress.Silent
}

// Shard is one of Count shares of a job, each of about as many columns, that
// processes take which share the store's directory. The last to finish assembles.
type Shard struct{ Index, Count int }

// columns are those of the shard.
func (s Shard) columns(features int) span {
	count := max(s.Count, 1)
	return span{features * s.Index / count, features * (s.Index + 1) / count}
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
	HopSeconds       []float64 `json:"hop_seconds"` // from ready matrix to ready matrix, of all panels
	// EdgesProcessed counts the terms added up, self-loops included, once for all columns.
	EdgesProcessed         []int64 `json:"edges_processed"`
	GatheredBytesPerSecond float64 `json:"gathered_bytes_per_second"` // EdgesProcessed rows, over HopSeconds
	MemoryBudgetBytes      int64   `json:"memory_budget_bytes"`
	Plan
	BytesRead       int64  `json:"bytes_read"`    // of all files
	BytesWritten    int64  `json:"bytes_written"` // likewise
	ScratchBytes    int64  `json:"scratch_bytes"` // of BytesWritten
	Output          string `json:"output"`
	Resumed         bool   `json:"resumed"`          // an earlier job had done a part
	AlreadyComplete bool   `json:"already_complete"` // it had done everything
	Published       bool   `json:"published"`        // the store is complete: no shards are outstanding
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
	case o.Shard.Count < 0 || o.Shard.Index < 0 || o.Shard.Index > 0 && o.Shard.Index >= o.Shard.Count:
		return o, fmt.Errorf("shard %d of %d: the shards of k are 0 to k-1", o.Shard.Index, o.Shard.Count)
	case o.Shard.Count > max(1, graph.Features):
		return o, fmt.Errorf("%d shards of %d columns: there can be as many as columns", o.Shard.Count, graph.Features)
	case o.Shard.Count > 1 && o.Force:
		return o, errors.New("a shard cannot start anew what others are at work on (remove the store first)")
	case o.Assemble && (o.Shard.Count > 1 || o.Force):
		return o, errors.New("what all shards have made is assembled: by a job that is none of them, and does not start anew")
	case o.Hardware != nil && !o.DryRun:
		return o, errors.New("times for other hardware are predicted without doing anything (say --dry-run)")
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

// checkScratch fails where scratch files would lie in the graph or in the store, among
// what these list.
func checkScratch(fsys vfs.FS, scratch, graphDir, storeDir string) error {
	at, err := fsys.Resolve(scratch)
	if err != nil {
		return err
	}
	for _, dir := range []string{graphDir, storeDir} {
		if folder, err := fsys.Resolve(dir); err != nil {
			return err
		} else if within(at, folder) {
			return fmt.Errorf("%s: %w: scratch files cannot lie in %s (give another folder)", scratch, ErrOptions, dir)
		}
	}
	return nil
}

// within tells whether a resolved path is that of a folder, or of something in it.
func within(path, folder string) bool {
	inner, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(inner)
}

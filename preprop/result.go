package preprop

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

// FilePaths says how files were read and written: bytes past the page cache, from what was in it, and through it.
type FilePaths struct {
	ReadDirect      int64  `json:"read_direct_bytes"`
	ReadCached      int64  `json:"read_cached_bytes"`
	ReadBuffered    int64  `json:"read_buffered_bytes"`
	ReadReason      string `json:"read_reason,omitempty"` // why not past the page cache
	WrittenDirect   int64  `json:"written_direct_bytes"`
	WrittenBuffered int64  `json:"written_buffered_bytes"`
	// why a file of 1 MiB or more was not written past the page cache
	WrittenReason string `json:"written_reason,omitempty"`
}

// Lines says how files were read and written.
func (p FilePaths) Lines() []string {
	because := func(reason string) string {
		if reason == "" {
			return ""
		}
		return " (" + reason + ")"
	}
	return []string{
		fmt.Sprintf("read: %s past the page cache, %s that were in it, %s through it%s",
			units.Bytes(p.ReadDirect), units.Bytes(p.ReadCached), units.Bytes(p.ReadBuffered), because(p.ReadReason)),
		fmt.Sprintf("written: %s past the page cache, %s through it%s",
			units.Bytes(p.WrittenDirect), units.Bytes(p.WrittenBuffered), because(p.WrittenReason)),
	}
}

func filePaths(read, written vfs.Receipt) FilePaths {
	reason := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return FilePaths{read.Direct, read.Cached, read.Buffered, reason(read.Why), written.Direct, written.Buffered,
		reason(written.Why)}
}

// Result says what a propagation did. Lists have one element for each hop of the first operator, then each of the
// second, and so on.
type Result struct {
	Nodes     int64    `json:"nodes"`
	Edges     int64    `json:"edges"`
	Features  int      `json:"features"`
	Operators []string `json:"operators"`
	// ProductsPerHop and TruncationErrors have an element for each operator. The error of hop r of PPR and Heat is at
	// most r times the truncation error, in the norm that series defines.
	ProductsPerHop   []int     `json:"products_per_hop"`
	TruncationErrors []float64 `json:"truncation_errors"`
	OperatorHops     []int     `json:"operator_hops"` // hops of each operator
	Hops             int       `json:"hops"`          // most hops of any operator
	// LabelColumns are the columns of propagated labels, beside Features, in the hops up to LabelHops.
	LabelHops    int       `json:"label_hops"`
	LabelColumns int       `json:"label_columns"`
	Rows         int64     `json:"rows"` // of the store
	DType        string    `json:"dtype"`
	Seconds      float64   `json:"seconds"`
	HopSeconds   []float64 `json:"hop_seconds"` // computing, without writing, all panels together
	// EdgesProcessed counts the terms of all sums, self-loops included, over all panels.
	EdgesProcessed         []int64 `json:"edges_processed"`
	GatheredBytesPerSecond float64 `json:"gathered_bytes_per_second"` // EdgesProcessed * row bytes / HopSeconds
	// Time says where Seconds went.
	Time engine.TimeAccount `json:"time"`
	// Paths says how files were read and written.
	Paths             FilePaths `json:"paths"`
	MemoryBudgetBytes int64     `json:"memory_budget_bytes"`
	Plan
	// From says what was taken from the store of an earlier graph.
	From             *Taken   `json:"from,omitempty"`
	TransferredBytes int64    `json:"transferred_bytes"` // to the device and back
	BytesRead        int64    `json:"bytes_read"`        // from all files
	BytesWritten     int64    `json:"bytes_written"`     // to all files
	ScratchBytes     int64    `json:"scratch_bytes"`     // of BytesWritten, to scratch files
	Output           string   `json:"output"`
	Resumed          bool     `json:"resumed"`          // an earlier run had done a part
	AlreadyComplete  bool     `json:"already_complete"` // nothing was missing
	Complete         bool     `json:"complete"`         // the store is there; false after a dry run
	Beyond           []string `json:"beyond"`           // hops that nobody asked for
	// Metapaths are the matrices of the store of a typed graph, beside the features of the target type.
	Metapaths []Metapath `json:"metapaths,omitempty"`
	// Layout is that of the store.
	Layout format.Layout `json:"-"`
	// RelationsSubsets is how many subsets of relations the store has hops of.
	RelationsSubsets int `json:"relations_subsets,omitempty"`
}

// Took is how long the propagation of a store took.
type Took struct {
	Seconds float64 // 0: unknown
	AtLeast bool    // it took longer: a run that ended early is not counted
}

// TookOf reads how long the propagation of a store took. It is unknown where the file system keeps no attributes, and
// of copies that were made without them.
func TookOf(fsys vfs.FS, storeDir string) (t Took) {
	text, err := fsys.Attribute(storeDir, secondsAttribute)
	if err != nil {
		return t
	}
	number, more := strings.CutSuffix(text, moreTime)
	if seconds, err := strconv.ParseFloat(number, 64); err == nil && seconds > 0 && seconds <= math.MaxFloat64 {
		t = Took{seconds, more}
	}
	return t
}

// secondsAttribute is the attribute of a store's directory that says how long propagation took: a number of seconds,
// and moreTime where that is not all. It is no part of the store, whose bytes do not depend on time.
const (
	secondsAttribute = "propagation-seconds"
	moreTime         = "+"
)

// recordTook records the time of a job that has published its store, or has added to one that existed. Where it cannot,
// nothing is lost but the figure.
func recordTook(fsys vfs.FS, storeDir string, existed bool, r *Result) {
	t := Took{r.Seconds, r.Resumed}
	if existed {
		before := TookOf(fsys, storeDir)
		t.Seconds, t.AtLeast = t.Seconds+before.Seconds, t.AtLeast || before.AtLeast || before.Seconds == 0
	}
	text := strconv.FormatFloat(t.Seconds, 'g', 6, 64)
	if t.AtLeast {
		text += moreTime
	}
	_ = fsys.SetAttribute(storeDir, secondsAttribute, text)
}

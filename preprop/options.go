package preprop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/device"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Options say what to propagate. The zero value stores hop 0 of the labelled nodes.
type Options struct {
	Hops      int
	Operators []operator.Operator // each from hop 1 to Hops
	Rows      string              // format.RowsAll or, the default, format.RowsLabeled
	Nodes     []uint32            // ascending: store the rows of these alone, not Rows, in a new store; nil: Rows
	DType     format.DType        // of the store; default that of the graph's features
	LabelHops int                 // hops up to which labels of training nodes are propagated too; 0: none
	ChunkRows int                 // default format.DefaultChunkRows; see format.NewLayout
	Split     int                 // number of the graph's split by which rows are divided into regions
	Seed      uint64              // of the order of training rows
	Defaulted Defaulted           // taken from an existing store, as are Rows, DType and ChunkRows if zero

	Threads int // default parallel.Threads
	// Device chooses what computes the products of a job, by how many seconds they take on the processor;
	// nil: the processor. It may be called twice.
	Device      func(seconds float64) (*Device, error)
	MemoryBytes int64             // limit on resident memory; 0: none
	Scratch     string            // folder for scratch files; default within the store
	From        string            // store of an earlier graph, whose rows are taken where they did not change; "": none
	FromGraph   string            // that From was made of; default the one that the graph was updated from
	Force       bool              // replace an existing store, or another job's unfinished one
	DryRun      bool              // plan, and write nothing
	Tasks       int               // how many tasks of a kind there are, for ListTasks and RunTask
	Hardware    *machine.Hardware // to plan for, in a dry run; default this machine, which is measured
	Planned     func(*Plan)       // called before the work begins
	MaxTime     time.Duration     // after which the job ends, and can go on later; 0: no limit
	Note        func(text string) // called with messages for the user
	Progress    progress.Reporter // default progress.Silent

	// Metapaths, in a typed graph, are what features travel along, instead of all metapaths of up to Hops relations.
	Metapaths []string
	// RelationsSubsets, in a typed graph, is how many subsets of relations are drawn, by Seed. The store has the hops of
	// each, up to Hops, instead of metapaths; 0: metapaths.
	RelationsSubsets int
	// MetapathsPlanned is called with what the store of a typed graph shall have, before the work begins.
	MetapathsPlanned func([]Metapath)

	labelPaths     []string         // metapaths that labels travel along, instead of all of up to LabelHops relations
	step           *step            // the job is one of those that make the store of a typed graph
	clock          func() time.Time // default time.Now
	publishes      bool             // it is the task that publishes what others have written
	topologyOnDisk bool             // with From, whatever memory there is
	begun          time.Time        // when the job began, by this clock
}

// Defaulted tells which options have their default because the user did not set them.
type Defaulted struct{ Hops, Operators, Split, Seed, LabelHops bool }

// takeDefaulted takes split, seed and label hops from an existing store, where the user did not set them.
func (o *Options) takeDefaulted(m *format.Manifest) {
	if o.Defaulted.Split {
		o.Split = m.Split
	}
	if o.Defaulted.Seed {
		o.Seed = m.Seed
	}
	if o.Defaulted.LabelHops {
		o.LabelHops = m.LabelHops
	}
}

// withDefaults returns o with defaults filled in, and checks it against the graph, whose
// features have the type features.
func (o Options) withDefaults(graph *format.Manifest, features format.DType) (Options, error) {
	o.Rows, o.DType = cmp.Or(o.Rows, format.RowsLabeled), cmp.Or(o.DType, features)
	if o.Nodes != nil {
		o.Rows = format.RowsChosen
	}
	if o.Threads <= 0 {
		o.Threads = parallel.Threads()
	}
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Planned == nil {
		o.Planned = func(*Plan) {}
	}
	switch {
	case o.Hops < 0 || o.Hops > format.MaxHops:
		return o, fmt.Errorf("%d hops: there can be 0 to %d", o.Hops, format.MaxHops)
	case o.Hops > 0 && len(o.Operators) == 0:
		return o, fmt.Errorf("%s, but no operator to propagate by (give --operator)", units.Count(int64(o.Hops), "hop"))
	case o.Rows == format.RowsChosen && o.Nodes == nil:
		return o, errChosenRows
	case o.Rows != format.RowsLabeled && o.Rows != format.RowsAll && o.Nodes == nil:
		return o, fmt.Errorf("row set %q: there are %s and %s", o.Rows, format.RowsLabeled, format.RowsAll)
	case !ascend(o.Nodes):
		return o, errors.New("the chosen nodes do not ascend")
	case len(o.Nodes) > 0 && int64(o.Nodes[len(o.Nodes)-1]) >= graph.Nodes:
		return o, fmt.Errorf("node %d is chosen, but the graph has %d nodes", o.Nodes[len(o.Nodes)-1], graph.Nodes)
	case !o.DType.IsFloat():
		return o, fmt.Errorf("features cannot be stored as %s (use float32, float16 or bfloat16)", o.DType)
	case o.MaxTime < 0:
		return o, fmt.Errorf("--max-time %v: must not be negative", o.MaxTime)
	case o.ChunkRows < 0:
		return o, fmt.Errorf("%d rows a chunk: must not be negative", o.ChunkRows)
	case o.Split != 0 && graph.Splits == 0:
		return o, fmt.Errorf("split %d: the graph has no splits", o.Split)
	case o.Hardware != nil && !o.DryRun:
		return o, errors.New("--hardware only predicts times for another machine (add --dry-run)")
	case o.Split < 0 || o.Split > 0 && o.Split >= graph.Splits:
		return o, fmt.Errorf("split %d: the graph has %s, numbered from 0", o.Split,
			units.Count(int64(graph.Splits), "split"))
	}
	if err := o.checkLabels(graph); err != nil {
		return o, err
	}
	for i, a := range o.Operators {
		if back, err := operator.Parse(a.String()); err != nil {
			return o, err
		} else if back != a {
			return o, fmt.Errorf("operator %+v is not what %q means", a, a)
		}
		if a.Metapath != "" && o.step == nil {
			return o, fmt.Errorf("operator %q: there are metapaths in typed graphs alone", a)
		}
		if slices.Contains(o.Operators[:i], a) {
			return o, fmt.Errorf("operator %q is listed twice", a)
		}
	}
	if o.Hops == 0 {
		o.Operators = nil
	}
	o.Operators = slices.SortedFunc(slices.Values(o.Operators), operator.Compare)
	return o, nil
}

var errChosenRows = errors.New("the store has the rows of nodes that were chosen for it, so it can neither grow nor " +
	"be repaired (propagate to another directory)")

// checkLabels fails if labels cannot be propagated.
func (o *Options) checkLabels(graph *format.Manifest) error {
	switch {
	case o.LabelHops == 0:
		return nil
	case o.LabelHops < 0 || o.LabelHops > o.Hops:
		return fmt.Errorf("labels are propagated over %s, and features over %d: give at most as many label hops as "+
			"hops", units.Count(int64(o.LabelHops), "hop"), o.Hops)
	case graph.OneHotColumns() == 0:
		return errors.New("labels cannot be propagated: the graph has no classes (leave out --label-hops)")
	case graph.Splits == 0:
		return errors.New("labels of training nodes cannot be propagated: the graph has no split that says which these " +
			"are (leave out --label-hops)")
	}
	for _, a := range o.Operators {
		if a.Base() != a {
			return fmt.Errorf("labels cannot be propagated by %s: each of its hops is a series of products, and to leave "+
				"the own label of a node out of these takes too long (use sym, rw or col, or another store for %s)", a, a.Name)
		}
	}
	return nil
}

// labels are the label columns of the store of a graph; nil: none.
func (o *Options) labels(graph *format.Manifest) *product.Labels {
	if o.LabelHops == 0 {
		return nil
	}
	return newLabels(graph, graph.Features, o.LabelHops)
}

// newLabels are the labels of a graph as columns from first on, in so many hops.
func newLabels(graph *format.Manifest, first, hops int) *product.Labels {
	return &product.Labels{First: first, Columns: graph.OneHotColumns(), Hops: hops, Several: graph.Labels > 1}
}

// ascend tells whether each node is greater than the one before.
func ascend(nodes []uint32) bool {
	for i := 1; i < len(nodes); i++ {
		if nodes[i] <= nodes[i-1] {
			return false
		}
	}
	return true
}

// checkOutput fails if the graph and the store are the same directory, or one is in the other: writing the store would
// change the graph. It follows symbolic links. It fails, too, if storeDir holds something that no store replaces.
func checkOutput(fsys vfs.FS, graphDir, storeDir string) error {
	inGraph, err := folder.Within(fsys, storeDir, graphDir)
	inStore, otherErr := folder.Within(fsys, graphDir, storeDir)
	switch err := errors.Join(err, otherErr); {
	case err != nil:
		return err
	case inGraph && inStore:
		return fmt.Errorf("%s: %w: it is the graph that is read (give another directory)", storeDir, ErrOptions)
	case inGraph:
		return fmt.Errorf("%s: %w: it is in the graph %s (give another directory)", storeDir, ErrOptions, graphDir)
	case inStore:
		return fmt.Errorf("%s: %w: the graph %s is in it (give another directory)", storeDir, ErrOptions, graphDir)
	}
	return format.CheckReplaceable(fsys, storeDir, format.KindStore)
}

// checkScratch fails if the folder for scratch files is in the graph or in the store, whose manifests list all of
// their files.
func checkScratch(fsys vfs.FS, scratch, graphDir, storeDir string) error {
	for _, dir := range []string{graphDir, storeDir} {
		if inside, err := folder.Within(fsys, scratch, dir); err != nil {
			return err
		} else if inside {
			return fmt.Errorf("%s: %w: scratch files cannot be in %s (give another folder)", scratch, ErrOptions, dir)
		}
	}
	return nil
}

// Plan says how a job does its work within its memory; Device computes its products.
type (
	Plan   = plan.Plan
	Device = plan.Device
)

// CPU is the name of the processor among devices.
const CPU = plan.CPU

var (
	// ErrOptions is returned when options contradict each other or the graph.
	ErrOptions = errors.New("unusable options")
	// ErrInvalid is returned when a feature or a result is not finite, or too large for its type.
	ErrInvalid = product.ErrInvalid
	// ErrUnfinished is returned when a job ended early, and can go on when it is started again.
	ErrUnfinished = errors.New("finished work is saved: run the same command again to go on")
	// ErrMaxTime is returned when a job ended because Options.MaxTime was over.
	ErrMaxTime = engine.ErrMaxTime
	// ErrTooShort is returned, beside the reason why a job ended, when it ended before it could save anything:
	// started again with as much time, it would get no further.
	ErrTooShort = engine.ErrTooShort
	// ErrDevice is returned when the device that a job computes on fails. Finished work is saved, and the processor
	// can go on with it.
	ErrDevice = device.ErrDevice
)

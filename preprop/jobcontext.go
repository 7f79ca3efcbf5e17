package preprop

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/device"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// jobContext is what a propagation or a repair knows of its graph, its store and its options.
type jobContext struct {
	start              time.Time
	fsys               *vfs.PastCache
	graphDir, storeDir string
	graph              *format.Dir
	options            Options
	target             target
	layout             format.Layout
	nodes              []uint32            // node of each row of the store
	share              product.ColumnRange // that this process makes, into result files; none: all columns
	table              *format.RowTable    // of the store; nil once it is written
	existing           *format.Dir         // the complete store that the job adds to; nil: none
	beyond             []string            // hops that it has and the options do not ask for
	earlier            *earlier            // nil: no Options.From
	asked              []format.Operator   // operators and hops that were asked for, if there is an earlier store
	labels             *product.Labels     // loaded before the job runs; nil: none are propagated
	matrices           []format.Operator   // of a typed graph (format.Dir.Typed), that the store shall have beside hop 0
	complete           bool                // existing has all that was asked for
	scratch            string              // folder of scratch files, once it is known
}

// openJobContext opens a graph: of a typed one, the nodes of the target type (format.OpenTarget).
func openJobContext(fsys vfs.FS, graphDir, storeDir string) (*jobContext, error) {
	s := &jobContext{start: time.Now(), fsys: vfs.NewPastCache(fsys), graphDir: graphDir, storeDir: storeDir}
	open := format.OpenAny
	if format.IsTyped(fsys, graphDir) {
		open = format.OpenTarget
	}
	var err error
	if s.graph, err = open(s.fsys, graphDir); err != nil {
		return nil, err
	}
	if kind := s.graph.Manifest.Kind; kind != format.KindGraph {
		err = fmt.Errorf("%s: %w: it is a %s, and propagate reads a graph", graphDir, ErrOptions, kind)
	} else {
		err = checkOutput(fsys, graphDir, storeDir)
	}
	if err != nil {
		return nil, errors.Join(err, s.graph.Close())
	}
	return s, nil
}

func (s *jobContext) close() error {
	err := s.graph.Close()
	if s.existing != nil {
		err = errors.Join(err, s.existing.Close())
	}
	return errors.Join(err, s.earlier.close())
}

// chooseRows chooses the rows of a new store, and sets its layout and target.
func (s *jobContext) chooseRows(ctx context.Context) (err error) {
	if one := s.options.step; one != nil && one.rows != nil {
		s.nodes = one.rows.nodes
		s.setTarget(regionSizes(one.rows.layout), int64(len(s.nodes)))
		return nil
	}
	s.table, err = storeRows(ctx, s.graph, &s.options, func(sizes []format.RegionSize, rows int64) error {
		if rows == 0 && s.options.Rows == format.RowsLabeled {
			node := "node"
			if s.graph.Typed != nil {
				node = "node of type " + s.graph.Typed.Target
			}
			return fmt.Errorf("%s: %w: no %s has a label or is in a split, so there is nothing to store (to store "+
				"all nodes, say --rows all)", s.graphDir, ErrOptions, node)
		}
		s.setTarget(sizes, rows)
		return s.checkPicked(rows)
	})
	if err == nil {
		s.nodes = s.table.NodeID
	}
	return err
}

// input is the matrix that the job starts from.
func (s *jobContext) input() (*engine.Input, error) {
	if s.options.step != nil {
		in := *s.options.step.input
		in.DType = s.options.DType
		return &in, nil
	}
	m, err := s.graph.Matrix(format.Input)
	if err != nil {
		return nil, err
	}
	return engine.NewInput(m, nil, s.options.DType), nil
}

// columns is how many columns the matrices of a new store have.
func (s *jobContext) columns() int {
	columns := s.graph.Manifest.Features
	if s.options.step != nil {
		columns = s.options.step.input.Layout.Features
	}
	if s.options.LabelHops > 0 && s.graph.Typed == nil {
		columns += s.graph.Manifest.OneHotColumns()
	}
	return columns
}

// setTarget sets the layout and the target of a new store.
func (s *jobContext) setTarget(sizes []format.RegionSize, rows int64) {
	columns := s.columns()
	widest, widths := columns, map[string]int{}
	for _, o := range s.matrices {
		widest, widths[o.Name] = max(widest, o.Features), o.Features
	}
	s.layout = format.NewLayout(sizes, s.options.ChunkRows, widest, s.options.DType)
	if s.layout.Features = columns; len(widths) > 0 {
		s.layout.Widths = widths
	}
	s.target = target{
		Graph: s.graph.Manifest.Fingerprint, Rows: s.options.Rows, Split: s.options.Split, Seed: s.options.Seed,
		DType: s.options.DType.String(), ChunkRows: s.layout.ChunkRows, LabelHops: s.options.LabelHops,
		Features: s.layout.Features, StoredRows: rows,
		Operators: s.options.operators(),
	}
	if s.graph.Typed != nil {
		s.target.Operators, s.target.NoInput = s.matrices, columns == 0
	}
	if one := s.options.step; one != nil && one.id != format.Input {
		s.target.NoInput, s.target.Operators = true, []format.Operator{{Name: one.id.Operator, Hops: 1, Features: columns}}
		if one.labels {
			s.target.LabelHops = 1
		}
	}
	if s.options.Nodes != nil {
		s.target.Nodes = nodesDigest(s.options.Nodes)
	}
}

// regionSizes are the regions of a layout by their rows.
func regionSizes(l format.Layout) (sizes []format.RegionSize) {
	for _, r := range l.Regions {
		sizes = append(sizes, format.RegionSize{Name: r.Name, Rows: r.Rows})
	}
	return sizes
}

func nodesDigest(nodes []uint32) string {
	return fmt.Sprintf("%x", sha256.Sum256(dtype.BytesOf(nodes)))
}

// operators are the operators as a manifest lists them.
func (o *Options) operators() (list []format.Operator) {
	for _, one := range o.Operators {
		list = append(list, format.Operator{Name: one.String(), Hops: o.Hops})
	}
	return list
}

// checkPicked fails if the rows of the store do not fit in memory. The error says what the whole job needs, so that
// nobody raises the budget twice.
func (s *jobContext) checkPicked(rows int64) error {
	need := plan.ProcessBytes + plan.PickedBytes(&s.graph.Manifest, rows)
	if s.options.MemoryBytes == 0 || need <= s.options.MemoryBytes {
		return nil
	}
	if s.graph.Typed == nil {
		j, err := s.newJob()
		if err != nil {
			return err
		}
		w, err := s.work(j)
		if err != nil {
			return err
		}
		if _, err := w.Plan(s.options.MemoryBytes, &plan.DefaultRates); err != nil {
			return err
		}
	}
	return plan.ErrDoesNotFit(s.options.MemoryBytes, need)
}

// newResult is the Result before the job begins.
func (s *jobContext) newResult(g *format.Manifest) *Result {
	r := &Result{
		Nodes: g.Nodes, Edges: g.Edges, Features: g.Features,
		Operators: []string{}, OperatorHops: []int{}, ProductsPerHop: []int{}, TruncationErrors: []float64{},
		Hops: s.options.Hops, Rows: s.target.StoredRows, DType: s.target.DType,
		Beyond:     append([]string{}, s.beyond...),
		HopSeconds: []float64{}, EdgesProcessed: []int64{},
		MemoryBudgetBytes: s.options.MemoryBytes,
		Output:            s.storeDir, LabelHops: s.options.LabelHops, Layout: s.layout,
	}
	if r.LabelHops > 0 {
		r.LabelColumns = g.OneHotColumns()
	}
	for _, o := range s.target.Operators {
		applied, _ := operator.Parse(o.Name) // by which the name was spelled
		terms := applied.Series()
		r.Operators, r.OperatorHops = append(r.Operators, o.Name), append(r.OperatorHops, o.Hops)
		r.ProductsPerHop = append(r.ProductsPerHop, terms.Products())
		r.TruncationErrors = append(r.TruncationErrors, terms.Bound)
	}
	return r
}

// newJob is the job before it looks for what is finished.
func (s *jobContext) newJob() (*engine.Job, error) {
	j := &engine.Job{
		Threads: s.options.Threads, DType: s.options.DType, Progress: s.options.Progress, Note: s.options.Note,
		Fsys: vfs.NewPastCache(s.fsys), Graph: s.graph, Nodes: s.nodes,
		Matrices: s.target.matrices(),
		Columns:  cmp.Or(s.share, product.ColumnRange{End: s.layout.Features}), Finished: map[format.MatrixID]bool{},
		Pace: engine.Pace{Clock: s.options.clock, Started: s.options.begun, Rate: plan.DefaultRates.Write,
			Share: engine.SteadyShare},
	}
	if s.options.MaxTime > 0 {
		j.Pace.Deadline = s.options.begun.Add(s.options.MaxTime)
	}
	if one := s.options.step; one != nil {
		j.Reserve, j.Content = one.reserve, one.content
	}
	n := len(j.Matrices)
	j.Results, j.HopSeconds, j.Edges = make([]engine.ColumnFiles, n), make([]float64, n), make([]int64, n)
	first, err := s.input()
	if err != nil {
		return nil, err
	}
	if s.labels == nil {
		s.labels = s.options.labels(&s.graph.Manifest)
	}
	if s.labels != nil && j.Columns.End > s.labels.First {
		j.Labels = s.labels
	}
	first.Labels = s.labels
	if s.existing != nil {
		for _, id := range s.existing.Matrices() {
			j.Finished[id] = true
		}
	}
	for _, o := range s.options.Operators {
		at := slices.IndexFunc(s.target.Operators, hasName(o.String()))
		c := &engine.HopSequence{Sequence: plan.Sequence{Operator: o, Hops: s.target.Operators[at].Hops},
			Input: first}
		if s.existing != nil {
			if err := s.startFromStore(c); err != nil {
				return nil, err
			}
		}
		j.Sequences = append(j.Sequences, c)
	}
	if len(j.Sequences) == 0 {
		j.Sequences = []*engine.HopSequence{{Input: first}}
	}
	return j, nil
}

// loadLabels reads the labels that are propagated, if any are.
func (s *jobContext) loadLabels(ctx context.Context) error {
	if s.labels == nil {
		return nil
	}
	return s.labels.Load(ctx, s.graph, s.target.Split)
}

// work describes a job for planning.
func (s *jobContext) work(j *engine.Job) (*plan.Work, error) {
	made := slices.DeleteFunc(slices.Clone(j.Matrices), func(id format.MatrixID) bool { return j.Finished[id] })
	g := &s.graph.Manifest
	if s.options.step != nil { // rows have been chosen
		g = &format.Manifest{Nodes: g.Nodes, SourceNodes: g.SourceNodes, Edges: g.Edges, Weighted: g.Weighted}
	}
	w, err := newWork(g, s.layout, s.target.StoredRows, made, s.options.Threads)
	if err != nil {
		return nil, err
	}
	w.Columns, w.ResultFiles = j.Columns.Width(), s.share != product.ColumnRange{}
	if one := s.options.step; one != nil {
		if w.Held += one.heldBytes; one.rows != nil {
			w.PickedBytes = 0 // they are held
		}
	}
	if j.Labels != nil {
		w.Held += s.labels.Bytes(s.graph.Manifest.Nodes, s.layout.Regions[0].Rows, len(j.Matrices)-1, s.options.Threads)
		w.InMemory = true
	}
	var inputs []*engine.Input
	for _, c := range j.Sequences {
		if j.LastUnfinished(c, j.Columns) > 0 {
			w.Sequences = append(w.Sequences, &c.Sequence)
			at := slices.Index(inputs, c.Input)
			if at < 0 {
				at = len(inputs)
				inputs, w.Inputs, w.Loads = append(inputs, c.Input), append(w.Inputs, c.Input.Layout),
					append(w.Loads, 0)
			}
			w.Loads[at]++
		}
	}
	if len(w.Sequences) == 0 {
		w.Inputs, w.Loads = []format.Layout{j.Sequences[0].Input.Layout}, []int{1} // hop 0
	}
	return w, nil
}

// newWork describes a job that makes these matrices of a store, in one process, without its sequences and inputs. The
// row table is that of the graph: a relation of a typed one has none.
func newWork(g *format.Manifest, layout format.Layout, rows int64, made []format.MatrixID, threads int) (*plan.Work,
	error) {
	w := &plan.Work{
		Nodes: max(g.Nodes, g.SourceNodes), Sources: cmp.Or(g.SourceNodes, g.Nodes), Destinations: g.Nodes,
		Edges: g.Edges, Weighted: g.Weighted, Columns: layout.Features, Stored: layout,
		Rows: rows, RowTableBytes: plan.RowTableBytes(g), PickedBytes: plan.PickedBytes(g, rows),
		Matrices: len(made), Threads: threads,
	}
	var err error
	if w.MatrixBytes, err = layout.MatrixBytes(format.Input); err != nil {
		return nil, err
	}
	w.StoreBytes = plan.StoreBytes(g, layout, len(made), w.MatrixBytes)
	return w, err
}

// planJob plans a job for Options.Hardware, or for this machine, which it measures if that is worth it.
func (s *jobContext) planJob(ctx context.Context, j *engine.Job) (*Plan, error) {
	w, err := s.work(j)
	if err != nil {
		return nil, err
	}
	if s.layout.Features == 0 {
		return nil, fmt.Errorf("%s: %w: its nodes have no features", s.graphDir, ErrOptions)
	}
	p, err := s.options.planOf(w)
	fromEarlier := s.earlier != nil && s.earlier.taken.Fresh == ""
	if err != nil || s.options.Hardware != nil || fromEarlier || !plan.WorthMeasuring(p, w.Device != nil) {
		return p, err
	}
	scratch := cmp.Or(s.options.Scratch, s.storeDir)
	r, err := engine.Measure(ctx, vfs.NewPastCache(s.fsys.FS), j.Sequences[0].Input, scratch, w, p, s.options.MemoryBytes)
	if err != nil {
		return nil, err
	}
	j.Pace.Rate = r.Write
	choose := s.options.Device
	if d := w.Device; d != nil {
		choose = func(float64) (*Device, error) { return device.Measured(d), nil }
	}
	return w.PlanOn(choose, s.options.MemoryBytes, r)
}

// planOf plans a job by the rates of Hardware, or by plan.DefaultRates.
func (o *Options) planOf(w *plan.Work) (*Plan, error) {
	r := &plan.DefaultRates
	if o.Hardware != nil {
		r = plan.RatesOf(*o.Hardware)
	}
	return w.PlanOn(o.Device, o.MemoryBytes, r)
}

// Described is the size of a graph that need not exist.
type Described struct {
	Nodes, Edges int64
	Features     int
	DType        format.DType // of the features, and of the store; default float32
	Rows         int64        // nodes that have a label or are in a split
}

// PlanDescribed returns what a dry run of Propagate returns, for a graph that need not exist. Without o.Hardware, it
// predicts times by plan.DefaultRates.
func PlanDescribed(d Described, o Options) (*Result, error) {
	s, g, w, err := describe(d, o)
	if err != nil {
		return nil, err
	}
	p, err := s.options.planOf(w)
	if err != nil {
		return nil, err
	}
	r := s.newResult(g)
	r.Plan = *p
	return r, nil
}

// describe is the propagation of a graph that need not exist.
func describe(d Described, o Options) (*jobContext, *format.Manifest, *plan.Work, error) {
	if d.DType == 0 {
		d.DType = format.Float32
	}
	for _, c := range []struct {
		what           string
		n, least, most int64
	}{{"nodes", d.Nodes, 1, format.MaxNodes}, {"edges", d.Edges, 0, format.MaxEdges},
		{"features", int64(d.Features), 1, format.MaxFeatures}} {
		if c.n < c.least || c.n > c.most {
			return nil, nil, nil, fmt.Errorf("%w: a graph of %d %s: there can be %d to %d", ErrOptions, c.n, c.what, c.least,
				c.most)
		}
	}
	g := &format.Manifest{
		Nodes: d.Nodes, Edges: d.Edges, Features: d.Features, ChunkRows: format.ChunkRowsFor(0, d.Features, d.DType),
		Files: []format.FileEntry{{Path: format.PartPath("nodes", 0), Size: 5 * d.Nodes}}, // a label and a split
	}
	o, err := o.withDefaults(g, d.DType)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.Rows == format.RowsAll {
		d.Rows = d.Nodes
	}
	s := &jobContext{options: o, layout: format.NewLayout([]format.RegionSize{{Name: format.RegionTrain, Rows: d.Rows}},
		o.ChunkRows, d.Features, o.DType)}
	s.target = target{DType: o.DType.String(), Operators: o.operators(), StoredRows: d.Rows}
	w, err := newWork(g, s.layout, d.Rows, s.target.matrices(), o.Threads)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, one := range o.Operators {
		w.Sequences = append(w.Sequences, &plan.Sequence{Operator: one, Hops: o.Hops})
	}
	w.Loads = []int{max(1, len(w.Sequences))}
	w.Inputs = []format.Layout{{Features: d.Features, ChunkRows: g.ChunkRows, DType: d.DType}}
	return s, g, w, nil
}

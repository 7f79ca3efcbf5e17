package preprop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// earlier is the store of an earlier graph, from which a job takes what did not change: rows or, of a typed graph,
// matrices over whose relations and features are what they were, if it has all rows. The others are made anew, since
// what lies between a type and the target is in no store.
type earlier struct {
	store *format.Dir
	taken *Taken
	// rowOf is the row of each node of the new graph, or noRow; nil in a typed graph: the rows of the new store, in order.
	rowOf []uint32
	graph *format.Dir // that the store was made of, if it has one type
	// Of a typed graph:
	typed *format.Typed
	same  map[format.MatrixID]bool // what is taken over
}

// noRow marks a node that the earlier store has no row of.
const noRow = 1<<32 - 1

// Taken says what a job took from the store of an earlier graph.
type Taken struct {
	Store string `json:"store"`
	Graph string `json:"graph"` // that the store was made of
	// Computed is how many rows of each matrix were computed, hop 0 first; the others were copied.
	Computed []int64 `json:"computed_rows"`
	Fresh    string  `json:"fresh,omitempty"` // why all rows were computed
}

func (e *earlier) close() (err error) {
	if e == nil {
		return nil
	}
	if e.graph != nil {
		err = e.graph.Close()
	}
	return errors.Join(err, e.store.Close())
}

// askEarlier opens the store Options.From, and lets o ask for what that store has, as far as the user did not set it.
func (s *jobContext) askEarlier(o *Options) error {
	if err := s.openEarlier(o); err != nil {
		return err
	}
	asked, err := askedOperators(s.earlier.store.Manifest.Operators, *o)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", s.storeDir, ErrOptions, err)
	}
	if err := s.askFor(o, asked); err != nil {
		return err
	}
	s.asked = asked
	return nil
}

// openEarlier opens the store Options.From and the graph that it was made of, and takes options that were left out from
// the store.
func (s *jobContext) openEarlier(o *Options) error {
	if o.DryRun || o.Nodes != nil {
		return fmt.Errorf("%w: --from is for a whole job: leave out --dry-run", ErrOptions)
	}
	store, err := format.OpenStore(s.fsys, o.From)
	if err != nil {
		return err
	}
	e := &earlier{store: store, same: map[format.MatrixID]bool{}}
	s.earlier = e
	path := o.FromGraph
	if path == "" {
		if path, err = s.fsys.Attribute(s.graphDir, format.UpdatedFrom); err != nil || path == "" {
			return fmt.Errorf("%s: %w: nothing says which graph it was updated from (--from-graph GRAPH names the graph that "+
				"%s was made of)", s.graphDir, ErrOptions, o.From)
		}
	}
	fingerprint := ""
	if s.graph.Typed != nil {
		if e.typed, err = format.OpenTyped(s.fsys, path); err == nil {
			fingerprint = e.typed.Fingerprint
		}
	} else if e.graph, err = format.OpenGraph(s.fsys, path); err == nil {
		fingerprint = e.graph.Manifest.Fingerprint
	}
	if err != nil {
		return fmt.Errorf("%w (--from-graph names the graph that %s was made of)", err, o.From)
	}
	m, l := &store.Manifest, store.Layout()
	if m.Input["graph"] != fingerprint {
		return fmt.Errorf("%s: %w: it was not made of the graph %s, or that has changed since (--from-graph names the graph "+
			"that it was made of)", o.From, ErrOptions, path)
	}
	if o.Rows == "" && m.RowSet != format.RowsChosen {
		o.Rows = m.RowSet
	}
	o.DType = cmp.Or(o.DType, l.DType)
	if slices.ContainsFunc(l.Regions, func(r format.Region) bool { return r.Rows > int64(l.ChunkRows) }) {
		o.ChunkRows = cmp.Or(o.ChunkRows, l.ChunkRows) // else chunks are as short as the longest region
	}
	o.takeDefaulted(m)
	e.taken = &Taken{Store: o.From, Graph: path, Computed: []int64{}}
	return nil
}

// setAsked makes the target that of the operators and hops that were asked for beside an earlier store.
func (s *jobContext) setAsked() {
	if s.earlier == nil {
		return
	}
	s.target.Operators = nil
	for _, o := range s.options.Operators { // which are in order
		s.target.Operators = append(s.target.Operators, s.asked[slices.IndexFunc(s.asked, hasName(o.String()))])
	}
}

// errFresh is returned where taking rows from an earlier store is not worth its while, with the reason.
type errFresh struct{ reason string }

func (e *errFresh) Error() string { return e.reason }

func fresh(format string, args ...any) error { return &errFresh{fmt.Sprintf(format, args...)} }

// takeUnchanged writes all matrices of the store: rows that did not change from the earlier store, and the others
// computed. Where that is not worth its while, it says so and leaves the matrices to the job.
func (s *jobContext) takeUnchanged(ctx context.Context, j *engine.Job, store *format.Writer) error {
	err := s.take(ctx, j, store)
	var why *errFresh
	switch {
	case errors.As(err, &why):
		s.earlier.taken.Fresh = why.reason
		s.options.Note(fmt.Sprintf("%s: all rows are computed: %s", s.storeDir, why.reason))
	case errors.Is(err, ErrInvalid):
		s.earlier.taken.Fresh = "a number is not finite" // the whole job names node and column
	default:
		return err
	}
	s.earlier.rowOf = nil
	if 4*s.graph.Manifest.Nodes > plan.NoticeableBytes {
		debug.FreeOSMemory() // the plan counts on its room
	}
	if j.Plan, err = s.planJob(ctx, j); err == nil && j.Given != nil && !j.Plan.TopologyInMemory {
		err = j.Given.Close()
		j.Given = nil
	}
	return err
}

// maxShare is the share of nodes that may change: beyond, a fresh job is about as fast.
const maxShare = 0.5

// copyCost is about how many rows can be added up in the time that it takes to read one and write it.
const copyCost = 4

func (s *jobContext) take(ctx context.Context, j *engine.Job, store *format.Writer) error {
	g, e := &s.graph.Manifest, s.earlier
	old := &e.store.Manifest
	switch {
	case s.options.LabelHops > 0 || old.LabelHops > 0:
		return fresh("labels that are propagated may change beside any change")
	case old.DType != s.target.DType || old.Features != s.target.Features ||
		e.graph.Manifest.DType != g.DType || e.graph.Manifest.Features != g.Features:
		return fresh("%s has features of another type or number", e.taken.Store)
	case old.Seed != s.target.Seed:
		return fresh("%s has its rows in the order of another --seed", e.taken.Store)
	case g.Nodes < e.graph.Manifest.Nodes:
		return fresh("the graph has fewer nodes than %s", e.taken.Graph)
	}
	for _, o := range s.target.Operators {
		at := slices.IndexFunc(old.Operators, hasName(o.Name))
		if at < 0 || old.Operators[at].Hops < o.Hops {
			return fresh("%s has not all hops of %s", e.taken.Store, o.Name)
		}
	}
	c := &changes{jobContext: s, job: j, store: store, rest: 1 << 62}
	if most := s.options.MemoryBytes; most > 0 {
		sets := int64(4)
		for _, sequence := range j.Sequences {
			sets += 4 + int64(sequence.Products()+2*sequence.Hops)
		}
		// beside rows of nodes in the earlier store, factors of an operator, sets, and topologies that are streamed
		c.rest = most - plan.ProcessBytes - plan.PickedBytes(g, int64(len(s.nodes))) - (4+8)*g.Nodes -
			sets*plan.NodeSetBytes(g.Nodes) - 2*int64(plan.DiskReaders(s.options.Threads))*plan.StreamRangeBytes
		if c.rest < 0 {
			return fresh("to compare the graphs would take more than --memory")
		}
	}
	var err error
	if e.rowOf, err = rowsOf(ctx, e.store, g.Nodes); err != nil {
		return err
	}
	err = c.run(ctx)
	if given, ok := c.topologies[operator.AsGiven].(*product.MemoryTopology); ok && errors.As(err, new(*errFresh)) {
		j.Given = given
		delete(c.topologies, operator.AsGiven)
	}
	return cmp.Or(err, c.topologies.Close())
}

// regionOf is the region of a row.
func regionOf(l *format.Layout, row int64) int {
	return slices.IndexFunc(l.Regions, func(r format.Region) bool { return row < r.FirstRow+r.Rows })
}

// rowsOf are the rows in a store of nodes below n, or noRow.
func rowsOf(ctx context.Context, store *format.Dir, n int64) ([]uint32, error) {
	rowOf := slices.Repeat([]uint32{noRow}, int(n))
	return rowOf, store.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i, v := range t.NodeID {
			if int64(v) < n {
				rowOf[v] = uint32(first + int64(i))
			}
		}
	})
}

package preprop

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// changes finds which rows of a store differ from those of an earlier one. A row of hop r may differ if
//
//   - its terms or factors differ: the list of its in-neighbours, s(v), or t(u) of a term;
//   - or the row of one of its terms differs in hop r-1; hop 0 is the features.
//
// Rows that may differ are computed (taking.go), from rows of the hop before: those of the earlier store that are the
// same, and others, which are then computed too.
type changes struct {
	*jobContext
	job        *engine.Job
	store      *format.Writer
	rest       int64 // bytes of memory that are left
	topologies engine.Topologies

	features product.NodeSet            // nodes whose features changed
	lists    map[string]product.NodeSet // nodes whose in-neighbours changed, by Operator.Graph
	sources  map[string]product.NodeSet // nodes that an edge left or joined
	moved    *product.Numbering         // stored nodes in another region of rows than before
}

// recomputation is what is computed of a sequence.
type recomputation struct {
	*engine.HopSequence
	changed []product.NodeSet   // by hop: nodes whose rows may differ
	compute [][]product.NodeSet // by hop, and product from 0: nodes whose rows are computed
	sources []product.NodeSet   // by hop: these nodes and their terms, whose rows of the hop before are read
	nodes   product.NodeSet     // all
	rows    product.NodeSet     // all that are computed
	terms   int64               // that are added up
	lists   int64               // terms of rows
}

// run finds the changes, decides whether to take the other rows, and takes them.
func (c *changes) run(ctx context.Context) error {
	if err := c.compareFeatures(ctx); err != nil {
		return err
	}
	if err := c.openTopologies(ctx); err != nil {
		return err
	}
	var all []*recomputation
	n, rows, matrices := c.graph.Manifest.Nodes, int64(len(c.nodes)), int64(len(c.job.Matrices))
	cost, freshCost := copyCost*matrices*rows, copyCost/2*(matrices*rows+n)
	for _, sequence := range c.job.Sequences {
		if sequence.Hops == 0 {
			continue
		}
		r, err := c.plan(ctx, sequence)
		if err != nil {
			return err
		}
		all = append(all, r)
		g := c.topologies[r.Operator.Graph]
		cost += r.terms + copyCost/2*r.sources[1].Count()
		freshCost += (int64(r.Products())-1)*(g.Edges()+n) + (g.Edges()+n)/max(n, 1)*rows
	}
	if float64(cost) > 0.8*float64(freshCost) {
		return fresh("to take unchanged rows from %s would take %.2f times as long", c.earlier.taken.Store,
			float64(cost)/float64(freshCost))
	}
	return c.takeAll(ctx, all)
}

// compareFeatures finds the nodes that are new or whose features differ.
func (c *changes) compareFeatures(ctx context.Context) error {
	n, before := c.graph.Manifest.Nodes, c.earlier.graph.Manifest.Nodes
	old, err := c.earlier.graph.Matrix(format.Input)
	if err != nil {
		return err
	}
	now, err := c.graph.Matrix(format.Input)
	if err != nil {
		return err
	}
	c.features = product.NewNodeSet(n)
	if err := compareRows(ctx, now, old, func(v int64) int64 {
		if v >= before {
			return -1
		}
		return v
	}, c.features, c.checkShare); err != nil {
		return err
	}
	return c.checkShare(n, c.features.Count(), 0)
}

// compareRows adds to differ the rows of a matrix that differ from rows of an older one: of row i, row rowOf(i), or
// where that is negative, none. Chunks with the same rows and equal checksums are the same. check, unless it is nil, is
// called now and then, and may end the comparison.
func compareRows(ctx context.Context, now, old *format.Matrix, rowOf func(i int64) int64, differ product.NodeSet,
	check func(seen, changed int64, hop int) error) error {
	a, b := format.RowReader{Matrix: now}, format.RowReader{Matrix: old}
	seen := int64(0)
	for at := range now.Chunks() {
		k := spreadOut(at, now.Chunks())
		if err := context.Cause(ctx); err != nil {
			return err
		}
		first, rows := now.ChunkRowRange(k)
		same := k < old.Chunks() && now.Extent(k).Length == old.Extent(k).Length &&
			now.Extent(k).CRC32C == old.Extent(k).CRC32C
		if same {
			oldFirst, _ := old.ChunkRowRange(k)
			same = first == oldFirst
		}
		for i := first; same && i < first+int64(rows); i++ {
			same = rowOf(i) == i
		}
		for i := first; !same && i < first+int64(rows); i++ {
			row := rowOf(i)
			if row < 0 {
				differ.Add(i)
			}
			if row < 0 || differ.Has(i) {
				continue
			}
			is, err := a.Row(i)
			if err != nil {
				return err
			}
			was, err := b.Row(row)
			if err != nil {
				return err
			}
			if !bytes.Equal(is, was) {
				differ.Add(i)
			}
		}
		if seen += int64(rows); check != nil && at%sampledChunks == sampledChunks-1 {
			if err := check(seen, differ.Count(), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// sampledChunks is how many chunks are compared before the share of rows that differ is taken for that of all.
const sampledChunks = 32

// spreadOut is the i-th of n chunks in an order in which the first few are from all over: steps of a prime.
func spreadOut(i, n int) int {
	const step = 1_000_003
	if n%step == 0 {
		return i
	}
	return int(int64(i) * step % int64(n))
}

// checkShare fails if most of the nodes that were looked at change in a hop.
func (c *changes) checkShare(seen, changed int64, hop int) error {
	if float64(changed) > maxShare*float64(seen) {
		return fresh("rows of %d of %d nodes change in hop %d", changed, seen, hop)
	}
	return nil
}

// openTopologies opens the topologies of the graph, and compares them with those of the earlier one.
func (c *changes) openTopologies(ctx context.Context) (err error) {
	g, e := &c.graph.Manifest, &c.earlier.graph.Manifest
	used, bytes := map[string]int{}, int64(0)
	for _, sequence := range c.job.Sequences {
		if graph := sequence.Operator.Graph; sequence.Hops > 0 && used[graph] == 0 {
			used[graph] = 1
			for _, m := range []*format.Manifest{g, e} {
				edges := m.Edges
				if graph == operator.Undirected {
					edges *= 2
				}
				bytes += plan.TopologyBytes(m.Nodes, edges, m.Weighted)
			}
		}
	}
	p := &plan.Plan{TopologyInMemory: bytes <= c.rest/2 && !c.options.topologyOnDisk}
	if p.TopologyInMemory {
		c.rest -= bytes
	}
	open := func(dir *format.Dir, process string) (engine.Topologies, error) {
		j := &engine.Job{Threads: c.job.Threads, Progress: c.job.Progress, Fsys: c.job.Fsys, Graph: dir,
			Scratch: c.job.Scratch, Name: process, Plan: p}
		return j.OpenTopologies(ctx, used)
	}
	c.lists, c.sources = map[string]product.NodeSet{}, map[string]product.NodeSet{}
	var old engine.Topologies
	var both errgroup.Group
	both.Go(func() (err error) {
		c.topologies, err = open(c.graph, "now")
		return err
	})
	if !format.SameTopology(c.graph, c.earlier.graph) {
		both.Go(func() (err error) {
			old, err = open(c.earlier.graph, "earlier")
			if disk, ok := old[operator.AsGiven].(*product.DiskTopology); ok && !disk.Checked() {
				err = disk.Check(ctx, nil) // it is read in pieces, not in a walk
			}
			return err
		})
	}
	err = both.Wait()
	for graph := range used {
		c.lists[graph], c.sources[graph] = product.NewNodeSet(g.Nodes), product.NewNodeSet(g.Nodes)
		if err == nil && old[graph] != nil {
			err = product.ChangedLists(ctx, old[graph], c.topologies[graph], c.lists[graph], c.sources[graph], c.job.Threads)
			if err == nil {
				err = c.checkShare(g.Nodes, c.lists[graph].Count(), 1)
			}
		}
	}
	return errors.Join(err, old.Close())
}

// plan finds what is computed of a sequence.
func (c *changes) plan(ctx context.Context, sequence *engine.HopSequence) (*recomputation, error) {
	r := &recomputation{HopSequence: sequence}
	if err := c.spread(ctx, r); err != nil {
		return nil, err
	}
	graph, n, threads := c.topologies[r.Operator.Graph], c.graph.Manifest.Nodes, c.job.Threads
	products := r.Series().Products()
	r.compute, r.sources = make([][]product.NodeSet, r.Hops+1), make([]product.NodeSet, r.Hops+1)
	r.nodes, r.rows = product.NewNodeSet(n), product.NewNodeSet(n)
	var next product.NodeSet // whose rows of the hop the one after needs
	for hop := r.Hops; hop > 0; hop-- {
		sets := make([]product.NodeSet, products)
		sets[products-1] = c.stored(r.changed[hop])
		next.Each(func(v int64) {
			if !c.available(v, r.changed[hop]) {
				sets[products-1].Add(v)
			}
		})
		for i := products - 1; i >= 0; i-- {
			to := product.NewNodeSet(n)
			terms, err := product.AddSources(ctx, graph, sets[i], to, threads)
			if err != nil {
				return nil, err
			}
			if r.terms += terms; i > 0 {
				sets[i-1] = to
			} else {
				next = to
				r.lists += terms
			}
		}
		r.compute[hop], r.sources[hop] = sets, next
		r.nodes.Union(next)
		r.rows.Union(sets[0])
	}
	return r, nil
}

// stored are the nodes with a row in the store that is computed: the row may differ, or the earlier store has none.
func (c *changes) stored(changed product.NodeSet) product.NodeSet {
	set := product.NewNodeSet(c.graph.Manifest.Nodes)
	for _, v := range c.nodes {
		if !c.available(int64(v), changed) {
			set.Add(int64(v))
		}
	}
	return set
}

// available tells whether the earlier store has the row of a node.
func (c *changes) available(v int64, changed product.NodeSet) bool {
	return c.earlier.rowOf[v] != noRow && !changed.Has(v)
}

// spread finds the nodes whose rows may differ in each hop.
func (c *changes) spread(ctx context.Context, r *recomputation) error {
	o := r.Operator.Base()
	graph, threads := c.topologies[o.Graph], c.job.Threads
	terms := slices.Clone(c.lists[o.Graph]) // nodes whose terms or factors differ
	factors := map[string]product.NodeSet{operator.Sym: c.lists[o.Graph], operator.Col: c.sources[o.Graph]}[o.Name]
	if factors != nil {
		terms.Union(factors)
		if err := product.AddTargets(ctx, graph, factors, terms, threads); err != nil {
			return err
		}
	}
	r.changed = []product.NodeSet{c.features}
	set, closed := c.features, false
	for hop := 1; hop <= r.Hops; hop++ {
		for range r.Series().Products() {
			if closed {
				break
			}
			next := slices.Clone(set)
			next.Union(terms)
			if err := product.AddTargets(ctx, graph, set, next, threads); err != nil {
				return err
			}
			closed = next.Count() == set.Count()
			if set = next; !closed {
				if err := c.checkShare(c.graph.Manifest.Nodes, set.Count(), hop); err != nil {
					return err
				}
			}
		}
		r.changed = append(r.changed, set)
	}
	return nil
}

// errLarge says that rows do not fit in memory at once.
func errLarge(rows, bytes, rest int64) error {
	return fresh("%d rows that are needed for those that change take %v, and %v of --memory are left", rows,
		units.Bytes(bytes), units.Bytes(max(0, rest)))
}

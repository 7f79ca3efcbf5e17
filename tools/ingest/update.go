package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// UpdateOptions say what changes in a graph. Tables are text or Parquet, as OpenCSV and OpenParquet read them; a table
// that is not named changes nothing.
type UpdateOptions struct {
	Edges         string // to be added, after those of Remove are removed
	Remove        string // edges to be removed, with all that are parallel
	Nodes         string // new nodes, and nodes whose labels, splits or features change; it has a column of ids
	Columns       Columns
	Header        string // as of TableOptions, of tables of edges
	Bipartite     bool   // as of TableOptions
	IgnoreMissing bool   // count edges to remove that are not there, instead of failing
}

// Declare adds the flags of the options.
func (o *UpdateOptions) Declare(flags *pflag.FlagSet) {
	flags.StringVar(&o.Edges, "edges", "", "table of edges to add")
	flags.StringVar(&o.Remove, "remove-edges", "",
		"table of edges to remove, before any is added; of parallel edges all go")
	flags.StringVar(&o.Nodes, "nodes", "", "table of nodes that are new, or whose labels, splits or features change")
	flags.BoolVar(&o.IgnoreMissing, "ignore-missing", false,
		"count edges to remove that are not in GRAPH, instead of failing")
	flags.BoolVar(&o.Bipartite, "bipartite", false, "GRAPH was imported with --ids bipartite, and so are the tables")
	flags.StringVar(&o.Header, "header", "",
		"whether the first line of the edges names the columns: yes or no (default: by its content)")
	o.Columns.declare(flags)
}

func (o *UpdateOptions) check() error {
	if !slices.Contains([]string{"", "yes", "no"}, o.Header) {
		return badOptions("--header %q (want yes or no)", o.Header)
	}
	c := &o.Columns
	edges, nodes := o.Edges+o.Remove != "", o.Nodes != ""
	for _, flag := range []struct {
		name         string
		given, reads bool
		tables       string
	}{
		{sourceRole.flag, c.Source != "", edges, "--edges or --remove-edges"},
		{destinationRole.flag, c.Destination != "", edges, "--edges or --remove-edges"},
		{"header", o.Header != "", edges, "--edges or --remove-edges"},
		{weightRole.flag, c.Weight != "", o.Edges != "", "--edges"},
		{edgeColumnsFlag, len(c.Edge) > 0, o.Edges != "", "--edges"},
		{"ignore-missing", o.IgnoreMissing, o.Remove != "", "--remove-edges"},
		{idRole.flag, c.ID != "", nodes, "--nodes"},
		{labelRole.flag, len(c.Label) > 0, nodes, "--nodes"},
		{splitRole.flag, len(c.Split) > 0, nodes, "--nodes"},
		{"feature-columns", len(c.Features) > 0, nodes, "--nodes"},
		{nodeColumnsFlag, len(c.Node) > 0, nodes, "--nodes"},
	} {
		if flag.given && !flag.reads {
			return badOptions("--%s: it is for the table of %s, which is not given", flag.name, flag.tables)
		}
	}
	return nil
}

// Update is a Source of a graph that is another one with changes: what an import of the changed data would make.
type Update struct {
	*edgeList // of the edges to add
	UpdateCounts
	graph    *format.Dir
	options  UpdateOptions
	topology *format.TopologyFile // nil: edges stay as they are

	removed   []uint64 // keys of edges that are removed, ascending: the destination above the source
	removedAt []int64  // their numbers, if the graph has columns of edges
	kept      int64    // edges of the graph that stay
	loops     []int64  // numbers of added edges from a node to itself, if edges are undirected

	table    *nodeTable // nil: none
	inTable  bitset     // nodes that have a row there
	changed  int64      // the first node that has
	features *npy.Array // of these nodes, at their places; nil: none
	sum      uint64     // sumElements of them
	ones     bool       // new nodes without features get a 1
}

// OptionsOf are the options of an import that made a graph, as far as its bytes depend on them.
func OptionsOf(m *format.Manifest) Options {
	t, _ := dtype.Parse(m.DType) // which was checked
	return Options{Name: m.Name, DType: t, SelfLoops: Loops(m.Input["self_loops"]),
		Duplicates: Duplicates(m.Input["duplicates"])}
}

// UpdateCounts says what changed.
type UpdateCounts struct {
	NodesAdded    int64 `json:"nodes_added"`
	NodesChanged  int64 `json:"nodes_changed"`  // of GRAPH that have a row in the table of nodes
	EdgesAdded    int64 `json:"edges_added"`    // in the table; reverses not counted
	EdgesRemoved  int64 `json:"edges_removed"`  // stored edges: parallel ones and reverses counted
	EdgesMissing  int64 `json:"edges_missing"`  // that were to be removed and are not there
	EdgesRepeated int64 `json:"edges_repeated"` // that were to be removed more than once
}

// OpenUpdate opens the changes of a graph, which must stay open. It reads tables of edges to scratch files.
func OpenUpdate(ctx context.Context, graph *format.Dir, w ScratchOptions, o UpdateOptions) (_ *Update, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m := &graph.Manifest
	if o.Bipartite && !m.OrigIDs {
		return nil, badOptions("--bipartite: the ids of %s are node numbers", graph.Path())
	}
	if of := m.Input[format.EdgeFeatures]; of != "" {
		return nil, badOptions("%s has features that come from edges (%s), which update cannot make anew: import the "+
			"changed tables", graph.Path(), of)
	}
	l, err := newEdgeList(graph.FS(), "update", graph.Path(), w, NodeFiles{Columns: o.Columns})
	if err != nil {
		return nil, err
	}
	u := newUpdate(l, graph, o)
	defer closeOnError(&err, u)
	if err := u.openIDs(ctx); err != nil {
		return nil, err
	}
	steps := []func(context.Context) error{u.openRemoved, u.openAdded, u.openNodes}
	if m.Input["source"] == parquetFormat.Name { // whose import numbers nodes before it reads edges
		steps[1], steps[2] = steps[2], steps[1]
	}
	for _, step := range append(steps, u.openFeatures, u.openNodeColumns, u.finishInfo) {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func newUpdate(l *edgeList, graph *format.Dir, o UpdateOptions) *Update {
	m := &graph.Manifest
	u := &Update{edgeList: l, graph: graph, options: o, changed: m.Nodes, kept: m.Edges}
	u.info.Input, u.info.Name, u.info.Features = maps.Clone(m.Input), m.Name, m.Features
	return u
}

// after is how many sources and destinations there are, as far as tables have been read.
func (u *Update) after() [2]int64 { return [2]int64{u.ends[0].nodes, u.ends[1].nodes} }

// openIDs numbers nodes as the graph does.
func (u *Update) openIDs(ctx context.Context) error {
	u.ids = numbering{nodes: u.graph.Manifest.Nodes}
	if !u.graph.Manifest.OrigIDs {
		return nil
	}
	u.ids.ids = newIDMap(u.scratch.MemoryBytes)
	var failed error
	err := u.graph.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i, id := range t.OrigID {
			node, err := u.ids.node([]byte(id))
			if failed == nil && err == nil && int64(node) != first+int64(i) {
				err = fmt.Errorf("two nodes have the id %q", id)
			}
			failed = cmp.Or(failed, err)
		}
	})
	if err == nil && failed != nil {
		err = fmt.Errorf("%s: %w", u.graph.Path(), failed)
	}
	return err
}

// tableOptions are those of a table of edges.
func (u *Update) tableOptions() TableOptions {
	mapped := u.ends[0].ids != nil || u.ends[1].ids != nil
	o := TableOptions{MapIDs: mapped, Bipartite: u.options.Bipartite, Header: u.options.Header}
	o.Columns, o.Nodes = u.options.Columns, max(1, u.ids.nodes) // a table without edges is one without changes
	return o
}

// isParquet tells whether a table is a Parquet file or a folder of them.
func isParquet(fsys vfs.FS, path string) (bool, error) {
	info, err := stat(fsys, path)
	if err != nil || !info.IsDir() {
		return strings.HasSuffix(path, ".parquet"), err
	}
	entries, err := fsys.ReadDir(path)
	for _, e := range entries {
		if found, err := isParquet(fsys, filepath.Join(path, e.Name())); found || err != nil {
			return found, err
		}
	}
	return false, err
}

// readChanges reads a table of edges to scratch files.
func (l *edgeList) readChanges(ctx context.Context, path string, o TableOptions) error {
	parquet, err := isParquet(l.fsys, path)
	if err != nil {
		return err
	}
	return l.readTable(ctx, path, parquet, o)
}

// openRemoved reads which edges are removed, and finds them.
func (u *Update) openRemoved(ctx context.Context) error {
	m := &u.graph.Manifest
	if u.options.Remove == "" {
		return nil
	}
	o := u.tableOptions()
	o.Columns.Weight, o.Columns.Edge, o.Columns.Node = None, nil, nil
	list := newEdgeListIn(u.fsys, "", u.scratch, NodeFiles{})
	list.ends = u.ends
	for _, end := range u.ends {
		end.fixed = true
	}
	defer func() {
		for _, end := range u.ends {
			end.fixed = false
		}
		if list.edges != nil {
			_ = list.edges.free()
		}
	}()
	if err := list.readChanges(ctx, u.options.Remove, o); err != nil {
		return err
	}
	keys := list.edges.edges
	if !m.Directed {
		keys *= 2
	}
	if most := u.scratch.MemoryBytes; most > 0 && 8*keys > most/2 {
		return fmt.Errorf("%s: %w: a list of %d edges to remove takes more than half of the memory that may be used "+
			"(raise --memory, or remove them in several steps)", u.options.Remove, machine.ErrDoesNotFit, keys)
	}
	u.removed = make([]uint64, 0, keys)
	err := list.edges.stream(ctx, u.after(), 1, func(e Edges) error {
		for i, dst := range e.Dst {
			src := e.Src[i]
			if !m.Directed && src > dst {
				src, dst = dst, src
			}
			u.removed = append(u.removed, uint64(dst)<<32|uint64(src))
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(u.removed)
	named := int64(len(u.removed))
	u.removed = slices.Compact(u.removed)
	u.EdgesRepeated = named - int64(len(u.removed))
	if !m.Directed {
		for _, key := range u.removed {
			if src, dst := key&(1<<32-1), key>>32; src != dst {
				u.removed = append(u.removed, src<<32|dst)
			}
		}
		slices.Sort(u.removed)
	}
	u.info.HeldBytes += 8 * keys
	return u.findRemoved(ctx)
}

// openTopology opens the edges of the graph, once.
func (u *Update) openTopology(ctx context.Context) (err error) {
	if u.topology == nil {
		if u.topology, err = u.graph.OpenTopology(ctx, updateRangeBytes); err == nil {
			u.info.HeldBytes += updateReaders * u.topology.RangeBytes()
		}
	}
	return err
}

// updateRangeBytes is about how much of a topology is read at a time, and updateReaders by how many goroutines.
const (
	updateRangeBytes = 1 << 20
	updateReaders    = 4
)

// findRemoved finds the edges to remove in the graph.
func (u *Update) findRemoved(ctx context.Context) error {
	if err := u.openTopology(ctx); err != nil {
		return err
	}
	numbered := len(u.columnsOfGraph(format.OfEdges)) > 0
	var found bitset
	buffer := vfs.AlignedBytes(int(u.topology.RangeBytes()), vfs.PageBytes)
	for k := range u.topology.Ranges() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		b, err := u.topology.ReadRange(k, buffer)
		if err != nil {
			return err
		}
		u.eachEdge(&b, func(i int, _ uint64, at int) {
			if at < 0 {
				return
			}
			found.set(int64(at))
			if u.EdgesRemoved++; numbered {
				u.removedAt = append(u.removedAt, b.Offsets[0]+int64(i))
			}
		})
	}
	u.kept -= u.EdgesRemoved
	first := -1
	for at, key := range u.removed {
		if found.has(int64(at)) || !u.graph.Manifest.Directed && key>>32 < key&(1<<32-1) {
			continue
		}
		if u.EdgesMissing++; first < 0 {
			first = at
		}
	}
	switch {
	case first < 0:
	case !u.options.IgnoreMissing:
		key := u.removed[first]
		return invalid(u.options.Remove, "the graph lacks %s that it says to remove, the first from %s to %s "+
			"(--ignore-missing goes on without)", units.Count(u.EdgesMissing, "edge"),
			u.ends[0].name(int64(key&(1<<32-1))), u.ends[1].name(int64(key>>32)))
	default:
		u.info.note(fmt.Sprintf("%s: the graph lacks %s that it says to remove", u.options.Remove,
			units.Count(u.EdgesMissing, "edge")))
	}
	if u.EdgesRepeated > 0 {
		u.info.note(fmt.Sprintf("%s: it names %s again", u.options.Remove, units.Count(u.EdgesRepeated, "edge")))
	}
	return nil
}

// eachEdge calls body with the edges of a node range: the number in the range, the key, and the place in u.removed, or
// -1.
func (u *Update) eachEdge(b *format.NodeRange, body func(i int, key uint64, at int)) {
	next, _ := slices.BinarySearch(u.removed, uint64(b.First)<<32)
	i := 0
	for v := b.First; v < b.First+b.Rows(); v++ {
		for _, source := range b.In(v) {
			key := uint64(v)<<32 | uint64(source)
			for next < len(u.removed) && u.removed[next] < key {
				next++
			}
			at := -1
			if next < len(u.removed) && u.removed[next] == key {
				at = next
			}
			body(i, key, at)
			i++
		}
	}
}

// openAdded reads the edges to add.
func (u *Update) openAdded(ctx context.Context) (err error) {
	m, before := &u.graph.Manifest, u.after()
	if u.options.Edges == "" {
		u.edges, err = u.scratch.newEdges(false, 0)
		if err == nil {
			err = u.edges.finish(ctx)
		}
		return err
	}
	input := u.info.Input
	u.info.Input = map[string]string{} // what the table adds is not said of the graph
	err = u.readChanges(ctx, u.options.Edges, u.tableOptions())
	u.info.Input = input
	if err != nil {
		return err
	}
	u.EdgesAdded = u.edges.edges
	switch sums := m.Input["duplicates"] == string(SumDuplicates); {
	case u.EdgesAdded == 0:
		return nil
	case u.info.Weighted && !m.Weighted:
		return badOptions("%s has weights, and the graph has none (--weight-column none leaves them out)", u.options.Edges)
	case m.Weighted && !u.info.Weighted && !sums:
		return badOptions("%s has no weights, and the graph has (--weight-column says which column they are)",
			u.options.Edges)
	}
	if err := u.checkColumns(format.OfEdges, edgeColumnsFlag, u.options.Edges, u.columns, true); err != nil {
		return err
	}
	for k, end := range u.ends {
		if end.ids == nil && end.nodes > before[k] && (k == 0 || end != u.ends[0]) {
			u.info.note(fmt.Sprintf("%s: the highest node is %d, and the graph had %d nodes", u.options.Edges, end.nodes-1,
				before[k]))
		}
	}
	if m.Directed {
		return u.openTopology(ctx)
	}
	at := int64(0)
	err = u.edges.stream(ctx, u.after(), 1, func(e Edges) error {
		for i, dst := range e.Dst {
			if e.Src[i] == dst {
				u.loops = append(u.loops, at+int64(i))
			}
		}
		at += int64(len(e.Dst))
		return nil
	})
	return cmp.Or(err, u.openTopology(ctx))
}

// addedBefore is how many edges the first edges to add are: with reverses, in undirected graphs.
func (u *Update) addedBefore(edges int64) int64 {
	if u.graph.Manifest.Directed {
		return edges
	}
	loops, _ := slices.BinarySearch(u.loops, edges)
	return 2*edges - int64(loops)
}

// finishInfo says what the changed graph is.
func (u *Update) finishInfo(context.Context) error {
	m := &u.graph.Manifest
	after := u.after()
	u.info.Nodes, u.info.Weighted, u.info.Direction = after[1], m.Weighted, Symmetric
	if m.Directed {
		u.info.Direction = Directed
	}
	if m.SourceNodes > 0 {
		u.info.SourceNodes = after[0]
	}
	u.NodesAdded = u.info.Nodes - m.Nodes
	if ids := u.ids.ids; ids != nil {
		u.info.HeldBytes += ids.bytes()
		u.info.RowBytes += ids.rowBytes()
	}
	u.info.RowBytes += 5*int64(max(1, m.Labels)) + int64(max(1, m.Splits)) + 1
	u.info.FeatureBytes += 2 * int64(m.ChunkRows*m.Features*4)
	return nil
}

func (u *Update) Info() Info {
	u.info.Edges = u.kept + u.addedBefore(u.edges.edges)
	return u.info
}

// Edges streams the edges that stay, and then those that are added, each before its reverse.
func (u *Update) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	if err := u.openTopology(ctx); err != nil {
		return err
	}
	if err := u.streamKept(ctx, threads, emit); err != nil {
		return err
	}
	m := &u.graph.Manifest
	return u.edges.stream(ctx, u.after(), threads, func(e Edges) error {
		if m.Weighted && len(e.Weights) == 0 {
			e.Weights = slices.Repeat(dtype.Unscaled, len(e.Dst))
		}
		if m.Directed {
			return emit(e)
		}
		both := Edges{}
		for i, dst := range e.Dst {
			src := e.Src[i]
			for range 2 {
				both.Src, both.Dst = append(both.Src, src), append(both.Dst, dst)
				if e.Weights != nil {
					both.Weights = append(both.Weights, e.Weights[i])
				}
				if src == dst {
					break
				}
				src, dst = dst, src
			}
		}
		return emit(both)
	})
}

// Close closes the tables and the topology, and removes scratch files.
func (u *Update) Close() error {
	err := u.edgeList.Close()
	if u.topology != nil {
		err = errors.Join(err, u.topology.Close())
		u.topology = nil
	}
	return err
}

// sharedParts says which parts of a graph are those of another one.
type sharedParts struct {
	graph          *format.Dir // nil: none
	rows, topology bool
	features       int64 // first rows of the features
}

// based is a Source that has parts of a graph.
type based interface{ same() sharedParts }

func sharedBy(src Source) (s sharedParts) {
	if b, ok := src.(based); ok {
		s = b.same()
	}
	return s
}

func (u *Update) same() sharedParts {
	sameNodes := u.info.Nodes == u.graph.Manifest.Nodes
	s := sharedParts{graph: u.graph, features: u.graph.Manifest.Nodes}
	s.topology = sameNodes && u.EdgesRemoved == 0 && u.edges.edges == 0
	s.rows = sameNodes && (u.table == nil || len(u.table.labels)+len(u.table.splits) == 0)
	if u.features != nil {
		s.features = u.changed
	}
	return s
}

// adoptColumns takes those columns over that src does not give.
func (s sharedParts) adoptColumns(src Source, w *format.Writer) error {
	if s.graph == nil {
		return nil
	}
	m := &s.graph.Manifest
	for _, c := range m.Columns {
		if slices.ContainsFunc(columnsOf(src, c.Of), func(own inputColumn) bool { return own.Name == c.Name }) {
			continue
		}
		rows := m.Nodes
		if c.Of == format.OfEdges {
			rows = m.Edges
		}
		from, _, err := s.graph.Column(c.Name)
		if err != nil {
			return err
		}
		to, err := w.Column(c, rows)
		if err != nil {
			return err
		}
		if _, err := to.Adopt(from, rows); err != nil {
			return err
		}
		if err := to.Close(); err != nil {
			return err
		}
	}
	return nil
}

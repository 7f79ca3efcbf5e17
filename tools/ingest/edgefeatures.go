package ingest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/spf13/pflag"
)

// EdgeFeatures are features of nodes that come from their in-edges as stored: added reverses count, merged duplicates
// do not. They are the last columns of the features: for each column of edges, for each window, for each statistic a
// number for each number of the column; then the counts of each window. In a typed graph, so it is for each relation to
// the nodes' type that has the columns, in the order of their names.
type EdgeFeatures struct {
	Statistics string   // some of edgeStatistics, separated by commas; then perhaps ":" and columns. "": no features
	Time       string   // column of edges, or COLUMN:UNIT; "": edges count at any time
	NodeTime   string   // column of nodes: an edge counts if its time is before the node's
	Until      string   // the time of nodes that have none in NodeTime
	Windows    []string // how long before its node's time an edge counts; default: AllTime
}

// edgeStatistics are of the values x_1, ..., x_n of a node's in-edges, in float64, and 0 if n = 0: sum, mean = sum / n,
// max, n, and the population's standard deviation sqrt(sum of (x_i - mean)^2 / n).
const (
	statMean  = "mean"
	statSum   = "sum"
	statMax   = "max"
	statStd   = "std"
	statCount = "count"
)

var edgeStatistics = []string{statMean, statSum, statMax, statStd, statCount}

// AllTime is the window without a beginning.
const AllTime = "all"

// mostWindows bounds windows: an edge has the number of its first in a byte.
const mostWindows = 100

// EdgeFeaturesHelp describes the flags of EdgeFeatures.
const EdgeFeaturesHelp = `

--edge-features puts statistics of a node's in-edges behind its features: for each column of the edges (in the
order given, or by name), for each window, for each statistic, the numbers of the column; then the counts of
each window. A node without such edges has 0; std is sqrt(sum of (x - mean)^2 / n). With --edge-time, an
edge counts if its time is before the time of its destination, by no more than the window. --node-time names the
column of these times; --until is the time of nodes that have none there or, without --node-time, of all. --edge-time
needs --duplicates keep. Times of edges and nodes are both integers or both float64. With several types of nodes,
each relation that has the columns makes such features of the type that it leads to.

    --duplicates keep --edge-features mean,std,count:amount --edge-time at:s --node-time opened --windows 7d,30d,all`

// Declare adds the flags of the options.
func (o *EdgeFeatures) Declare(flags *pflag.FlagSet) {
	flags.StringVar(&o.Statistics, "edge-features", "", "features from columns of in-edges: some of "+
		strings.Join(edgeStatistics, ",")+", with :COLUMN,... of some columns (default: all but --edge-time)")
	flags.StringVar(&o.Time, "edge-time", "",
		"column of edges for --edge-features: time, as COLUMN or COLUMN:UNIT (ns, us, ms, s, m, h or d; default s)")
	flags.StringVar(&o.NodeTime, "node-time", "", "column of nodes: time, before which edges count")
	flags.StringVar(&o.Until, "until", "", "time of nodes that have none, before which edges count")
	flags.StringSliceVar(&o.Windows, "windows", nil,
		"how long before the node's time edges count, ascending: numbers of the unit, or of s, m, h, d or w; or all")
}

// edgeFeatures makes the features of nodes that come from one set of edges.
type edgeFeatures struct {
	in      *inEdges
	said    string // what they are, for the manifest
	windows int
	counts  bool
	clock   clock // nil: edges count at any time
	values  []*edgeValues
	inTime  *scratchFile // the number of each edge's first window, or windows: none; nil without a clock
	counted *scratchFile // [n, windows] float32
}

// inEdges are edges whose columns become features of the nodes that they lead to.
type inEdges struct {
	source   Source
	asked    EdgeFeatures
	relation string // "": they are those of the graph
	loops    Loops
}

// check fails if there are options of features without features.
func (o *EdgeFeatures) check() error {
	if o.Statistics == "" && (o.Time+o.NodeTime+o.Until != "" || o.Windows != nil) {
		return badOptions("--edge-time, --node-time, --until and --windows need --edge-features")
	}
	return nil
}

// planEdgeFeatures finds the features that nodes get from edges: those of the source, or of relations.
func planEdgeFeatures(src Source, info Info, o Options) (all allEdgeFeatures, err error) {
	into := o.into
	if o.EdgeFeatures.Statistics = cmp.Or(o.EdgeFeatures.Statistics, info.EdgeFeatures); o.EdgeFeatures.Statistics != "" {
		into = []inEdges{{source: src, asked: o.EdgeFeatures, loops: o.SelfLoops}}
	}
	for i := range into {
		f, err := into[i].plan(o)
		if err != nil && into[i].relation != "" {
			err = fmt.Errorf("relation %s: %w", into[i].relation, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, o.EdgeFeatures.check()
}

// plan finds the columns that features come from.
func (in *inEdges) plan(o Options) (*edgeFeatures, error) {
	src, asked := in.source, in.asked
	if o.FeaturesInPlace {
		return nil, badOptions("--features-in-place and --edge-features exclude each other: the features must be copied")
	}
	text, names, named := strings.Cut(asked.Statistics, ":")
	statistics := strings.Split(text, ",")
	for i, s := range statistics {
		if !slices.Contains(edgeStatistics, s) || slices.Contains(statistics[:i], s) {
			return nil, badOptions("--edge-features %s: want some of %s, each once", asked.Statistics,
				strings.Join(edgeStatistics, ","))
		}
	}
	f := &edgeFeatures{in: in, windows: max(1, len(asked.Windows)), counts: slices.Contains(statistics, statCount)}
	statistics = slices.DeleteFunc(statistics, func(s string) bool { return s == statCount })
	if err := f.findClock(o.Duplicates); err != nil {
		return nil, err
	}
	columns := slices.DeleteFunc(columnsOf(src, format.OfEdges), f.isTime)
	switch {
	case len(statistics) == 0 && named:
		return nil, badOptions("--edge-features %s: %s is of no column: leave out what follows it", asked.Statistics,
			statCount)
	case len(statistics) == 0:
		columns = nil
	case named:
		all := columns
		columns = nil
		for _, name := range strings.Split(names, ",") {
			at, err := findColumn("edge-features", name, all)
			if err != nil {
				return nil, err
			}
			columns = append(columns, all[at])
		}
	case len(columns) == 0:
		return nil, badOptions("--edge-features %s: edges have no columns that it can be of (tables: --edge-columns keeps "+
			"some)", asked.Statistics)
	}
	for _, c := range columns {
		v, err := newEdgeValues(c, statistics, f.windows)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.values, func(o *edgeValues) bool { return o.column.Name == c.Name }) {
			return nil, badOptions("--edge-features %s: column %s twice", asked.Statistics, c.Name)
		}
		f.values = append(f.values, v)
	}
	f.said = f.describe(statistics, asked)
	return f, nil
}

// findClock finds the columns of times, if edges count by them.
func (f *edgeFeatures) findClock(duplicates Duplicates) error {
	src, asked := f.in.source, f.in.asked
	if asked.Time == "" {
		if asked.NodeTime+asked.Until != "" || asked.Windows != nil {
			return badOptions("--node-time, --until and --windows need --edge-time COLUMN")
		}
		return nil
	}
	columns := columnsOf(src, format.OfEdges)
	time, unit, _ := strings.Cut(asked.Time, ":")
	at, err := findColumn("edge-time", time, columns)
	if err != nil {
		return err
	}
	if duplicates != KeepDuplicates {
		return badOptions("--edge-time needs --duplicates keep: of duplicates that are merged, the first in the input " +
			"stays, whatever its time")
	}
	f.clock, err = newClock(columns[at], unit, columnsOf(src, format.OfNodes), asked)
	return err
}

// findColumn finds a column by its name, with or without edge_ before it.
func findColumn(flag, name string, columns []inputColumn) (int, error) {
	var names []string
	for _, c := range columns {
		names = append(names, c.Name)
	}
	for _, wanted := range []string{name, "edge_" + name} {
		if at := slices.Index(names, wanted); at >= 0 {
			return at, nil
		}
	}
	return 0, badOptions("--%s %s: there is no such column (columns: %s; tables have those of --edge-columns and "+
		"--node-columns)", flag, name, cmp.Or(strings.Join(names, ", "), "none"))
}

// describe says what the features are.
func (f *edgeFeatures) describe(statistics []string, asked EdgeFeatures) string {
	var said []string
	for _, v := range f.values {
		said = append(said, fmt.Sprintf("%s (%d)", v.column.Name, v.width))
	}
	text := ""
	if said != nil {
		text = strings.Join(statistics, ",") + " of " + strings.Join(said, ", ")
	}
	if f.counts {
		text = strings.TrimPrefix(text+"; "+statCount, "; ")
	}
	if f.clock != nil {
		windows := cmp.Or(strings.Join(asked.Windows, ","), AllTime)
		text += fmt.Sprintf("; of edges within %s by %s before", windows, asked.Time)
		for _, before := range []string{asked.NodeTime, asked.Until} {
			if before != "" {
				text += " " + before
			}
		}
	}
	return text
}

// columns is how many features there are.
func (f *edgeFeatures) columns() (n int) {
	for _, v := range f.values {
		n += v.columns()
	}
	if f.counts {
		n += f.windows
	}
	return n
}

// memory is what making them takes beside the rows of columns.
func (f *edgeFeatures) memory() (bytes int64) {
	if f == nil {
		return 0
	}
	for _, v := range f.values {
		bytes = max(bytes, 40*int64(v.columns()))
	}
	return bytes + 3*scratchBlock + readBytes
}

// readMemory is what reading them takes.
func (f *edgeFeatures) readMemory() int64 {
	return int64(len(f.values)+1)*scratchBlock + 2*max(readBytes, 4*format.MaxFeatures)
}

// scratchBytes is the space of their scratch files, for nodes and edges.
func (f *edgeFeatures) scratchBytes(nodes, edges int64) int64 {
	if f == nil {
		return 0
	}
	bytes := 4 * nodes * int64(f.columns())
	if f.clock != nil {
		bytes += edges
	}
	return bytes
}

// createFiles creates the scratch files.
func (f *edgeFeatures) createFiles(in *scratch) (err error) {
	if f == nil {
		return nil
	}
	create := func(to **scratchFile, name string) {
		if err == nil {
			*to, err = in.newFile("features-" + name)
		}
	}
	for _, v := range f.values {
		create(&v.to, v.column.Name)
	}
	if f.counts {
		create(&f.counted, "count")
	}
	if f.clock != nil {
		create(&f.inTime, "windows")
	}
	return err
}

func (f *edgeFeatures) isTime(c inputColumn) bool {
	return f != nil && f.clock != nil && f.clock.column() == c.Name
}

// use begins to read a column of edges; nil: no feature is made of it. Times are read before all others.
func (f *edgeFeatures) use(c inputColumn, degrees []uint32) edgeUser {
	if f == nil {
		return nil
	}
	if f.isTime(c) {
		f.clock.begin(f, degrees)
		return f.clock
	}
	for _, v := range f.values {
		if v.column.Name == c.Name {
			v.begin(f, degrees)
			return v
		}
	}
	return nil
}

// edgeUser reads the rows of a column of edges, in the order of the topology.
type edgeUser interface {
	begin(f *edgeFeatures, degrees []uint32)
	add(rows []byte) error // a badRow if one has no meaning
	finish() error
}

// badRow is returned for a row that has no meaning.
type badRow struct {
	row  int
	says string
}

func (b *badRow) Error() string { return b.says }

// nodeWalk goes through the edges of all nodes in the order of the topology.
type nodeWalk struct {
	degrees []uint32
	node    int64
	seen    uint32 // edges of node
}

// each calls of with the next n edges, one node at a time, and ended with every node after its last edge.
func (w *nodeWalk) each(n int, of func(node int64, first, end int) error, ended func(node int64) error) error {
	for at := 0; at < n; {
		for w.seen == w.degrees[w.node] {
			if err := w.end(ended); err != nil {
				return err
			}
		}
		end := at + int(min(int64(n-at), int64(w.degrees[w.node]-w.seen)))
		if err := of(w.node, at, end); err != nil {
			return err
		}
		w.seen, at = w.seen+uint32(end-at), end
	}
	return nil
}

func (w *nodeWalk) end(ended func(node int64) error) error {
	w.node, w.seen = w.node+1, 0
	return ended(w.node - 1)
}

// rest calls ended with the nodes that each has left.
func (w *nodeWalk) rest(ended func(node int64) error) error {
	for w.node < int64(len(w.degrees)) {
		if err := w.end(ended); err != nil {
			return err
		}
	}
	return nil
}

// countAll writes the in-degrees as counts, where edges count at any time.
func (f *edgeFeatures) countAll(degrees []uint32) error {
	if f == nil || !f.counts || f.clock != nil {
		return nil
	}
	for _, d := range degrees {
		if err := putFloats(f.counted, float32(d)); err != nil {
			return err
		}
	}
	return f.counted.flush()
}

// edgeFeatureReader reads features of nodes with those of their edges behind them.
type edgeFeatureReader struct {
	own       FeatureReader // nil: none
	columns   int           // of own
	all       int
	normalize bool // divide a row of own by its sum
	behind    []edgeMatrix
	row       int64
	buffer    []float32
}

// edgeMatrix is float32 features of nodes, row by row.
type edgeMatrix struct {
	file    *scratchFile
	columns int
}

func (f *edgeFeatures) matrices() (all []edgeMatrix) {
	for _, v := range f.values {
		all = append(all, edgeMatrix{v.to, v.columns()})
	}
	if f.counts {
		all = append(all, edgeMatrix{f.counted, f.windows})
	}
	return all
}

// allEdgeFeatures are the features from several sets of edges, in this order side by side.
type allEdgeFeatures []*edgeFeatures

func (all allEdgeFeatures) columns() (n int) {
	for _, f := range all {
		n += f.columns()
	}
	return n
}

func (all allEdgeFeatures) readMemory() (bytes int64) {
	for _, f := range all {
		bytes += f.readMemory()
	}
	return bytes
}

// said is what they are, for the manifest.
func (all allEdgeFeatures) said() string {
	var said []string
	for _, f := range all {
		if f.in.relation != "" {
			said = append(said, f.in.relation+": "+f.said)
		} else {
			said = append(said, f.said)
		}
	}
	return strings.Join(said, "; ")
}

// openFeatures starts to read own features, of columns columns, and those of edges, if there are any, behind them.
func openFeatures(src Source, o Options, columns int, edges allEdgeFeatures) (FeatureReader, error) {
	if edges == nil {
		return src.Features(o.Threads)
	}
	r := &edgeFeatureReader{columns: columns, all: columns + edges.columns(), normalize: o.NormalizeFeatures}
	for _, f := range edges {
		r.behind = append(r.behind, f.matrices()...)
	}
	if columns == 0 {
		return r, nil
	}
	var err error
	r.own, err = src.Features(o.Threads)
	return r, err
}

func (r *edgeFeatureReader) Read(ctx context.Context, dst []float32) error {
	step := max(1, readBytes/(4*r.all)) * r.all
	for len(dst) > 0 {
		now := dst[:min(step, len(dst))]
		rows := len(now) / r.all
		if r.columns > 0 {
			own := r.floats(rows * r.columns)
			if err := r.own.Read(ctx, own); err != nil {
				return err
			}
			for i := range rows {
				row := now[i*r.all:][:r.columns]
				if copy(row, own[i*r.columns:]); r.normalize {
					normalize(row)
				}
			}
		}
		at := r.columns
		for _, m := range r.behind {
			values := r.floats(rows * m.columns)
			if err := m.read(values, r.row); err != nil {
				return err
			}
			for i := range rows {
				copy(now[i*r.all+at:], values[i*m.columns:][:m.columns])
			}
			at += m.columns
		}
		dst, r.row = dst[len(now):], r.row+int64(rows)
	}
	return context.Cause(ctx)
}

func (r *edgeFeatureReader) floats(n int) []float32 {
	r.buffer = slices.Grow(r.buffer[:0], n)[:n]
	return r.buffer
}

func (r *edgeFeatureReader) Place(row int64) string {
	if r.own != nil {
		return r.own.Place(row)
	}
	return fmt.Sprintf("node %d", row)
}

// Value prints a value of own as the input has it; those of edges were sums that are too large.
func (r *edgeFeatureReader) Value(row int64, col int) string {
	if own, ok := r.own.(valueReader); ok && col < r.columns {
		return own.Value(row, col)
	}
	if col < r.columns {
		return ""
	}
	return "a statistic of edges"
}

func (r *edgeFeatureReader) Close() error {
	if r.own == nil {
		return nil
	}
	return r.own.Close()
}

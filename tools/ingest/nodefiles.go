package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// NodeFiles name the files with labels, splits and features of the nodes, for formats that hold edges only. A .npy file
// has a row (of splits, a column) for each node, in the order of ids. A text table has a row for each node; Columns
// says which column is what. Several fields may name the same table. Labels and splits may lack nodes.
type NodeFiles struct {
	Columns  Columns
	LabelsAs LabelsAs
	Table    string // of ids, labels, splits and features, as far as the others do not name files of these
	Features string // [n,F]; "" or "ones": a single feature, 1; "none": those of edges alone
	Labels   string // [n], [n,1] or [n,L]; -1, NaN and nothing are unlabelled
	// [k,n] or [n] as in the npy layout; a column for each split; or a folder of the lists train, valid and test
	Splits string
}

// file is the file that holds a part alone.
func (n *NodeFiles) file(part parts) string {
	return map[parts]string{features: n.Features, labels: n.Labels, splits: n.Splits}[part]
}

// Ones is the name of features that are a single 1.
const Ones = "ones"

// edgeList is a source whose edges are in scratch files and whose nodes are described by files beside them.
type edgeList struct {
	source
	files    NodeFiles
	ids      numbering
	ends     [2]*numbering // of sources and of destinations: ids, but in a relation
	greatest position      // of the edge with the greatest node, if nodes are numbers
	prefixes [2]string     // before the ids of sources and destinations, if these are numbered apart
	scratch  *scratch
	edges    *scratchEdges

	ownsScratch bool
	tables      map[string]*nodeTable // of nodes, by path

	columns []*tableColumn // that the graph keeps
}

func newEdgeList(fsys vfs.FS, format, path string, w ScratchOptions, files NodeFiles) (*edgeList, error) {
	if err := files.LabelsAs.check(); err != nil {
		return nil, err
	}
	scratch, err := openScratch(fsys, w)
	if err != nil {
		return nil, err
	}
	l := newEdgeListIn(fsys, format, scratch, files)
	l.ownsScratch, l.info.Name = true, nameOf(fsys, path)
	return l, nil
}

// newEdgeListIn is newEdgeList with a scratch folder that others use too.
func newEdgeListIn(fsys vfs.FS, format string, scratch *scratch, files NodeFiles) *edgeList {
	l := &edgeList{source: newSource(fsys, format), files: files, scratch: scratch, tables: map[string]*nodeTable{}}
	l.ends = [2]*numbering{&l.ids, &l.ids}
	return l
}

// openEdgeList opens edges, which read copies to scratch files, and then what is known of their nodes.
func openEdgeList(ctx context.Context, fsys vfs.FS, format, path string, w ScratchOptions, files NodeFiles,
	read func(*edgeList) error) (_ Source, err error) {
	l, err := newEdgeList(fsys, format, path, w, files)
	if err != nil {
		return nil, err
	}
	defer closeOnError(&err, l)
	if err := read(l); err != nil {
		return nil, err
	}
	if err := l.openFeatures(ctx); err != nil {
		return nil, err
	}
	if err := l.openColumns(ctx); err != nil {
		return nil, err
	}
	return l, l.openRows()
}

func (l *edgeList) Info() Info {
	l.info.Edges = l.edges.edges
	return l.info
}

func (l *edgeList) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	return l.edges.stream(ctx, [2]int64{cmp.Or(l.info.SourceNodes, l.info.Nodes), l.info.Nodes}, threads, emit)
}

// Close closes all files, and removes the scratch files.
func (l *edgeList) Close() error {
	err := l.source.Close()
	if l.ownsScratch {
		err = errors.Join(err, l.scratch.Close())
	}
	return err
}

// openFeatures opens the features once the edges have been read, and thereby says how many nodes there are.
func (l *edgeList) openFeatures(ctx context.Context) error {
	path := l.files.Features
	if t, err := l.tableOf(features); err != nil {
		return err
	} else if t != nil {
		return l.openTableFeatures(ctx, t)
	}
	if path == "" || path == Ones || path == None {
		l.info.Nodes = l.ids.nodes
		if l.ids.fixed = true; path == None {
			return nil
		}
		if path == "" {
			l.info.note("the input has no features: every node gets a single feature, 1 (--features FILE adds others)")
		}
		l.info.Features = 1
		l.features = func(int) (FeatureReader, error) { return ones{}, nil }
		return nil
	}
	a, err := l.openArray(path, "numbers [n,F]")
	if err == nil && (a.Shape[1] < 1 || a.Shape[1] > format.MaxFeatures) {
		err = errFeatures(path, a.Shape[1])
	}
	if err != nil {
		return err
	}
	if l.ids.ids != nil {
		return l.copyArray(ctx, a)
	}
	l.features = func(int) (FeatureReader, error) { return &denseReader{shards: []*npy.Array{a}}, nil }
	return l.setRows(path, a.Shape[0], a.Shape[1])
}

// isTable tells whether a file of nodes is text: neither an array nor a folder of lists.
func (l *edgeList) isTable(path string) (bool, error) {
	if path == "" || path == Ones || path == None {
		return false, nil
	}
	info, err := stat(l.fsys, path)
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		parts, err := partFiles(l.fsys, path)
		return len(parts) > 0, err
	}
	isArray, err := npy.HasHeader(l.fsys, path)
	return !isArray, err
}

// tableOf opens the table that features, labels or splits are read from: the file of their own, or the table of nodes;
// nil if there is none. What is read from one file is chosen together.
func (l *edgeList) tableOf(part parts) (*nodeTable, error) {
	n, own := l.files, l.files.file(part)
	f := textNodes{path: cmp.Or(own, n.Table), columns: n.Columns}
	t := l.tables[f.path]
	if t == nil {
		if text, err := l.isTable(f.path); err != nil {
			return nil, err
		} else if !text && own == "" && f.path != "" {
			return nil, badOptions("--node-table %s: want a text table (--features, --labels and --splits take arrays)",
				f.path)
		} else if !text {
			return nil, n.Columns.checkUnused(part)
		}
		for _, p := range eachPart {
			switch path := n.file(p.part); {
			case path == f.path:
				f.must |= p.part
			case path == "" && f.path == n.Table && (p.part != kept || len(n.Columns.Node) > 0):
				f.want |= p.part
			}
		}
		f.want |= f.must
		var err error
		if t, err = openTextNodes(l.fsys, f, &l.ids); err != nil {
			return nil, err
		}
		l.tables[f.path] = t
		l.noteNodes(t, f.want.has(labels))
	}
	if len(t.ofPart(part)) == 0 {
		return nil, nil
	}
	return t, nil
}

// checkUnused refuses a flag that names columns of labels, splits or features, for which there is no table.
func (c *Columns) checkUnused(part parts) error {
	named := map[parts][]string{features: c.Features, labels: c.Label, splits: c.Split}[part]
	for _, p := range eachPart {
		if p.part == part && len(named) > 0 {
			return badOptions("--%s %s: there is no table of nodes (--node-table FILE names one)", p.column,
				strings.Join(named, ","))
		}
	}
	return nil
}

func (l *edgeList) noteNodes(t *nodeTable, labels bool) {
	note := t.note(t.path, t.taken(), t.left())
	if labels && l.files.Columns.ofType == "" {
		note += t.labelHint()
	}
	l.info.note(note)
	l.info.Input["nodes"] = strings.TrimPrefix(l.info.Input["nodes"]+"; "+t.taken(), "; ")
	t.recordFeatures(l.info.Input)
}

// setRows says that n feature rows are the features of all nodes.
func (l *edgeList) setRows(path string, n, features int64) error {
	switch {
	case l.ids.fixed && n != l.ids.nodes:
		return invalid(path, "features of %d nodes, but the graph has %d", n, l.ids.nodes)
	case n < l.ids.nodes:
		return invalid(l.greatest, "node %d has no features, as %s has %d rows", l.ids.nodes-1, path, n)
	}
	l.ids.nodes, l.ids.fixed = n, true
	return l.setFeatures(path, n, features)
}

// openTableFeatures opens the features of a table. Rows of text are brought into the order of nodes.
func (l *edgeList) openTableFeatures(ctx context.Context, t *nodeTable) error {
	width, err := t.values(t.features)
	if err != nil {
		return err
	}
	if width > format.MaxFeatures {
		return errFeatures(t.path, int64(width))
	}
	if p, ok := t.table.(*parquetTable); ok {
		if err := l.setRows(t.path, p.Rows, int64(width)); err != nil {
			return err
		}
		return p.openFeatures(ctx, l, t.features, width)
	}
	return l.copyRows(t.path, int64(width), func(put func(int64, []float32) error) error {
		return t.eachFeatures(ctx, width, put)
	})
}

// copyArray brings the rows of an array, whose numbers are ids, into the order of nodes. Rows of ids without edges are
// no nodes.
func (l *edgeList) copyArray(ctx context.Context, a *npy.Array) error {
	l.ids.fixed = true
	n, cols := a.Shape[0], a.Shape[1]
	in := &denseReader{shards: []*npy.Array{a}}
	rows := featureBlockRows(Info{Nodes: n, Features: int(cols)})
	return l.copyRows(a.Path(), cols, func(put func(int64, []float32) error) error {
		block := make([]float32, rows*cols)
		for first := int64(0); first < n; first += rows {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			block = block[:min(rows, n-first)*cols]
			if err := in.Read(ctx, block); err != nil {
				return err
			}
			for r := first; r < min(first+rows, n); r++ {
				node, ok := l.nodeOf(r)
				if !ok {
					continue
				}
				row := block[(r-first)*cols : (r-first+1)*cols]
				if c := slices.IndexFunc(row, func(v float32) bool { return v-v != 0 }); c >= 0 {
					return fmt.Errorf("%w: %s, column %d: %s %s", ErrInvalid, in.Place(r), c, in.Value(r, c), notFinite)
				}
				if err := put(node, row); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// nodeOf is the node whose id is the number of a row.
func (l *edgeList) nodeOf(row int64) (node int64, ok bool) {
	if l.ids.ids == nil {
		return asNode(row)
	}
	var digits [20]byte
	at := l.ids.ids.find(strconv.AppendInt(digits[:0], row, 10))
	return int64(l.ids.ids.table[at]) - 1, l.ids.ids.table[at] != 0
}

func (l *edgeList) copyRows(path string, cols int64, each func(put func(int64, []float32) error) error) error {
	place := func(row int64) string { return path + ": " + l.ids.name(row) }
	shape := []int64{0, cols}
	if err := l.copyFeatures(place, npy.Header{Shape: shape}, func(m *scratchMatrix) error {
		rows := &scratchRows{scratchMatrix: m, memoryBytes: l.scratch.MemoryBytes}
		if err := each(rows.put); err != nil {
			return err
		}
		if missing := rows.missing(max(l.ids.nodes, shape[0])); missing >= 0 {
			hint := l.ids.hint("leaves out ids that do not occur")
			return invalid(path, "no features of %s%s", l.ids.name(missing), hint)
		}
		return rows.flush()
	}); err != nil {
		return err
	}
	return l.setRows(path, shape[0], cols)
}

// copyFeatures makes a scratch file, which write fills, the features. The shape and order of its values are those of h.
func (l *edgeList) copyFeatures(place func(row int64) string, h npy.Header, write func(*scratchMatrix) error) error {
	a, sum, err := l.copyMatrix(h, write)
	l.features = func(int) (FeatureReader, error) {
		return &denseReader{shards: []*npy.Array{a}, copied: &copiedRows{place: place, want: sum}}, nil
	}
	return err
}

// copyMatrix makes a scratch file, which write fills, an array. It returns sumElements of its elements too.
func (l *edgeList) copyMatrix(h npy.Header, write func(*scratchMatrix) error) (*npy.Array, uint64, error) {
	to, err := l.scratch.create("features")
	if err != nil {
		return nil, 0, err
	}
	m := &scratchMatrix{Header: h, to: to}
	if err := write(m); err != nil {
		return nil, 0, err
	}
	a, err := npy.OpenRaw(l.fsys, to.file.Path(), npy.Float32, m.Shape...)
	if err != nil {
		return nil, 0, err
	}
	l.open = append(l.open, a)
	a.Fortran = h.Fortran
	return a, m.sum, nil
}

// copiedRows describes feature rows that were copied to a scratch file, for a denseReader.
type copiedRows struct {
	place     func(row int64) string // in the original file
	sum, want uint64                 // sumElements of all elements that were read, and of all that were written
}

// compare adds the elements from first on. Behind the last one it compares the checksums.
func (c *copiedRows) compare(a *npy.Array, first int64, values []float32) error {
	c.sum += sumElements(first, 1, values)
	if first+int64(len(values)) == a.Elements() && c.sum != c.want {
		return fmt.Errorf("%s: %w", a.Path(), folder.ErrDamaged)
	}
	return nil
}

type ones struct{}

func (ones) Read(_ context.Context, dst []float32) error {
	for i := range dst {
		dst[i] = 1
	}
	return nil
}

func (ones) Place(row int64) string { return fmt.Sprintf("row %d", row) }
func (ones) Close() error           { return nil }

// openColumns reads the columns of nodes that were asked for. The nodes are known by then.
func (l *edgeList) openColumns(ctx context.Context) error {
	if len(l.files.Columns.Node) == 0 {
		return nil
	}
	t, err := l.tableOf(kept)
	if err != nil {
		return err
	}
	if t == nil && l.files.Columns.seen != nil {
		return nil
	}
	if t == nil {
		return badOptions("--%s: there is no table of nodes (--node-table FILE names one)", nodeColumnsFlag)
	}
	ofEdges := len(l.columns)
	if err := l.chooseColumns(t, t.header, t.path, format.OfNodes, l.files.Columns); err != nil {
		return err
	}
	return l.readNodeColumns(ctx, t, l.columns[ofEdges:]...)
}

// openRows opens labels and splits, and says what the row table takes in memory. The nodes are known by then.
func (l *edgeList) openRows() error {
	l.keepIDs()
	if err := l.openLabels(); err != nil {
		return err
	}
	return l.openSplits()
}

// keepIDs makes the ids a column of the rows, if they are mapped.
func (l *edgeList) keepIDs() {
	if ids := l.ids.ids; ids != nil {
		l.info.Input["ids"] = "map"
		l.info.HeldBytes += ids.bytes()
		l.info.RowBytes += ids.rowBytes()
		l.origIDs = func() ([]string, error) { return ids.strings(), nil }
	}
}

func (l *edgeList) openLabels() error {
	path := l.files.Labels
	t, err := l.tableOf(labels)
	if err != nil {
		return err
	}
	if t != nil {
		return l.openTableLabels(t)
	}
	if path == "" {
		l.info.note("the graph has no labels (--labels FILE adds them)")
		return nil
	}
	n := l.info.Nodes
	if l.ids.ids != nil {
		n = -1
	}
	return l.openLabelArray(path, n, l.files.LabelsAs, l.nodeOf)
}

func (l *edgeList) openTableLabels(t *nodeTable) error {
	for _, i := range t.labels {
		as := asLabel
		if len(t.labels) > 1 {
			as = asOneLabel
		}
		if err := t.check(i, as); err != nil {
			return err
		}
	}
	width, err := t.values(t.labels)
	if err == nil && width > format.MaxLabelColumns {
		err = invalid(t.path, "%d labels a node (at most %d)", width, format.MaxLabelColumns)
	}
	l.info.RowBytes += int64(width) + 1
	if l.files.LabelsAs != LabelsAsMulti {
		l.info.RowBytes += 3 * int64(width)
	}
	l.labels = func(ctx context.Context, to *format.RowTable) (labelResult, error) {
		return readLabels(l.files.LabelsAs, t.path, int64(width), to,
			func(sink *labelSink) error { return t.readLabels(ctx, sink) })
	}
	return err
}

func (l *edgeList) openSplits() error {
	path := l.files.Splits
	t, err := l.tableOf(splits)
	if err != nil {
		return err
	}
	if t != nil {
		for _, i := range t.splits {
			if err := t.check(i, asSplit); err != nil {
				return err
			}
		}
		l.info.RowBytes++ // to find nodes that come twice
		return l.addSplits(t.path, int64(t.numSplits()), t.readSplits)
	}
	if path == "" {
		l.info.note("the graph has no splits (--splits FILE adds them)")
		return nil
	}
	file, err := stat(l.fsys, path)
	if err != nil {
		return err
	}
	if file.IsDir() {
		return l.addSplitFolders(path)
	}
	rows := l.info.Nodes
	if l.ids.ids != nil {
		rows = -1
	}
	return l.addSplitArray(path, rows, l.nodeOf)
}

func (l *edgeList) addSplitFolders(dirs ...string) error {
	var folders [][3]string
	for _, dir := range dirs {
		paths, err := splitFolder(l.fsys, dir)
		if err != nil {
			return err
		}
		folders = append(folders, paths)
	}
	return l.addSplits(strings.Join(dirs, ", "), int64(len(dirs)),
		func(ctx context.Context, to *format.RowTable, _ int64) error {
			for k, paths := range folders {
				for i, path := range paths {
					if err := l.readSplitList(ctx, path, to, k, format.SplitTrain+uint8(i)); err != nil {
						return err
					}
				}
			}
			return nil
		})
}

var textEndings = []string{"csv.gz", "csv.zst", "csv", "txt.gz", "txt.zst", "txt"}

// splitFolder finds the files train, valid and test of a folder, with any ending of a text file, or train_idx.npy,
// valid_idx.npy and test_idx.npy: they list the nodes of one split, an id a line or an element.
func splitFolder(fsys vfs.FS, dir string) (paths [3]string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return paths, err
	}
	for _, e := range entries {
		base, ending, _ := strings.Cut(e.Name(), ".")
		isArray := ending == "npy" && strings.HasSuffix(base, "_idx")
		part := splitNames[strings.TrimSuffix(base, "_idx")]
		if part == 0 || e.IsDir() || !isArray && !slices.Contains(textEndings, ending) {
			continue
		}
		path := &paths[part-1]
		if *path != "" {
			return paths, invalid(dir, "both %s and %s list the same nodes: remove one", filepath.Base(*path), e.Name())
		}
		*path = filepath.Join(dir, e.Name())
	}
	for i, name := range []string{"train", "valid", "test"} {
		if paths[i] == "" {
			return paths, invalid(dir, "no list of the %s nodes (want %[1]s.csv, %[1]s.csv.gz or %[1]s_idx.npy)", name)
		}
	}
	return paths, nil
}

// readSplitList puts the nodes of a list into a part of split number k.
func (l *edgeList) readSplitList(ctx context.Context, path string, to *format.RowTable, k int, part uint8) error {
	put := func(node int64) error {
		at := node*int64(to.NumSplits) + int64(k)
		if to.Splits[at] != format.SplitNone {
			return fmt.Errorf("%s is listed twice", l.ids.name(node))
		}
		to.Splits[at] = part
		return nil
	}
	if strings.HasSuffix(path, ".npy") {
		list, err := npy.Open(l.fsys, path)
		if err != nil {
			return err
		}
		defer list.Close()
		if err := checkArray(path, &list.Header, "integers [k]: ids of nodes"); err != nil {
			return err
		}
		return each(ctx, list.Stream(), func(i, id int64) error {
			node, ok := l.nodeOf(id)
			if !ok || uint64(node) >= uint64(to.Rows) {
				return invalid(path, "entry %d is %s, which is no node of %d", i, list.Element(i), to.Rows)
			}
			if err := put(node); err != nil {
				return invalid(path, "entry %d: %w", i, err)
			}
			return nil
		})
	}
	t := &textTable{header: numbered(1), fsys: l.fsys, path: path, comments: "#%", sep: wholeLine, ids: &l.ids}
	list := nodeTable{table: t, path: path, byRow: true}
	return list.each(ctx, []int{0}, -1, func(node int64, _ rows) error { return put(node) })
}

// nodeFilesHelp describes the flags of NodeFiles and where edges are kept.
const nodeFilesHelp = `

--node-table names a table with a row for each node: id, labels, splits and features.
--features, --labels and --splits name files that hold only these: a .npy array with a row for each node
(splits: [k,n], as splits.npy of import npy), or a text table. A text table without a header has the id of
the node first. --splits may also be a folder with train.csv, valid.csv and test.csv, which list nodes.` + scratchHelp

const scratchHelp = `

While it works, import keeps edges in GRAPH.scratch (or below --scratch): 8 bytes each, 12 with weights; and
features that are text: 4 bytes a value.`

func (n *NodeFiles) declare(flags *pflag.FlagSet) {
	flags.StringVar(&n.Table, "node-table", "", "table with a row for each node: id, labels, splits and features")
	flags.StringVar(&n.Features, "features", "",
		"file with the features of the nodes; ones: every node gets a single feature, 1; none: --edge-features alone")
	flags.StringVar(&n.Labels, "labels", "", "file with the labels of the nodes")
	flags.StringVar(&n.Splits, "splits", "", "file or folder with the splits of the nodes")
	n.LabelsAs.declare(flags)
}

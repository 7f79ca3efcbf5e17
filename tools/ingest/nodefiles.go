package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// NodeFiles name the files with labels, splits and features of the nodes, for formats
// that hold edges only. A .npy file has a row (of splits, a column) for each node, in the
// order of ids. A text table has a row for each node; Columns says which column is what.
// Several fields may name the same table. Labels and splits may lack nodes.
type NodeFiles struct {
	Columns  Columns
	LabelsAs LabelsAs
	Table    string // of ids, labels, splits and features, as far as the others do not name files of these
	Features string // [n,F]; "" or "ones": a single feature, 1
	Labels   string // [n], [n,1] or [n,L]; -1, NaN and nothing are unlabelled
	Splits   string // [k,n] or [n] as in the npy layout; a column for each split; or a folder of the lists train, valid and test
}

// Ones is the name of features that are a single 1.
const Ones = "ones"

// edgeList is a source whose edges are in scratch files and whose nodes are
// described by files beside them.
type edgeList struct {
	fsys     vfs.FS
	files    NodeFiles
	info     Info
	ids      numbering
	greatest string // the line of the greatest node, if nodes are numbers
	scratch  *scratch
	edges    *scratchEdges
	features func(threads int) (FeatureReader, error)

	labels, splits         *npy.Array      // if they are arrays
	labelWidth, textSplits int             // of tables: labels a node, and splits
	noted                  map[string]bool // tables whose columns have been said
	open                   []io.Closer
}

// newEdgeList is for the edges at path, in the format source.
func newEdgeList(fsys vfs.FS, source, path string, w ScratchOptions, files NodeFiles) (*edgeList, error) {
	scratch, err := openScratch(fsys, w)
	if err != nil {
		return nil, err
	}
	return &edgeList{fsys: fsys, files: files, scratch: scratch, noted: map[string]bool{}, info: Info{
		Name:  nameOf(fsys, path),
		Input: map[string]string{"source": source},
	}}, nil
}

func (l *edgeList) Info() Info { return l.info }

func (l *edgeList) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	return l.edges.stream(ctx, l.info.Nodes, threads, emit)
}

func (l *edgeList) Features(threads int) (FeatureReader, error) { return l.features(threads) }

// Close closes all files, and removes the scratch files.
func (l *edgeList) Close() error {
	var errs []error
	for _, c := range slices.Backward(l.open) {
		errs = append(errs, c.Close())
	}
	if l.edges != nil {
		errs = append(errs, l.edges.Close())
	}
	return errors.Join(append(errs, l.scratch.Close())...)
}

// openFeatures opens the features once the edges have been read, and thereby says
// how many nodes there are.
func (l *edgeList) openFeatures(ctx context.Context) error {
	path := l.files.Features
	if path != Ones {
		t, err := l.openTable(wanted{features: true})
		if err != nil {
			return err
		}
		if t != nil {
			return l.copyTable(ctx, t)
		}
	}
	if path == "" || path == Ones {
		if path == "" {
			l.info.Notes = append(l.info.Notes, "the input has no features: every node gets a single feature, 1 (--features FILE adds others)")
		}
		l.info.Nodes, l.info.Features = l.ids.nodes, 1
		l.ids.fixed = true
		l.features = func(int) (FeatureReader, error) { return ones{}, nil }
		return nil
	}
	a, err := npy.Open(l.fsys, path)
	if err != nil {
		return err
	}
	l.open = append(l.open, a)
	if !a.Type.IsNumber() || len(a.Shape) != 2 || a.Shape[1] < 1 || a.Shape[1] > format.MaxFeatures {
		return fmt.Errorf("%w: %s: %s array of shape %v (want [n,F] numbers)", ErrInvalid, path, a.Type, a.Shape)
	}
	if l.ids.ids != nil {
		return l.copyArray(ctx, a)
	}
	if err := l.setRows(path, a.Shape[0], a.Shape[1]); err != nil {
		return err
	}
	l.features = func(int) (FeatureReader, error) { return &denseReader{shards: []*npy.Array{a}}, nil }
	return nil
}

// isTable tells whether a file of nodes is text: neither an array nor a folder of lists.
func (l *edgeList) isTable(path string) (bool, error) {
	if path == "" || path == Ones {
		return false, nil
	}
	info, err := l.fsys.Stat(path)
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

// openTable opens the text table that one thing is read from, and picks its columns;
// nil where there is none. What is read from the same file is chosen together.
func (l *edgeList) openTable(role wanted) (_ *table, err error) {
	n := l.files
	own := n.Features
	switch role {
	case wanted{labels: true}:
		own = n.Labels
	case wanted{splits: true}:
		own = n.Splits
	}
	f := nodeTable{path: own, columns: n.Columns}
	if own == "" {
		f.path = n.Table
	}
	if text, err := l.isTable(f.path); err != nil {
		return nil, err
	} else if !text && own == "" && f.path != "" {
		return nil, fmt.Errorf("%w: --node-table %s: want a text table (--features, --labels and --splits take arrays)", ErrOptions, f.path)
	} else if !text {
		return nil, nil
	}
	is := func(path string) bool { return path == f.path }
	inTable := func(path string) bool { return path == "" && f.path == n.Table }
	f.must = wanted{is(n.Features), is(n.Labels), is(n.Splits)}
	f.want = wanted{f.must.features || inTable(n.Features), f.must.labels || inTable(n.Labels), f.must.splits || inTable(n.Splits)}
	t, err := openNodeTable(l.fsys, f, &l.ids)
	if err != nil {
		return nil, err
	}
	if !l.noted[f.path] {
		l.noted[f.path] = true
		note := t.note(f.path, t.taken(), t.left())
		if f.want.labels {
			note += t.labelHint()
		}
		l.info.Notes = append(l.info.Notes, note)
		l.info.Input["nodes"] = strings.TrimPrefix(l.info.Input["nodes"]+"; "+t.taken(), "; ")
		t.recordFeatures(l.info.Input)
	}
	switch role {
	case wanted{features: true}:
		t.pick(t.features)
	case wanted{labels: true}:
		t.pick(t.labels)
	default:
		t.pick(t.splitColumns())
	}
	if t.width == 0 {
		return nil, t.Close()
	}
	return t, nil
}

// setRows makes n feature rows those of all nodes.
func (l *edgeList) setRows(path string, n, features int64) error {
	if l.ids.fixed && n != l.ids.nodes {
		return fmt.Errorf("%w: %s: features of %d nodes, but the graph has %d", ErrInvalid, path, n, l.ids.nodes)
	}
	if n < l.ids.nodes {
		return fmt.Errorf("%w: %s: node %d has no features, as %s has %d rows", ErrInvalid, l.greatest, l.ids.nodes-1, path, n)
	}
	if n > MaxNodes {
		return fmt.Errorf("%w: %s: %d nodes (at most %d fit node ids of 32 bits)", ErrInvalid, path, n, int64(MaxNodes))
	}
	l.ids.nodes, l.ids.fixed = n, true
	l.info.Nodes, l.info.Features = n, int(features)
	return nil
}

// copyTable brings the rows of a text table, which it closes, into the order of nodes.
func (l *edgeList) copyTable(ctx context.Context, t *table) error {
	defer t.Close()
	path := cmp.Or(l.files.Features, l.files.Table)
	if t.width > format.MaxFeatures {
		return fmt.Errorf("%w: %s: %d features a node (want 1 to %d)", ErrInvalid, path, t.width, format.MaxFeatures)
	}
	return l.copyRows(path, int64(t.width), func(put func(int64, []float32) error) error {
		row := make([]float32, t.width)
		return t.eachRow(ctx, -1, func(node int64, values [][]byte) error {
			if err := t.floats(row, values); err != nil {
				return err
			}
			return put(node, row)
		})
	})
}

// copyArray brings the rows of an array, whose numbers are ids, into the order of
// nodes. Rows of ids without edges are no nodes.
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
	rows, err := l.scratch.newRows(cols)
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := each(rows.put); err != nil {
		return err
	}
	nodes := max(l.ids.nodes, rows.rows)
	if missing := rows.missing(nodes); missing >= 0 {
		return fmt.Errorf("%w: %s: no features of %s%s", ErrInvalid, path, l.ids.name(missing), l.ids.hint("leaves out ids that do not occur"))
	}
	a, err := rows.finish()
	if err != nil {
		return err
	}
	l.open = append(l.open, a)
	l.features = func(int) (FeatureReader, error) {
		return newCopiedRows(a, rows.sum, func(row int64) string { return path + ": " + l.ids.name(row) }), nil
	}
	return l.setRows(path, nodes, cols)
}

// copiedRows reads feature rows that were copied to a scratch file. After the last row it
// compares all with the checksum of what was written. Errors name the original file.
type copiedRows struct {
	denseReader
	array     *npy.Array
	place     func(row int64) string
	read      int64  // elements so far
	sum, want uint64 // sumElements of these, and of all as they were written
}

func newCopiedRows(a *npy.Array, want uint64, place func(row int64) string) *copiedRows {
	return &copiedRows{denseReader: denseReader{shards: []*npy.Array{a}}, array: a, place: place, want: want}
}

// Read is denseReader's, with the comparison behind the last row.
func (r *copiedRows) Read(ctx context.Context, dst []float32) error {
	if err := r.denseReader.Read(ctx, dst); err != nil {
		return err
	}
	r.sum += sumElements(r.read, 1, dst)
	if r.read += int64(len(dst)); r.read == r.array.Elements() && r.sum != r.want {
		return fmt.Errorf("%s: %w", r.array.Path(), folder.ErrDamaged)
	}
	return nil
}

func (r *copiedRows) Place(row int64) string { return r.place(row) }

// ones is a single feature, 1.
type ones struct{}

func (ones) Read(_ context.Context, dst []float32) error {
	for i := range dst {
		dst[i] = 1
	}
	return nil
}

func (ones) Place(row int64) string { return fmt.Sprintf("row %d", row) }
func (ones) Close() error           { return nil }

// openRows opens labels and splits, and says what the row table takes in memory.
// The nodes are known by then.
func (l *edgeList) openRows() error {
	l.openIDs()
	if err := l.openLabels(); err != nil {
		return err
	}
	return l.openSplits()
}

func (l *edgeList) openIDs() {
	if ids := l.ids.ids; ids != nil {
		l.info.Input["ids"] = "map"
		l.info.HeldBytes += ids.bytes()
		l.info.RowBytes += ids.rowBytes()
	}
}

func (l *edgeList) openLabels() error {
	if err := l.files.LabelsAs.check(); err != nil {
		return err
	}
	t, err := l.openTable(wanted{labels: true})
	if err != nil {
		return err
	}
	if t != nil {
		if l.labelWidth = t.width; l.labelWidth > format.MaxLabelColumns {
			err = fmt.Errorf("%w: %s: %d labels a node (at most %d)", ErrInvalid, t.path, l.labelWidth, format.MaxLabelColumns)
		}
		l.info.RowBytes += tableLabelBytes(l.files.LabelsAs, l.labelWidth)
		return errors.Join(err, t.Close())
	}
	path := l.files.Labels
	if path == "" {
		l.info.Notes = append(l.info.Notes, "the graph has no labels (--labels FILE adds them)")
		return nil
	}
	a, err := npy.Open(l.fsys, path)
	if err != nil {
		return err
	}
	l.labels, l.open = a, append(l.open, a)
	n := l.info.Nodes
	if l.ids.ids != nil && len(a.Shape) > 0 {
		n = a.Shape[0]
	}
	bytes, err := labelBytes(path, &a.Header, n, l.files.LabelsAs)
	l.info.RowBytes += bytes
	return err
}

func (l *edgeList) openSplits() error {
	t, err := l.openTable(wanted{splits: true})
	if err != nil {
		return err
	}
	if t != nil {
		if l.textSplits = t.numSplits(); l.textSplits > format.MaxSplits {
			err = errSplits(t.path, int64(l.textSplits))
		}
		l.info.RowBytes += int64(l.textSplits) + 1
		return errors.Join(err, t.Close())
	}
	path := l.files.Splits
	if path == "" {
		l.info.Notes = append(l.info.Notes, "the graph has no splits (--splits FILE adds them)")
		return nil
	}
	file, err := l.fsys.Stat(path)
	if err != nil {
		return err
	}
	if file.IsDir() {
		l.info.RowBytes++
		_, err := splitFolder(l.fsys, path)
		return err
	}
	rows := l.info.Nodes
	if l.ids.ids != nil {
		rows = -1
	}
	a, err := openSplitArray(l.fsys, path, rows)
	if err != nil {
		return err
	}
	l.splits, l.open = a, append(l.open, a)
	l.info.RowBytes += numSplits(a)
	return nil
}

func (l *edgeList) Rows(ctx context.Context) (*format.RowTable, error) {
	t := &format.RowTable{Rows: l.info.Nodes}
	if l.labelWidth > 0 {
		if err := l.readLabels(ctx, t); err != nil {
			return nil, err
		}
	}
	if a := l.labels; a != nil {
		found, err := readLabelArray(ctx, l.files.LabelsAs, a, t, l.nodeOf)
		if err != nil {
			return nil, err
		}
		l.info.foundLabels(found)
	}
	if err := l.readSplits(ctx, t); err != nil {
		return nil, err
	}
	if l.ids.ids != nil {
		t.OrigID = l.ids.ids.strings()
	}
	return t, nil
}

// readLabels reads the labels of a text table.
func (l *edgeList) readLabels(ctx context.Context, rows *format.RowTable) error {
	path := cmp.Or(l.files.Labels, l.files.Table)
	found, err := readLabels(l.files.LabelsAs, path, int64(l.labelWidth), rows, func(sink *labelSink) error {
		t, err := l.openTable(wanted{labels: true})
		if err != nil {
			return err
		}
		if t == nil {
			return fmt.Errorf("%s: %w", path, errChanged)
		}
		defer t.Close()
		if t.width != l.labelWidth {
			return fmt.Errorf("%s: %w", path, errChanged)
		}
		return t.readLabels(ctx, sink)
	})
	l.info.foundLabels(found)
	return err
}

func (l *edgeList) readSplits(ctx context.Context, rows *format.RowTable) error {
	switch {
	case l.textSplits > 0:
		makeSplits(rows, l.textSplits)
		t, err := l.openTable(wanted{splits: true})
		if err != nil {
			return err
		}
		if t == nil {
			return fmt.Errorf("%s: %w", cmp.Or(l.files.Splits, l.files.Table), errChanged)
		}
		defer t.Close()
		if t.numSplits() != l.textSplits {
			return fmt.Errorf("%s: %w", t.path, errChanged)
		}
		return t.readSplits(ctx, rows)
	case l.splits != nil:
		makeSplits(rows, int(numSplits(l.splits)))
		return readSplitArray(ctx, l.splits, rows, 0, l.nodeOf)
	case l.files.Splits != "":
		makeSplits(rows, 1)
		return readSplitFolder(ctx, l.fsys, l.files.Splits, &l.ids, rows, 0)
	}
	return nil
}

func makeSplits(t *format.RowTable, k int) { t.NumSplits, t.Splits = k, make([]uint8, t.Rows*int64(k)) }

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
	flags.StringVar(&n.Features, "features", "", "file with the features of the nodes; ones: every node gets a single feature, 1")
	flags.StringVar(&n.Labels, "labels", "", "file with the labels of the nodes")
	flags.StringVar(&n.Splits, "splits", "", "file or folder with the splits of the nodes")
	n.LabelsAs.declare(flags)
}

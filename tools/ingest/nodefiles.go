package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// NodeFiles name what is known of the nodes, for formats that hold edges alone. A
// .npy file has a row (a column of splits) for each node, in the order of ids; a
// text file has the id of a node in the first field of each line. Both may be
// wanting in labels and splits.
type NodeFiles struct {
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
	edges    *edgeSpool
	features func(threads int) (FeatureReader, error)

	labels, splits           *npy.Array // if they are arrays
	labelWidth, splitColumns int        // values of a line, if they are text
	open                     []io.Closer
}

func newEdgeList(fsys vfs.FS, source string, w Workspace, files NodeFiles) (*edgeList, error) {
	scratch, err := openScratch(fsys, w)
	if err != nil {
		return nil, err
	}
	return &edgeList{fsys: fsys, files: files, scratch: scratch, info: Info{
		Name:  "graph",
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
	if path == "" || path == Ones {
		if path == "" {
			l.info.Notes = append(l.info.Notes, "no features: every node gets a single one, 1 (--features FILE gives others)")
		}
		l.info.Nodes, l.info.Features = l.ids.nodes, 1
		l.ids.fixed = true
		l.features = func(int) (FeatureReader, error) { return ones{}, nil }
		return nil
	}
	isArray, err := npy.HasHeader(l.fsys, path)
	if err != nil {
		return err
	}
	if !isArray {
		return l.spoolTable(ctx, path)
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
		return l.spoolArray(ctx, a)
	}
	if err := l.setRows(path, a.Shape[0], a.Shape[1]); err != nil {
		return err
	}
	l.features = func(int) (FeatureReader, error) { return &denseReader{shards: []*npy.Array{a}}, nil }
	return nil
}

// setRows makes n feature rows those of all nodes.
func (l *edgeList) setRows(path string, n, features int64) error {
	if l.ids.fixed && n != l.ids.nodes {
		return fmt.Errorf("%w: %s: features of %d nodes, but there are %d", ErrInvalid, path, n, l.ids.nodes)
	}
	if n < l.ids.nodes {
		return fmt.Errorf("%w: %s: there is no node %d, since %s has features of %d", ErrInvalid, l.greatest, l.ids.nodes-1, path, n)
	}
	if n > MaxNodes {
		return fmt.Errorf("%w: %s: %d nodes (at most %d fit node ids of 32 bits)", ErrInvalid, path, n, int64(MaxNodes))
	}
	l.ids.nodes, l.ids.fixed = n, true
	l.info.Nodes, l.info.Features = n, int(features)
	return nil
}

// spoolTable brings the rows of a text file into the order of nodes.
func (l *edgeList) spoolTable(ctx context.Context, path string) error {
	t, err := openTable(l.fsys, path, &l.ids, isFloat)
	if err != nil {
		return err
	}
	defer t.Close()
	if t.width > format.MaxFeatures {
		return fmt.Errorf("%w: %s: %d features a node (want 1 to %d)", ErrInvalid, path, t.width, format.MaxFeatures)
	}
	return l.spoolRows(path, int64(t.width), func(put func(int64, []float32) error) error {
		row := make([]float32, t.width)
		return t.eachRow(ctx, 0, func(node int64, values [][]byte) error {
			if err := floats(row, values); err != nil {
				return err
			}
			return put(node, row)
		})
	})
}

// spoolArray brings the rows of an array, whose numbers are ids, into the order of
// nodes. Rows of ids without edges are no nodes.
func (l *edgeList) spoolArray(ctx context.Context, a *npy.Array) error {
	l.ids.fixed = true
	n, cols := a.Shape[0], a.Shape[1]
	in := &denseReader{shards: []*npy.Array{a}}
	rows := featureBlockRows(Info{Nodes: n, Features: int(cols)})
	return l.spoolRows(a.Path(), cols, func(put func(int64, []float32) error) error {
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

func (l *edgeList) spoolRows(path string, cols int64, each func(put func(int64, []float32) error) error) error {
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
		return fmt.Errorf("%w: %s: no features of %s%s", ErrInvalid, path, l.ids.name(missing), l.ids.hint("leaves numbers without edges out"))
	}
	a, err := rows.finish()
	if err != nil {
		return err
	}
	l.open = append(l.open, a)
	l.features = func(int) (FeatureReader, error) {
		return &spooledRows{denseReader{shards: []*npy.Array{a}}, func(row int64) string { return path + ": " + l.ids.name(row) }}, nil
	}
	return l.setRows(path, nodes, cols)
}

// spooledRows are rows of another file than they are read from.
type spooledRows struct {
	denseReader
	place func(row int64) string
}

func (r *spooledRows) Place(row int64) string { return r.place(row) }

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
		l.info.HeldBytes = ids.bytes()
		l.info.RowBytes += ids.rowBytes()
	}
}

func (l *edgeList) openLabels() error {
	path := l.files.Labels
	if path == "" {
		l.info.Notes = append(l.info.Notes, "no labels (--labels FILE)")
		return nil
	}
	isArray, err := npy.HasHeader(l.fsys, path)
	if err != nil {
		return err
	}
	if !isArray {
		l.labelWidth, err = tableWidth(l.fsys, path, &l.ids, isLabel)
		if l.labelWidth > format.MaxLabelColumns {
			return fmt.Errorf("%w: %s: %d labels a node (at most %d)", ErrInvalid, path, l.labelWidth, format.MaxLabelColumns)
		}
		l.info.RowBytes += tableLabelBytes(l.labelWidth)
		return err
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
	bytes, err := labelBytes(path, &a.Header, n)
	l.info.RowBytes += bytes
	return err
}

func (l *edgeList) openSplits() error {
	path := l.files.Splits
	if path == "" {
		l.info.Notes = append(l.info.Notes, "no splits (--splits FILE)")
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
	isArray, err := npy.HasHeader(l.fsys, path)
	if err != nil {
		return err
	}
	if !isArray {
		l.splitColumns, err = tableWidth(l.fsys, path, &l.ids, isSplit)
		if l.splitColumns > format.MaxSplits {
			return errSplits(path, int64(l.splitColumns))
		}
		l.info.RowBytes += int64(l.splitColumns) + 1
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
		if err := readTableLabels(ctx, l.fsys, l.files.Labels, &l.ids, t); err != nil {
			return nil, err
		}
	}
	if a := l.labels; a != nil {
		if err := readLabelArray(ctx, a.Path(), &a.Header, fromStart[float64](a), t, l.nodeOf); err != nil {
			return nil, err
		}
	}
	if err := l.readSplits(ctx, t); err != nil {
		return nil, err
	}
	if l.ids.ids != nil {
		t.OrigID = l.ids.ids.strings()
	}
	return t, nil
}

func (l *edgeList) readSplits(ctx context.Context, t *format.RowTable) error {
	switch {
	case l.splitColumns > 0:
		makeSplits(t, l.splitColumns)
		return readTableSplits(ctx, l.fsys, l.files.Splits, &l.ids, t)
	case l.splits != nil:
		makeSplits(t, int(numSplits(l.splits)))
		return readSplitArray(ctx, l.splits, t, 0, l.nodeOf)
	case l.files.Splits != "":
		makeSplits(t, 1)
		return readSplitFolder(ctx, l.fsys, l.files.Splits, &l.ids, t, 0)
	}
	return nil
}

func makeSplits(t *format.RowTable, k int) { t.NumSplits, t.Splits = k, make([]uint8, t.Rows*int64(k)) }

// nodeFilesHelp describes the flags of NodeFiles and where edges are kept.
const nodeFilesHelp = `

--features, --labels and --splits name files about the nodes: .npy arrays with a row a node (splits: as
splits.npy), or text with the id of a node in the first field of a line. Splits may also be a folder
with the lists train.csv, valid.csv and test.csv.` + scratchHelp

const scratchHelp = `

Edges are read once and kept in GRAPH.scratch until the graph is written, 8 bytes each, 12 with weights;
so are features that are text, 4 bytes a value.`

func (n *NodeFiles) declare(flags *pflag.FlagSet) {
	flags.StringVar(&n.Features, "features", "", "file with the features of the nodes, or ones for a single 1")
	flags.StringVar(&n.Labels, "labels", "", "file with the labels of the nodes")
	flags.StringVar(&n.Splits, "splits", "", "file or folder with splits of the nodes")
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/tools/parquet"
	"github.com/spf13/pflag"
)

// ParquetOptions say what tables do not say themselves.
type ParquetOptions struct {
	NodeFiles      // for what nodes.parquet does not have
	MapIDs    bool // number the ids, which may be any integers or text: in the order of nodes.parquet, or as they are first seen
}

// parquetSource is a folder of Parquet tables, each a file or a folder of files:
//
//	edges.parquet    source, destination, and maybe weight
//	nodes.parquet    optional, a row a node: id, which is the row's number unless ids
//	                 are mapped; label, of one number or a list of them; split (0 train,
//	                 1 valid, 2 test, -1 none, or these words); and the features: a
//	                 list, or all other columns of numbers
type parquetSource struct {
	*edgeList
	nodes        *parquet.Table
	label, split *parquet.Column
	labels       int64 // columns of label
	columns      []*parquet.Column
}

// What the columns of nodes.parquet are called.
var (
	idNames    = []string{"id", "node", "node_id"}
	labelNames = []string{"label", "labels", "y"}
)

// parquetBlock is the number of cells that are read in one go.
const parquetBlock = 1 << 12

// OpenParquet opens a folder of Parquet tables.
func OpenParquet(ctx context.Context, fsys vfs.FS, dir string, w Workspace, o ParquetOptions) (_ Source, err error) {
	edges, err := parquet.Open(fsys, filepath.Join(dir, "edges.parquet"))
	if err != nil {
		return nil, err
	}
	s := &parquetSource{}
	if s.edgeList, err = newEdgeList(fsys, "parquet", w, o.NodeFiles); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if o.MapIDs {
		s.ids.ids = newIDMap(s.scratch.MemoryBytes)
	}
	s.ids.flag = true
	path := filepath.Join(dir, "nodes.parquet")
	if there, err := exists(fsys, path); err != nil {
		return nil, err
	} else if there {
		if s.nodes, err = parquet.Open(fsys, path); err != nil {
			return nil, err
		}
		if err := s.openNodes(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.readEdges(ctx, edges); err != nil {
		return nil, err
	}
	if s.columns == nil {
		err = s.openFeatures(ctx)
	} else {
		err = s.openColumns(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.openIDs()
	if s.label == nil {
		if err := s.openLabels(); err != nil {
			return nil, err
		}
	}
	if s.split == nil {
		return s, s.openSplits()
	}
	return s, nil
}

// eachRows reads columns of single values side by side, and calls body with the
// cells of some rows at a time.
func eachRows(ctx context.Context, t *parquet.Table, columns []*parquet.Column, body func(first int64, cells []*parquet.Cells) error) error {
	cells := make([]*parquet.Cells, len(columns))
	readers := make([]*parquet.Reader, len(columns))
	for i, c := range columns {
		var err error
		if readers[i], err = t.Read(c); err != nil {
			return err
		}
		defer readers[i].Close()
	}
	for first := int64(0); ; first += int64(cells[0].N) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		for i, r := range readers {
			var err error
			if cells[i], err = r.Next(parquetBlock); err == io.EOF && i == 0 {
				return nil
			} else if err != nil && err != io.EOF {
				return err
			}
			if cells[i].N != cells[0].N {
				return fmt.Errorf("%w: %s: columns %q and %q have different lengths", ErrInvalid, t.Path, columns[0].Name, columns[i].Name)
			}
		}
		if err := body(first, cells); err != nil {
			return err
		}
	}
}

// ofKind fails unless a column is of single values of one of the kinds.
func ofKind(t *parquet.Table, c *parquet.Column, want string, kinds ...parquet.Kind) error {
	if c.List || !slices.Contains(kinds, c.Kind) {
		return fmt.Errorf("%w: %s: column %q is %s (want %s)", ErrInvalid, t.Path, c.Name, c.Type, want)
	}
	return nil
}

// checkIDs fails unless a column can be ids.
func (s *parquetSource) checkIDs(t *parquet.Table, c *parquet.Column) error {
	if s.ids.ids != nil {
		return ofKind(t, c, "integers or text", parquet.Integer, parquet.Text)
	}
	return ofKind(t, c, "integers; --ids map takes text too", parquet.Integer)
}

// errNull is the error of a cell that must have a value.
func errNull(t *parquet.Table, row int64, column string) error {
	return fmt.Errorf("%w: %s: column %q has no value", ErrInvalid, t.Place(row), column)
}

func (s *parquetSource) readEdges(ctx context.Context, t *parquet.Table) (err error) {
	var columns []*parquet.Column
	for _, names := range [][]string{sourceNames, destinationNames} {
		c := t.Find(names...)
		if c == nil {
			return fmt.Errorf("%w: %s: no column named %s", ErrInvalid, t.Path, names[0])
		}
		if err := s.checkIDs(t, c); err != nil {
			return err
		}
		columns = append(columns, c)
	}
	if c := t.Find(weightNames...); c != nil {
		if err := ofKind(t, c, "numbers", parquet.Integer, parquet.Float); err != nil {
			return err
		}
		columns = append(columns, c)
		s.info.Weighted, s.info.WeightsFrom = true, t.Path
	}
	if n := len(t.Columns) - len(columns); n > 0 {
		s.info.Notes = append(s.info.Notes, fmt.Sprintf("%d columns of %s are left out", n, t.Path))
	}
	if s.edges, err = s.scratch.newEdges(s.info.Weighted, t.Rows); err != nil {
		return err
	}
	var digits [20]byte
	greatest := int64(0) // row of the greatest node
	if err := eachRows(ctx, t, columns, func(first int64, cells []*parquet.Cells) error {
		for i := range cells[0].N {
			row := first + int64(i)
			for k, c := range cells {
				if c.Null[i] {
					return errNull(t, row, columns[k].Name)
				}
			}
			var ends [2]uint32
			before := s.ids.nodes
			for k := range ends {
				if ends[k], err = s.ids.node(cells[k].Text(i, digits[:])); err != nil {
					return s.at(t, row, err)
				}
			}
			if s.ids.nodes > before {
				greatest = row
			}
			weight := float32(0)
			if s.info.Weighted {
				if weight = float32(cells[2].Number(i)); !(weight >= 0) || math.IsInf(float64(weight), 0) {
					return fmt.Errorf("%w: %s: weight %v (want finite float32, not negative)", ErrInvalid, t.Place(row), cells[2].Number(i))
				}
			}
			if err := s.edges.add(ctx, ends[0], ends[1], weight); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	s.greatest = t.Place(greatest)
	return s.edges.finish(ctx)
}

// at puts the place of a row into an error about an id.
func (s *parquetSource) at(t *parquet.Table, row int64, err error) error {
	if errors.Is(err, machine.ErrDoesNotFit) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, t.Place(row), err)
}

// openNodes finds the columns of nodes.parquet, and reads the ids.
func (s *parquetSource) openNodes(ctx context.Context) error {
	t := s.nodes
	id := t.Find(idNames...)
	s.label, s.split = t.Find(labelNames...), t.Find("split")
	var others, lists []*parquet.Column
	var left []string
	for i := range t.Columns {
		c := &t.Columns[i]
		isNumber := c.Kind == parquet.Integer || c.Kind == parquet.Float || c.Kind == parquet.Bool
		switch {
		case c == id || c == s.label || c == s.split:
		case strings.HasPrefix(c.Name, "__index_level_"): // pandas numbers rows in it
			left = append(left, fmt.Sprintf("%q", c.Name))
		case isNumber && c.List:
			lists = append(lists, c)
		case isNumber:
			others = append(others, c)
		default:
			left = append(left, fmt.Sprintf("%q (%s)", c.Name, c.Type))
		}
	}
	switch {
	case len(lists) > 1:
		return fmt.Errorf("%w: %s: columns %q and %q are lists, of which one can be the features", ErrInvalid, t.Path, lists[0].Name, lists[1].Name)
	case len(lists) == 1:
		s.columns = lists
		for _, c := range others {
			left = append(left, fmt.Sprintf("%q", c.Name))
		}
	case len(others) > 0:
		s.columns = others
		s.info.Notes = append(s.info.Notes, fmt.Sprintf("features are the %d columns from %q to %q", len(others), others[0].Name, others[len(others)-1].Name))
	}
	if len(left) > 0 {
		s.info.Notes = append(s.info.Notes, fmt.Sprintf("columns of %s are left out: %v", t.Path, left))
	}
	for _, own := range []struct {
		there bool
		flag  string
		file  string
	}{{s.columns != nil, "features", s.files.Features}, {s.label != nil, "labels", s.files.Labels}, {s.split != nil, "splits", s.files.Splits}} {
		if own.there && own.file != "" {
			return fmt.Errorf("%w: %s has %s of its own; take --%s away", ErrOptions, t.Path, own.flag, own.flag)
		}
	}
	if err := s.readIDs(ctx, id); err != nil {
		return err
	}
	return s.openRowColumns()
}

// readIDs numbers the nodes by their ids, or else compares these.
func (s *parquetSource) readIDs(ctx context.Context, id *parquet.Column) error {
	t := s.nodes
	switch {
	case id == nil && s.ids.ids != nil:
		return fmt.Errorf("%w: %s: no column named %s, of which --ids map makes the numbers of nodes", ErrOptions, t.Path, idNames[0])
	case id != nil:
		if err := s.checkIDs(t, id); err != nil {
			return err
		}
		var digits [20]byte
		if err := eachRows(ctx, t, []*parquet.Column{id}, func(first int64, cells []*parquet.Cells) error {
			for i := range cells[0].N {
				row := first + int64(i)
				if cells[0].Null[i] {
					return errNull(t, row, id.Name)
				}
				text := cells[0].Text(i, digits[:])
				node, err := s.ids.node(text)
				if err == nil && int64(node) != row {
					if s.ids.ids != nil {
						err = fmt.Errorf("the id %.100q once more", text)
					} else {
						err = fmt.Errorf("id %s (want %d: the rows in the order of ids; or --ids map)", text, row)
					}
				}
				if err != nil {
					return s.at(t, row, err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if t.Rows > MaxNodes {
		return fmt.Errorf("%w: %s: %d nodes (at most %d fit node ids of 32 bits)", ErrInvalid, t.Path, t.Rows, int64(MaxNodes))
	}
	s.ids.nodes, s.ids.fixed = t.Rows, true
	return nil
}

// listLength is the number of values in a row of a column, as the first row has them.
func (s *parquetSource) listLength(c *parquet.Column) (int64, error) {
	if !c.List {
		return 1, nil
	}
	r, err := s.nodes.Read(c)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for n := int64(0); ; {
		cells, err := r.Next(parquetBlock)
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return 0, err
		}
		for _, starts := range cells.Starts {
			if starts && n > 0 {
				return n, nil
			}
			n++
		}
	}
}

// openRowColumns says what labels and splits take in memory.
func (s *parquetSource) openRowColumns() (err error) {
	if s.split != nil {
		if err := ofKind(s.nodes, s.split, "integers or text", parquet.Integer, parquet.Text); err != nil {
			return err
		}
		s.info.RowBytes++
	}
	if s.label == nil {
		return nil
	}
	if k := s.label.Kind; k != parquet.Integer && k != parquet.Float && k != parquet.Bool {
		return fmt.Errorf("%w: %s: column %q is %s (want numbers, or lists of them)", ErrInvalid, s.nodes.Path, s.label.Name, s.label.Type)
	}
	if s.labels, err = s.listLength(s.label); err != nil {
		return err
	}
	s.labels = max(1, s.labels)
	if s.labels > format.MaxLabelColumns {
		return fmt.Errorf("%w: %s: column %q: %d labels a node (at most %d)", ErrInvalid, s.nodes.Path, s.label.Name, s.labels, format.MaxLabelColumns)
	}
	s.info.RowBytes += tableLabelBytes(int(s.labels))
	return nil
}

// openColumns opens the features that nodes.parquet has.
func (s *parquetSource) openColumns(ctx context.Context) error {
	n := int64(len(s.columns))
	if s.columns[0].List {
		var err error
		if n, err = s.listLength(s.columns[0]); err != nil {
			return err
		}
	}
	if n > format.MaxFeatures {
		return fmt.Errorf("%w: %s: %d features a node (want 1 to %d)", ErrInvalid, s.nodes.Path, n, format.MaxFeatures)
	}
	s.info.Nodes, s.info.Features = s.nodes.Rows, int(max(1, n))
	if !s.columns[0].List {
		return s.spoolColumns(ctx)
	}
	s.info.FeatureBytes = sparseBytes
	s.features = func(int) (FeatureReader, error) {
		r, err := s.nodes.Read(s.columns[0])
		return &parquetLists{table: s.nodes, column: s.columns[0], reader: r, length: int64(s.info.Features)}, err
	}
	return nil
}

// spoolColumns puts feature columns into a scratch file, one after another: side
// by side, each would need pages of its own in memory.
func (s *parquetSource) spoolColumns(ctx context.Context) error {
	t := s.nodes
	bytes := 4 * t.Rows * int64(len(s.columns))
	if err := checkSpace(s.fsys, s.scratch.dir, bytes); err != nil {
		return err
	}
	pending, err := s.fsys.Create(s.scratch.path("features"))
	if err != nil {
		return err
	}
	defer pending.Abort()
	task := s.scratch.Progress.Start("read features", bytes, progress.Bytes)
	defer task.Done()
	values := make([]float32, parquetBlock)
	for _, c := range s.columns {
		if err := eachRows(ctx, t, []*parquet.Column{c}, func(first int64, cells []*parquet.Cells) error {
			for i := range cells[0].N {
				if cells[0].Null[i] {
					return errNull(t, first+int64(i), c.Name)
				}
				if values[i] = float32(cells[0].Number(i)); values[i]-values[i] != 0 {
					return fmt.Errorf("%w: %s, column %q: %v %s", ErrInvalid, t.Place(first+int64(i)), c.Name, cells[0].Number(i), notFinite)
				}
			}
			task.Add(4 * int64(cells[0].N))
			_, err := pending.Write(dtype.BytesOf(values[:cells[0].N]))
			return err
		}); err != nil {
			return err
		}
	}
	if err := pending.Commit(); err != nil {
		return err
	}
	a, err := npy.OpenRaw(s.fsys, s.scratch.path("features"), npy.Float32, t.Rows, int64(len(s.columns)))
	if err != nil {
		return err
	}
	a.Fortran = true
	s.open = append(s.open, a)
	s.features = func(int) (FeatureReader, error) {
		return &spooledRows{denseReader{shards: []*npy.Array{a}}, t.Place}, nil
	}
	return nil
}

// parquetLists reads features that are a column of lists of one length.
type parquetLists struct {
	table  *parquet.Table
	column *parquet.Column
	reader *parquet.Reader
	length int64
	at     int64 // cells read
}

func (r *parquetLists) Read(ctx context.Context, dst []float32) error {
	for len(dst) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cells, err := r.reader.Next(min(len(dst), parquetBlock))
		if err == io.EOF {
			return r.badLength()
		} else if err != nil {
			return err
		}
		for i := range cells.N {
			if cells.Starts[i] != (r.at%r.length == 0) {
				return r.badLength()
			}
			if cells.Null[i] {
				return errNull(r.table, r.at/r.length, r.column.Name)
			}
			dst[i] = float32(cells.Number(i))
			r.at++
		}
		dst = dst[cells.N:]
	}
	if r.at < r.table.Rows*r.length {
		return nil
	}
	if _, err := r.reader.Next(1); err == nil {
		return r.badLength()
	} else if err != io.EOF {
		return err
	}
	return nil
}

// badLength is the error where a list ends early, or goes on.
func (r *parquetLists) badLength() error {
	row := r.at / r.length
	if r.at%r.length == 0 {
		row-- // which goes on
	}
	return fmt.Errorf("%w: %s: column %q is no list of %d values, as row 0 has", ErrInvalid, r.table.Place(row), r.column.Name, r.length)
}

func (r *parquetLists) Place(row int64) string { return r.table.Place(row) }
func (r *parquetLists) Close() error           { return r.reader.Close() }

// Rows adds labels and splits of nodes.parquet to what files beside it say.
func (s *parquetSource) Rows(ctx context.Context) (*format.RowTable, error) {
	t, err := s.edgeList.Rows(ctx)
	if err != nil {
		return nil, err
	}
	if s.label != nil {
		if err := s.readLabels(ctx, t); err != nil {
			return nil, err
		}
	}
	if s.split == nil {
		return t, nil
	}
	makeSplits(t, 1)
	var digits [20]byte
	return t, eachRows(ctx, s.nodes, []*parquet.Column{s.split}, func(first int64, cells []*parquet.Cells) error {
		for i := range cells[0].N {
			if cells[0].Null[i] {
				continue
			}
			part, err := parseSplit(cells[0].Text(i, digits[:]))
			if err != nil {
				return fmt.Errorf("%w: %s: %w", ErrInvalid, s.nodes.Place(first+int64(i)), err)
			}
			t.Splits[first+int64(i)] = part
		}
		return nil
	})
}

func (s *parquetSource) readLabels(ctx context.Context, t *format.RowTable) error {
	makeLabels(t, s.labels)
	r, err := s.nodes.Read(s.label)
	if err != nil {
		return err
	}
	defer r.Close()
	row, column := int64(-1), int64(0)
	bad := func() error {
		return fmt.Errorf("%w: %s: column %q is no list of %d values, as row 0 has", ErrInvalid, s.nodes.Place(row), s.label.Name, s.labels)
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cells, err := r.Next(parquetBlock)
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		for i := range cells.N {
			if cells.Starts == nil || cells.Starts[i] {
				if row >= 0 && column != s.labels {
					return bad()
				}
				row, column = row+1, 0
			}
			if column == s.labels {
				return bad()
			}
			if !cells.Null[i] {
				if err := setLabel(t, row, column, cells.Number(i)); err != nil {
					return fmt.Errorf("%w: %s: %w", ErrInvalid, s.nodes.Place(row), err)
				}
			}
			column++
		}
	}
	if row >= 0 && column != s.labels {
		return bad()
	}
	return nil
}

var parquetFormat = Format{
	Name: "parquet",
	Help: `SRC holds edges.parquet, with the columns source, destination and maybe weight, and maybe nodes.parquet,
a row a node: id (the number of the row, unless --ids map), label (a number or a list of them), split (train,
valid, test or 0, 1, 2), and as features one column of lists, or else all other columns of numbers. Each may be
a folder of .parquet files, which are taken in the order of their names.` + nodeFilesHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o ParquetOptions
		o.NodeFiles.declare(flags)
		mapIDs := declareIDs(flags)
		return func(ctx context.Context, in Input) (_ Source, err error) {
			if o.MapIDs, err = mapIDs(); err != nil {
				return nil, err
			}
			return OpenParquet(ctx, in.FS, in.Path, in.Workspace, o)
		}
	},
}

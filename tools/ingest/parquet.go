package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

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
	NodeFiles      // for what nodes.parquet does not have; Table is in place of nodes.parquet
	MapIDs    bool // number the ids, which may be any integers or text: in the order of nodes.parquet, or as they are first seen
	Bipartite bool // as CSVOptions.Bipartite
}

// parquetSource is a graph in Parquet tables, each a file or a folder of files: one of
// edges, or a folder with
//
//	edges.parquet    source, destination, and maybe weight
//	nodes.parquet    optional, a row a node: id, which is the row's number unless ids
//	                 are mapped; labels, of one column or a list; splits; features
//
// whose columns are chosen as those of text tables are.
type parquetSource struct {
	*edgeList
	nodes     *parquet.Table
	label     []*parquet.Column // several single ones, or a list
	labels    int64             // a node
	split     []*parquet.Column // several splits, or the masks of one
	maskParts []uint8           // of these masks
	columns   []*parquet.Column // of the features: several single ones, or a list
}

// parquetBlock is the number of cells that are read in one go.
const parquetBlock = 1 << 12

// OpenParquet opens a table of edges, or a folder of tables.
func OpenParquet(ctx context.Context, fsys vfs.FS, path string, w ScratchOptions, o ParquetOptions) (_ Source, err error) {
	o.MapIDs = o.MapIDs || o.Bipartite
	path, nodes, err := parquetTables(fsys, path)
	if err != nil {
		return nil, err
	}
	if o.Table != "" {
		nodes = o.Table
	}
	if o.Bipartite && nodes != "" {
		return nil, fmt.Errorf("%w: --ids bipartite cannot be used with a table of nodes (%s)", ErrOptions, nodes)
	}
	o.Table = ""
	edges, err := parquet.Open(fsys, path, w.MemoryBytes)
	if err != nil {
		return nil, err
	}
	defer edges.Close()
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
	if nodes != "" {
		if s.nodes, err = parquet.Open(fsys, nodes, w.MemoryBytes); err != nil {
			return nil, err
		}
		s.open = append(s.open, s.nodes)
		s.info.HeldBytes += s.nodes.Bytes()
		if err := s.openNodes(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.readEdges(ctx, edges, o); err != nil {
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

// parquetTables finds the tables of edges and nodes, if SRC is a folder of these.
func parquetTables(fsys vfs.FS, path string) (edges, nodes string, err error) {
	info, err := fsys.Stat(path)
	if err != nil || !info.IsDir() {
		return path, "", err
	}
	var there [2]bool
	tables := [2]string{filepath.Join(path, "edges.parquet"), filepath.Join(path, "nodes.parquet")}
	for i, table := range tables {
		if there[i], err = exists(fsys, table); err != nil {
			return "", "", err
		}
	}
	switch {
	case there[1]:
		return tables[0], tables[1], nil
	case there[0]:
		return tables[0], "", nil
	}
	return path, "", nil // the files of one table
}

// parquetHeader is the header of a table, and the columns that it names: all but the
// fields of structures that no flag names.
func parquetHeader(t *parquet.Table, o Columns) (header, []*parquet.Column) {
	asked := slices.Concat([]string{o.Source, o.Destination, o.Weight, o.ID}, o.Label, o.Split, o.Features)
	h := header{named: true}
	var columns []*parquet.Column
	for i := range t.Columns {
		if c := &t.Columns[i]; !c.Field || slices.Contains(asked, c.Name) {
			h.names, columns = append(h.names, c.Name), append(columns, c)
		}
	}
	return h, columns
}

// idText is an id as text: a whole number if it is a float, as pandas writes ids of
// which some are missing. It may be written into buf.
func idText(c *parquet.Cells, i int, buf []byte) ([]byte, error) {
	if i >= len(c.Floats) {
		return c.Text(i, buf), nil
	}
	v := c.Floats[i]
	if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
		return nil, fmt.Errorf("id %v is not a whole number", v)
	}
	return strconv.AppendInt(buf[:0], int64(v), 10), nil
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
		return ofKind(t, c, "whole numbers or text", parquet.Integer, parquet.Float, parquet.Text)
	}
	return ofKind(t, c, "whole numbers; --ids map takes text too", parquet.Integer, parquet.Float)
}

// errNull is the error of a cell that must have a value.
func errNull(t *parquet.Table, row int64, column string) error {
	return fmt.Errorf("%w: %s: column %q is null (want a value)", ErrInvalid, t.Place(row), column)
}

func (s *parquetSource) readEdges(ctx context.Context, t *parquet.Table, o ParquetOptions) error {
	h, all := parquetHeader(t, o.Columns)
	chosen, err := h.edgeColumns(o.Columns)
	if err == nil {
		err = chosen.checkItems(o.Bipartite)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOptions, t.Path, err)
	}
	columns := []*parquet.Column{all[chosen.source], all[chosen.destination]}
	for _, c := range columns {
		if err := s.checkIDs(t, c); err != nil {
			return err
		}
	}
	if chosen.weight >= 0 {
		columns = append(columns, all[chosen.weight])
		if err := ofKind(t, columns[2], "numbers", parquet.Integer, parquet.Float); err != nil {
			return err
		}
		s.info.Weighted, s.info.WeightsFrom = true, t.Path
	}
	s.noteEdges(t.Path, chosen)
	ends := endReader{ids: &s.ids}
	if o.Bipartite {
		ends.setPrefixes(chosen)
	}
	if s.edges, err = s.scratch.newEdges(s.info.Weighted, t.Rows); err != nil {
		return err
	}
	var digits [2][32]byte
	greatest := int64(0) // row of the greatest node
	if err := eachRows(ctx, t, columns, func(first int64, cells []*parquet.Cells) error {
		for i := range cells[0].N {
			row := first + int64(i)
			for k, c := range cells {
				if c.Null[i] {
					return errNull(t, row, columns[k].Name)
				}
			}
			before := s.ids.nodes
			from, err := idText(cells[0], i, digits[0][:])
			if err != nil {
				return s.atRow(t, row, err)
			}
			to, err := idText(cells[1], i, digits[1][:])
			if err != nil {
				return s.atRow(t, row, err)
			}
			src, dst, err := ends.read(from, to)
			if err != nil {
				return s.atRow(t, row, err)
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
			if err := s.edges.add(ctx, src, dst, weight); err != nil {
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

// atRow puts the place of a row into an error about an id.
func (s *parquetSource) atRow(t *parquet.Table, row int64, err error) error {
	if errors.Is(err, machine.ErrDoesNotFit) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, t.Place(row), err)
}

// openNodes finds the columns of nodes.parquet, and reads the ids.
func (s *parquetSource) openNodes(ctx context.Context) error {
	t := s.nodes
	h, all := parquetHeader(t, s.files.Columns)
	var values []columnValues
	for _, c := range all {
		isNumber := c.Kind == parquet.Integer || c.Kind == parquet.Float || c.Kind == parquet.Bool
		values = append(values, columnValues{
			id:     !c.List && (c.Kind == parquet.Integer || c.Kind == parquet.Text) && !c.Key,
			number: isNumber && !c.List && !c.Key, // keys of folders are no features
			list:   isNumber && c.List,
			what:   c.Type,
		})
	}
	chosen, err := h.nodeColumns(values, s.files.Columns, wanted{features: true, labels: true, splits: true})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOptions, t.Path, err)
	}
	of := func(columns []int) (out []*parquet.Column) {
		for _, i := range columns {
			out = append(out, all[i])
		}
		return out
	}
	s.label, s.split, s.columns = of(chosen.labels), of(chosen.splitColumns()), of(chosen.features)
	for part, i := range chosen.masks {
		if i >= 0 {
			s.maskParts = append(s.maskParts, format.SplitTrain+uint8(part))
		}
	}
	s.info.Notes = append(s.info.Notes, chosen.note(t.Path, chosen.taken(), chosen.left()))
	s.info.Input["nodes"] = chosen.taken()
	var id *parquet.Column
	switch {
	case chosen.id >= 0:
		id = all[chosen.id]
	case t.Keyed():
		return fmt.Errorf("%w: %s: its rows are in the order of its key=value folders, so a column must hold the ids of the nodes: name it with --%s", ErrOptions, t.Path, idRole.flag)
	}
	for _, own := range []struct {
		there bool
		flag  string
		file  string
	}{{s.columns != nil, "features", s.files.Features}, {s.label != nil, "labels", s.files.Labels}, {s.split != nil, "splits", s.files.Splits}} {
		if own.there && own.file != "" {
			return fmt.Errorf("%w: %s has %s of its own: leave out --%s", ErrOptions, t.Path, own.flag, own.flag)
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
		return fmt.Errorf("%w: %s: --ids map needs a column of ids: name it with --%s", ErrOptions, t.Path, idRole.flag)
	case id != nil:
		if err := s.checkIDs(t, id); err != nil {
			return err
		}
		var digits [32]byte
		if err := eachRows(ctx, t, []*parquet.Column{id}, func(first int64, cells []*parquet.Cells) error {
			for i := range cells[0].N {
				row := first + int64(i)
				if cells[0].Null[i] {
					return errNull(t, row, id.Name)
				}
				text, err := idText(cells[0], i, digits[:])
				if err != nil {
					return s.atRow(t, row, err)
				}
				node, err := s.ids.node(text)
				if err == nil && int64(node) != row {
					if s.ids.ids != nil {
						err = fmt.Errorf("id %.100q is there twice", text)
					} else {
						err = fmt.Errorf("id %s (want %d, as rows must be in the order of ids; --ids map takes any order)", text, row)
					}
				}
				if err != nil {
					return s.atRow(t, row, err)
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
	for _, c := range s.split {
		if err := ofKind(s.nodes, c, "integers, truth values or text", parquet.Integer, parquet.Float, parquet.Bool, parquet.Text); err != nil {
			return err
		}
	}
	if len(s.split) > format.MaxSplits {
		return errSplits(s.nodes.Path, int64(len(s.split)))
	}
	s.info.RowBytes += int64(s.numSplits())
	if err := s.files.LabelsAs.check(); err != nil || len(s.label) == 0 {
		return err
	}
	s.labels = int64(len(s.label))
	for _, c := range s.label {
		switch {
		case c.Kind == parquet.Other || c.List && c.Kind == parquet.Text:
			return fmt.Errorf("%w: %s: column %q is %s (want numbers or text, or lists of numbers)", ErrInvalid, s.nodes.Path, c.Name, c.Type)
		case c.List && len(s.label) > 1:
			return fmt.Errorf("%w: %s: column %q is a list, which holds all labels: name it alone with --%s", ErrOptions, s.nodes.Path, c.Name, labelRole.flag)
		case c.List:
			if s.labels, err = s.listLength(c); err != nil {
				return err
			}
		}
	}
	s.labels = max(1, s.labels)
	if s.labels > format.MaxLabelColumns {
		return fmt.Errorf("%w: %s: %d labels a node (at most %d)", ErrInvalid, s.nodes.Path, s.labels, format.MaxLabelColumns)
	}
	s.info.RowBytes += tableLabelBytes(s.files.LabelsAs, int(s.labels))
	return nil
}

// numSplits is how many splits nodes.parquet has.
func (s *parquetSource) numSplits() int {
	if s.maskParts != nil {
		return 1
	}
	return len(s.split)
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
		return s.copyColumns(ctx)
	}
	s.info.FeatureBytes = sparseBytes
	s.features = func(int) (FeatureReader, error) {
		r, err := s.nodes.Read(s.columns[0])
		return &parquetLists{table: s.nodes, column: s.columns[0], reader: r, length: int64(s.info.Features)}, err
	}
	return nil
}

// copyColumns puts feature columns into a scratch file, one after another, a row group
// at a time: side by side, each would need pages of its own in memory.
func (s *parquetSource) copyColumns(ctx context.Context) error {
	t := s.nodes
	bytes := 4 * t.Rows * int64(len(s.columns))
	if err := checkSpace(s.fsys, s.scratch.Dir(), bytes); err != nil {
		return err
	}
	pending, err := s.fsys.Create(s.scratch.Path("features"))
	if err != nil {
		return err
	}
	defer pending.Abort()
	task := s.scratch.Progress.Start("read features", bytes, progress.Bytes)
	defer task.Done()
	sum, err := s.copyGroups(ctx, pending, task)
	if err != nil {
		return err
	}
	if err := pending.Commit(); err != nil {
		return err
	}
	a, err := npy.OpenRaw(s.fsys, s.scratch.Path("features"), npy.Float32, t.Rows, int64(len(s.columns)))
	if err != nil {
		return err
	}
	a.Fortran = true
	s.open = append(s.open, a)
	s.features = func(int) (FeatureReader, error) {
		return newCopiedRows(a, sum, t.Place), nil
	}
	return nil
}

// copyGroups writes the feature columns, in the order in which the files have them, and
// returns their sumElements.
func (s *parquetSource) copyGroups(ctx context.Context, to io.WriterAt, task progress.Task) (sum uint64, err error) {
	t := s.nodes
	r, err := t.Read(s.columns[0])
	if err != nil {
		return 0, err
	}
	defer r.Close()
	values := make([]float32, parquetBlock)
	for g, group := range t.Groups() {
		for k, c := range s.columns {
			if err := errors.Join(context.Cause(ctx), r.Restart(c, g, g+1)); err != nil {
				return 0, err
			}
			for row := group.First; ; {
				cells, err := r.Next(parquetBlock)
				if err == io.EOF {
					break
				} else if err != nil {
					return 0, err
				}
				for i := range cells.N {
					if cells.Null[i] {
						return 0, errNull(t, row+int64(i), c.Name)
					}
					if values[i] = float32(cells.Number(i)); values[i]-values[i] != 0 {
						return 0, fmt.Errorf("%w: %s, column %q: %v %s", ErrInvalid, t.Place(row+int64(i)), c.Name, cells.Number(i), notFinite)
					}
				}
				columns := int64(len(s.columns))
				sum += sumElements(row*columns+int64(k), columns, values[:cells.N])
				if _, err := to.WriteAt(dtype.BytesOf(values[:cells.N]), 4*(int64(k)*t.Rows+row)); err != nil {
					return 0, err
				}
				row += int64(cells.N)
				task.Add(4 * int64(cells.N))
			}
		}
	}
	return sum, nil
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
	return fmt.Errorf("%w: %s: column %q is not a list of %d values, as in row 0", ErrInvalid, r.table.Place(row), r.column.Name, r.length)
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
		found, err := readLabels(s.files.LabelsAs, s.nodes.Path, s.labels, t, func(sink *labelSink) error { return s.readLabels(ctx, sink) })
		if err != nil {
			return nil, err
		}
		s.info.foundLabels(found)
	}
	if s.split == nil {
		return t, nil
	}
	makeSplits(t, s.numSplits())
	for k, c := range s.split {
		if err := s.readSplit(ctx, t, k, c); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readSplit reads a column of splits or a mask.
func (s *parquetSource) readSplit(ctx context.Context, t *format.RowTable, k int, c *parquet.Column) error {
	var digits [32]byte
	return eachRows(ctx, s.nodes, []*parquet.Column{c}, func(first int64, cells []*parquet.Cells) error {
		for i := range cells[0].N {
			if cells[0].Null[i] {
				continue
			}
			node, text := first+int64(i), cells[0].Text(i, digits[:])
			var err error
			if s.maskParts == nil {
				t.Splits[node*int64(t.NumSplits)+int64(k)], err = parseSplit(text)
			} else if in, bad := parseTruth(text); bad != nil {
				err = bad
			} else if in {
				err = setMask(t, node, s.maskParts[k])
			}
			if err != nil {
				return fmt.Errorf("%w: %s: column %q: %w", ErrInvalid, s.nodes.Place(node), c.Name, err)
			}
		}
		return nil
	})
}

// readLabels reads all labels.
func (s *parquetSource) readLabels(ctx context.Context, sink *labelSink) error {
	if s.label[0].List {
		return s.readLabelLists(ctx, sink)
	}
	for k, c := range s.label {
		if err := eachRows(ctx, s.nodes, []*parquet.Column{c}, func(first int64, cells []*parquet.Cells) error {
			for i := range cells[0].N {
				if cells[0].Null[i] {
					continue
				}
				var err error
				if node := first + int64(i); c.Kind == parquet.Text {
					err = sink.text(node, int64(k), cells[0].Text(i, nil))
				} else {
					err = sink.number(node, int64(k), cells[0].Number(i))
				}
				if err != nil {
					return fmt.Errorf("%w: %s: %w", ErrInvalid, s.nodes.Place(first+int64(i)), err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// readLabelLists reads labels that are a column of lists of one length.
func (s *parquetSource) readLabelLists(ctx context.Context, sink *labelSink) error {
	label := s.label[0]
	r, err := s.nodes.Read(label)
	if err != nil {
		return err
	}
	defer r.Close()
	row, column := int64(-1), int64(0)
	bad := func() error {
		return fmt.Errorf("%w: %s: column %q is not a list of %d values, as in row 0", ErrInvalid, s.nodes.Place(row), label.Name, s.labels)
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
			if cells.Starts[i] {
				if row >= 0 && column != s.labels {
					return bad()
				}
				row, column = row+1, 0
			}
			if column == s.labels {
				return bad()
			}
			if !cells.Null[i] {
				if err := sink.number(row, column, cells.Number(i)); err != nil {
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
	Help: `SRC is a table of edges, or a folder with edges.parquet and perhaps nodes.parquet, which has a row for each
node: its id (the number of the row, unless --ids map), labels, splits and features. A table is a file or a
folder of .parquet files, which are read in the order of their names. Columns are found by their names.` +
		edgeColumnsHelp + nodeFilesHelp + nodeColumnsHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o ParquetOptions
		o.Columns.declare(flags)
		o.NodeFiles.declare(flags)
		ids := declareIDs(flags)
		return func(ctx context.Context, in Input) (_ Source, err error) {
			if o.MapIDs, o.Bipartite, err = ids(); err != nil {
				return nil, err
			}
			return OpenParquet(ctx, in.FS, in.Path, in.Scratch, o)
		}
	},
}

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
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
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
	if s.edgeList, err = newEdgeList(fsys, "parquet", path, w, o.NodeFiles); err != nil {
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
	if ids, most := s.ids.ids, s.scratch.MemoryBytes; ids != nil && most > 0 { // they have what the tables leave
		most -= s.info.HeldBytes + t.Bytes()
		for _, c := range columns {
			most -= t.ReadBytes(c)
		}
		ids.limit = max(1, most)
	}
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
	s.info.Notes = append(s.info.Notes, chosen.note(t.Path, chosen.taken(), chosen.left())+chosen.labelHint())
	s.info.Input["nodes"] = chosen.taken()
	chosen.recordFeatures(s.info.Input)
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

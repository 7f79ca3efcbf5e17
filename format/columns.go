package format

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

// Column is numbers of each edge or node of a graph beside weights and features: a matrix with a row for each, in the
// order of the topology or of the nodes, and chunks of its own.
type Column struct {
	Of        string `json:"of"` // OfEdges or OfNodes
	Name      string `json:"name"`
	DType     string `json:"dtype"`
	Columns   int    `json:"columns"` // 0: one number each, an array of one dimension
	ChunkRows int    `json:"chunk_rows"`
}

// What columns are of.
const (
	OfEdges = "edges"
	OfNodes = "nodes"
)

// columnsRequirement is named in Manifest.Requires where there are columns: a reader that passes over them would find
// files that it cannot explain.
const columnsRequirement = "columns"

const (
	columnName    = `[a-z][a-z0-9_]{0,99}`
	columnFolders = "(?:" + OfEdges + "|" + OfNodes + ")/" + columnName
)

var isColumnName = regexp.MustCompile("^" + columnName + "$").MatchString

// NewColumn is a column with chunks of the usual size.
func NewColumn(of, name string, t DType, columns int) Column {
	return Column{of, name, t.String(), columns, ChunkRowsFor(0, max(1, columns), t)}
}

// Check fails if there cannot be such a column.
func (c *Column) Check() error {
	t, err := dtype.Parse(c.DType)
	switch {
	case c.Of != OfEdges && c.Of != OfNodes:
		return fmt.Errorf("column %q is of %q, not of %s or %s", c.Name, c.Of, OfEdges, OfNodes)
	case !isColumnName(c.Name):
		return fmt.Errorf("%.100q cannot name a column (a letter of a-z, then a-z, 0-9 and _, at most 100 characters)",
			c.Name)
	case err != nil:
		return fmt.Errorf("column %s: %w", c.Name, err)
	case c.Columns < 0 || c.Columns > MaxFeatures:
		return fmt.Errorf("column %s has %d numbers each, not from 0 to %d", c.Name, c.Columns, MaxFeatures)
	case c.ChunkRows < 1 || c.ChunkRows > ChunkRowsFor(MaxChunkBytes, max(1, c.Columns), t):
		return fmt.Errorf("column %s has chunks of %d rows", c.Name, c.ChunkRows)
	}
	return nil
}

func (c Column) compare(o Column) int {
	return cmp.Or(cmp.Compare(c.Of, o.Of), cmp.Compare(c.Name, o.Name))
}

// RowBytes is the size of a row of the column, which has been checked.
func (c *Column) RowBytes() int64 {
	t, _ := dtype.Parse(c.DType)
	return int64(max(1, c.Columns) * t.Size())
}

func (c *Column) folder() string { return c.Of + "/" + c.Name }

// layout divides rows of the column, which has been checked, into chunks.
func (c *Column) layout(rows int64) Layout {
	t, _ := dtype.Parse(c.DType)
	return Layout{Regions: Regions([]RegionSize{{RegionAll, rows}}, c.ChunkRows), ChunkRows: c.ChunkRows,
		Features: max(1, c.Columns), DType: t}
}

// columnLayout is the layout of a column of the graph.
func (m *Manifest) columnLayout(c *Column) Layout {
	if c.Of == OfEdges {
		return c.layout(m.Edges)
	}
	return c.layout(m.Nodes)
}

// checkColumns checks what is said of the columns.
func (m *Manifest) checkColumns() error {
	if m.Kind != KindGraph && m.Columns != nil {
		return fmt.Errorf("a store has %d columns of edges and nodes, which belong to its graph", len(m.Columns))
	}
	for i := range m.Columns {
		if err := m.Columns[i].Check(); err != nil {
			return err
		}
		if i > 0 && m.Columns[i-1].compare(m.Columns[i]) >= 0 {
			return fmt.Errorf("column %s is not in its place (columns of edges come first, names ascend)",
				m.Columns[i].Name)
		}
	}
	return nil
}

// Column opens a column of the graph by name.
func (d *Dir) Column(name string) (*Matrix, *Column, error) {
	for i := range d.Manifest.Columns {
		if c := &d.Manifest.Columns[i]; c.Name == name {
			m := &Matrix{ID: MatrixID{Operator: c.folder()}, Layout: d.Manifest.columnLayout(c), dir: d,
				table: d.tables[c.folder()]}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.open = append(d.open, m)
			return m, c, nil
		}
	}
	return nil, nil, fmt.Errorf("%s has no column %q", d.path, name)
}

// Column starts to write a column of a graph, with a row for each edge as stored, or for each node.
func (w *Writer) Column(c Column, rows int64) (*MatrixWriter, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", w.dir, err)
	}
	if w.kind != KindGraph {
		return nil, errors.New("only graphs have columns of edges and nodes")
	}
	id := MatrixID{Operator: c.folder()}
	if err := w.reserve(func() bool { return !w.started[id] }, func() {
		w.started[id] = true
		w.columns = append(w.columns, c)
		slices.SortFunc(w.columns, Column.compare)
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	layout := c.layout(rows)
	p, err := w.startTable(matrixTable(c.folder(), layout), chunksPerPart(layout.chunkBytes()))
	if err != nil {
		return nil, err
	}
	return &MatrixWriter{id: id, layout: &layout, p: p}, nil
}

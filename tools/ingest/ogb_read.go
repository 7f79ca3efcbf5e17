package ingest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// count reads the number of nodes or edges of the only graph, up to most.
func (d *ogbData) count(p ogbPiece, name string, most int64) (int64, error) {
	at, err := d.need(p, name)
	if err != nil {
		return 0, err
	}
	if at.array == "" {
		return readCount(d.fsys, at.path, uint64(most))
	}
	var n [1]int64
	in := newSource(d.fsys, "ogb")
	err = in.readMember(at.path, at.array, "integers [1]: one, as there must be one graph", n[:])
	if err == nil && (n[0] < 0 || n[0] > most) {
		err = invalid(at, "%d (want 0 to %d)", n[0], most)
	}
	return n[0], err
}

// readCount reads a file of one number, up to most: that of the only graph.
func readCount(fsys vfs.FS, path string, most uint64) (int64, error) {
	t, err := openText(fsys, path, "")
	if err != nil {
		return 0, err
	}
	defer t.Close()
	line, err := t.next()
	if err != nil && err != io.EOF {
		return 0, err
	}
	n, ok := parseUint(bytes.TrimSpace(line))
	if !ok || n > most {
		return 0, invalid(path, "line 1: found %.100q (want a number, at most %d)", line, most)
	}
	return int64(n), t.end()
}

// end fails if there is another line, as there is for each further graph.
func (t *textFile) end() error {
	_, err := t.next()
	switch {
	case err == nil:
		return t.errorf("the data set has more than one graph (want one)")
	case err == io.EOF:
		return nil
	}
	return err
}

// readOGBEdges reads edges, whose number is known.
func (l *edgeList) readOGBEdges(ctx context.Context, at ogbPlace) error {
	if at.array == "" {
		t := &textTable{header: numbered(2), fsys: l.fsys, path: at.path, sep: ',', id: -1}
		return l.readEdges(ctx, t, at.path, edgeColumns{header: t.header, destination: 1, weight: -1}, l.info.Edges)
	}
	return l.readArrayEdges(ctx, at, l.info.Edges)
}

// readArrayEdges reads an array [2,E] of an archive from front to end: all sources, then all destinations, or, in
// Fortran order, edge by edge.
func (l *edgeList) readArrayEdges(ctx context.Context, at ogbPlace, edges int64) error {
	a, err := l.openMember(at.path, at.array, fmt.Sprintf("integers [2,%d]", edges))
	if err != nil {
		return err
	}
	defer a.Close()
	if l.edges, err = l.scratch.newEdges(false, edges); err != nil {
		return err
	}
	l.edges.edges = edges
	nodes := [2]int64{cmp.Or(l.info.SourceNodes, l.info.Nodes), l.info.Nodes}
	err = each(ctx, a, func(i, v int64) error {
		column, edge := i/edges, i%edges
		if a.Fortran {
			column, edge = i%2, i/2
		}
		if uint64(v) >= uint64(nodes[column]) {
			id := fmt.Sprint(v)
			if a.Type == npy.Uint64 {
				id = fmt.Sprint(uint64(v))
			}
			return errNoNode(at.String(), edge, column, id, nodes[column])
		}
		if column == 1 && (edge+1)%edgeBlock == 0 {
			l.edges.task.Add(edgeBlock)
		}
		return l.edges.addTo(int(column), uint32(v))
	})
	if err != nil {
		return err
	}
	return l.edges.finish(ctx)
}

// openOGBFeatures opens the features of the nodes, whose number is known.
func (l *edgeList) openOGBFeatures(ctx context.Context, at ogbPlace) error {
	h, open, err := l.openOGBRows(at, l.info.Nodes)
	if err != nil {
		return err
	}
	l.features = open
	if err := l.setFeatures(at.String(), l.info.Nodes, h.Shape[1]); err != nil {
		return err
	}
	switch {
	case h.Fortran && l.info.Features > 1:
		f, err := npy.OpenStream(l.fsys, at.path, at.array)
		if err != nil {
			return err
		}
		defer f.Close()
		return l.copyColumns(ctx, f)
	case at.array != "":
		l.info.FeatureBytes = sparseBytes
	}
	return nil
}

// copyColumns puts features in Fortran order, whose columns come one after another, into a scratch file.
func (l *edgeList) copyColumns(ctx context.Context, a *npy.Stream) error {
	rows, columns := a.Shape[0], a.Shape[1]
	return l.copyFeatures((&streamReader{a}).Place, a.Header, func(m *scratchMatrix) error {
		block := make([]float32, min(edgeBlock, rows))
		for at, n := int64(0), int64(0); at < rows*columns; at += n {
			n = min(int64(len(block)), rows-at%rows)
			if err := errors.Join(context.Cause(ctx), npy.Next(a, block[:n])); err != nil {
				return err
			}
			if err := m.put(at%rows, at/rows, block[:n]); err != nil {
				return err
			}
		}
		return nil
	})
}

type streamReader struct{ *npy.Stream }

func (r *streamReader) Read(ctx context.Context, dst []float32) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return npy.Next(r.Stream, dst)
}

func (r *streamReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.Path(), row) }

// openOGBRows opens numbers, a row for each of this many nodes or edges.
func (l *edgeList) openOGBRows(at ogbPlace, rows int64) (h npy.Header, open func(int) (FeatureReader, error),
	err error) {
	if at.array != "" {
		f, err := l.openMember(at.path, at.array, fmt.Sprintf("numbers [%d,F]", rows))
		if err != nil {
			return h, nil, err
		}
		return f.Header, func(int) (FeatureReader, error) {
			f, err := npy.OpenStream(l.fsys, at.path, at.array)
			return &streamReader{f}, err
		}, f.Close()
	}
	t, err := openPlainTable(l.fsys, at.path)
	if err != nil {
		return h, nil, err
	}
	h.Shape = []int64{rows, int64(len(t.features))}
	return h, func(int) (FeatureReader, error) {
		r, err := t.read(t.features)
		place := func(row int64) string { return fmt.Sprintf("%s: line %d", at.path, row+1) }
		return &rowReader{rows: r, width: len(t.features), nodes: rows, at: place}, err
	}, nil
}

// readOGBEdgeFeatures makes the features of the edges, [E,F], the column edge_attr.
func (l *edgeList) readOGBEdgeFeatures(ctx context.Context, at ogbPlace) error {
	h, open, err := l.openOGBRows(at, l.edges.edges)
	if err != nil {
		return err
	}
	columns := h.Shape[1]
	if h.Fortran && columns > 1 {
		return invalid(at, "an array in Fortran order (want C order)")
	}
	in, err := open(1)
	if err != nil {
		return err
	}
	defer in.Close()
	c := &tableColumn{Column: format.NewColumn(format.OfEdges, "edge_attr", format.Float32, int(columns)),
		path: at.String()}
	if columns < 1 || c.Check() != nil {
		return invalid(at, "%d features an edge (want 1 to %d)", columns, format.MaxFeatures)
	}
	l.columns = append(l.columns, c)
	if err := l.createFiles(l.edges.edges, c); err != nil {
		return err
	}
	most := max(1, min(l.edges.edges, readBytes/(4*columns)))
	block := make([]float32, most*columns)
	for edge := int64(0); edge < l.edges.edges; edge += most {
		values := block[:min(most, l.edges.edges-edge)*columns]
		if err := in.Read(ctx, values); err != nil {
			return err
		}
		if i := slices.IndexFunc(values, func(v float32) bool { return v-v != 0 }); i >= 0 {
			return fmt.Errorf("%w: %s, column %d: %v %s", ErrInvalid, in.Place(edge+int64(i)/columns), int64(i)%columns,
				values[i], notFinite)
		}
		if err := c.put(dtype.BytesOf(values)); err != nil {
			return err
		}
	}
	return c.flush()
}

// readOGBColumn returns the function that makes integers of the nodes their column of that name.
func readOGBColumn(name string) func(*edgeList, context.Context, ogbPlace) error {
	return func(l *edgeList, ctx context.Context, at ogbPlace) error {
		c := &tableColumn{Column: format.NewColumn(format.OfNodes, name, dtype.Int64, 0), kind: npy.Int64,
			path: at.String()}
		l.columns = append(l.columns, c)
		if at.array == "" {
			t, err := openPlainTable(l.fsys, at.path)
			if err != nil {
				return err
			}
			return l.readNodeColumns(ctx, t, c)
		}
		a, err := l.openMember(at.path, at.array, ofNodes("integers [n] or [n,1]", l.info.Nodes))
		if err != nil {
			return err
		}
		defer a.Close()
		if err := l.createFiles(l.info.Nodes, c); err != nil {
			return err
		}
		if err := each(ctx, a, func(_, v int64) error { return c.put(dtype.BytesOf([]int64{v})) }); err != nil {
			return err
		}
		return c.flush()
	}
}

// openOGBLabels opens the labels of the nodes, whose number is known.
func (l *edgeList) openOGBLabels(_ context.Context, at ogbPlace) error {
	if at.array == "" {
		t, err := openPlainTable(l.fsys, at.path)
		if err != nil {
			return err
		}
		return l.openTableLabels(t)
	}
	open := func() (*npy.Stream, error) { return npy.OpenStream(l.fsys, at.path, at.array) }
	return l.addLabels(open, l.info.Nodes, l.files.LabelsAs, asNode)
}

package format

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// UpdatedFrom is the attribute (vfs.FS.Attribute) of a graph that has the path of the graph it was updated from. It is
// no part of the graph, whose bytes do not depend on how it came about.
const UpdatedFrom = "updated-from"

// A directory that is made from another one of its kind shares the parts that are the same (vfs.Share), since no file
// of a directory is ever changed in place.

// adopt takes the first parts of a table t of d over, instead of writing their chunks.
func (p *tableWriter) adopt(d *Dir, t *table, parts int) error {
	if parts == 0 {
		return nil
	}
	if err := p.abort(); err != nil {
		return err
	}
	p.file = nil
	root, err := p.w.fsys.Resolve(p.w.dir)
	if err != nil {
		return err
	}
	for k := range parts {
		entry := d.Manifest.Files[t.parts[k].file]
		from := entry.location(d.path)
		entry.Path = PartPath(p.table.folder, k)
		if entry.Source != "" {
			entry.Source, err = sourceName(p.w.fsys, root, entry.source)
		} else {
			err = vfs.Share(p.w.fsys, from, filepath.Join(p.w.outputDir, filepath.FromSlash(entry.Path)))
		}
		if err != nil {
			return err
		}
		p.files = append(p.files, writtenFile{entry, t.parts[k].extents})
	}
	last := &t.parts[parts-1]
	if p.part, p.nextChunk = parts, last.firstChunk+last.chunks(); p.nextChunk < p.table.chunks {
		return p.startPart()
	}
	return nil
}

// adoptTable takes a whole table of d over.
func (w *Writer) adoptTable(d *Dir, t table) error {
	if w.isFinished(t.folder) {
		return nil
	}
	p, err := w.newTable(t, 1)
	if err == nil {
		from := d.tables[t.folder]
		err = p.adopt(d, from, len(from.parts))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.folder, err)
	}
	return p.close()
}

// AdoptTopology takes topology and weights over from another graph, in place of StreamTopology.
func (w *Writer) AdoptTopology(from *Dir) error {
	m := &from.Manifest
	size := topologySize{m.Nodes, m.Edges, m.Weighted}
	if err := w.reserve(func() bool { return w.topology == nil }, func() { w.topology = &size }); err != nil {
		return err
	}
	err := w.adoptTable(from, topologyTable(m.Nodes, m.Edges))
	if err == nil && m.Weighted {
		err = w.adoptTable(from, weightsTable(m.Edges))
	}
	return err
}

// AdoptRows takes the row table over from another directory with the same regions, in place of Rows.
func (w *Writer) AdoptRows(from *Dir) error {
	summary := from.Manifest.rowSummary()
	if err := w.reserve(func() bool { return w.rows == nil }, func() { w.rows = summary }); err != nil {
		return err
	}
	if summary.columns == (rowColumns{}) {
		return nil
	}
	return w.adoptTable(from, summary.columns.table(w.layout))
}

// Adopt begins a matrix, before any Write, with the first parts of a matrix of another directory that is the same up to
// row same. It returns how many rows it took over; the others are to be written.
func (m *MatrixWriter) Adopt(from *Matrix, same int64) (rows int64, err error) {
	l := &from.Layout
	if l.Features != m.layout.Features || l.DType != m.layout.DType || l.ChunkRows != m.layout.ChunkRows ||
		len(l.Regions) > 1 && !slices.Equal(l.Regions, m.layout.Regions) {
		return 0, nil
	}
	parts := 0
	for i := range from.table.parts {
		part := &from.table.parts[i]
		end := part.firstChunk + part.chunks()
		if end > m.p.table.chunks || end < m.p.table.chunks && part.chunks() != m.p.chunksPerPart {
			break
		}
		first, n := l.chunk(end - 1)
		if _, own := m.layout.chunk(end - 1); own != n || first+int64(n) > same {
			break
		}
		rows, parts = first+int64(n), i+1
	}
	return rows, m.p.adopt(from.dir, from.table, parts)
}

// rowSummary is that of the row table of a complete directory.
func (m *Manifest) rowSummary() *rowSummary {
	return &rowSummary{m.rowColumns(), int32(m.Classes) - 1, uint32(max(m.Nodes, 1) - 1)}
}

// HasRowsOf tells whether a task has written the rows of a store, with labels and splits of a graph. If so, Writer.Rows
// need not be called.
func (w *Writer) HasRowsOf(graph *Manifest) bool {
	s := graph.rowSummary()
	s.columns.node = true
	return w.isFinished(s.columns.table(w.layout).folder) &&
		w.reserve(func() bool { return w.rows == nil }, func() { w.rows = s }) == nil
}

// SameTopology tells whether two graphs have the same edges and weights, as their checksums tell.
func SameTopology(a, b *Dir) bool {
	return a.Manifest.Nodes == b.Manifest.Nodes && a.Manifest.Edges == b.Manifest.Edges &&
		a.Manifest.Weighted == b.Manifest.Weighted && sameParts(a, b, topologyFolder) && sameParts(a, b, weightsFolder)
}

// SameFeatures tells whether two graphs have the same features, as their checksums tell.
func SameFeatures(a, b *Dir) bool {
	return a.layout.Features == b.layout.Features && a.layout.DType == b.layout.DType &&
		a.Manifest.Rows == b.Manifest.Rows && sameParts(a, b, MatrixFolder(Input))
}

// sameParts tells whether a table has the same bytes in two directories, as their checksums tell.
func sameParts(a, b *Dir, folder string) bool {
	ta, tb := a.tables[folder], b.tables[folder]
	if ta == nil || tb == nil {
		return ta == tb
	}
	return slices.EqualFunc(ta.parts, tb.parts, func(p, q part) bool {
		return a.Manifest.Files[p.file].CRC32C == b.Manifest.Files[q.file].CRC32C && slices.Equal(p.extents, q.extents)
	})
}

package format

import "fmt"

// OpenFinished opens a matrix that this job has finished, before Publish, so that the
// job can read it. The caller closes it.
func (w *Writer) OpenFinished(id MatrixID) (*Matrix, error) {
	t := matrixTable(id, w.layout)
	d := &Dir{fsys: w.fsys, path: w.outputDir, layout: w.layout}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.finished[t.folder] {
		return nil, fmt.Errorf("%s: %s is not finished", w.dir, id)
	}
	byPath := map[string]writtenFile{}
	for _, f := range w.files {
		byPath[f.Path] = f
	}
	chunks := 0
	for chunks < t.chunks {
		f, ok := byPath[PartPath(t.folder, len(t.parts))]
		p := part{file: len(t.parts), firstChunk: chunks, extentStarts: []int{0}}
		for _, e := range f.extents { // one a chunk
			p.extents = append(p.extents, indexRow{uint32(p.file), e.CRC32C, e.Offset, e.Length})
			p.extentStarts = append(p.extentStarts, len(p.extents))
		}
		if chunks += p.chunks(); !ok || p.chunks() == 0 || chunks > t.chunks {
			return nil, &CorruptError{w.jobPath(recordName(t.folder)), -1, "it does not list the files of the table"}
		}
		for i, e := range p.extents {
			if _, rows := w.layout.chunk(p.firstChunk + i); e.length != int64(rows)*w.layout.rowBytes() {
				return nil, &CorruptError{w.jobPath(recordName(t.folder)), -1, "its chunks are not those of the layout"}
			}
		}
		d.Manifest.Files = append(d.Manifest.Files, f.FileEntry)
		t.parts = append(t.parts, p)
	}
	return &Matrix{ID: id, Layout: w.layout, dir: d, table: &t}, nil
}

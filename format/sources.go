package format

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// SourceFile is a file of the user's that has features of a graph: Rows rows in node order, row-major, in the
// layout's element type, little endian, from byte Offset on.
type SourceFile struct {
	Path   string
	Offset int64
	Rows   int64
}

// UseSources takes the input features of a graph from files that stay where they are, so that no MatrixWriter copies
// them. The files, one after another, hold the rows of all nodes, and every file but the last holds whole
// chunks. UseSources reads every byte for its checksum, and calls check with the rows of each chunk from up to
// threads goroutines at a time.
func (w *Writer) UseSources(ctx context.Context, files []SourceFile, threads int,
	check func(firstRow int64, data []byte) error) error {
	if w.kind != KindGraph || w.layout.Features == 0 || w.layout.rows() == 0 {
		return fmt.Errorf("%s: only a graph with features can leave them in their source files", w.dir)
	}
	if err := w.reserve(func() bool { return !w.started[Input] }, func() { w.started[Input] = true }); err != nil {
		return fmt.Errorf("%s: %w", Input, err)
	}
	if err := checkPartCount(MatrixFolder(Input), len(files), 1); err != nil {
		return fmt.Errorf("%s: %w", w.dir, err)
	}
	root, err := w.fsys.Resolve(w.dir)
	if err != nil {
		return err
	}
	row := int64(0)
	for k, file := range files {
		if left := w.layout.rows() - row; file.Rows < 1 || file.Rows > left ||
			(k < len(files)-1) != (file.Rows < left) || file.Rows < left && file.Rows%int64(w.layout.ChunkRows) != 0 {
			return fmt.Errorf("%s: it gives %d rows where %d are left, in chunks of %d rows (each file but the last "+
				"must hold whole chunks, and all files together all rows)", file.Path, file.Rows, left,
				w.layout.ChunkRows)
		}
		written, err := w.layout.checksumSource(ctx, w.fsys, file, row, threads, check)
		if err != nil {
			return err
		}
		written.Path = PartPath(MatrixFolder(Input), k)
		if written.Source, err = sourceName(w.fsys, root, file.Path); err != nil {
			return err
		}
		w.mu.Lock()
		w.files = append(w.files, *written)
		w.mu.Unlock()
		row += file.Rows
	}
	return nil
}

// sourceName is the field source for a file: its path relative to the directory root.
func sourceName(fsys vfs.FS, root, path string) (string, error) {
	at, err := fsys.Resolve(path)
	if err != nil {
		return "", err
	}
	if err := checkText(at); err != nil {
		return "", fmt.Errorf("%s: a manifest cannot hold this path: %w", path, err)
	}
	if relative, err := filepath.Rel(root, at); err == nil {
		at = relative
	}
	return filepath.ToSlash(at), nil
}

// checksumSource reads a source file whose first row is row firstRow of the layout, and returns its entry and extents.
func (l *Layout) checksumSource(ctx context.Context, fsys vfs.FS, file SourceFile, firstRow int64, threads int,
	check func(int64, []byte) error) (*writtenFile, error) {
	f, size, err := vfs.OpenSized(fsys, file.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if bytes := file.Rows * l.rowBytes(); file.Offset < 0 || file.Offset > size-bytes {
		return nil, fmt.Errorf("%s: %d rows of %d bytes from byte %d on do not fit in its %d bytes", file.Path,
			file.Rows, l.rowBytes(), file.Offset, size)
	}
	first := l.chunkOf(firstRow)
	extents := make([]arrowfile.Extent, l.chunkOf(firstRow+file.Rows-1)+1-first)
	err = parallel.For(ctx, threads, int64(len(extents)), 4, func(lo, hi int64) error {
		buf := make([]byte, l.chunkBytes())
		for k := lo; k < hi; k++ {
			row, rows := l.chunk(first + int(k))
			e := &extents[k]
			e.Offset, e.Length = file.Offset+(row-firstRow)*l.rowBytes(), int64(rows)*l.rowBytes()
			data := buf[:e.Length]
			if n, err := f.ReadAt(data, e.Offset); n < len(data) {
				return cutOff(f.Path(), int(k), e.Offset+int64(n), err)
			}
			e.CRC32C = kernel.CRC32C(0, data)
			if err := check(row, data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	crc, err := checksumOutside(f, size, extents, make([]byte, outsideBufferBytes), func(int64) {})
	if err != nil {
		return nil, err
	}
	return &writtenFile{FileEntry{Size: size, CRC32C: hex32(crc), Offset: file.Offset}, extents}, nil
}

// checkSource fails if the fields source and offset of an entry cannot be right.
func (f *FileEntry) checkSource(kind, folder string) error {
	if f.Source == "" && f.Offset == 0 {
		return nil
	}
	if kind != KindGraph || folder != MatrixFolder(Input) || f.Source == "" || f.Offset < 0 || f.Offset > f.Size {
		return fmt.Errorf("file %q cannot have offset %d in source %q", f.Path, f.Offset, f.Source)
	}
	return checkText(f.Source)
}

// findSources sets the absolute path of each source file. A relative path starts at the directory itself, whatever
// links lead there.
func (m *Manifest) findSources(fsys vfs.FS, dir string) error {
	root := ""
	for i := range m.Files {
		f := &m.Files[i]
		if f.Source == "" {
			continue
		}
		f.source = filepath.FromSlash(f.Source)
		if filepath.IsAbs(f.source) || vfs.IsURL(f.source) {
			continue
		}
		if root == "" {
			var err error
			if root, err = fsys.Resolve(dir); err != nil {
				return err
			}
		}
		f.source = filepath.Join(root, f.source)
	}
	return nil
}

// Sources lists the source files that features were left in, as absolute paths.
func (m *Manifest) Sources() (paths []string) {
	for i := range m.Files {
		if f := &m.Files[i]; f.Source != "" {
			paths = append(paths, f.source)
		}
	}
	return paths
}

// location is the path of the file that holds the data of an entry.
func (f *FileEntry) location(dir string) string {
	if f.Source != "" {
		return f.source
	}
	return filepath.Join(dir, filepath.FromSlash(f.Path))
}

// withSourceHint adds to damage of a source file what the user can do.
func (f *FileEntry) withSourceHint(err error) error {
	var damage *CorruptError
	if f.Source == "" || !errors.As(err, &damage) {
		return err
	}
	return &CorruptError{damage.File, damage.Chunk, damage.Reason +
		" (features were left in this file: put it back as it was, or import again)"}
}

package format

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// External is a file of somebody else's with features of a graph: rows in node
// order, row-major, in the layout's element type, little endian, from byte Offset on.
type External struct {
	Path   string
	Offset int64
	Rows   int64
}

// External makes files the input features of a graph, where they are, in place of
// a MatrixWriter: their rows one after another are those of all nodes. All files
// but the last have whole chunks. Every byte is read, for its checksum, and the
// rows of each chunk are given to check, from up to threads goroutines at a time.
func (w *Writer) External(ctx context.Context, files []External, threads int, check func(firstRow int64, data []byte) error) error {
	if w.kind != KindGraph || w.layout.Features == 0 || w.layout.rows() == 0 {
		return fmt.Errorf("%s: only a graph with features can have them elsewhere", w.dir)
	}
	if err := w.claim(func() bool { return !w.matrices[Input] }, func() { w.matrices[Input] = true }); err != nil {
		return fmt.Errorf("%s: %w", Input, err)
	}
	root, err := w.fsys.Resolve(w.dir)
	if err != nil {
		return err
	}
	row := int64(0)
	for k, file := range files {
		if left := w.layout.rows() - row; file.Rows < 1 || file.Rows > left || (k < len(files)-1) != (file.Rows < left) || file.Rows < left && file.Rows%int64(w.layout.ChunkRows) != 0 {
			return fmt.Errorf("%s: %d rows cannot be the next of %d in chunks of %d", file.Path, file.Rows, left, w.layout.ChunkRows)
		}
		written, err := w.layout.fingerprint(ctx, w.fsys, file, row, threads, check)
		if err != nil {
			return err
		}
		written.Path = partPath(matrixFolder(Input), k)
		if written.Source, err = sourceOf(w.fsys, root, file.Path); err != nil {
			return err
		}
		w.mu.Lock()
		w.files = append(w.files, *written)
		w.mu.Unlock()
		row += file.Rows
	}
	return nil
}

// sourceOf is how a manifest in root names a file elsewhere.
func sourceOf(fsys vfs.FS, root, path string) (string, error) {
	at, err := fsys.Resolve(path)
	if err != nil {
		return "", err
	}
	if err := checkText(at); err != nil {
		return "", fmt.Errorf("%s: a manifest cannot name it: %w", path, err)
	}
	if relative, err := filepath.Rel(root, at); err == nil {
		at = relative
	}
	return filepath.ToSlash(at), nil
}

// fingerprint reads a file whose first row is row firstRow of the layout.
func (l *Layout) fingerprint(ctx context.Context, fsys vfs.FS, file External, firstRow int64, threads int, check func(int64, []byte) error) (*writtenFile, error) {
	f, err := fsys.Open(file.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if bytes := file.Rows * l.rowBytes(); file.Offset < 0 || file.Offset > size-bytes {
		return nil, fmt.Errorf("%s: no %d rows of %d bytes from byte %d on in %d bytes", file.Path, file.Rows, l.rowBytes(), file.Offset, size)
	}
	first := l.chunkOf(firstRow)
	extents := make([]indexRow, l.chunkOf(firstRow+file.Rows-1)+1-first)
	err = parallel.For(ctx, threads, int64(len(extents)), 4, func(lo, hi int64) error {
		buf := make([]byte, int64(l.ChunkRows)*l.rowBytes())
		for k := lo; k < hi; k++ {
			row, rows := l.chunk(first + int(k))
			e := &extents[k]
			e.offset, e.length = file.Offset+(row-firstRow)*l.rowBytes(), int64(rows)*l.rowBytes()
			data := buf[:e.length]
			if n, err := f.ReadAt(data, e.offset); n < len(data) {
				return cutOff(f.Path(), int(k), e.offset+int64(n), err)
			}
			e.crc = crc32.Checksum(data, castagnoli)
			if err := check(row, data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	crc, err := outside(f, size, extents, make([]byte, outsideBytes), func(int64) {})
	if err != nil {
		return nil, err
	}
	out := &writtenFile{FileEntry: FileEntry{Size: size, CRC32C: hex32(crc), Offset: file.Offset}}
	for _, e := range extents {
		out.extents = append(out.extents, arrowfile.Extent{Offset: e.offset, Length: e.length, CRC32C: e.crc})
	}
	return out, nil
}

// checkSource fails for an entry that cannot be of a file elsewhere.
func (f *FileEntry) checkSource(kind, folder string) error {
	if f.Source == "" && f.Offset == 0 {
		return nil
	}
	if kind != KindGraph || folder != matrixFolder(Input) || f.Source == "" || f.Offset < 0 || f.Offset > f.Size {
		return fmt.Errorf("file %q cannot lie at byte %d of %q", f.Path, f.Offset, f.Source)
	}
	return checkText(f.Source)
}

// findSources finds out where the files are that are not in the directory. A path
// relative to it starts from where it really is, whatever links lead there.
func (m *Manifest) findSources(fsys vfs.FS, dir string) error {
	root := ""
	for i := range m.Files {
		f := &m.Files[i]
		if f.Source == "" {
			continue
		}
		f.source = filepath.FromSlash(f.Source)
		if filepath.IsAbs(f.source) {
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

// Elsewhere lists the files that are not in the directory.
func (m *Manifest) Elsewhere() (paths []string) {
	for i := range m.Files {
		if f := &m.Files[i]; f.Source != "" {
			paths = append(paths, f.source)
		}
	}
	return paths
}

// in is where the file of a directory is.
func (f *FileEntry) in(dir string) string {
	if f.Source != "" {
		return f.source
	}
	return filepath.Join(dir, filepath.FromSlash(f.Path))
}

// explain says of damage to a file elsewhere what to do.
func (f *FileEntry) explain(err error) error {
	var damage *CorruptError
	if f.Source == "" || !errors.As(err, &damage) {
		return err
	}
	return &CorruptError{damage.File, damage.Chunk, damage.Reason + " (features were left in this file: put it back as it was, or import again)"}
}

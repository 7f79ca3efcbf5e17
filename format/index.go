package format

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// indexRow is one row of index.arrow. A chunk of a feature matrix is one extent; longer chunks are several, of
// arrowfile.ExtentBytes each but the last.
type indexRow struct {
	file uint32 // in Manifest.Files
	arrowfile.Extent
}

// indexSchema has the rows of the index sorted by file, then offset, in one record batch.
var indexSchema = newSchema(
	arrow.Field{Name: "file", Type: arrow.PrimitiveTypes.Uint32},
	arrow.Field{Name: "offset", Type: arrow.PrimitiveTypes.Uint64},
	arrow.Field{Name: "length", Type: arrow.PrimitiveTypes.Uint64},
	arrow.Field{Name: "crc32c", Type: arrow.PrimitiveTypes.Uint32},
)

func encodeIndex(index []indexRow) ([]byte, error) {
	files, crcs := make([]uint32, len(index)), make([]uint32, len(index))
	offsets, lengths := make([]uint64, len(index)), make([]uint64, len(index))
	for i, r := range index {
		files[i], offsets[i], lengths[i], crcs[i] = r.file, uint64(r.Offset), uint64(r.Length), r.CRC32C
	}
	var buf bytes.Buffer
	w, err := arrowfile.NewWriter(&buf, indexSchema)
	if err != nil {
		return nil, err
	}
	if err := w.Batch(int64(len(index)), dtype.BytesOf(files), dtype.BytesOf(offsets), dtype.BytesOf(lengths),
		dtype.BytesOf(crcs)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// decodeIndex is the inverse of encodeIndex. It checks that extents are sorted and lie inside their files: in a part
// each begins at a multiple of arrowfile.Align; in a source file each begins where the one before ends.
func decodeIndex(b []byte, files []FileEntry) ([]indexRow, error) {
	batches, err := arrowfile.ReadBatches(bytes.NewReader(b), int64(len(b)), indexSchema)
	if err != nil {
		return nil, err
	}
	if len(batches) != 1 {
		return nil, fmt.Errorf("it has %d record batches, want 1", len(batches))
	}
	column := func(i int) []byte {
		at := batches[0].Buffers[i]
		return bytes.Clone(b[at.Offset : at.Offset+at.Length])
	}
	fileOf, offsets, lengths, crcs := dtype.As[uint32](column(0)), dtype.As[uint64](column(1)),
		dtype.As[uint64](column(2)), dtype.As[uint32](column(3))
	index := make([]indexRow, len(fileOf))
	end := uint64(0) // of the extent before, in the same file
	for i := range index {
		file, offset, length := fileOf[i], offsets[i], lengths[i]
		if int(file) >= len(files) || i > 0 && file < fileOf[i-1] {
			return nil, fmt.Errorf("row %d: file %d is out of order, or not in the manifest", i, file)
		}
		if i == 0 || file != fileOf[i-1] {
			end = uint64(files[file].Offset)
		}
		size, placed := uint64(files[file].Size), offset >= end && offset%arrowfile.Align == 0
		if files[file].Source != "" {
			placed = offset == end
		}
		if !placed || length == 0 || length > arrowfile.ExtentBytes || offset > size || length > size-offset {
			return nil, fmt.Errorf("row %d: no chunk can have %d bytes from byte %d on of %s, a file of %d bytes", i,
				length, offset, files[file].Path, size)
		}
		end = offset + length
		index[i] = indexRow{file, arrowfile.Extent{Offset: int64(offset), Length: int64(length), CRC32C: crcs[i]}}
	}
	return index, nil
}

// readVersion reads the manifest and its index. If only the index is damaged, it returns the manifest with the error.
// While an extension is published, its index is still in .job, and both files may be replaced between the two reads:
// so the index counts as damaged only if it fails again with the same manifest.
func readVersion(fsys vfs.FS, dir string) (*Manifest, []indexRow, error) {
	var before *Manifest
	for {
		m, err := readManifest(fsys, dir)
		if err != nil {
			return nil, nil, err
		}
		index, err := readIndex(fsys, filepath.Join(dir, indexName), m)
		if errors.Is(err, ErrCorrupt) {
			if next, jobErr := readIndex(fsys, filepath.Join(dir, jobFolder, indexName), m); jobErr == nil {
				index, err = next, nil
			}
		}
		if !errors.Is(err, ErrCorrupt) || before != nil && before.CRC32C == m.CRC32C {
			return m, index, err
		}
		before = m
	}
}

// readIndex reads and checks the index of a manifest.
func readIndex(fsys vfs.FS, path string, m *Manifest) ([]indexRow, error) {
	if err := checkSize(fsys, path, m.IndexSize); err != nil {
		return nil, err
	}
	b, err := readFile(fsys, path, m.IndexSize)
	if err != nil {
		return nil, err
	}
	if found := hex32(kernel.CRC32C(0, b)); found != m.IndexCRC32C {
		return nil, &CorruptError{path, -1, fmt.Sprintf("its bytes have checksum %s, want %s", found, m.IndexCRC32C)}
	}
	index, err := decodeIndex(b, m.Files)
	if err != nil {
		return nil, &CorruptError{path, -1, err.Error()}
	}
	if m.fingerprint(index) != m.Fingerprint {
		return nil, &CorruptError{filepath.Join(filepath.Dir(path), manifestName), -1,
			"its fingerprint does not match manifest and index"}
	}
	return index, nil
}

// findParts are the tables of a directory with their parts.
func findParts(m *Manifest, index []indexRow) ([]table, error) {
	extents := make([][]arrowfile.Extent, len(m.Files))
	for _, r := range index {
		extents[r.file] = append(extents[r.file], r.Extent)
	}
	tables := m.tables()
	for i := range tables {
		if err := tables[i].findParts(m, extents); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// findParts sets the parts of a table, given the extents of each of m.Files. It fails if they do not match the
// table's chunks.
func (t *table) findParts(m *Manifest, extents [][]arrowfile.Extent) error {
	next := 0
	for k := 0; ; k++ {
		file, ok := m.findFile(PartPath(t.folder, k))
		if !ok {
			break
		}
		p := part{file: file, firstChunk: next, extents: extents[file], extentStarts: []int{0}}
		for at := 0; at < len(p.extents); {
			if next == t.chunks {
				return fmt.Errorf("it has chunks of %s beyond the %d of its table", m.Files[file].Path, t.chunks)
			}
			length := p.extents[at].Length
			for at++; at < len(p.extents) && p.extents[at-1].Length == arrowfile.ExtentBytes &&
				p.extents[at].Offset == p.extents[at-1].Offset+arrowfile.ExtentBytes; at++ {
				length += p.extents[at].Length
			}
			if want, exact := t.dataBytes(next); length < want || exact && length != want {
				return fmt.Errorf("it gives chunk %[2]d of %[1]s %[3]d bytes, want %[4]d", m.Files[file].Path,
					next-p.firstChunk, length, want)
			}
			p.extentStarts = append(p.extentStarts, at)
			next++
		}
		if p.chunks() == 0 && t.chunks > 0 {
			return fmt.Errorf("it has no chunk of %s", m.Files[file].Path)
		}
		t.parts = append(t.parts, p)
	}
	if next != t.chunks {
		return fmt.Errorf("it has %[2]d chunks of the table in %[1]s, want %[3]d", t.folder, next, t.chunks)
	}
	return nil
}

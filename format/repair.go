package format

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// OpenDamaged opens a directory as OpenAny does, though parts may be missing or of another size. Manifest and index
// must be sound.
func OpenDamaged(fsys vfs.FS, dir string) (*Dir, error) {
	m, index, err := readVersion(fsys, dir)
	if err != nil {
		return nil, err
	}
	return newDir(fsys, dir, m, index)
}

// DamagedChunks lists the chunks of a part, named as in the manifest, whose bytes cannot be read or do not match the
// index. They are counted over all parts of the table, as Layout counts them.
func (d *Dir) DamagedChunks(ctx context.Context, file string) ([]int, error) {
	_, p, err := d.ownPart(file)
	if err != nil {
		return nil, err
	}
	f, err := d.openIfThere(p)
	if err != nil {
		return nil, err
	}
	if f != nil {
		defer f.Close()
	}
	var bad []int
	var buf []byte
	for k := range p.chunks() {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if f != nil {
			if buf, err = p.read(f, k, buf); err == nil {
				continue
			}
		}
		bad = append(bad, p.firstChunk+k)
	}
	return bad, nil
}

// RepairPart writes a damaged or missing part again. It copies the sound chunks, and for each of the others
// (DamagedChunks) calls chunk, which fills dst with what was stored. The new part replaces the old one only if all
// its bytes have the checksums of index and manifest; else the old one stays, and the error is ErrCorrupt. No job may
// be running on the directory.
func (d *Dir) RepairPart(ctx context.Context, file string, chunk func(k int, dst []byte) error) error {
	t, p, err := d.ownPart(file)
	if err != nil {
		return err
	}
	w := newWriter(d.fsys, d.path, d.Manifest.Kind, d.layout, "")
	if err := w.acquireLock(); err != nil {
		return err
	}
	return w.releaseDir(d.repairPart(ctx, t, p, chunk))
}

func (d *Dir) repairPart(ctx context.Context, t *table, p *part, chunk func(k int, dst []byte) error) error {
	entry, path := &d.Manifest.Files[p.file], d.filePath(p.file)
	if m, err := readManifest(d.fsys, d.path); err != nil {
		return err
	} else if m.CRC32C != d.Manifest.CRC32C {
		return fmt.Errorf("%s: another command has changed it since it was opened (run the command again)", d.path)
	}
	old, err := d.openIfThere(p)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
	}
	if err := d.fsys.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	file, err := vfs.CreateStream(d.fsys, path, entry.Size)
	if err != nil {
		return err
	}
	defer file.Abort()
	out, err := arrowfile.NewWriter(file, t.schema)
	if err != nil {
		return err
	}
	var data []byte
	for k := range p.chunks() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err = fs.ErrNotExist
		if old != nil {
			data, err = p.read(old, k, data)
		}
		if err != nil {
			data = slices.Grow(data[:0], int(p.bytes(k)))[:p.bytes(k)]
			clear(data) // padding between buffers
			if err := chunk(p.firstChunk+k, data); err != nil {
				return err
			}
			if !p.matches(k, data) {
				return &CorruptError{path, k, "it is damaged, and what was computed in its place is not what was " +
					"stored, so the file was left as it is (is this the graph that the store was made from? else " +
					"propagate again with --force)"}
			}
		}
		if err := t.write(out, p.firstChunk+k, data); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if out.Size() != entry.Size || hex32(out.CRC32C()) != entry.CRC32C {
		return &CorruptError{path, -1,
			fmt.Sprintf("it is damaged, and written again it has %d bytes and checksum %s outside of its chunks, "+
				"want %d and %s, so the file was left as it is (propagate again with --force)",
				out.Size(), hex32(out.CRC32C()), entry.Size, entry.CRC32C)}
	}
	return file.Commit()
}

// RepairRows writes a damaged or missing part of the row table again, as RepairPart does.
func (d *Dir) RepairRows(ctx context.Context, file string, rows *RowTable) error {
	summary, err := rows.summarize(d.Manifest.Kind, d.layout.rows())
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if summary.columns != d.Manifest.rowColumns() {
		return fmt.Errorf("%s: the row table given has other columns than the one stored", d.path)
	}
	return d.RepairPart(ctx, file, func(k int, dst []byte) error {
		buffers := rows.buffers(d.layout.chunk(k))
		at, end := arrowfile.Place(lengthsOf(buffers)...)
		if end != int64(len(dst)) {
			return nil // RepairPart then finds that dst is not what was stored
		}
		for i, b := range buffers {
			copy(dst[at[i]:], b)
		}
		return nil
	})
}

// ownPart finds a part, and its table, that is a file of the directory.
func (d *Dir) ownPart(file string) (*table, *part, error) {
	i, ok := d.Manifest.findFile(file)
	if !ok {
		return nil, nil, fmt.Errorf("%s has no part %s", d.path, file)
	}
	if source := d.Manifest.Files[i].Source; source != "" {
		return nil, nil, fmt.Errorf("%s: the features of this graph are in %s, which only you can repair (put it "+
			"back as it was, or import again)", d.path, d.filePath(i))
	}
	folder, k, _ := splitPart(file)
	t := d.tables[folder]
	return t, &t.parts[k], nil
}

// openIfThere opens the file of a part; nil if there is none.
func (d *Dir) openIfThere(p *part) (vfs.File, error) {
	path := d.filePath(p.file)
	if info, err := d.fsys.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &CorruptError{path, -1, "it is not a regular file: move it away, and repair again"}
	}
	f, err := d.fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// write writes chunk k, whose data are laid out as in a body.
func (t *table) write(out *arrowfile.Writer, k int, data []byte) error {
	lengths, at := t.buffers(k, int64(len(data)))
	if err := out.Begin(t.rows(k), lengths...); err != nil {
		return err
	}
	for i := range lengths {
		if _, err := out.Write(data[at[i]:][:lengths[i]]); err != nil {
			return err
		}
	}
	return out.End()
}

// bytes is the length of the data of chunk k of the part.
func (p *part) bytes(k int) (n int64) {
	for _, e := range p.extents[p.extentStarts[k]:p.extentStarts[k+1]] {
		n += e.Length
	}
	return n
}

// read reads the data of chunk k into buf, or larger memory, and checks it.
func (p *part) read(f vfs.File, k int, buf []byte) ([]byte, error) {
	n := int(p.bytes(k))
	buf = slices.Grow(buf[:0], n)[:n]
	at := int64(0)
	for _, e := range p.extents[p.extentStarts[k]:p.extentStarts[k+1]] {
		if err := readExtent(f, k, e, buf[at:at+e.Length]); err != nil {
			return buf, err
		}
		at += e.Length
	}
	return buf, nil
}

// matches tells whether data have the checksums of chunk k.
func (p *part) matches(k int, data []byte) bool {
	for _, e := range p.extents[p.extentStarts[k]:p.extentStarts[k+1]] {
		if kernel.CRC32C(0, data[:e.Length]) != e.CRC32C {
			return false
		}
		data = data[e.Length:]
	}
	return true
}

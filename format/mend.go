package format

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// OpenDamaged is OpenAny for a directory of which parts may be missing or too
// short. Manifest and index must be sound.
func OpenDamaged(fsys vfs.FS, dir string) (*Dir, error) {
	m, index, err := readVersion(fsys, dir)
	if err != nil {
		return nil, err
	}
	return newDir(fsys, dir, m, index)
}

// DamagedChunks lists the chunks of a part, named as in the manifest, whose bytes
// cannot be read or are not those of the index. They are counted over all parts of
// the table, as Layout counts them.
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
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f != nil {
			if buf, err = p.read(f, k, buf); err == nil {
				continue
			}
		}
		bad = append(bad, p.first+k)
	}
	return bad, nil
}

// Mend writes a part anew that is damaged or missing. Chunks that are sound are
// copied; for each of the others, DamagedChunks, chunk is asked to fill dst with
// what was stored. The part is replaced when all its bytes are those that index and
// manifest call for; if they cannot be had, it stays as it is, and the error is
// ErrCorrupt. No job may be running on the directory.
func (d *Dir) Mend(ctx context.Context, file string, chunk func(k int, dst []byte) error) error {
	t, p, err := d.ownPart(file)
	if err != nil {
		return err
	}
	w := newWriter(d.fsys, d.path, d.Manifest.Kind, d.layout, "")
	if err := w.takeLock(); err != nil {
		return err
	}
	return w.giveUp(d.mend(ctx, t, p, chunk))
}

func (d *Dir) mend(ctx context.Context, t *table, p *part, chunk func(k int, dst []byte) error) error {
	entry, path := &d.Manifest.Files[p.file], d.filePath(p.file)
	if m, err := readManifest(d.fsys, d.path); err != nil {
		return err
	} else if m.CRC32C != d.Manifest.CRC32C {
		return fmt.Errorf("%s has changed since it was opened (try again)", d.path)
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
	pending, err := d.fsys.Create(path)
	if err != nil {
		return err
	}
	defer pending.Abort()
	buffer := bufio.NewWriterSize(pending, writeBytes)
	out, err := arrowfile.NewWriter(buffer, t.schema)
	if err != nil {
		return err
	}
	var data []byte
	for k := range p.chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		err = fs.ErrNotExist
		if old != nil {
			data, err = p.read(old, k, data)
		}
		if err != nil {
			data = slices.Grow(data[:0], int(p.bytes(k)))[:p.bytes(k)]
			clear(data) // padding between buffers
			if err := chunk(p.first+k, data); err != nil {
				return err
			}
			if !p.matches(k, data) {
				return &CorruptError{path, k, "it is damaged, and what was given in its place is not what was stored"}
			}
		}
		minBody := t.minBody
		if k == p.chunks()-1 {
			minBody = 0
		}
		if err := t.write(out, p.first+k, minBody, data); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Close(), buffer.Flush()); err != nil {
		return err
	}
	if out.Size() != entry.Size || hex32(out.CRC32C()) != entry.CRC32C {
		return &CorruptError{path, -1, fmt.Sprintf("it is damaged, and written anew it has %d bytes and checksum %s outside of chunks, want %d and %s",
			out.Size(), hex32(out.CRC32C()), entry.Size, entry.CRC32C)}
	}
	return pending.Commit()
}

// MendRows is Mend for a part of the row table.
func (d *Dir) MendRows(ctx context.Context, file string, rows *RowTable) error {
	summary, err := rows.summarize(d.Manifest.Kind, d.layout.rows())
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if summary.columns != d.Manifest.rowColumns() {
		return fmt.Errorf("%s: the row table given has other columns than the one stored", d.path)
	}
	return d.Mend(ctx, file, func(k int, dst []byte) error {
		buffers := rows.buffers(d.layout.chunk(k))
		at, end := arrowfile.Place(lengthsOf(buffers)...)
		if end != int64(len(dst)) {
			return nil // which is then found not to be what was stored
		}
		for i, b := range buffers {
			copy(dst[at[i]:], b)
		}
		return nil
	})
}

// ownPart finds a part, and its table, that is a file of the directory.
func (d *Dir) ownPart(file string) (*table, *part, error) {
	i, ok := d.Manifest.find(file)
	if !ok {
		return nil, nil, fmt.Errorf("%s has no part %s", d.path, file)
	}
	if source := d.Manifest.Files[i].Source; source != "" {
		return nil, nil, fmt.Errorf("%s: features were left in %s, which is not ours to mend", d.path, d.filePath(i))
	}
	folder, k, _ := splitPart(file)
	t := d.table(folder)
	return t, &t.parts[k], nil
}

// openIfThere opens the file of a part; nil where there is none.
func (d *Dir) openIfThere(p *part) (vfs.File, error) {
	f, err := d.fsys.Open(d.filePath(p.file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// write writes chunk k, all its buffers as they are placed.
func (t *table) write(out *arrowfile.Writer, k int, minBody int64, data []byte) error {
	rows := t.rows(k)
	lengths := t.lengths(rows)
	if last := len(lengths) - 1; lengths[last] < 0 {
		lengths[last] = 0
		_, least := arrowfile.Place(lengths...)
		lengths[last] = int64(len(data)) - least
	}
	at, _ := arrowfile.Place(lengths...)
	if err := out.Begin(rows, minBody, lengths...); err != nil {
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
	for _, e := range p.extents[p.starts[k]:p.starts[k+1]] {
		n += e.length
	}
	return n
}

// read reads the data of chunk k into buf, or larger memory, and checks it.
func (p *part) read(f vfs.File, k int, buf []byte) ([]byte, error) {
	n := int(p.bytes(k))
	buf = slices.Grow(buf[:0], n)[:n]
	at := int64(0)
	for _, e := range p.extents[p.starts[k]:p.starts[k+1]] {
		if err := readExtent(f, k, e, buf[at:at+e.length]); err != nil {
			return buf, err
		}
		at += e.length
	}
	return buf, nil
}

// matches tells whether data are those of chunk k.
func (p *part) matches(k int, data []byte) bool {
	for _, e := range p.extents[p.starts[k]:p.starts[k+1]] {
		if crc32.Checksum(data[:e.length], castagnoli) != e.crc {
			return false
		}
		data = data[e.length:]
	}
	return true
}

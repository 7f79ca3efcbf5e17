package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// VerifyReport is what Verify found.
type VerifyReport struct {
	Files  int            `json:"files"`
	Chunks int            `json:"chunks"`
	Bytes  int64          `json:"bytes"`
	Bad    []CorruptError `json:"bad"` // not nil
}

// Verify reads every byte of a directory and checks it: all checksums, that the
// Arrow files hold what index and manifest say, that values are in range and
// rows in order, and that no file is there that nobody listed (in .job a job
// keeps what it likes). Damage goes into the report, sorted by file and chunk;
// the error is for what kept it from looking.
func Verify(ctx context.Context, fsys vfs.FS, dir string, threads int, p progress.Reporter) (*VerifyReport, error) {
	v := &verifier{ctx: ctx, fsys: fsys, dir: dir, threads: threads, report: &VerifyReport{Bad: []CorruptError{}}, bad: map[string]bool{}}
	m, index, err := readVersion(fsys, dir)
	if err := v.note(err); m == nil || err != nil {
		return v.report, err
	}
	if err := v.all(m, index, p); err != nil {
		return nil, err
	}
	slices.SortFunc(v.report.Bad, func(a, b CorruptError) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Chunk, b.Chunk), strings.Compare(a.Reason, b.Reason))
	})
	return v.report, nil
}

type verifier struct {
	ctx     context.Context
	fsys    vfs.FS
	dir     string
	threads int
	task    progress.Task

	mu     sync.Mutex
	report *VerifyReport
	bad    map[string]bool // files in the report, by path
}

// note takes damage into the report and returns every other error.
func (v *verifier) note(err error) error {
	var damage *CorruptError
	if !errors.As(err, &damage) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Bad = append(v.report.Bad, *damage)
	v.bad[damage.File] = true
	return nil
}

func (v *verifier) isBad(path string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bad[path]
}

func (v *verifier) path(name string) string { return filepath.Join(v.dir, filepath.FromSlash(name)) }

// all checks everything but manifest and index; what needs the index only where
// there is one.
func (v *verifier) all(m *Manifest, index []indexRow, p progress.Reporter) error {
	v.report.Files = len(m.Files) + 2
	for _, f := range m.Files {
		if err := v.note(f.explain(checkSize(v.fsys, f.in(v.dir), f.Size))); err != nil {
			return err
		}
	}
	v.task = p.Start("verifying", m.Bytes(), progress.Bytes)
	defer v.task.Done()
	v.read(m.ownBytes())

	if err := v.extras(m); err != nil {
		return err
	}
	if index == nil {
		return nil
	}
	d, err := newDir(v.fsys, v.dir, m, index)
	if err != nil {
		return v.note(err)
	}
	if err := v.files(d); err != nil {
		return err
	}
	return v.values(d)
}

// read counts bytes that have been read.
func (v *verifier) read(n int64) {
	v.task.Add(n)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Bytes += n
}

// extras reports files that are not the directory's.
func (v *verifier) extras(m *Manifest) error {
	found, err := scan(v.fsys, v.dir)
	if err != nil {
		return err
	}
	if state, err := readJob(v.fsys, v.dir); err == nil && state != nil && state.Base != "" {
		found.files = nil // those of an extension are not listed yet
	}
	for _, path := range slices.Concat(found.files, found.foreign) {
		if i, listed := m.find(path); (!listed || m.Files[i].Source != "") && path != manifestName && path != indexName {
			v.note(&CorruptError{v.path(path), -1, "the manifest does not list it"})
		}
	}
	return nil
}

// piece is some bytes of a part: an extent of a chunk, or all that are in none.
type piece struct {
	p      *part
	chunk  int
	extent int // -1: what is in none
}

// files checks every byte of the parts, then what they say of themselves.
func (v *verifier) files(d *Dir) error {
	var pieces []piece
	for _, t := range d.tables {
		v.report.Chunks += t.chunks
		for i := range t.parts {
			p := &t.parts[i]
			if v.isBad(d.filePath(p.file)) {
				continue
			}
			pieces = append(pieces, piece{p, -1, -1})
			for k := range p.chunks() {
				for e := p.starts[k]; e < p.starts[k+1]; e++ {
					pieces = append(pieces, piece{p, k, e})
				}
			}
		}
	}
	if err := parallel.For(v.ctx, v.threads, int64(len(pieces)), 16, func(lo, hi int64) error {
		return v.pieces(d, pieces[lo:hi])
	}); err != nil {
		return err
	}
	for _, t := range d.tables {
		for i := range t.parts {
			if p := &t.parts[i]; d.Manifest.Files[p.file].Source == "" && !v.isBad(d.filePath(p.file)) {
				if err := v.note(checkLayout(d, t, p)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pieces checks some pieces, of which those of one part follow each other.
func (v *verifier) pieces(d *Dir, pieces []piece) error {
	buf := make([]byte, outsideBytes)
	for len(pieces) > 0 {
		n := 1
		for n < len(pieces) && pieces[n].p == pieces[0].p {
			n++
		}
		if err := v.note(v.piecesOfPart(d, pieces[:n], &buf)); err != nil {
			return err
		}
		pieces = pieces[n:]
	}
	return nil
}

func (v *verifier) piecesOfPart(d *Dir, pieces []piece, buf *[]byte) error {
	p := pieces[0].p
	f, err := d.openPart(p)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, piece := range pieces {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		entry := &d.Manifest.Files[p.file]
		if piece.extent < 0 {
			err = v.outside(f, entry, p.extents, (*buf)[:cap(*buf)])
		} else {
			e := p.extents[piece.extent]
			*buf = slices.Grow((*buf)[:0], int(e.length))[:e.length]
			err = readExtent(f, piece.chunk, e, *buf)
			v.read(e.length)
		}
		if err := v.note(entry.explain(err)); err != nil {
			return err
		}
	}
	return nil
}

// outsideBytes is how much is read at once of what is in no extent: mostly a page
// between two chunks.
const outsideBytes = 8 << 10

// outside checks the bytes of a file that are in no extent.
func (v *verifier) outside(f vfs.File, entry *FileEntry, extents []indexRow, buf []byte) error {
	crc, err := outside(f, entry.Size, extents, buf, v.read)
	if err != nil {
		return err
	}
	if found := hex32(crc); found != entry.CRC32C {
		return &CorruptError{f.Path(), -1, fmt.Sprintf("its bytes outside of chunks have checksum %s, want %s", found, entry.CRC32C)}
	}
	return nil
}

// outside is the checksum of the bytes of a file that are in no extent. It calls
// count with how many it has read.
func outside(f vfs.File, size int64, extents []indexRow, buf []byte, count func(int64)) (uint32, error) {
	crc := uint32(0)
	update := func(from, to int64) error {
		for from < to {
			n, err := f.ReadAt(buf[:min(to-from, int64(len(buf)))], from)
			if n == 0 {
				return cutOff(f.Path(), -1, from, err)
			}
			crc = crc32.Update(crc, castagnoli, buf[:n])
			count(int64(n))
			from += int64(n)
		}
		return nil
	}
	at := int64(0)
	for _, e := range extents {
		if err := update(at, e.offset); err != nil {
			return 0, err
		}
		at = e.offset + e.length
	}
	return crc, update(at, size)
}

// checkLayout compares what an Arrow file says of itself with the index.
func checkLayout(d *Dir, t *table, p *part) error {
	f, err := d.openPart(p)
	if err != nil {
		return err
	}
	defer f.Close()
	l, err := arrowfile.ReadLayout(f, d.Manifest.Files[p.file].Size)
	if errors.Is(err, arrowfile.ErrInvalid) {
		return &CorruptError{f.Path(), -1, err.Error()}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path(), err)
	}
	if !l.Schema.Equal(t.schema) {
		return &CorruptError{f.Path(), -1, fmt.Sprintf("it has columns %v, want %v", l.Schema, t.schema)}
	}
	if len(l.Batches) != p.chunks() {
		return &CorruptError{f.Path(), -1, fmt.Sprintf("it has %d chunks, the index %d", len(l.Batches), p.chunks())}
	}
	for k, b := range l.Batches {
		rows := t.rows(p.first + k)
		extents := p.extents[p.starts[k]:p.starts[k+1]]
		first, last := extents[0], extents[len(extents)-1]
		lengths := t.lengths(rows)
		if n := len(lengths) - 1; lengths[n] < 0 && n < len(b.Buffers) {
			lengths[n] = b.Buffers[n].Length
		}
		at, end := arrowfile.Place(lengths...)
		ok := b.Rows == rows && b.Offset == first.offset && b.Offset+end == last.offset+last.length && len(b.Buffers) == len(lengths)
		for i := range lengths {
			ok = ok && b.Buffers[i] == arrowfile.Buffer{Offset: b.Offset + at[i], Length: lengths[i]}
		}
		if !ok {
			return &CorruptError{f.Path(), k, "its record batch is not where, or of what shape, the index says"}
		}
	}
	return nil
}

// values checks numbers that others rely on, of tables whose bytes are sound.
func (v *verifier) values(d *Dir) error {
	sound := func(t *table) bool {
		for i := range t.parts {
			if v.isBad(d.filePath(t.parts[i].file)) {
				return false
			}
		}
		return true
	}
	if t, w := d.table(topologyFolder), d.table(weightsFolder); t != nil && sound(t) && (w == nil || sound(w)) {
		f, err := d.OpenTopology(v.ctx, arrowfile.ExtentBytes) // which checks it, a block at a time
		if err == nil {
			err = f.Close()
		}
		if err := v.note(err); err != nil {
			return err
		}
	}
	t := d.rowTable()
	if t == nil || !sound(t) {
		return nil
	}
	rows, err := d.Rows(v.ctx)
	if err == nil && d.Manifest.Kind == KindStore {
		if row, orderErr := d.Manifest.checkOrder(rows); orderErr != nil {
			err = d.corruptRow(row, orderErr)
		}
	}
	return v.note(err)
}

// checkOrder fails where the rows of a store are not in the documented order, or
// not in the region that their split calls for, and tells the row.
func (m *Manifest) checkOrder(t *RowTable) (row int64, err error) {
	seen := make([]uint64, (m.Nodes+63)/64)
	regionOf := map[string]uint8{RegionTrain: SplitTrain, RegionValid: SplitValid, RegionTest: SplitTest, RegionRest: SplitNone}
	for _, r := range m.Regions {
		var keyBefore uint64
		for i := r.FirstRow; i < r.FirstRow+r.Rows; i++ {
			node := t.NodeID[i]
			if seen[node/64]>>(node%64)&1 != 0 {
				return i, fmt.Errorf("row %d is of node %d, as another row is", i, node)
			}
			seen[node/64] |= 1 << (node % 64)
			key := uint64(0)
			if r.Name == RegionTrain {
				key = TrainKey(m.Seed, node)
			}
			if i > r.FirstRow && (key < keyBefore || key == keyBefore && node < t.NodeID[i-1]) {
				return i, fmt.Errorf("row %d (node %d) is out of order", i, node)
			}
			keyBefore = key
			if t.NumSplits > 0 && t.Splits[i*int64(t.NumSplits)+int64(m.Split)] != regionOf[r.Name] {
				return i, fmt.Errorf("row %d (node %d) is in region %s, but not in that part of split %d", i, node, r.Name, m.Split)
			}
		}
	}
	return 0, nil
}

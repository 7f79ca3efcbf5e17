package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// VerifyReport is the result of Verify.
type VerifyReport struct {
	Files  int            `json:"files"`
	Chunks int            `json:"chunks"`
	Bytes  int64          `json:"bytes"`
	Bad    []CorruptError `json:"bad"`   // not nil
	Notes  []Note         `json:"notes"` // not nil; what is no damage
	Remedy string         `json:"-"`     // what the user can do about damaged files; "" if there are none
}

// Note says something of a file that is no damage.
type Note struct {
	File   string `json:"file"` // path
	Reason string `json:"reason"`
}

func (n Note) String() string { return units.Printable(n.File + ": " + n.Reason) }

// Verify reads every byte of a directory and checks all checksums, that the Arrow files hold what index and manifest
// say, that values are in range and rows in order, and that the manifest lists every file (but those in .job; what
// file managers and editors leave is a note). Damage goes into the report, sorted by file and chunk; an error means
// that something could not be checked.
func Verify(ctx context.Context, fsys vfs.FS, dir string, threads int, p progress.Reporter) (*VerifyReport, error) {
	v := &verifier{ctx: ctx, fsys: fsys, dir: dir, threads: threads,
		report: &VerifyReport{Bad: []CorruptError{}, Notes: []Note{}}, damaged: map[string]bool{}}
	m, index, err := readVersion(fsys, dir)
	if err := v.recordDamage(err); m == nil || err != nil {
		return v.report, err
	}
	if err := v.checkAll(m, index, p); err != nil {
		return nil, err
	}
	for _, bad := range v.report.Bad {
		v.report.Remedy = cmp.Or(v.report.Remedy, m.remedy(dir, bad.File))
	}
	slices.SortFunc(v.report.Bad, func(a, b CorruptError) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Chunk, b.Chunk),
			strings.Compare(a.Reason, b.Reason))
	})
	return v.report, nil
}

type verifier struct {
	ctx     context.Context
	fsys    vfs.FS
	dir     string
	threads int
	task    progress.Task

	mu      sync.Mutex
	report  *VerifyReport
	damaged map[string]bool // files in the report, by path
}

// recordDamage adds damage to the report, and returns every other error.
func (v *verifier) recordDamage(err error) error {
	var damage *CorruptError
	if !errors.As(err, &damage) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Bad = append(v.report.Bad, *damage)
	v.damaged[damage.File] = true
	return nil
}

func (v *verifier) isDamaged(path string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.damaged[path]
}

func (v *verifier) path(name string) string { return filepath.Join(v.dir, filepath.FromSlash(name)) }

// checkAll checks everything but manifest and index. Without an index (nil) it checks only what needs none.
func (v *verifier) checkAll(m *Manifest, index []indexRow, p progress.Reporter) error {
	v.report.Files = len(m.Files) + 2
	for _, f := range m.Files {
		if err := v.recordDamage(f.withSourceHint(checkSize(v.fsys, f.location(v.dir), f.Size))); err != nil {
			return err
		}
	}
	v.task = p.Start("verifying", m.Bytes(), progress.Bytes)
	defer v.task.Done()
	v.countBytes(m.manifestAndIndexBytes())

	if err := v.checkUnlisted(m); err != nil {
		return err
	}
	if index == nil {
		return nil
	}
	d, err := newDir(v.fsys, v.dir, m, index)
	if err != nil {
		return v.recordDamage(err)
	}
	if err := v.checkBytes(d); err != nil {
		return err
	}
	return v.checkValues(d)
}

// countBytes adds n bytes that were read to the report and to the progress.
func (v *verifier) countBytes(n int64) {
	v.task.Add(n)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Bytes += n
}

// checkUnlisted reports the files that the manifest does not list.
func (v *verifier) checkUnlisted(m *Manifest) error {
	found, err := listContents(v.fsys, v.dir)
	if err != nil {
		return err
	}
	if state, err := readJob(v.fsys, v.dir); err == nil && state != nil && state.Base != "" {
		found.files = nil // Publish lists the files of an extension
	}
	for _, path := range slices.Concat(found.files, found.foreign) {
		if slices.Contains(found.clutter, path) {
			v.report.Notes = append(v.report.Notes, Note{v.path(path),
				"left by a file manager, a file server or an editor: nothing reads it, so it may stay or be removed"})
		} else if i, listed := m.findFile(path); (!listed || m.Files[i].Source != "") && path != manifestName &&
			path != indexName {
			v.recordDamage(&CorruptError{v.path(path), -1,
				"the manifest does not list this file, so nothing reads it: move it elsewhere, or remove it"})
		}
	}
	return nil
}

// checkBytes checks all checksums of the parts, then their Arrow metadata.
func (v *verifier) checkBytes(d *Dir) error {
	for _, t := range d.tables {
		v.report.Chunks += t.chunks
	}
	for _, check := range []func(*Dir, *table, *part) error{v.checkSums, checkLayout} {
		for _, t := range d.tables {
			for i := range t.parts {
				if p := &t.parts[i]; !v.isDamaged(d.filePath(p.file)) {
					if err := v.recordDamage(check(d, t, p)); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// checkSums checks all checksums of a part: one for each extent, and one for the bytes in no extent.
func (v *verifier) checkSums(d *Dir, _ *table, p *part) error {
	f, err := d.openPart(p)
	if err != nil {
		return err
	}
	defer f.Close()
	entry := &d.Manifest.Files[p.file]
	return parallel.For(v.ctx, v.threads, int64(len(p.extents))+1, 16, func(lo, hi int64) error {
		buf := make([]byte, outsideBufferBytes)
		for at := lo; at < hi; at++ {
			if err := context.Cause(v.ctx); err != nil {
				return err
			}
			var err error
			if at == 0 {
				if err = v.checkOutside(f, entry, p.extents, buf); errors.Is(err, ErrCorrupt) &&
					vfs.Doubt(f, 0, entry.Size) {
					err = v.checkOutside(f, entry, p.extents, buf)
				}
			} else {
				e := p.extents[at-1]
				chunk := sort.SearchInts(p.extentStarts, int(at)) - 1
				buf = slices.Grow(buf[:0], int(e.Length))[:e.Length]
				err = readExtent(f, chunk, e, buf)
				v.countBytes(e.Length)
			}
			if err := v.recordDamage(entry.withSourceHint(err)); err != nil {
				return err
			}
		}
		return nil
	})
}

// outsideBufferBytes is how much is read at once of the bytes in no extent, which are mostly one page between two
// chunks.
const outsideBufferBytes = 8 << 10

// checkOutside checks the bytes of a file that are in no extent.
func (v *verifier) checkOutside(f vfs.File, entry *FileEntry, extents []arrowfile.Extent, buf []byte) error {
	crc, err := checksumOutside(f, entry.Size, extents, buf, v.countBytes)
	if err != nil {
		return err
	}
	if found := hex32(crc); found != entry.CRC32C {
		return &CorruptError{f.Path(), -1,
			fmt.Sprintf("the bytes outside of its chunks (headers and padding) have checksum %s, want %s", found,
				entry.CRC32C)}
	}
	return nil
}

// checksumOutside is the checksum of the bytes of a file that are in no extent. It calls count with the number of
// bytes that each read gave.
func checksumOutside(f vfs.File, size int64, extents []arrowfile.Extent, buf []byte, count func(int64)) (uint32,
	error) {
	crc := uint32(0)
	update := func(from, to int64) error {
		for from < to {
			n, err := f.ReadAt(buf[:min(to-from, int64(len(buf)))], from)
			if n == 0 {
				return cutOff(f.Path(), -1, from, err)
			}
			crc = kernel.CRC32C(crc, buf[:n])
			count(int64(n))
			from += int64(n)
		}
		return nil
	}
	at := int64(0)
	for _, e := range extents {
		if err := update(at, e.Offset); err != nil {
			return 0, err
		}
		at = e.Offset + e.Length
	}
	return crc, update(at, size)
}

// checkLayout compares the metadata of an Arrow file with the index.
func checkLayout(d *Dir, t *table, p *part) error {
	if d.Manifest.Files[p.file].Source != "" {
		return nil
	}
	f, err := d.openPart(p)
	if err != nil {
		return err
	}
	defer f.Close()
	batches, err := arrowfile.ReadBatches(f, d.Manifest.Files[p.file].Size, t.schema)
	if errors.Is(err, arrowfile.ErrInvalid) {
		return &CorruptError{f.Path(), -1, err.Error()}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path(), err)
	}
	if len(batches) != p.chunks() {
		return &CorruptError{f.Path(), -1, fmt.Sprintf("it has %d record batches, but the index has %d chunks",
			len(batches), p.chunks())}
	}
	for k, b := range batches {
		lengths, at := t.buffers(p.firstChunk+k, p.bytes(k))
		ok := b.Rows == t.rows(p.firstChunk+k) && b.Offset == p.extents[p.extentStarts[k]].Offset &&
			len(b.Buffers) == len(lengths)
		for i := range lengths {
			ok = ok && b.Buffers[i] == arrowfile.Buffer{Offset: b.Offset + at[i], Length: lengths[i]}
		}
		if !ok {
			return &CorruptError{f.Path(), k,
				"the Arrow metadata give its record batch another place or shape than the index"}
		}
	}
	return nil
}

// checkValues checks the topology and the row table for values out of range or order, where all checksums of their
// parts hold.
func (v *verifier) checkValues(d *Dir) error {
	sound := func(t *table) bool {
		for i := range t.parts {
			if v.isDamaged(d.filePath(t.parts[i].file)) {
				return false
			}
		}
		return true
	}
	if t, w := d.tables[topologyFolder], d.tables[weightsFolder]; t != nil && sound(t) && (w == nil || sound(w)) {
		f, err := d.OpenTopology(v.ctx, arrowfile.ExtentBytes) // which checks it, a node range at a time
		if err == nil {
			err = f.Close()
		}
		if err := v.recordDamage(err); err != nil {
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
	return v.recordDamage(err)
}

// checkOrder fails where the rows of a store are not in the order that docs/format.md gives, or a row is not in the
// region of its split value. It returns that row.
func (m *Manifest) checkOrder(t *RowTable) (row int64, err error) {
	seen := make([]uint64, (m.Nodes+63)/64)
	regionOf := map[string]uint8{RegionTrain: SplitTrain, RegionValid: SplitValid, RegionTest: SplitTest,
		RegionRest: SplitNone}
	for _, r := range m.Regions {
		var keyBefore uint64
		for i := r.FirstRow; i < r.FirstRow+r.Rows; i++ {
			node := t.NodeID[i]
			if seen[node/64]>>(node%64)&1 != 0 {
				return i, fmt.Errorf("row %d and an earlier row are both of node %d", i, node)
			}
			seen[node/64] |= 1 << (node % 64)
			key := uint64(0)
			if r.Name == RegionTrain {
				key = TrainKey(m.Seed, node)
			}
			if i > r.FirstRow && (key < keyBefore || key == keyBefore && node < t.NodeID[i-1]) {
				return i, fmt.Errorf("row %d (node %d) does not belong after the row before it", i, node)
			}
			keyBefore = key
			if t.NumSplits > 0 && t.Splits[i*int64(t.NumSplits)+int64(m.Split)] != regionOf[r.Name] {
				return i, fmt.Errorf("row %d (node %d) is in region %s, but column %d of splits has %d for it (0 "+
					"rest, 1 train, 2 valid, 3 test)",
					i, node, r.Name, m.Split, t.Splits[i*int64(t.NumSplits)+int64(m.Split)])
			}
		}
	}
	return 0, nil
}

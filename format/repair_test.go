package format

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// rawChunk is a chunk of a table of the sample, as it is stored.
func (s *sample) rawChunk(t *testing.T, folder string, k int, dst []byte) {
	t.Helper()
	first, rows := s.layout.chunk(k)
	for id, data := range s.matrices {
		if MatrixFolder(id) == folder {
			copy(dst, data[first*s.layout.rowBytes():][:int64(rows)*s.layout.rowBytes()])
			return
		}
	}
	t.Fatalf("chunk %d of %s is asked for", k, folder)
}

// repair repairs a part, and tells which chunks it asked for.
func (s *sample) repair(t *testing.T, d *Dir, file string) (asked []int, err error) {
	t.Helper()
	folder, _, _ := splitPart(file)
	if folder == rowsFolder || folder == nodesFolder {
		return nil, d.RepairRows(context.Background(), file, s.rows)
	}
	return asked, d.RepairPart(context.Background(), file, func(k int, dst []byte) error {
		asked = append(asked, k)
		s.rawChunk(t, folder, k, dst)
		return nil
	})
}

func mustOpenDamaged(t *testing.T, fsys vfs.FS, dir string) *Dir {
	t.Helper()
	d, err := OpenDamaged(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// overwrite puts other bytes into a file.
func overwrite(t *testing.T, fsys vfs.FS, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := readFile(fsys, path, sizeOf(t, fsys, path))
	if err != nil {
		t.Fatal(err)
	}
	put(t, fsys, path, string(change(b)))
}

func TestDamagedPartsAreRepaired(t *testing.T) {
	for _, s := range samples() {
		if s.parts == 0 && s.layout.rows() > 33 {
			continue // small samples and samples of several parts test as much
		}
		want, dir := s.mustWrite(t)
		d := mustOpenDamaged(t, want, dir)
		for i, f := range d.Manifest.Files {
			folder, k, _ := splitPart(f.Path)
			table, p, err := d.ownPart(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			if k > 0 && k < len(table.parts)-1 {
				continue // the first and the last tell as much
			}
			whole := folder == topologyFolder || folder == weightsFolder // of these only what is outside of chunks
			path := d.filePath(i)
			try := func(what string, chunks []int, damage func(fsys *vfs.Mem)) {
				t.Helper()
				if whole && len(chunks) > 0 {
					return
				}
				disk := want.CrashClone()
				damage(disk)
				d := mustOpenDamaged(t, disk, dir)
				if got, err := d.DamagedChunks(context.Background(), f.Path); !slices.Equal(got, chunks) || err != nil {
					t.Errorf("%s: %s, %s: chunks %v are damaged (%v), want %v", s.name, f.Path, what, got, err, chunks)
				}
				if len(verify(t, disk, dir).Bad) == 0 {
					t.Errorf("%s: %s, %s: not damaged", s.name, f.Path, what)
				}
				asked, err := s.repair(t, d, f.Path)
				if err != nil {
					t.Fatalf("%s: %s, %s: %v", s.name, f.Path, what, err)
				}
				if asked != nil && !slices.Equal(asked, chunks) {
					t.Errorf("%s: %s, %s: chunks %v were asked for, want %v", s.name, f.Path, what, asked, chunks)
				}
				equalDirs(t, disk, want, dir)
			}
			var all []int
			for k := range p.chunks() {
				all = append(all, p.firstChunk+k)
			}
			flip := func(at int64) func(fsys *vfs.Mem) {
				return func(fsys *vfs.Mem) {
					overwrite(t, fsys, path, func(b []byte) []byte { b[at] ^= 4; return b })
				}
			}
			try("missing", all, func(fsys *vfs.Mem) {
				if err := fsys.Remove(path); err != nil {
					t.Fatal(err)
				}
			})
			try("missing with its folder", all, func(fsys *vfs.Mem) {
				if err := fsys.RemoveAll(filepath.Dir(path)); err != nil {
					t.Fatal(err)
				}
				for _, other := range d.Manifest.Files {
					if strings.HasPrefix(other.Path, folder+"/") && other.Path != f.Path { // repaired first
						if err := mustOpenDamaged(t, fsys, dir).repairFrom(want, other.Path); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
			try("empty", all, func(fsys *vfs.Mem) { put(t, fsys, path, "") })
			try("longer", nil, func(fsys *vfs.Mem) {
				overwrite(t, fsys, path, func(b []byte) []byte { return append(b, 0) })
			})
			try("another header", nil, flip(9))
			try("another footer", nil, flip(f.Size-20))
			if n := p.chunks(); n > 0 {
				last := p.extents[len(p.extents)-1]
				try("the last chunk differs", all[n-1:], flip(last.Offset+last.Length-1))
				try("the first chunk differs", all[:1], flip(p.extents[0].Offset))
				try("cut in the last chunk", all[n-1:], func(fsys *vfs.Mem) {
					overwrite(t, fsys, path, func(b []byte) []byte { return b[:last.Offset+last.Length-1] })
				})
			}
		}
	}
}

// repairFrom takes all chunks from the same part of another disk.
func (d *Dir) repairFrom(fsys vfs.FS, file string) error {
	_, p, err := d.ownPart(file)
	if err != nil {
		return err
	}
	f, err := fsys.Open(d.filePath(p.file))
	if err != nil {
		return err
	}
	return d.RepairPart(context.Background(), file, func(k int, dst []byte) error {
		_, err := p.read(f, k-p.firstChunk, dst)
		return err
	})
}

func TestWhatIsNotWhatWasStoredRepairsNothing(t *testing.T) {
	s := growing()
	file := PartPath(MatrixFolder(Input), 0)
	broken := errors.New("no graph")
	for name, c := range map[string]struct {
		file   string
		repair func(d *Dir) error
		want   error
		text   string
	}{
		"other features": {file, func(d *Dir) error {
			return d.RepairPart(context.Background(), file, func(_ int, dst []byte) error { dst[0]++; return nil })
		}, ErrCorrupt, "is not what was stored"},
		"none": {file, func(d *Dir) error {
			return d.RepairPart(context.Background(), file, func(int, []byte) error { return broken })
		}, broken, "no graph"},
		"other rows": {PartPath("rows", 0), func(d *Dir) error {
			rows := *s.rows
			rows.Labels = slices.Clone(rows.Labels)
			rows.Labels[0] = 4 - max(0, rows.Labels[0])
			return d.RepairRows(context.Background(), PartPath("rows", 0), &rows)
		}, ErrCorrupt, "is not what was stored"},
		"other names": {PartPath("rows", 0), func(d *Dir) error {
			rows := *s.rows
			rows.OrigID = slices.Clone(rows.OrigID)
			rows.OrigID[0] += "x"
			return d.RepairRows(context.Background(), PartPath("rows", 0), &rows)
		}, ErrCorrupt, "is not what was stored"},
		"other columns": {PartPath("rows", 0), func(d *Dir) error {
			rows := *s.rows
			rows.OrigID = nil
			return d.RepairRows(context.Background(), PartPath("rows", 0), &rows)
		}, nil, "other columns"},
		"fewer rows": {PartPath("rows", 0), func(d *Dir) error {
			return d.RepairRows(context.Background(), PartPath("rows", 0), &RowTable{})
		}, nil, "0 rows"},
		"an unknown file": {file, func(d *Dir) error {
			return d.RepairPart(context.Background(), PartPath("..", 0), nil)
		}, nil, "no part " + PartPath("..", 0)},
		"a directory that has changed": {file, func(d *Dir) error {
			other := growing().without()
			if _, err := other.write(d.fsys, d.path, CreateOptions{Force: true}); err != nil {
				return err
			}
			return d.RepairPart(context.Background(), file, nil)
		}, nil, "has changed"},
		"a job at work": {file, func(d *Dir) error {
			lock, err := d.fsys.Lock(d.path + "/.job/lock")
			if err != nil {
				return err
			}
			defer lock.Close()
			return d.RepairPart(context.Background(), file, nil)
		}, vfs.ErrLocked, "is being written"},
		"no time": {file, func(d *Dir) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return d.RepairPart(ctx, file, nil)
		}, context.Canceled, ""},
	} {
		disk, dir := s.mustWrite(t)
		if err := disk.MkdirAll(dir + "/.job"); err != nil {
			t.Fatal(err)
		}
		d := mustOpenDamaged(t, disk, dir)
		_, p, err := d.ownPart(c.file)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, disk, dir+"/"+c.file, func(b []byte) []byte { b[p.extents[0].Offset+1] ^= 1; return b })
		before := filesOf(t, disk, dir)
		if err := c.repair(d); err == nil || c.want != nil && !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a directory that has changed" {
			continue
		}
		if after := filesOf(t, disk, dir); !slices.Equal(before, after) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
		if r := verify(t, disk, dir); len(r.Bad) != 1 || r.Bad[0].File != dir+"/"+c.file {
			t.Errorf("%s: %v is bad", name, r.Bad)
		}
		if _, err := s.repair(t, d, c.file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := verify(t, disk, dir); len(r.Bad) > 0 {
			t.Errorf("%s: %v is bad", name, r.Bad)
		}
	}
}

func TestAFolderInPlaceOfAPartIsLeftByARepair(t *testing.T) {
	disk, dir := growing().mustWrite(t)
	file := PartPath(MatrixFolder(Input), 0)
	if err := errors.Join(disk.Remove(dir+"/"+file), disk.MkdirAll(dir+"/"+file)); err != nil {
		t.Fatal(err)
	}
	_, err := mustOpenDamaged(t, disk, dir).DamagedChunks(context.Background(), file)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "move it away, and repair again") {
		t.Error(err)
	}
}

func TestARepairThatFailsAnywhereLeavesThePartAsItWasOrRepaired(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	file := PartPath(MatrixFolder(Input), 0)
	for n := int64(1); ; n++ {
		for _, power := range []bool{false, true} {
			disk := want.CrashClone()
			overwrite(t, disk, dir+"/"+file, func(b []byte) []byte { b[8192] ^= 1; return b })
			fault := vfs.NewFault(disk)
			d := mustOpenDamaged(t, fault, dir)
			opened := fault.Operations()
			if power {
				fault.FailFrom(opened+n, syscall.EIO)
			} else {
				fault.FailAt(opened+n, syscall.EIO)
			}
			_, repairErr := s.repair(t, d, file)
			left := []*vfs.Mem{disk}
			if power {
				left = crashes(disk)
			}
			for i, disk := range left {
				bad := verify(t, disk, dir).Bad
				bad = slices.DeleteFunc(bad, func(e CorruptError) bool {
					return strings.HasSuffix(e.File, vfs.TempSuffix)
				})
				if len(bad) > 1 || len(bad) == 1 && bad[0].File != dir+"/"+file || len(bad) > 0 && repairErr == nil {
					t.Fatalf("operation %d, power %v, crash %d: %v is bad, %v", n, power, i, bad, repairErr)
				}
				if _, err := s.repair(t, mustOpenDamaged(t, disk, dir), file); err != nil {
					t.Fatalf("operation %d, power %v, crash %d: %v", n, power, i, err)
				}
				equalDirs(t, disk, want, dir)
			}
			if fault.Operations() < opened+n {
				return
			}
		}
	}
}

func TestARepairLeavesAnExtensionThatIsSuspended(t *testing.T) {
	next := growing()
	before := next.without()
	want, dir := next.mustWrite(t)
	disk, _ := before.mustWrite(t)
	w, err := Extend(disk, dir, CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	id := MatrixID{"sym", 2}
	m, err := w.Matrix(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Write(next.matrices[id]), m.Close(), w.Suspend()); err != nil {
		t.Fatal(err)
	}
	file := PartPath(MatrixFolder(Input), 0)
	if err := disk.Remove(dir + "/" + file); err != nil {
		t.Fatal(err)
	}
	if _, err := before.repair(t, mustOpenDamaged(t, disk, dir), file); err != nil {
		t.Fatal(err)
	}
	if w, err = Extend(disk, dir, CreateOptions{Job: "j"}); err != nil || !w.Finished(id) {
		t.Fatal(err)
	}
	if err := next.orSuspend(w); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, disk, want, dir)
}

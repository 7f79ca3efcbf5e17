package folder

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func put(t *testing.T, fsys vfs.FS, name, content string) {
	t.Helper()
	if err := fsys.MkdirAll(path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fsys, name, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

// tree lists files, and folders with nothing in them.
func tree(t *testing.T, fsys vfs.FS, dir string) (out []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		if below := []string(nil); e.IsDir() {
			if below = tree(t, fsys, at); len(below) == 0 {
				below = []string{at + "/"}
			}
			out = append(out, below...)
		} else {
			out = append(out, at)
		}
	}
	return out
}

func TestAFolderThatHopfeedHasNotMadeIsNeitherTakenNorTouched(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"files":                          {"a.csv": "mine", "sub/b": "mine"},
		"a file named lock":              {"lock": "mine"},
		"a lock file that is not whole":  {"lock": "", "a.scratch": "mine"},
		"scratch files without a lock":   {"edges.scratch": "mine"},
		"a folder named lock":            {"lock/x": "mine"},
		"the text of a lock, and more":   {"lock": vfs.LockText + "and mine"},
		"a lock file under another name": {"lock2": vfs.LockText},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			for file, content := range files {
				put(t, disk, "f/"+file, content)
			}
			before := tree(t, disk, "f")
			_, err := OpenScratch(disk, "f")
			if !errors.Is(err, ErrForeign) || !strings.HasPrefix(err.Error(), "f: ") {
				t.Errorf("opened: %v", err)
			}
			if after := tree(t, disk, "f"); !slices.Equal(after, before) {
				t.Errorf("%q have become %q", before, after)
			}
		})
	}
}

func TestAScratchFolderLosesOnlyWhatHopfeedHasMade(t *testing.T) {
	disk := vfs.NewMem()
	s, err := OpenScratch(disk, "f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenScratch(disk, "f"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	put(t, disk, s.Path("edges"), "ours")
	put(t, disk, s.Path("more")+vfs.TempSuffix, "ours")
	put(t, disk, "f/shard.lock", vfs.LockText)
	below, err := OpenScratch(disk, "f/repair")
	if err != nil {
		t.Fatal(err)
	}
	put(t, disk, below.Path("strip"), "ours")
	killed := disk.CrashClone()
	put(t, disk, "f/notes.txt", "mine")
	put(t, disk, "f/thesis/edges.scratch", "mine")
	put(t, disk, "f/my.lock", "mine")
	if err := below.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, ErrForeign) {
		t.Errorf("closed: %v", err)
	}
	want := []string{"f/lock", "f/my.lock", "f/notes.txt", "f/shard.lock", "f/thesis/edges.scratch"}
	if left := tree(t, disk, "f"); !slices.Equal(left, want) {
		t.Errorf("%q are left, want %q", left, want)
	}

	// What a killed process has left, the next one clears.
	if s, err = OpenScratch(killed, "f"); err != nil {
		t.Fatal(err)
	}
	if left := tree(t, killed, "f"); !slices.Equal(left, []string{"f/lock", "f/shard.lock"}) {
		t.Errorf("a new process finds %q", left)
	}
	if err := errors.Join(s.Close(), Remove(killed, "f")); err != nil {
		t.Error(err)
	}
	if _, err := killed.Stat("f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: %v, %q", err, tree(t, killed, "f"))
	}
}

func TestAScratchFolderTakesTheFoldersAroundItWithItThatWereMadeForIt(t *testing.T) {
	for _, c := range []struct {
		there, mine string // a folder and a file of a user's; the file comes while the scratch folder is open
		left        []string
	}{
		{".", "", nil}, {"a", "", []string{"a"}}, {"a/b", "", []string{"a", "a/b"}}, {".", "a/mine", []string{"a"}},
	} {
		disk := vfs.NewMem()
		if err := disk.MkdirAll(c.there); err != nil {
			t.Fatal(err)
		}
		s, err := OpenScratch(disk, "a/b/hopfeed-1")
		if err != nil {
			t.Fatal(err)
		}
		put(t, disk, s.Path("edges"), "ours")
		if c.mine != "" {
			put(t, disk, c.mine, "mine")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, path := range []string{"a", "a/b", "a/b/hopfeed-1"} {
			if _, err := disk.Stat(path); err == nil {
				left = append(left, path)
			}
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("with %s and %q: %q are left, want %q", c.there, c.mine, left, c.left)
		}
	}
}

// lateFS calls before, once, before it removes a folder.
type lateFS struct {
	vfs.FS
	folder string
	before func()
}

func (f *lateFS) Remove(path string) error {
	if path == f.folder && f.before != nil {
		before := f.before
		f.before = nil
		before()
	}
	return f.FS.Remove(path)
}

func TestAScratchFolderThatAnotherProcessTakesInTheEndIsItsOwn(t *testing.T) {
	for name, disk := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.OS()} {
		at := filepath.Join(t.TempDir(), "scratch")
		if name == "memory" {
			at = "scratch"
		}
		late := &lateFS{FS: disk, folder: at}
		own, err := OpenScratch(late, at)
		if err != nil {
			t.Fatal(err)
		}
		var other *Scratch
		late.before = func() { // the lock is gone, the folder is not
			if other, err = OpenScratch(disk, at); err != nil {
				t.Errorf("%s: another process: %v", name, err)
			}
		}
		if err := own.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := other.Close(); err != nil {
			t.Errorf("%s: another process: %v", name, err)
		}
		if _, err := disk.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the folder is left: %v", name, err)
		}
	}
}

func TestAScratchFolderIsKnownAgainAfterACrashAnywhere(t *testing.T) {
	work := func(fsys vfs.FS) error {
		s, err := OpenScratch(fsys, "f")
		if err != nil {
			return err
		}
		f, err := fsys.Create(s.Path("edges"))
		if err != nil {
			return errors.Join(err, s.Close())
		}
		if _, err := f.Write([]byte("edges")); err != nil {
			return errors.Join(err, f.Abort(), s.Close())
		}
		return errors.Join(f.Commit(), s.Close())
	}
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, syscall.EIO)
		if err := work(fault); err == nil {
			break
		}
		for seed := range uint64(8) {
			after := disk.CrashCloneKeeping(seed)
			left := tree(t, after, "f")
			if err := work(after); err != nil {
				t.Fatalf("operation %d, seed %d, left %q: %v", n, seed, left, err)
			}
			if _, err := after.Stat("f"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("operation %d, seed %d, left %q: %q are left", n, seed, left, tree(t, after, "f"))
			}
		}
	}
}

// vanishingFS is a file system in which, when a folder is made, another process has just removed the one around it.
type vanishingFS struct {
	vfs.FS
	times int
}

func (f *vanishingFS) MkdirAll(path string) error {
	if f.times > 0 {
		f.times--
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrNotExist}
	}
	return f.FS.MkdirAll(path)
}

func TestAScratchFolderIsMadeAgainIfAnotherJobRemovesTheFolderAroundIt(t *testing.T) {
	at := filepath.Join(t.TempDir(), "a", "scratch")
	s, err := OpenScratch(&vanishingFS{vfs.OS(), 3}, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenScratch(&vanishingFS{vfs.OS(), 1000}, at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that never is there: %v", err)
	}
}

package format

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// replaced is a disk with a complete directory, and what is to replace it: parts of
// the same names and sizes, and more.
func replaced(t *testing.T) (disk *vfs.Mem, before, next *sample) {
	t.Helper()
	old := makeStore("before", [4]int64{5, 5, 5, 5}, 3, 2, Float32, columns{1, 1, true}, Operator{Name: "sym", Hops: 2},
		Operator{Name: "rw", Hops: 1})
	disk, _ = old.mustWrite(t)
	return disk.CrashClone(), &old, growing()
}

// alone fails unless the directory is all that there is, without .job.
func alone(t *testing.T, fsys vfs.FS) {
	t.Helper()
	entries, err := fsys.ReadDir("/")
	if err != nil || len(entries) != 1 || entries[0].Name() != "d" {
		t.Fatalf("%v is there, %v", entries, err)
	}
	if _, err := fsys.Stat("/d/.job"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf(".job: %v", err)
	}
}

func TestACrashAnywhereLeavesTheOldVersionOrTheNew(t *testing.T) {
	old, before, next := replaced(t)
	want, _ := next.mustWrite(t)
	for job, exchange := range map[string]bool{"": true, "j": false} {
		absent, seen := 0, vfs.Disks{}
		for n := int64(1); ; n++ {
			disk := old.CrashClone()
			if !exchange {
				disk.NoExchange = true
			}
			fault := vfs.NewFault(disk)
			fault.FailFrom(n, syscall.EIO)
			o := CreateOptions{Force: true, Job: job}
			jobErr := next.run(fault, "/d", o)
			i := int(n % 3) // each operation with one way to crash, so that neighbours have all
			crashed := crashes(disk)[i]
			if !seen.Add(crashed, 0) && jobErr != nil {
				continue
			}
			found := completeOrAbsent(t, crashed, "/d", before, next)
			if jobErr == nil && found != next {
				t.Fatalf("operation %d, crash %d: published, but not there", n, i)
			}
			if found == nil {
				absent++
				j := mustStatus(t, crashed, "/d")
				if exchange || !j.Published {
					t.Fatalf("operation %d, crash %d: neither is there, %+v", n, i, j)
				}
				// Any job on the directory, even one that is refused, gives the old one back.
				if err := next.run(crashed, "/d", CreateOptions{}); !errors.Is(err, ErrExists) ||
					completeOrAbsent(t, crashed, "/d", before) == nil {
					t.Fatalf("operation %d, crash %d: not given back: %v", n, i, err)
				}
			} else if j := mustStatus(t, crashed, "/d"); !j.Published || j.Running || found == next && j.Unfinished {
				t.Fatalf("operation %d, crash %d: %s is there, %+v", n, i, found.name, j)
			}
			if err := next.run(crashed, "/d", o); err != nil {
				t.Fatalf("operation %d, crash %d: %v", n, i, err)
			}
			equalDirs(t, crashed, want, "/d")
			alone(t, crashed)
			if jobErr == nil {
				break
			}
		}
		if exchange == (absent > 0) {
			t.Errorf("exchange %v: the directory was absent %d times", exchange, absent)
		}
	}
}

func TestAFaultAnywhereLeavesTheOldVersionOrTheNew(t *testing.T) {
	old, before, next := replaced(t)
	for n := int64(1); ; n++ {
		disk := old.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailAt(n, syscall.EIO)
		_, err := next.write(fault, "/d", CreateOptions{Force: true})
		if fault.Operations() < n {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d: %v", n, err)
		}
		if completeOrAbsent(t, disk, "/d", before, next) == nil {
			t.Fatalf("operation %d: neither is there", n)
		}
		if _, err := next.write(disk, "/d", CreateOptions{Force: true}); err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		next.compare(t, disk, "/d")
		alone(t, disk)
	}
}

func TestAReplacementThatIsGivenUpLeavesTheOldVersionAsItWas(t *testing.T) {
	disk, before, next := replaced(t)
	want := disk.CrashClone()
	w, err := Create(disk, "/d", next.layout, CreateOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Rows(next.rows); err != nil {
		t.Fatal(err)
	}
	before.compare(t, disk, "/d")
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, disk, want, "/d")
	alone(t, disk)
}

func TestAReplacementGoesOn(t *testing.T) {
	disk, before, next := replaced(t)
	o := CreateOptions{Force: true, Job: "j"}
	w, err := Create(disk, "/d", next.layout, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Matrix(Input)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Write(next.matrices[Input]), m.Close(), w.Rows(next.rows)); err != nil {
		t.Fatal(err)
	}
	disk = disk.CrashClone() // killed
	before.compare(t, disk, "/d")
	if j := mustStatus(t, disk, "/d"); !j.Published || !j.Unfinished || j.Text != "j" || len(j.Finished) != 2 ||
		j.Bytes == 0 {
		t.Errorf("status %+v", j)
	}
	if _, err := Extend(disk, "/d", CreateOptions{Job: "j"}); !errors.Is(err, ErrExists) {
		t.Errorf("the old version is extended: %v", err)
	}
	if _, err := Create(disk, "/d", next.layout, CreateOptions{Job: "j"}); !errors.Is(err, ErrExists) {
		t.Errorf("without force: %v", err)
	}
	if w, err = Create(disk, "/d", next.layout, o); err != nil {
		t.Fatal(err)
	}
	if !w.Finished(Input) {
		t.Error("what was finished is not")
	}
	if _, err := Create(disk, "/d", next.layout, o); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second job: %v", err)
	}
	if _, err := next.finish(w); err != nil {
		t.Fatal(err)
	}
	want, _ := next.mustWrite(t)
	equalDirs(t, disk, want, "/d")
	alone(t, disk)
}

func TestWhatAUserHasBesideOrPutsIntoAReplacedDirectoryStays(t *testing.T) {
	for _, name := range []string{"/d.replacement/thesis.tex", "/d.replacement/manifest.json",
		"/d.replacement/.job/lock"} {
		disk, before, next := replaced(t)
		if err := disk.MkdirAll(name[:strings.LastIndexByte(name, '/')]); err != nil {
			t.Fatal(err)
		}
		put(t, disk, name, "mine")
		_, err := next.write(disk, "/d", CreateOptions{Force: true})
		if !errors.Is(err, folder.ErrForeign) || !strings.Contains(err.Error(), "/d.replacement") ||
			sizeOf(t, disk, name) != 4 {
			t.Errorf("%s: %v", name, err)
		}
		before.compare(t, disk, "/d")
	}
	disk, before, next := replaced(t)
	w, err := Create(disk, "/d", next.layout, CreateOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	put(t, disk, "/d/thesis.tex", "mine")
	if _, err := next.finish(w); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("published: %v", err)
	}
	if err := w.Abort(); err != nil || sizeOf(t, disk, "/d/thesis.tex") != 4 {
		t.Errorf("aborted: %v", err)
	}
	before.compare(t, disk, "/d")
	for _, name := range []string{"/e.replacement", "/e.replaced/"} {
		if _, err := next.write(disk, name, CreateOptions{}); !errors.Is(err, folder.ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADirectoryOfTheOperatingSystemIsReplacedBehindALink(t *testing.T) {
	_, before, next := replaced(t)
	dir := t.TempDir()
	if _, err := before.write(vfs.OS(), dir+"/real/d", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Symlink(dir+"/real/d", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := next.write(vfs.OS(), dir+"/link", CreateOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	next.compare(t, vfs.OS(), dir+"/real/d")
	next.compare(t, vfs.OS(), dir+"/link")
	for folder, want := range map[string][]string{"": {"link", "real"}, "/real": {"d"}} {
		entries, err := vfs.OS().ReadDir(dir + folder)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%q is there, %v", names, err)
		}
	}
}

func TestAReaderOfAReplacedDirectoryNeverSeesAMix(t *testing.T) {
	for opened := range 3 { // what the reader has read before
		disk, before, next := replaced(t)
		d, err := OpenStore(disk, "/d")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		read := func(id MatrixID, want []byte) error {
			m, err := d.Matrix(id)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for k := range m.Chunks() {
				chunk := make([]byte, m.Extent(k).Length)
				if err := m.ReadChunk(k, chunk); err != nil {
					return err
				}
				if !bytes.Equal(chunk, want[:len(chunk)]) {
					t.Errorf("%s, chunk %d has bytes of neither", id, k)
				}
				want = want[len(chunk):]
			}
			return nil
		}
		if opened > 0 {
			if err := read(Input, before.matrices[Input]); err != nil {
				t.Fatal(err)
			}
		}
		early, err := d.Matrix(Input)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, early.Extent(0).Length)
		if opened > 1 {
			if err := early.ReadChunk(0, first); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := next.write(disk, "/d", CreateOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		// A file that is open is the old one, to its end.
		if err := early.ReadChunk(0, first); (err == nil) != (opened > 1) || err != nil &&
			!errors.Is(err, ErrReplaced) {
			t.Errorf("%d: %v", opened, err)
		}
		for id, want := range before.matrices {
			if err := read(id, want); !errors.Is(err, ErrReplaced) || errors.Is(err, ErrCorrupt) ||
				!strings.HasPrefix(err.Error(), "/d: ") {
				t.Errorf("%d, %s: %v", opened, id, err)
			}
		}
		if _, err := d.Rows(context.Background()); !errors.Is(err, ErrReplaced) {
			t.Errorf("%d, rows: %v", opened, err)
		}
		next.compare(t, disk, "/d")
	}
}

// Each operation of opening finds the directory replaced.
func TestAReaderThatOpensWhileADirectoryIsReplacedSeesOneVersion(t *testing.T) {
	for n := 1; ; n++ {
		disk, _, next := replaced(t)
		left := n
		fsys := &replacedAt{FS: disk, left: &left, replace: func() {
			if _, err := next.write(disk, "/d", CreateOptions{Force: true}); err != nil {
				t.Error(err)
			}
		}}
		d, err := OpenAny(fsys, "/d")
		if err != nil {
			t.Fatalf("replaced at operation %d: %v", n, err)
		}
		d.Close()
		if left > 0 {
			if n < 5 {
				t.Errorf("%d operations", n)
			}
			return
		}
	}
}

// replacedAt is a disk on which somebody replaces a directory before an operation.
type replacedAt struct {
	vfs.FS
	left    *int
	replace func()
}

func (f *replacedAt) count() {
	if *f.left--; *f.left == 0 {
		f.replace()
	}
}

func (f *replacedAt) Open(path string) (vfs.File, error) {
	f.count()
	return f.FS.Open(path)
}

func (f *replacedAt) Stat(path string) (fs.FileInfo, error) {
	f.count()
	return f.FS.Stat(path)
}

func TestAStoreIsRemovedWithoutWhatAUserHasPutThere(t *testing.T) {
	fsys, _, _ := replaced(t)
	write := func(path string) {
		f, err := fsys.Create(path)
		if err == nil {
			err = f.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("/d/rows/thesis.tex")
	if err := Remove(fsys, "/d"); !errors.Is(err, folder.ErrForeign) ||
		!strings.Contains(err.Error(), "/d/rows/thesis.tex") {
		t.Errorf("%v", err)
	}
	if _, err := OpenStore(fsys, "/d"); err != nil {
		t.Errorf("it was changed: %v", err)
	}
	if err := fsys.Remove("/d/rows/thesis.tex"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing
		if err := Remove(fsys, "/d"); err != nil {
			t.Error(err)
		}
	}
	if _, err := fsys.Stat("/d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

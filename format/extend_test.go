package format

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// extend is run for a store that has some of it already.
func (s *sample) extend(fsys vfs.FS, dir, job string) error {
	w, err := Extend(fsys, dir, CreateOptions{Job: job})
	if err != nil {
		return err
	}
	return s.orSuspend(w)
}

// without is the sample before its last operator, and the last hop of the others.
func (s *sample) without() *sample {
	base := *s
	base.manifest.Name = s.name + " before"
	base.manifest.Operators = nil
	base.matrices = map[MatrixID][]byte{Input: s.matrices[Input]}
	for _, o := range s.manifest.Operators[:len(s.manifest.Operators)-1] {
		o.Hops--
		base.manifest.Operators = append(base.manifest.Operators, o)
		for r := 1; r <= o.Hops; r++ {
			id := MatrixID{o.Name, r}
			base.matrices[id] = s.matrices[id]
		}
	}
	return &base
}

// growing is a store that can be without something.
func growing() *sample {
	s := makeStore("store", [4]int64{2, 1, 0, 1}, 2, 2, Float16, columns{1, 1, true}, Operator{Name: "sym", Hops: 2},
		Operator{Name: "rw:noloops", Hops: 1})
	return &s
}

func TestAStoreThatGrowsIsCompleteAtAnyTimeAndAfterACrashAnywhere(t *testing.T) {
	next := growing()
	before := next.without()
	want, dir := next.mustWrite(t)
	old, _ := before.mustWrite(t)
	for n := int64(1); ; n++ {
		disk := old.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, syscall.EIO)
		jobErr := next.extend(fault, dir, "j")
		// Each operation with one way to crash, so that neighbours have all; and without a crash.
		for i, crashed := range []*vfs.Mem{crashes(disk)[n%3], disk} {
			found := completeOrAbsent(t, crashed, dir, before, next)
			if found == nil || jobErr == nil && found == before {
				t.Fatalf("operation %d, crash %d: %v is there", n, i, found)
			}
			if j := mustStatus(t, crashed, dir); !j.Published || j.Running || j.Unfinished && found == next {
				t.Fatalf("operation %d, crash %d: status %+v", n, i, j)
			}
			if err := next.extend(crashed, dir, "j"); err != nil {
				t.Fatalf("operation %d, crash %d: %v", n, i, err)
			}
			equalDirs(t, crashed, want, dir)
		}
		if jobErr == nil {
			break
		}
	}
}

func TestAStoreThatGrowsIsCompleteAfterAFaultAnywhere(t *testing.T) {
	next := growing()
	before := next.without()
	want, dir := next.mustWrite(t)
	old, _ := before.mustWrite(t)
	for n := int64(1); ; n++ {
		disk := old.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailAt(n, syscall.EIO)
		err := next.extend(fault, dir, "j")
		if fault.Operations() < n {
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d: %v", n, err)
		}
		if completeOrAbsent(t, disk, dir, before, next) == nil {
			t.Fatalf("operation %d: nothing is there", n)
		}
		if err := next.extend(disk, dir, "j"); err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		equalDirs(t, disk, want, dir)
	}
}

// interrupted does something before some operations of the FS that it is.
type interrupted struct {
	vfs.FS
	operations int
	before     map[int]func()
}

func (i *interrupted) next() {
	i.operations++
	if do := i.before[i.operations]; do != nil {
		do()
	}
}

func (i *interrupted) Stat(path string) (fs.FileInfo, error) {
	i.next()
	return i.FS.Stat(path)
}

func (i *interrupted) Open(path string) (vfs.File, error) {
	i.next()
	return i.FS.Open(path)
}

// TestAReaderThatOpens takes a publication apart: it comes to a halt before one
// operation of the reader and goes on before a later one.
func TestAReaderThatOpensWhileAStoreGrowsSeesOneVersion(t *testing.T) {
	next := growing()
	before := next.without()
	old, dir := before.mustWrite(t)
	disk := old.CrashClone()
	count := vfs.NewFault(disk)
	if err := next.extend(count, dir, "j"); err != nil {
		t.Fatal(err)
	}
	looks := &interrupted{FS: disk}
	if _, err := OpenStore(looks, dir); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for n := count.Operations() - 10; n <= count.Operations(); n++ { // from the first write to .job on
		for stop := 1; stop <= looks.operations; stop++ {
			for goOn := stop; goOn < stop+4; goOn++ {
				disk := old.CrashClone()
				fault := vfs.NewFault(disk)
				fault.FailFrom(n, syscall.EIO)
				halt := func() {
					if err := next.extend(fault, dir, "j"); err == nil {
						t.Fatal("not stopped")
					}
				}
				finish := func() {
					if err := next.extend(disk, dir, "j"); err != nil {
						t.Fatal(err)
					}
				}
				reader := &interrupted{FS: disk, before: map[int]func(){stop: halt, goOn: finish}}
				if stop == goOn {
					reader.before[stop] = func() { halt(); finish() }
				}
				d, err := OpenStore(reader, dir)
				if err != nil {
					t.Fatalf("stopped at operation %d, before look %d, until %d: %v", n, stop, goOn, err)
				}
				seen[d.Manifest.Name] = true
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("%v was seen", seen)
	}
}

func TestAnExtensionCanBeGivenUp(t *testing.T) {
	next := growing()
	before := next.without()
	want, dir := before.mustWrite(t)
	disk, _ := before.mustWrite(t)
	begin := func(job string) *Writer {
		w, err := Extend(disk, dir, CreateOptions{Job: job})
		if err != nil {
			t.Fatal(err)
		}
		id := MatrixID{"rw:noloops", 1}
		if w.Finished(id) {
			return w
		}
		m, err := w.Matrix(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Write(next.matrices[id]), m.Close()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if err := begin("one").Suspend(); err != nil {
		t.Fatal(err)
	}
	j := mustStatus(t, disk, dir)
	if !j.Published || !j.Unfinished || j.Text != "one" ||
		!slices.Equal(j.Finished, []string{"features/rw+noloops/hop-1"}) ||
		j.Bytes != sizeOf(t, disk, dir+PartPath("/features/rw+noloops/hop-1", 0)) {
		t.Errorf("status %+v", j)
	}
	completeOrAbsent(t, disk, dir, before)
	var other *OtherJobError
	if _, err := Extend(disk, dir, CreateOptions{Job: "two"}); !errors.As(err, &other) ||
		*other != (OtherJobError{dir, "one", "two"}) {
		t.Errorf("another extension: %v", err)
	}
	if _, err := Create(disk, dir, next.layout, CreateOptions{Job: "one"}); !errors.Is(err, ErrExists) {
		t.Errorf("a job on what is there: %v", err)
	}
	w := begin("one")
	if _, err := Extend(disk, dir, CreateOptions{Job: "one"}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second job: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, disk, want, dir)
	if err := begin("two").Abort(); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, disk, want, dir)
	if err := begin("three").Suspend(); err != nil {
		t.Fatal(err)
	}
	if err := next.run(disk, dir, CreateOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	whole, _ := next.mustWrite(t)
	equalDirs(t, disk, whole, dir)
}

func TestAnExtensionWithoutRowsOrAnythingNewIsTheSameStore(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	disk, _ := s.mustWrite(t)
	w, err := Extend(disk, dir, CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Matrix(MatrixID{"sym", 1}); err == nil {
		t.Error("a matrix of the store is written again")
	}
	m := s.manifest
	if err := w.Publish(&m); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, disk, want, dir)
	graph, _ := tinyGraph(t)
	if _, err := Extend(graph, dir, CreateOptions{Job: "j"}); err == nil ||
		!strings.Contains(err.Error(), "is a graph") {
		t.Errorf("a graph: %v", err)
	}
	if _, err := Extend(vfs.NewMem(), dir, CreateOptions{Job: "j"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := graph.Stat(dir + "/.job"); err == nil {
		t.Error(".job is left")
	}
	if _, err := Extend(disk, dir, CreateOptions{Job: ""}); err == nil {
		t.Error("a job that is not told")
	}
}

package format

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// run does the job that makes the sample, or what is left of it.
func (s *sample) run(fsys vfs.FS, dir string, o CreateOptions) error {
	w, err := Create(fsys, dir, s.layout, o)
	if err != nil {
		return err
	}
	return s.orSuspend(w)
}

func (s *sample) orSuspend(w *Writer) error {
	_, err := s.finish(w)
	return errors.Join(err, w.Suspend())
}

// equalDirs fails unless two directories have the same files with the same bytes.
func equalDirs(t *testing.T, got, want vfs.FS, dir string) {
	t.Helper()
	paths := filesOf(t, want, dir)
	if have := filesOf(t, got, dir); !slices.Equal(have, paths) {
		t.Fatalf("%v is there, want %v", have, paths)
	}
	for _, path := range paths {
		a, errA := readFile(got, path, sizeOf(t, got, path))
		b, errB := readFile(want, path, sizeOf(t, want, path))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s differs (%v, %v)", path, errA, errB)
		}
	}
	if _, err := got.Stat(dir + "/.job"); err == nil {
		t.Fatal(".job is left")
	}
}

// crashes are what a crash may leave of a disk.
func crashes(disk *vfs.Mem) []*vfs.Mem {
	return []*vfs.Mem{disk.CrashClone(), disk.CrashCloneKeeping(1), disk.CrashCloneKeeping(2)}
}

func mustStatus(t *testing.T, fsys vfs.FS, dir string) *Job {
	t.Helper()
	j, err := JobStatus(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestAJobGoesOnAfterACrashAnywhereAndEndsWithTheSameBytes(t *testing.T) {
	graph := tiny()[0]
	for _, s := range []*sample{growing(), &graph} {
		want, dir := s.mustWrite(t)
		for n := int64(1); ; n++ {
			disk := vfs.NewMem()
			fault := vfs.NewFault(disk)
			fault.FailFrom(n, syscall.EIO)
			jobErr := s.run(fault, dir, CreateOptions{Job: "j"})
			// Each operation with one way to crash, so that neighbours have all.
			for i, crashed := range crashes(disk)[n%3:][:1] {
				found := completeOrAbsent(t, crashed, dir, s)
				if jobErr == nil && found == nil {
					t.Fatalf("operation %d, crash %d: published, but not there", n, i)
				}
				if _, err := crashed.Stat(dir); err == nil {
					if j := mustStatus(t, crashed, dir); j.Running || j.Published != (found != nil) || j.Unfinished &&
						found != nil {
						t.Fatalf("operation %d, crash %d: status %+v", n, i, j)
					}
				}
				err := s.run(crashed, dir, CreateOptions{Job: "j"})
				if found != nil {
					if !errors.Is(err, ErrExists) {
						t.Fatalf("operation %d, crash %d: %v", n, i, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("operation %d, crash %d: %v", n, i, err)
				}
				equalDirs(t, crashed, want, dir)
			}
			if jobErr == nil {
				break
			}
		}
	}
}

func TestAJobGoesOnAfterAFaultAnywhere(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		fault := vfs.NewFault(disk)
		fault.FailAt(n, syscall.EIO)
		err := s.run(fault, dir, CreateOptions{Job: "j"})
		if fault.Operations() < n {
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d: %v", n, err)
		}
		if completeOrAbsent(t, disk, dir, s) != nil {
			continue // all that failed was removing .job
		}
		if err := s.run(disk, dir, CreateOptions{Job: "j"}); err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		equalDirs(t, disk, want, dir)
	}
}

func TestAFaultAnywhereInARerunLosesNothing(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	begun := vfs.NewMem()
	w, err := Create(begun, dir, s.layout, CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Rows(s.rows), w.Suspend()); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ {
		disk := begun.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailAt(n, syscall.EIO)
		err := s.run(fault, dir, CreateOptions{Job: "j"})
		if fault.Operations() < n {
			break
		}
		if j := mustStatus(t, disk, dir); !j.Published && (j.Running || !slices.Contains(j.Finished, "rows")) {
			t.Fatalf("operation %d: %v, and then %+v", n, err, j)
		}
		if completeOrAbsent(t, disk, dir, s) != nil {
			continue
		}
		if err := s.run(disk, dir, CreateOptions{Job: "j"}); err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		equalDirs(t, disk, want, dir)
	}
}

func TestJobsOnTheOperatingSystemGoOn(t *testing.T) {
	next := growing()
	before := next.without()
	dir := t.TempDir() + "/out/d"
	w, err := Create(vfs.OS(), dir, before.layout, CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Rows(next.rows); err != nil {
		t.Fatal(err)
	}
	if j := mustStatus(t, vfs.OS(), dir); !j.Running || !slices.Equal(j.Finished, []string{"rows"}) {
		t.Errorf("status %+v", j)
	}
	if err := w.Suspend(); err != nil {
		t.Fatal(err)
	}
	if j := mustStatus(t, vfs.OS(), dir); j.Running || !j.Unfinished {
		t.Errorf("status %+v", j)
	}
	if err := before.run(vfs.OS(), dir, CreateOptions{Job: "j"}); err != nil {
		t.Fatal(err)
	}
	if err := next.extend(vfs.OS(), dir, "j"); err != nil {
		t.Fatal(err)
	}
	file := PartPath(MatrixFolder(Input), 0)
	if err := vfs.OS().Remove(dir + "/" + file); err != nil {
		t.Fatal(err)
	}
	if _, err := next.repair(t, mustOpenDamaged(t, vfs.OS(), dir), file); err != nil {
		t.Fatal(err)
	}
	next.compare(t, vfs.OS(), dir)
	if r := verify(t, vfs.OS(), dir); len(r.Bad) > 0 {
		t.Errorf("found damaged: %v", r.Bad)
	}
	if _, err := vfs.OS().Stat(dir + "/.job"); err == nil {
		t.Error(".job is left")
	}
}

func TestAJobGoesOnWhenThereIsRoomAgain(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	disk := vfs.NewMem()
	refused := 0
	for capacity := int64(0); ; capacity += 3000 {
		disk.SetCapacity(capacity)
		err := s.run(disk, dir, CreateOptions{Job: "j"})
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d bytes: %v", capacity, err)
		}
		refused++
	}
	if refused < 10 {
		t.Errorf("%d times only", refused)
	}
	equalDirs(t, disk, want, dir)
}

// recorder knows which files were made.
type recorder struct {
	vfs.FS
	created []string
}

func (r *recorder) Create(path string) (vfs.PendingFile, error) {
	r.created = append(r.created, filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path))
	return r.FS.Create(path)
}

func TestWhatIsFinishedIsNotWrittenAgain(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	disk := &recorder{FS: vfs.NewMem()}
	w, err := Create(disk, dir, s.layout, CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if j := mustStatus(t, disk, dir); !j.Running || !j.Unfinished || j.Published || j.Text != "j" ||
		len(j.Finished) > 0 || j.Bytes != 0 {
		t.Errorf("status %+v", j)
	}
	scratch, err := w.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	put(t, disk, scratch+"/panel"+folder.Suffix, "columns")
	sym := MatrixID{"sym", 1}
	m, err := w.Matrix(sym)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Rows(s.rows), m.Write(s.matrices[sym])); err != nil {
		t.Fatal(err)
	}
	if w.Finished(sym) {
		t.Error("finished before it is closed")
	}
	input, err := w.Matrix(Input)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Close(), input.Write(s.matrices[Input][:8])); err != nil {
		t.Fatal(err)
	}
	if !w.Finished(sym) || w.Finished(Input) {
		t.Errorf("finished: %v, %v", w.Finished(sym), w.Finished(Input))
	}
	if err := errors.Join(w.Suspend(), w.Suspend(), w.Abort()); err != nil {
		t.Fatal(err)
	}
	bytes := sizeOf(t, disk, dir+PartPath("/rows", 0)) + sizeOf(t, disk, dir+PartPath("/features/sym/hop-1", 0))
	if j := mustStatus(t, disk, dir); j.Running || !j.Unfinished || j.Published || j.Text != "j" ||
		!slices.Equal(j.Finished, []string{"features/sym/hop-1", "rows"}) || j.Bytes != bytes {
		t.Errorf("status %+v, want %d bytes", j, bytes)
	}

	disk.created = nil
	if w, err = Create(disk, dir, s.layout, CreateOptions{Job: "j"}); err != nil {
		t.Fatal(err)
	}
	if !w.Finished(sym) || w.Finished(Input) || w.Finished(MatrixID{"sym", 2}) {
		t.Error("not what was finished")
	}
	if _, err := w.Matrix(sym); err == nil {
		t.Error("a finished matrix is started")
	}
	if again, err := w.Scratch(); err != nil || again != scratch ||
		sizeOf(t, disk, scratch+"/panel"+folder.Suffix) != 7 {
		t.Errorf("scratch is at %s, %v", again, err)
	}
	if _, err := s.finish(w); err != nil {
		t.Fatal(err)
	}
	if made := strings.Join(disk.created, " "); strings.Contains(made, "rows/part") ||
		strings.Count(made, "hop-1/part") != 1 {
		t.Errorf("made %s", made)
	}
	equalDirs(t, disk, want, dir)
	if j := mustStatus(t, disk, dir); j.Running || j.Unfinished || !j.Published || j.Text != "" {
		t.Errorf("status %+v", j)
	}
}

func TestAnotherJobIsRefusedUnlessForced(t *testing.T) {
	s, other := growing(), makeStore("other", [4]int64{2, 1, 0, 1}, 2, 2, Float16, columns{1, 1, true},
		Operator{Name: "sym", Hops: 2}, Operator{Name: "rw:noloops", Hops: 1})
	for _, data := range other.matrices {
		for i := range data {
			data[i]++
		}
	}
	wantOther, dir := other.mustWrite(t)
	begun := func() *vfs.Mem {
		disk := vfs.NewMem()
		w, err := Create(disk, dir, s.layout, CreateOptions{Job: "one"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := w.Matrix(Input)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Write(s.matrices[Input]), m.Close(), w.Rows(s.rows), w.Suspend()); err != nil {
			t.Fatal(err)
		}
		return disk
	}
	for _, job := range []string{"other", ""} {
		disk := begun()
		before := filesOf(t, disk, dir)
		err := other.run(disk, dir, CreateOptions{Job: job})
		var otherJob *OtherJobError
		if !errors.As(err, &otherJob) || *otherJob != (OtherJobError{dir, "one", job}) || !errors.Is(err, ErrExists) ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%q: %v", job, err)
		}
		if after := filesOf(t, disk, dir); !slices.Equal(before, after) {
			t.Errorf("%v became %v", before, after)
		}
		if j := mustStatus(t, disk, dir); j.Running || j.Text != "one" || len(j.Finished) != 2 {
			t.Errorf("status %+v", j)
		}
		if err := other.run(disk, dir, CreateOptions{Job: job, Force: true}); err != nil {
			t.Fatal(err)
		}
		equalDirs(t, disk, wantOther, dir)
	}

	// A file of one must never be taken for a file of the other, which is as long.
	for n := int64(1); ; n++ {
		disk := begun().CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, syscall.EIO)
		jobErr := other.run(fault, dir, CreateOptions{Job: "other", Force: true})
		for i, crashed := range crashes(disk) {
			if completeOrAbsent(t, crashed, dir, &other) != nil {
				continue
			}
			var refused *OtherJobError
			err := other.run(crashed, dir, CreateOptions{Job: "other"})
			if errors.As(err, &refused) {
				err = other.run(crashed, dir, CreateOptions{Job: "other", Force: true})
			}
			if err != nil {
				t.Fatalf("operation %d, crash %d: %v", n, i, err)
			}
			equalDirs(t, crashed, wantOther, dir)
		}
		if jobErr == nil {
			break
		}
	}
}

func TestAJobWithAnotherLayoutStartsAnew(t *testing.T) {
	s := growing()
	disk, dir := vfs.NewMem(), "/d"
	w, err := Create(disk, dir, NewLayout([]RegionSize{{RegionTrain, 2}, {RegionValid, 1}, {RegionTest, 0},
		{RegionRest, 1}}, 1, 2, Float16), CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Rows(s.rows), w.Suspend()); err != nil {
		t.Fatal(err)
	}
	if err := s.run(disk, dir, CreateOptions{Job: "j"}); err != nil {
		t.Fatal(err)
	}
	want, _ := s.mustWrite(t)
	equalDirs(t, disk, want, dir)
}

func TestDamageOfWhatAJobHasRecordedIsFound(t *testing.T) {
	s := growing()
	want, dir := s.mustWrite(t)
	disk := vfs.NewMem()
	w, err := Create(disk, dir, s.layout, CreateOptions{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Rows(s.rows), w.Suspend()); err != nil {
		t.Fatal(err)
	}
	record, state := dir+"/.job/rows.table", dir+"/.job/job.json"
	for _, path := range []string{record, state} {
		for i := int64(0); i < sizeOf(t, disk, path); i += 3 {
			copied := disk.CrashClone()
			err := s.run(&damaged{FS: copied, path: path, flip: i, bit: uint(i % 8), length: -1}, dir,
				CreateOptions{Job: "j"})
			if path == record && err != nil {
				t.Fatalf("byte %d of %s: %v", i, path, err)
			}
			if path == state {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
					t.Fatalf("byte %d of %s: %v", i, path, err)
				}
				if _, err := JobStatus(&damaged{FS: copied, path: path, flip: i, length: -1}, dir); !errors.Is(err,
					ErrCorrupt) {
					t.Fatalf("byte %d of %s: %v", i, path, err)
				}
				continue
			}
			equalDirs(t, copied, want, dir)
		}
	}
	damage := &damaged{FS: disk.CrashClone(), path: state, flip: 9, length: -1}
	if err := s.run(damage, dir, CreateOptions{Job: "j", Force: true}); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, damage.FS, want, dir)
	part := dir + PartPath("/rows", 0)
	for _, length := range []int64{0, sizeOf(t, disk, part) - 1} {
		copied := disk.CrashClone()
		if err := s.run(&damaged{FS: copied, path: part, flip: -1, length: length}, dir,
			CreateOptions{Job: "j"}); err != nil {
			t.Fatal(err)
		}
		equalDirs(t, copied, want, dir)
	}
	if err := disk.Remove(part); err != nil {
		t.Fatal(err)
	}
	if err := s.run(disk, dir, CreateOptions{Job: "j"}); err != nil {
		t.Fatal(err)
	}
	equalDirs(t, disk, want, dir)
}

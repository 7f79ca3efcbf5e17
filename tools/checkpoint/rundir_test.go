package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// twoCheckpoints are of one training: they share a file, and differ in others; the second run goes on.
func twoCheckpoints(t *testing.T) (before, after *Checkpoint) {
	t.Helper()
	before = someCheckpoint(t)
	other := *before
	other.Data.Name = "other"
	other.Parameters = append([]float32{5}, before.Parameters[1:]...)
	other.State = someState(before)
	other.Config = map[string]string{"lr": "0.5"}
	return before, &other
}

func TestACrashWhileSavingLeavesTheCheckpointBeforeOrTheNewOne(t *testing.T) {
	before, after := twoCheckpoints(t)
	failure := errors.New("power is gone")
	for _, replaced := range []bool{false, true} {
		for n := int64(1); ; n++ {
			disk := vfs.NewMem()
			if replaced {
				if err := save(disk, "run", before); err != nil {
					t.Fatal(err)
				}
			}
			faulty := vfs.NewFault(disk)
			faulty.FailFrom(n, failure)
			saved := save(faulty, "run", after)
			if saved != nil && !errors.Is(saved, failure) {
				t.Errorf("failure %d: %v", n, saved)
			}
			survivors := []*vfs.Mem{disk.CrashClone()}
			for seed := range uint64(8) {
				survivors = append(survivors, disk.CrashCloneKeeping(seed))
			}
			for i, survivor := range survivors {
				back, err := LoadRun(survivor, "run")
				switch {
				case err == nil && reflect.DeepEqual(back, after):
				case saved == nil:
					t.Errorf("failure %d: saved, but %v", n, err)
				case err == nil && replaced && reflect.DeepEqual(back, before):
				case err != nil && !replaced && errors.Is(err, fs.ErrNotExist):
				default:
					t.Errorf("failure %d, survivor %d: %+v, %v", n, i, back, err)
				}
				// The next training takes the directory, and leaves no more than is its own.
				if err := save(survivor, "run", before); err != nil {
					t.Fatalf("failure %d, survivor %d: saving again: %v", n, i, err)
				}
				if entries, err := survivor.ReadDir("run"); err != nil || len(entries) != 4 {
					t.Errorf("failure %d, survivor %d: afterwards there are %v, %v", n, i, entries, err)
				}
				if back, err := LoadRun(survivor, "run"); err != nil || !reflect.DeepEqual(back, before) {
					t.Errorf("failure %d, survivor %d: saved again, but %v", n, i, err)
				}
			}
			if faulty.Operations() < n {
				break // nothing failed
			}
		}
	}
}

// TestACrashWhileATrainingIsReplacedLeavesNoMixture fails each operation of the first save over another training: all
// that can be read is of one of them, and once the next training has opened the directory, so is each file.
func TestACrashWhileATrainingIsReplacedLeavesNoMixture(t *testing.T) {
	type training struct {
		c      *Checkpoint
		trials string
	}
	saveOver := func(fsys vfs.FS, n training) error {
		r, err := OpenRun(fsys, "run")
		if err != nil {
			return err
		}
		if n.trials != "" {
			err = r.SaveTrials([]byte(n.trials))
		}
		if err == nil {
			err = r.Save(n.c)
		}
		return errors.Join(err, r.Close())
	}
	c, after := twoCheckpoints(t)
	before := *c
	before.Config = map[string]string{"lr": "0.25"}
	before.History = slices.Clone(c.History)
	before.History[0].TrainLoss++
	failure := errors.New("power is gone")
	for _, trials := range [][2]string{{"", ""}, {"tried\n", ""}, {"", "tried\n"}, {"tried\n", "tried more\n"}} {
		old, other := training{&before, trials[0]}, training{after, trials[1]}
		found := map[bool]int{} // how often which of them
		for n := int64(1); ; n++ {
			disk := vfs.NewMem()
			if err := saveOver(disk, old); err != nil {
				t.Fatal(err)
			}
			faulty := vfs.NewFault(disk)
			faulty.FailFrom(n, failure)
			saved := saveOver(faulty, other)
			survivors := []*vfs.Mem{disk.CrashClone()}
			for seed := range uint64(8) {
				survivors = append(survivors, disk.CrashCloneKeeping(seed))
			}
			for i, survivor := range survivors {
				back, err := LoadRun(survivor, "run")
				if err != nil {
					t.Fatalf("trials %q, failure %d, survivor %d: %v", trials, n, i, err)
				}
				is := other
				if reflect.DeepEqual(back, old.c) {
					is = old
				}
				found[is == other]++
				if saved == nil && is != other || !reflect.DeepEqual(back, is.c) {
					t.Errorf("trials %q, failure %d, survivor %d: saved %v, but there is %+v", trials, n, i, saved,
						back)
				}
				if text, err := ReadTrials(survivor, "run"); err != nil || string(text) != is.trials {
					t.Errorf("trials %q, failure %d, survivor %d: read %q, %v", trials, n, i, text, err)
				}
				// The next training puts all in order, and has not to save anything for that.
				r, err := OpenRun(survivor, "run")
				if err == nil {
					err = r.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				config, _ := EncodeConfig(is.c.Config)
				_, _, metrics, err := is.c.encode()
				if err != nil {
					t.Fatal(err)
				}
				for name, want := range map[string]string{ConfigFile: string(config), MetricsFile: string(metrics),
					TrialsFile: is.trials} {
					text, err := readFile(survivor, "run/"+name, 1<<20)
					if string(text) != want || err != nil && want != "" {
						t.Errorf("trials %q, failure %d, survivor %d: %s is %q, %v, want %q", trials, n, i, name, text,
							err, want)
					}
				}
				entries, err := survivor.ReadDir("run")
				if err != nil || slices.ContainsFunc(entries,
					func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), newSuffix) }) {
					t.Errorf("trials %q, failure %d, survivor %d: there are %v, %v", trials, n, i, entries, err)
				}
			}
			if faulty.Operations() < n {
				break // nothing failed
			}
		}
		if found[false] == 0 || found[true] < 30 {
			t.Errorf("trials %q: found %v", trials, found)
		}
	}
}

func TestASaveThatFailsOnceCanBeDoneAgain(t *testing.T) {
	before, after := twoCheckpoints(t)
	failure := errors.New("the disk is full")
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		faulty := vfs.NewFault(disk)
		r, err := OpenRun(faulty, "run")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Save(before); err != nil {
			t.Fatal(err)
		}
		done := faulty.Operations()
		faulty.FailAt(done+n, failure)
		saved := r.Save(after)
		ended := faulty.Operations() < done+n
		if back, err := LoadRun(disk, "run"); err != nil || !reflect.DeepEqual(back, before) &&
			!reflect.DeepEqual(back, after) {
			t.Errorf("failure %d: %v", n, err)
		}
		if !ended && !errors.Is(saved, failure) {
			t.Errorf("failure %d: %v", n, saved)
		}
		faulty.FailAt(0, nil)
		if err := errors.Join(r.Save(after), r.Close()); err != nil {
			t.Errorf("after failure %d: %v", n, err)
		}
		back, err := LoadRun(disk, "run")
		if entries, _ := disk.ReadDir("run"); err != nil || !reflect.DeepEqual(back, after) || len(entries) != 6 {
			t.Errorf("after failure %d: %v, %v", n, entries, err)
		}
		if ended {
			break
		}
	}
}

func TestADirectoryWithoutAnythingSavedIsLeftAsItWas(t *testing.T) {
	before := someCheckpoint(t)
	disk := vfs.NewMem()
	open := func(dir string) {
		t.Helper()
		r, err := OpenRun(disk, dir)
		if err == nil {
			err = r.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if open("new/run"); exists(disk, "new/run") {
		t.Error("a directory was left that holds nothing")
	}
	if err := disk.MkdirAll("empty"); err != nil {
		t.Fatal(err)
	}
	if open("empty"); !exists(disk, "empty") || exists(disk, "empty/.job") {
		t.Error("an empty directory is not as it was")
	}
	if err := save(disk, "run", before); err != nil {
		t.Fatal(err)
	}
	open("run")
	if back, err := LoadRun(disk, "run"); err != nil || !reflect.DeepEqual(back, before) || exists(disk, "run/.job") {
		t.Errorf("a checkpoint is not as it was: %v", err)
	}
}

func exists(fsys vfs.FS, path string) bool { _, err := fsys.Stat(path); return err == nil }

func TestTheSecondTrainingOfADirectoryIsRefused(t *testing.T) {
	c := someCheckpoint(t)
	disk := vfs.NewMem()
	first, err := OpenRun(disk, "run")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := OpenRun(disk, "run"); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "run") {
			t.Errorf("a second training got the directory: %v", err)
		}
	}
	if err := errors.Join(first.Save(c), first.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRun(disk, "run"); err != nil {
		t.Error(err)
	}
}

func TestADirectoryWithOtherFilesIsLeftAlone(t *testing.T) {
	c := someCheckpoint(t)
	const lock = "a lock file"
	for name, makes := range map[string][]string{
		"a file":                           {"notes.txt"},
		"a folder":                         {"features/x"},
		"another program's checkpoint":     {File},
		"a checkpoint and a file":          {File, "notes.txt"},
		"parameters without a checkpoint":  {"parameters-0123456789abcdef.safetensors"},
		"an unfinished store":              {lock, ".job/job.json"},
		"a killed training and a file":     {lock, "notes.txt"},
		"parameters under another name":    {lock, "parameters.safetensors"},
		"a folder in the place of metrics": {lock, "metrics.jsonl/x"},
		"metrics without a checkpoint":     {"metrics.jsonl"},
		"a folder with the name of ours":   {".job/notes.txt"},
		"a file with the name of a lock":   {".job/" + folder.LockName},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			for _, path := range makes {
				if path == lock {
					held, err := folder.Lock(disk, "run/"+jobFolder)
					if err != nil {
						t.Fatal(err)
					}
					held.Close() // as when its process is killed
					continue
				}
				path = filepath.Join("run", path)
				if err := disk.MkdirAll(filepath.Dir(path)); err != nil {
					t.Fatal(err)
				}
				if err := vfs.WriteFile(disk, path, []byte("mine")); err != nil {
					t.Fatal(err)
				}
			}
			if err := save(disk, "run", c); !errors.Is(err, ErrExists) ||
				!strings.Contains(err.Error(), "no training has written") {
				t.Errorf("got %v", err)
			}
			entries, err := disk.ReadDir("run")
			for _, path := range makes {
				if path == lock {
					continue
				}
				if data, err := readFile(disk, filepath.Join("run", path), 4); err != nil || string(data) != "mine" {
					t.Errorf("%s: %q, %v", path, data, err)
				}
			}
			tops := map[string]bool{}
			for _, path := range makes {
				tops[strings.Split(strings.ReplaceAll(path, lock, jobFolder), "/")[0]] = true
			}
			if err != nil || len(entries) != len(tops) {
				t.Errorf("there are %v now, %v", entries, err)
			}
		})
	}
}

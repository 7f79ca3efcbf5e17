package vfs

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestACrashKeepsWhatWasSyncedAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, m *Mem)
		want []string // all paths, files with their content
	}{
		{"an empty disk", func(t *testing.T, m *Mem) {}, nil},
		{"committed files and made directories stay", func(t *testing.T, m *Mem) {
			mkdir(t, m, "/a/b")
			put(t, m, "/a/b/x", "whole")
		}, []string{"/a", "/a/b", "/a/b/x=whole"}},
		{"a file not committed goes", func(t *testing.T, m *Mem) {
			write(t, create(t, m, "/x"), "lost")
		}, nil},
		{"its name may stay by another's sync, its bytes do not", func(t *testing.T, m *Mem) {
			write(t, create(t, m, "/x"), "lost")
			put(t, m, "/y", "whole")
		}, []string{"/x.tmp=", "/y=whole"}},
		{"a replacement not committed leaves the old file", func(t *testing.T, m *Mem) {
			put(t, m, "/x", "old")
			write(t, create(t, m, "/x"), "new")
		}, []string{"/x=old"}},
		{"a replacement committed is there", func(t *testing.T, m *Mem) {
			put(t, m, "/x", "old")
			put(t, m, "/x", "new")
		}, []string{"/x=new"}},
		{"what was removed comes back until its directory is synced", func(t *testing.T, m *Mem) {
			mkdir(t, m, "/a/b")
			put(t, m, "/a/x", "back")
			put(t, m, "/a/b/y", "back too")
			put(t, m, "/z", "back as well")
			if err := errors.Join(m.RemoveAll("/a"), m.Remove("/z")); err != nil {
				t.Fatal(err)
			}
		}, []string{"/a", "/a/b", "/a/b/y=back too", "/a/x=back", "/z=back as well"}},
		{"and is gone after that", func(t *testing.T, m *Mem) {
			put(t, m, "/z", "gone")
			if err := m.Remove("/z"); err != nil {
				t.Fatal(err)
			}
			put(t, m, "/y", "whole")
		}, []string{"/y=whole"}},
		{"a rename stays", func(t *testing.T, m *Mem) {
			mkdir(t, m, "/a")
			put(t, m, "/a/x", "moved")
			if err := m.Rename("/a", "/b"); err != nil {
				t.Fatal(err)
			}
		}, []string{"/b", "/b/x=moved"}},
		{"an exchange stays", func(t *testing.T, m *Mem) {
			put(t, m, "/x", "1")
			put(t, m, "/y", "2")
			if err := m.Exchange("/x", "/y"); err != nil {
				t.Fatal(err)
			}
		}, []string{"/x=2", "/y=1"}},
		{"a lock file stays, without its lock", func(t *testing.T, m *Mem) {
			if _, err := m.Lock("/lock"); err != nil {
				t.Fatal(err)
			}
		}, []string{"/lock=" + LockText}},
		{"what is removed is gone after a sync", func(t *testing.T, m *Mem) {
			put(t, m, "/z", "gone")
			if err := errors.Join(m.Remove("/z"), m.Sync("/")); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMem()
			c.run(t, m)
			clone := m.CrashClone()
			if got := tree(t, clone, "/"); !slices.Equal(got, c.want) {
				t.Errorf("left are %q, want %q", got, c.want)
			}
			if got := tree(t, clone.CrashClone(), "/"); !slices.Equal(got, c.want) {
				t.Errorf("a second crash leaves %q, want %q", got, c.want)
			}
		})
	}
}

func TestALockThatFindsNoRoomLeavesNoFile(t *testing.T) {
	m := NewMem()
	m.SetCapacity(int64(len(LockText)) - 1)
	_, err := m.Lock("/lock")
	wantError(t, err, syscall.ENOSPC)
	if left := tree(t, m, "/"); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestACrashCloneIsADiskOfItsOwnWithoutLocks(t *testing.T) {
	m := NewMem()
	put(t, m, "/x", "before")
	put(t, m, "/lock", "")
	if _, err := m.Lock("/lock"); err != nil {
		t.Fatal(err)
	}
	clone := m.CrashClone()
	put(t, m, "/x", "after")
	put(t, m, "/y", "after")
	put(t, clone, "/z", "clone")
	if got, want := tree(t, clone, "/"), []string{"/lock=" + LockText, "/x=before", "/z=clone"}; !slices.Equal(got,
		want) {
		t.Errorf("the clone has %q, want %q", got, want)
	}
	if got, want := tree(t, m, "/"), []string{"/lock=" + LockText, "/x=after", "/y=after"}; !slices.Equal(got, want) {
		t.Errorf("the disk has %q, want %q", got, want)
	}
	if _, err := clone.Lock("/lock"); err != nil {
		t.Errorf("the lock survived: %v", err)
	}
}

// What is synced survives any seed; of the rest every outcome is met.
func TestACrashKeepingMayKeepAnythingUnsynced(t *testing.T) {
	m := NewMem()
	mkdir(t, m, "/a")
	put(t, m, "/a/x", "whole")
	put(t, m, "/removed", "r")
	if err := m.Remove("/removed"); err != nil {
		t.Fatal(err)
	}
	pages := strings.Repeat("1", 4096) + strings.Repeat("2", 4096) + "3"
	write(t, create(t, m, "/p"), pages)
	outcomes := map[string]int{}
	for seed := range uint64(400) {
		clone := m.CrashCloneKeeping(seed)
		wantContent(t, clone, "/a/x", "whole")
		got := tree(t, clone, "/")
		if again := tree(t, m.CrashCloneKeeping(seed), "/"); !slices.Equal(got, again) {
			t.Fatalf("seed %d gives %q and %q", seed, got, again)
		}
		for _, name := range []string{"/removed=r", "/p.tmp="} {
			if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, name) }) {
				outcomes[name]++
			} else {
				outcomes["no "+name]++
			}
		}
		for _, s := range got {
			content, ok := strings.CutPrefix(s, "/p.tmp=")
			if !ok {
				continue
			}
			pattern := ""
			for lo := 0; lo < len(content); lo += 4096 {
				page := content[lo:min(lo+4096, len(content))]
				switch page {
				case pages[lo : lo+len(page)]:
					pattern += page[:1]
				case strings.Repeat("\x00", len(page)):
					pattern += "0"
				default:
					t.Fatalf("seed %d: the page at %d is %q", seed, lo, page)
				}
			}
			outcomes[pattern]++
		}
	}
	for _, want := range []string{"/removed=r", "no /removed=r", "/p.tmp=", "no /p.tmp=", "", "1", "02", "12", "003",
		"103", "023", "123"} {
		if outcomes[want] == 0 {
			t.Errorf("%q never happens: %v", want, outcomes)
		}
	}
}

func TestAFullDiskTakesWhatFitsAndSaysENOSPC(t *testing.T) {
	m := NewMem()
	m.SetCapacity(10)
	put(t, m, "/a", "1234")
	f := create(t, m, "/b")
	write(t, f, "12")
	n, err := f.Write([]byte("345678"))
	if n != 4 {
		t.Errorf("wrote %d bytes", n)
	}
	wantError(t, err, syscall.ENOSPC)
	if n, err := f.WriteAt([]byte("xy"), 1); n != 2 || err != nil {
		t.Errorf("overwriting takes no space: %d, %v", n, err)
	}
	wantFree := func(want int64) {
		t.Helper()
		if free, err := m.FreeBytes("/"); free != want || err != nil {
			t.Errorf("%d bytes are free (%v), want %d", free, err, want)
		}
	}
	wantFree(0)
	if clone := m.CrashClone(); clone.free() != 6 {
		t.Errorf("after a crash %d bytes are free", clone.free())
	}
	if err := f.Abort(); err != nil {
		t.Fatal(err)
	}
	wantFree(6)
	put(t, m, "/a", "12")
	wantFree(8)
	mkdir(t, m, "/d")
	put(t, m, "/d/x", "12345678")
	wantFree(0)
	m.SetCapacity(5)
	wantFree(0)
	if err := m.RemoveAll("/d"); err != nil {
		t.Fatal(err)
	}
	wantFree(3)
}

func TestTheRootOfAMemIsNotRemoved(t *testing.T) {
	m := NewMem()
	wantError(t, m.Remove("/"), nil)
	wantError(t, m.RemoveAll("."), nil)
	if info, err := m.Stat("/"); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
}

// tree lists all paths below dir, files with their content.
func tree(t *testing.T, fsys FS, dir string) (paths []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		p := strings.TrimSuffix(dir, "/") + "/" + e.Name()
		if e.IsDir() {
			paths = append(append(paths, p), tree(t, fsys, p)...)
			continue
		}
		f, err := fsys.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if n, _ := f.ReadAt(b, 0); int64(n) != size {
			t.Fatalf("%s: read %d of %d bytes", p, n, size)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p+"="+string(b))
	}
	return paths
}

func TestAFolderThatWasThereOutlivesACrashOnceItWasAskedFor(t *testing.T) {
	for _, dir := range []string{"a/b", "a/b/c"} { // found, or made in one that is
		m := NewMem()
		for _, there := range []string{"a", "a/b"} {
			mkdirAsOthers(t, m, there)
		}
		if got := tree(t, m.CrashClone(), "/"); len(got) != 0 {
			t.Fatalf("nobody has synced anything, and %q is there", got)
		}
		mkdir(t, m, dir)
		put(t, m, dir+"/file", "content")
		wantContent(t, m.CrashClone(), dir+"/file", "content")
	}
}

// mkdirAsOthers makes a directory as other programs do: a crash may take it, as nobody has synced its parent.
func mkdirAsOthers(t *testing.T, m *Mem, path string) {
	t.Helper()
	if err := m.at("mkdir", path, func(at place) error {
		at.dir.entries[at.name] = newDir()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestDisksThatDifferAreTakenForOthers(t *testing.T) {
	m, seen := NewMem(), Disks{}
	mkdir(t, m, "/a")
	put(t, m, "/a/x", "one")
	for _, change := range []func(){
		func() {},
		func() { put(t, m, "/a/x", "two") },
		func() { put(t, m, "/y", "two") },
		func() { put(t, m, "/z", "") },
		func() { mkdir(t, m, "/b") },
		func() { write(t, create(t, m, "/b/x"), "begun") },
		func() {
			if err := m.SetAttribute("/a", "name", "value"); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if err := m.Rename("/z", "/w"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if change(); !seen.Add(m, 0) || seen.Add(m.Clone(), 0) {
			t.Errorf("%d disks", len(seen))
		}
	}
	if !seen.Add(m, 1) || seen.Add(m, 1) {
		t.Error("another way to go on was not told apart")
	}
	put(t, m, "/y", "one")
	if put(t, m, "/y", "two"); seen.Add(m, 0) {
		t.Error("the same disk was taken for another")
	}
}

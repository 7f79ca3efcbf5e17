package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// implementations are what the conformance suite runs on: each gives a file
// system and an empty directory in it.
var implementations = []struct {
	name string
	make func(t *testing.T) (FS, string)
}{
	{"OS", func(t *testing.T) (FS, string) { return OS(), t.TempDir() }},
	{"Mem", func(t *testing.T) (FS, string) { return NewMem(), "/" }},
	{"Fault without fault", func(t *testing.T) (FS, string) { return NewFault(NewMem()), "/" }},
	{"Mem by relative paths", func(t *testing.T) (FS, string) {
		m := NewMem()
		mkdir(t, m, "some/dir")
		return m, "some/dir"
	}},
}

// conformance is what every FS does. Errors that callers tell apart are given
// as sentinels; other failures only need to be a *fs.PathError.
var conformance = []struct {
	name string
	test func(t *testing.T, fsys FS, dir string)
}{
	{"a committed file has the bytes written, and no temporary file stays", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		f := create(t, fsys, p)
		write(t, f, "hello ")
		write(t, f, "world")
		if names := list(t, fsys, dir); !slices.Equal(names, []string{"a" + TempSuffix}) {
			t.Errorf("before the commit there are %q", names)
		}
		_, err := fsys.Stat(p)
		wantError(t, err, fs.ErrNotExist)
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := f.Abort(); err != nil {
			t.Errorf("Abort after Commit: %v", err)
		}
		wantContent(t, fsys, p, "hello world")
		if names := list(t, fsys, dir); !slices.Equal(names, []string{"a"}) {
			t.Errorf("after the commit there are %q", names)
		}
		wantError(t, f.Commit(), fs.ErrClosed)
		_, err = f.Write([]byte("more"))
		wantError(t, err, fs.ErrClosed)
		_, err = f.WriteAt([]byte("more"), 0)
		wantError(t, err, fs.ErrClosed)
	}},
	{"an aborted file leaves nothing", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "a"))
		write(t, f, "hello")
		if err := f.Abort(); err != nil {
			t.Fatal(err)
		}
		if err := f.Abort(); err != nil {
			t.Errorf("second Abort: %v", err)
		}
		wantError(t, f.Commit(), fs.ErrClosed)
		if names := list(t, fsys, dir); len(names) > 0 {
			t.Errorf("%q is left", names)
		}
	}},
	{"WriteAt fills in, leaves zeros before it, and does not move Write", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		f := create(t, fsys, p)
		write(t, f, "abc")
		for _, w := range []struct {
			s   string
			off int64
		}{{"XY", 6}, {"B", 1}, {"", 100}} {
			if n, err := f.WriteAt([]byte(w.s), w.off); n != len(w.s) || err != nil {
				t.Fatalf("WriteAt %d: %d, %v", w.off, n, err)
			}
		}
		write(t, f, "d")
		if _, err := f.WriteAt([]byte("x"), -1); err == nil {
			t.Error("wrote before the start")
		}
		commit(t, f)
		wantContent(t, fsys, p, "aBcd\x00\x00XY")
	}},
	{"a file can be read under its temporary name while it is written", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		pending := create(t, fsys, p)
		f := open(t, fsys, p+TempSuffix)
		write(t, pending, "hello ")
		write(t, pending, "world")
		wantBytes(t, f, "hello world")
		if _, err := pending.WriteAt([]byte("H"), 0); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, f, "Hello world")
		if err := pending.Abort(); err != nil {
			t.Fatal(err)
		}
		if names := list(t, fsys, dir); len(names) > 0 {
			t.Errorf("%q is left", names)
		}
	}},
	{"a file replaced keeps its old bytes for those who have it open", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		put(t, fsys, p, "old")
		f := open(t, fsys, p)
		pending := create(t, fsys, p)
		write(t, pending, "newer")
		wantContent(t, fsys, p, "old")
		commit(t, pending)
		wantContent(t, fsys, p, "newer")
		wantBytes(t, f, "old")
	}},
	{"an aborted replacement leaves what was there", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		put(t, fsys, p, "old")
		f := create(t, fsys, p)
		write(t, f, "new")
		if err := f.Abort(); err != nil {
			t.Fatal(err)
		}
		wantContent(t, fsys, p, "old")
	}},
	{"a commit that fails leaves what was there, and no temporary file", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		f := create(t, fsys, p)
		write(t, f, "new")
		mkdir(t, fsys, filepath.Join(p, "in the way"))
		wantError(t, f.Commit(), fs.ErrExist)
		if names := list(t, fsys, dir); !slices.Equal(names, []string{"a"}) {
			t.Errorf("there are %q", names)
		}
	}},
	{"a left-over temporary file is replaced", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		put(t, fsys, p+TempSuffix, "much longer left-over")
		put(t, fsys, p, "short")
		wantContent(t, fsys, p, "short")
		if names := list(t, fsys, dir); !slices.Equal(names, []string{"a"}) {
			t.Errorf("there are %q", names)
		}
	}},
	{"files are created in directories that exist only", func(t *testing.T, fsys FS, dir string) {
		_, err := fsys.Create(filepath.Join(dir, "no", "a"))
		wantError(t, err, fs.ErrNotExist)
		put(t, fsys, filepath.Join(dir, "file"), "")
		_, err = fsys.Create(filepath.Join(dir, "file", "a"))
		wantError(t, err, syscall.ENOTDIR)
	}},
	{"ReadAt follows io.ReaderAt", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		put(t, fsys, p, "0123456789")
		f := open(t, fsys, p)
		for _, c := range []struct {
			off  int64
			size int
			want string
			err  error
		}{
			{0, 4, "0123", nil}, {6, 4, "6789", nil}, {8, 4, "89", io.EOF},
			{10, 1, "", io.EOF}, {1 << 40, 1, "", io.EOF}, {3, 0, "", nil},
		} {
			b := make([]byte, c.size)
			n, err := f.ReadAt(b, c.off)
			atEnd := err == io.EOF && c.off+int64(c.size) == 10 // allowed by io.ReaderAt
			if string(b[:n]) != c.want || err != c.err && !atEnd {
				t.Errorf("%d bytes at %d: %q, %v", c.size, c.off, b[:n], err)
			}
		}
		_, err := f.ReadAt(make([]byte, 1), -1)
		wantError(t, err, nil)
		if f.Path() != p {
			t.Errorf("the path is %q", f.Path())
		}
		if size, err := f.Size(); size != 10 || err != nil {
			t.Errorf("the size is %d, %v", size, err)
		}
	}},
	{"a file is read by many goroutines at once", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		content := make([]byte, 1<<16)
		for i := range content {
			content[i] = byte(i * 7)
		}
		put(t, fsys, p, string(content))
		f := open(t, fsys, p)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				b := make([]byte, 1000)
				for off := g; off < len(content)-len(b); off += 4001 {
					if _, err := f.ReadAt(b, int64(off)); err != nil || !bytes.Equal(b, content[off:off+len(b)]) {
						t.Errorf("read at %d differs, %v", off, err)
					}
				}
			})
		}
		wg.Wait()
	}},
	{"a closed file cannot be read", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "a")
		put(t, fsys, p, "x")
		f, err := fsys.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = f.ReadAt(make([]byte, 1), 0)
		wantError(t, err, fs.ErrClosed)
		wantError(t, f.Close(), fs.ErrClosed)
	}},
	{"what is not there cannot be opened, listed, removed or renamed", func(t *testing.T, fsys FS, dir string) {
		no := filepath.Join(dir, "no")
		_, err := fsys.Open(no)
		wantError(t, err, fs.ErrNotExist)
		_, err = fsys.ReadDir(no)
		wantError(t, err, fs.ErrNotExist)
		_, err = fsys.Stat(no)
		wantError(t, err, fs.ErrNotExist)
		wantError(t, fsys.Remove(no), fs.ErrNotExist)
		wantError(t, fsys.Rename(no, no+"2"), fs.ErrNotExist)
		_, err = fsys.Lock(filepath.Join(no, "lock"))
		wantError(t, err, fs.ErrNotExist)
		_, err = fsys.FreeBytes(no)
		wantError(t, err, fs.ErrNotExist)
		wantError(t, fsys.Sync(no), fs.ErrNotExist)
	}},
	{"directories and files are not taken for each other", func(t *testing.T, fsys FS, dir string) {
		_, err := fsys.Open(dir)
		wantError(t, err, syscall.EISDIR)
		p := filepath.Join(dir, "a")
		put(t, fsys, p, "x")
		_, err = fsys.ReadDir(p)
		wantError(t, err, syscall.ENOTDIR)
		_, err = fsys.Open(filepath.Join(p, "b"))
		wantError(t, err, syscall.ENOTDIR)
		wantError(t, fsys.MkdirAll(p), syscall.ENOTDIR)
		wantError(t, fsys.MkdirAll(filepath.Join(p, "b")), syscall.ENOTDIR)
	}},
	{"MkdirAll makes parents and is content with what exists", func(t *testing.T, fsys FS, dir string) {
		deep := filepath.Join(dir, "a", "b", "c")
		for _, p := range []string{deep, deep, deep + "/", dir} {
			mkdir(t, fsys, p)
		}
		info, err := fsys.Stat(deep)
		if err != nil || !info.IsDir() || info.Name() != "c" {
			t.Errorf("Stat: %v, %v", info, err)
		}
	}},
	{"ReadDir sorts by name and tells files from directories", func(t *testing.T, fsys FS, dir string) {
		for _, name := range []string{"b", "a", "part-10", "part-9"} {
			put(t, fsys, filepath.Join(dir, name), name)
		}
		mkdir(t, fsys, filepath.Join(dir, "ab"))
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			name := e.Name()
			if info.Name() != name || info.IsDir() != e.IsDir() || !e.IsDir() && info.Size() != int64(len(name)) {
				t.Errorf("%s has the info %v", name, info)
			}
			if e.IsDir() {
				name += "/"
			}
			got = append(got, name)
		}
		if want := []string{"a", "ab/", "b", "part-10", "part-9"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}},
	{"Remove takes files and empty directories", func(t *testing.T, fsys FS, dir string) {
		sub, p := filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "a")
		mkdir(t, fsys, sub)
		put(t, fsys, p, "kept for its reader")
		f := open(t, fsys, p)
		wantError(t, fsys.Remove(sub), syscall.ENOTEMPTY)
		if err := errors.Join(fsys.Remove(p), fsys.Remove(sub)); err != nil {
			t.Error(err)
		}
		wantBytes(t, f, "kept for its reader")
		if names := list(t, fsys, dir); len(names) > 0 {
			t.Errorf("%q are left", names)
		}
	}},
	{"Rename moves files over files and directories to free names", func(t *testing.T, fsys FS, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		put(t, fsys, at("a"), "a")
		put(t, fsys, at("b"), "b")
		mkdir(t, fsys, at("d/e"))
		put(t, fsys, at("d/e/x"), "x")
		if err := errors.Join(fsys.Rename(at("a"), at("b")), fsys.Rename(at("d"), at("f")),
			fsys.Rename(at("b"), at("b"))); err != nil {
			t.Fatal(err)
		}
		wantContent(t, fsys, at("b"), "a")
		wantContent(t, fsys, at("f/e/x"), "x")
		wantError(t, fsys.Rename(at("b"), at("f")), fs.ErrExist)
		wantError(t, fsys.Rename(at("f"), at("b")), syscall.ENOTDIR)
		wantError(t, fsys.Rename(at("b"), at("f/b")), nil)
		if names := list(t, fsys, dir); !slices.Equal(names, []string{"b", "f"}) {
			t.Errorf("there are %q", names)
		}
	}},
	{"a lock excludes others until it is closed", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "lock")
		for range 2 {
			lock, err := fsys.Lock(p)
			if err != nil {
				t.Fatal(err)
			}
			_, err = fsys.Lock(p)
			wantError(t, err, ErrLocked)
			if err == nil || !strings.Contains(err.Error(), p) {
				t.Errorf("the error does not name %s: %v", p, err)
			}
			other, err := fsys.Lock(p + "2")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(other.Close(), lock.Close()); err != nil {
				t.Error(err)
			}
		}
		if names := list(t, fsys, dir); !slices.Equal(names, []string{"lock", "lock2"}) {
			t.Errorf("there are %q", names)
		}
	}},
	{"a lock file says that it is one, and nothing else becomes one", func(t *testing.T, fsys FS, dir string) {
		state := func(name string, want LockState) {
			t.Helper()
			if got, err := StateOfLock(fsys, filepath.Join(dir, name)); got != want || err != nil {
				t.Errorf("%s: state %d, %v, want %d", name, got, err, want)
			}
		}
		if _, err := StateOfLock(fsys, filepath.Join(dir, "lock")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without a file: %v", err)
		}
		// A crash may leave nothing, some or zeros of what a new file was to hold.
		for i, left := range []string{"", LockText[:7], LockText[:3] + "\x00\x00",
			strings.Repeat("\x00", len(LockText)), LockText} {
			name := fmt.Sprint("lock", i)
			put(t, fsys, filepath.Join(dir, name), left)
			state(name, map[bool]LockState{false: Unmarked, true: Marked}[left == LockText])
			lock, err := fsys.Lock(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			state(name, Marked)
			wantContent(t, fsys, filepath.Join(dir, name), LockText)
			if err := lock.Close(); err != nil {
				t.Error(err)
			}
			state(name, Marked)
		}
		for i, mine := range []string{"mine", LockText + "x", LockText[:5] + "x", strings.Repeat("\x00", 1000)} {
			name := fmt.Sprint("mine", i)
			put(t, fsys, filepath.Join(dir, name), mine)
			state(name, NoLock)
			_, err := fsys.Lock(filepath.Join(dir, name))
			wantError(t, err, ErrNotLock)
			wantContent(t, fsys, filepath.Join(dir, name), mine)
		}
		mkdir(t, fsys, filepath.Join(dir, "folder"))
		state("folder", NoLock)
	}},
	{"an exchange swaps two names of one parent", func(t *testing.T, fsys FS, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		mkdir(t, fsys, at("one"))
		mkdir(t, fsys, at("other"))
		put(t, fsys, at("one/x"), "1")
		put(t, fsys, at("other/y"), "2")
		put(t, fsys, at("file"), "3")
		err := fsys.Exchange(at("one"), at("other"))
		if errors.Is(err, errors.ErrUnsupported) {
			wantContent(t, fsys, at("one/x"), "1")
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, fsys, at("other/x"), "1")
		wantContent(t, fsys, at("one/y"), "2")
		if err := fsys.Exchange(at("one"), at("file")); err != nil {
			t.Fatal(err)
		}
		wantContent(t, fsys, at("one"), "3")
		wantContent(t, fsys, at("file/y"), "2")
		wantError(t, fsys.Exchange(at("one"), at("no")), fs.ErrNotExist)
		wantError(t, fsys.Exchange(at("no"), at("one")), fs.ErrNotExist)
		if err := fsys.Exchange(at("one"), at("file/y")); err == nil {
			t.Error("names of two parents are exchanged")
		}
		wantContent(t, fsys, at("one"), "3")
	}},
	{"a directory is synced", func(t *testing.T, fsys FS, dir string) {
		if err := fsys.Sync(dir); err != nil {
			t.Error(err)
		}
		wantError(t, fsys.Sync(filepath.Join(dir, "no")), fs.ErrNotExist)
	}},
	{"who asks whether a file is locked changes nothing", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "lock")
		ask := func(want bool) {
			t.Helper()
			if got, err := fsys.Locked(p); got != want || err != nil {
				t.Errorf("locked %v, %v", got, err)
			}
		}
		ask(false)
		if locked, err := fsys.Locked(filepath.Join(dir, "none", "lock")); locked || err != nil {
			t.Errorf("in a folder that is not there: locked %v, %v", locked, err)
		}
		if names := list(t, fsys, dir); len(names) > 0 {
			t.Errorf("%v is there", names)
		}
		for range 2 {
			lock, err := fsys.Lock(p)
			if err != nil {
				t.Fatal(err)
			}
			ask(true)
			ask(true)
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
			ask(false)
		}
		if _, err := fsys.Locked(filepath.Join(p, "lock")); err == nil {
			t.Error("a file in a file is not locked")
		}
	}},
	{"one of many lockers gets the lock", func(t *testing.T, fsys FS, dir string) {
		p := filepath.Join(dir, "lock")
		got := make([]io.Closer, 8)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				lock, err := fsys.Lock(p)
				if err == nil {
					got[i] = lock
				} else if !errors.Is(err, ErrLocked) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		held := 0
		for _, lock := range got {
			if lock != nil {
				held++
				lock.Close()
			}
		}
		if held != 1 {
			t.Errorf("%d hold the lock", held)
		}
	}},
	{"FreeBytes tells some space", func(t *testing.T, fsys FS, dir string) {
		if free, err := fsys.FreeBytes(dir); free <= 0 || err != nil {
			t.Errorf("%d, %v", free, err)
		}
	}},
	{"a mapping holds the file's bytes and outlives the File", func(t *testing.T, fsys FS, dir string) {
		for _, want := range []string{"", "mapped", strings.Repeat("0123456789", 1000)} {
			p := filepath.Join(dir, "a")
			put(t, fsys, p, want)
			f, err := fsys.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			b, unmap, err := f.(Mapper).Map()
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if err := Guard(func() error {
				if string(b) != want {
					t.Errorf("mapped %d bytes that differ from the %d written", len(b), len(want))
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if err := unmap(); err != nil {
				t.Error(err)
			}
		}
	}},
	{"direct reads are aligned, end at the end, and give the same bytes", func(t *testing.T, fsys FS, dir string) {
		content := make([]byte, 3*PageBytes+100)
		for i := range content {
			content[i] = byte(i % 251)
		}
		p := filepath.Join(dir, "a")
		put(t, fsys, p, string(content))
		direct := fsys.(Directer)
		f, err := direct.OpenDirect(p)
		if errors.Is(err, ErrNoDirect) {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("the error does not name %s: %v", p, err)
			}
			t.Logf("only the refusal is tested: %v", err)
		} else if err != nil {
			t.Fatal(err)
		} else {
			defer f.Close()
			const align = PageBytes
			size := (len(content)/align + 1) * align
			b := AlignedBytes(size+align, align)
			if n, err := f.ReadAt(b, 0); err != io.EOF || !bytes.Equal(b[:n], content) {
				t.Errorf("the whole: %d bytes, %v", n, err)
			}
			if n, err := f.ReadAt(b[:align], 0); n != min(align, len(content)) || err != nil && err != io.EOF ||
				!bytes.Equal(b[:n], content[:n]) {
				t.Errorf("the first block: %d bytes, %v", n, err)
			}
			if n, err := f.ReadAt(b[:align], int64(size)); n != 0 || err != io.EOF {
				t.Errorf("beyond the end: %d bytes, %v", n, err)
			}
			for _, c := range []struct {
				p   []byte
				off int64
			}{{b[:align], 1}, {b[:align-1], 0}, {b[1 : align+1], 0}, {b[:align], -int64(align)}} {
				_, err := f.ReadAt(c.p, c.off)
				wantError(t, err, nil)
			}
			if f.Path() != p {
				t.Errorf("the path is %q", f.Path())
			}
		}
		_, err = direct.OpenDirect(filepath.Join(dir, "no"))
		wantError(t, err, fs.ErrNotExist)
		if errors.Is(err, ErrNoDirect) {
			t.Error("a missing file is taken for one that refuses direct reads")
		}
		put(t, fsys, p, "")
		if f, err := direct.OpenDirect(p); err == nil {
			if n, err := f.ReadAt(AlignedBytes(PageBytes, PageBytes), 0); n != 0 || err != io.EOF {
				t.Errorf("an empty file: %d bytes, %v", n, err)
			}
			f.Close()
		}
	}},
	{"a descriptor, which the operating system's files have, reads the same bytes",
		func(t *testing.T, fsys FS, dir string) {
			p := filepath.Join(dir, "a")
			content := strings.Repeat("0123456789", 1000)
			put(t, fsys, p, content)
			plain, err := fsys.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			files := []File{plain}
			if direct, err := fsys.(Directer).OpenDirect(p); err == nil {
				files = append(files, direct)
			}
			for _, f := range files {
				d, ok := f.(Descriptor)
				if _, want := fsys.(osFS); ok != want {
					t.Errorf("a file of %T has a descriptor: %t", fsys, ok)
				}
				if ok {
					b := AlignedBytes(4*PageBytes, PageBytes)
					if n, err := unix.Pread(int(d.Fd()), b, PageBytes); err != nil ||
						string(b[:n]) != content[PageBytes:] {
						t.Errorf("%d bytes of %d, %v", n, len(content)-PageBytes, err)
					}
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		}},
	{"attributes stay with what they were set on", func(t *testing.T, fsys FS, dir string) {
		one, other := filepath.Join(dir, "one"), filepath.Join(dir, "other")
		mkdir(t, fsys, one)
		mkdir(t, fsys, other)
		if err := fsys.SetAttribute(one, "a", "first"); errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		has := func(path, name, want string) {
			t.Helper()
			if got, err := fsys.Attribute(path, name); got != want || err != nil {
				t.Errorf("%s of %s is %q, %v; want %q", name, path, got, err, want)
			}
		}
		has(one, "a", "first")
		has(one, "b", "")
		has(other, "a", "")
		if err := fsys.SetAttribute(one, "a", "second"); err != nil {
			t.Error(err)
		}
		has(one, "a", "second")
		if err := fsys.Exchange(one, other); err == nil {
			has(other, "a", "second")
			has(one, "a", "")
		}
		_, err := fsys.Attribute(filepath.Join(dir, "nothing"), "a")
		wantError(t, err, fs.ErrNotExist)
		wantError(t, fsys.SetAttribute(filepath.Join(dir, "nothing"), "a", ""), fs.ErrNotExist)
	}},
	{"paths of one place resolve to one, whether something is there or not", func(t *testing.T, fsys FS, dir string) {
		mkdir(t, fsys, filepath.Join(dir, "a/b"))
		for _, name := range []string{"a/b", "c", "c/d"} {
			want, err := fsys.Resolve(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, spelling := range []string{name + "/", "a/../" + name, "./" + name} {
				if got, err := fsys.Resolve(dir + "/" + spelling); got != want || err != nil || !filepath.IsAbs(got) {
					t.Errorf("%s resolves to %s, %v; want %s", spelling, got, err, want)
				}
			}
		}
	}},
}

func TestFileSystemsConform(t *testing.T) {
	for _, impl := range implementations {
		t.Run(impl.name, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) {
					fsys, dir := impl.make(t)
					c.test(t, fsys, dir)
				})
			}
		})
	}
}

// wantError checks that err is a *fs.PathError, and wraps want unless that is nil.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	var pathErr *fs.PathError
	if !errors.As(err, &pathErr) || pathErr.Path == "" || want != nil && !errors.Is(err, want) {
		t.Errorf("got the error %v (%T), want a *fs.PathError of %v", err, err, want)
	}
}

func create(t *testing.T, fsys FS, path string) PendingFile {
	t.Helper()
	f, err := fsys.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Abort() })
	return f
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if n, err := io.WriteString(w, s); n != len(s) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(s), err)
	}
}

func commit(t *testing.T, f PendingFile) {
	t.Helper()
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, fsys FS, path, content string) {
	t.Helper()
	f := create(t, fsys, path)
	write(t, f, content)
	commit(t, f)
}

func mkdir(t *testing.T, fsys FS, path string) {
	t.Helper()
	if err := fsys.MkdirAll(path); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, fsys FS, path string) File {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func wantBytes(t *testing.T, f File, want string) {
	t.Helper()
	b := make([]byte, len(want)+1)
	if n, err := f.ReadAt(b, 0); err != io.EOF || string(b[:n]) != want {
		t.Errorf("%s holds %q (%v), want %q", f.Path(), b[:n], err, want)
	}
}

func wantContent(t *testing.T, fsys FS, path, want string) {
	t.Helper()
	wantBytes(t, open(t, fsys, path), want)
}

func list(t *testing.T, fsys FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

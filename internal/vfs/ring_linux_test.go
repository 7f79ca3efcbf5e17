package vfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func openRing(t *testing.T) *ring {
	r, err := newRing()
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	t.Cleanup(r.close)
	return r
}

// More readers than the ring takes at a time, of two files, each with ends that are short.
func TestTheRingReadsWhatPreadReads(t *testing.T) {
	r := openRing(t)
	var files []*os.File
	var contents [][]byte
	for i, size := range []int{100_003, 1 << 20} {
		content := make([]byte, size)
		for at := range content {
			content[at] = byte(rand.Uint32())
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files, contents = append(files, f), append(contents, content)
		t.Logf("file %d: %d bytes", i, size)
	}
	var readers sync.WaitGroup
	for i := range 2 * ringRequests {
		readers.Go(func() {
			f, content := files[i%2], contents[i%2]
			for trial := range 20 {
				p := make([]byte, rand.IntN(50_000))
				at := rand.IntN(len(content) + 10)
				n, err := r.read(int(f.Fd()), p, int64(at))
				if want := min(len(p), max(0, len(content)-at)); err != nil || n != want ||
					!bytes.Equal(p[:n], content[min(at, len(content)):][:n]) {
					t.Errorf("reader %d, trial %d: %d bytes at %d: %d, %v, want %d", i, trial, len(p), at, n, err, want)
				}
			}
		})
	}
	readers.Wait()
}

// Each of many reads that run into the end of the ring is done or refused.
func TestTheRingEndsAfterTheReadsOnTheirWay(t *testing.T) {
	r, err := newRing()
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var readers sync.WaitGroup
	for range 2 * ringRequests {
		readers.Go(func() {
			if n, err := r.read(int(f.Fd()), make([]byte, 1<<20), 0); n != 1<<20 && !errors.Is(err, unix.EBADF) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	r.close()
	readers.Wait()
}

func TestTheRingReturnsTheErrorOfARead(t *testing.T) {
	r := openRing(t)
	if _, err := r.read(-1, make([]byte, 10), 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("a file that is not open: %v", err)
	}
	d, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := r.read(int(d.Fd()), make([]byte, 10), 0); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a folder: %v", err)
	}
}

func TestTheRingEndsWithTheLastDirectFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 3*PageBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	var open []File
	for range 2 {
		f, err := OS().(Directer).OpenDirect(path)
		if errors.Is(err, ErrNoDirect) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.ReadAt(AlignedBytes(PageBytes, PageBytes), 2*PageBytes); n != PageBytes || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		open = append(open, f)
	}
	if open[0].(*osFile).ring == nil {
		t.Skip("no io_uring here")
	}
	for i, f := range open {
		if sharedRing.ring == nil {
			t.Errorf("no ring with %d files open", len(open)-i)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err == nil {
			t.Error("closed twice")
		}
	}
	if sharedRing.ring != nil || sharedRing.files != 0 {
		t.Errorf("%d files have a ring when all are closed", sharedRing.files)
	}
	if n, err := open[0].ReadAt(AlignedBytes(PageBytes, PageBytes), 0); err == nil {
		t.Errorf("%d bytes of a closed file", n)
	}
}

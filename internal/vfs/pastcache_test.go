package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Every read, aligned or not, gives what an ordinary one gives, whether the file system has direct reads,
// refuses them when the file is opened, or later.
func TestReadsPastTheCacheGiveWhatOthersDo(t *testing.T) {
	for _, c := range []struct {
		name   string
		fs     FS
		direct bool
	}{{"memory", NewMem(), true}, {"refusing", refusal{NewMem()}, false}, {"refusing later", lateRefusal{NewMem()},
		false}, {"without", struct{ FS }{NewMem()}, false}} {
		for _, size := range []int{1, PageBytes, 3*PageBytes + 100} {
			content := make([]byte, size)
			for i := range content {
				content[i] = byte(i%251) + 1
			}
			put(t, c.fs, "a", string(content))
			past := NewPastCache(c.fs)
			f, err := past.Open("a")
			if err != nil {
				t.Fatal(err)
			}
			plain, err := c.fs.Open("a")
			if err != nil {
				t.Fatal(err)
			}
			random, sum := rand.New(rand.NewPCG(1, 2)), int64(0)
			for range 300 {
				offset, length := int64(random.IntN(size+PageBytes)), random.IntN(size+PageBytes)
				if random.IntN(2) == 0 {
					offset = offset / PageBytes * PageBytes
				}
				p, q := AlignedBytes(length+1, PageBytes)[random.IntN(2):][:length], make([]byte, length)
				n, err := f.ReadAt(p, offset)
				want, wantErr := plain.ReadAt(q, offset)
				if n != want || !bytes.Equal(p, q) || (n < length) != errors.Is(err, io.EOF) || n == length &&
					err != nil && err != io.EOF {
					t.Fatalf("%s: %d bytes at %d of %d: %d, %v; otherwise %d, %v", c.name, length, offset, size, n, err,
						want, wantErr)
				}
				sum += int64(n)
			}
			r := past.Read()
			if r.Direct+r.Buffered+r.Cached != sum || (r.Direct > 0) != (c.direct && size >= PageBytes) ||
				(r.Why == nil) != (c.direct || size < PageBytes) {
				t.Errorf("%s, %d bytes: %+v of %d", c.name, size, r, sum)
			}
			if err := errors.Join(f.Close(), plain.Close()); err != nil {
				t.Error(err)
			}
			if _, err := f.ReadAt(AlignedBytes(PageBytes, PageBytes), 0); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s: a closed file: %v", c.name, err)
			}
		}
	}
}

// refusal has no direct reads of its files.
type refusal struct{ *Mem }

func (refusal) OpenDirect(path string) (File, error) { return nil, noDirect(path, errSmall) }

// lateRefusal opens files for direct reads, and then refuses these.
type lateRefusal struct{ *Mem }

func (l lateRefusal) OpenDirect(path string) (File, error) {
	f, err := l.Open(path)
	return refusingFile{f}, err
}

type refusingFile struct{ File }

func (refusingFile) ReadAt([]byte, int64) (int, error) {
	return 0, pathError("read", "a", syscall.EINVAL)
}

// What was written through the cache is in it, where the kernel tells; all that is read has the right bytes.
func TestWhatTheCacheHasIsTakenFromThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	content := strings.Repeat("0123456789abcdef", 1<<14)
	past := NewPastCache(OS())
	put(t, past, path, content)
	f, err := past.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p := AlignedBytes(len(content), PageBytes)
	if n, err := f.ReadAt(p, 0); n != len(content) || err != nil || string(p) != content {
		t.Errorf("%d bytes, %v", n, err)
	}
	if r := past.Read(); r.Direct+r.Cached+r.Buffered != int64(len(content)) {
		t.Errorf("%+v of %d bytes", r, len(content))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

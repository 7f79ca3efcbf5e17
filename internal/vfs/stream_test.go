package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/offheap"
)

func randomBytes(seed uint64, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

// writeInPieces writes content in pieces of random lengths.
func writeInPieces(s *Stream, seed uint64, content []byte) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for len(content) > 0 {
		n := min(len(content), r.IntN(3*PageBytes))
		if m, err := s.Write(content[:n]); err != nil || m != n {
			return fmt.Errorf("%d of %d bytes: %w", m, n, err)
		}
		content = content[n:]
	}
	return nil
}

// wantSame is wantContent for content that is no text.
func wantSame(t *testing.T, fsys FS, path string, content []byte) {
	t.Helper()
	b := make([]byte, len(content)+1)
	if n, err := open(t, fsys, path).ReadAt(b, 0); err != io.EOF || !bytes.Equal(b[:n], content) {
		t.Errorf("%s has %d bytes (%v), and not the %d written", path, n, err, len(content))
	}
}

func TestAStreamHasTheBytesWrittenHoweverItsSizeWasGuessed(t *testing.T) {
	before := offheap.InUse()
	for _, impl := range append(implementations, struct {
		name string
		make func(t *testing.T) (FS, string)
	}{"Mem without direct writes", func(*testing.T) (FS, string) {
		m := NewMem()
		m.NoDirect = true
		return m, "/"
	}}) {
		t.Run(impl.name, func(t *testing.T) {
			fsys, dir := impl.make(t)
			for i, c := range []struct{ size, guess int }{
				{0, 0}, {1, 1}, {PageBytes, PageBytes}, {PageBytes - 1, 0}, {5*PageBytes + 17, 5*PageBytes + 17},
				{100_000, 2 << 20}, {1 << 20, 100}, {9<<20 + 5, 9<<20 + 5}, {20 << 20, 9 << 20}, {5, 3 << 20},
			} {
				path, content := filepath.Join(dir, fmt.Sprint("f", i)), randomBytes(uint64(i), c.size)
				s, err := CreateStream(fsys, path, int64(c.guess))
				if err != nil {
					t.Fatal(err)
				}
				if err := writeInPieces(s, uint64(i), content); err != nil {
					t.Fatal(err)
				}
				_, err = fsys.Stat(path)
				wantError(t, err, fs.ErrNotExist)
				if err := errors.Join(s.Commit(), s.Abort()); err != nil {
					t.Fatal(err)
				}
				wantSame(t, fsys, path, content)
				wantError(t, s.Commit(), fs.ErrClosed)
				_, err = s.Write([]byte("more"))
				wantError(t, err, fs.ErrClosed)

				s, err = CreateStream(fsys, path, int64(c.guess))
				if err == nil {
					err = errors.Join(writeInPieces(s, 1, content), s.Abort(), s.Abort())
				}
				if err != nil {
					t.Fatal(err)
				}
				wantSame(t, fsys, path, content)
			}
			if i := slices.IndexFunc(list(t, fsys, dir),
				func(name string) bool { return filepath.Ext(name) == TempSuffix }); i >= 0 {
				t.Error("a temporary file is left")
			}
		})
	}
	if left := offheap.InUse() - before; left != 0 {
		t.Errorf("%d bytes are not freed", left)
	}
}

// sparse makes no room for a file before it is written, which a test has no memory for.
type sparse struct{ *Mem }

func (s sparse) CreateDirect(path string, _ int64) (PendingFile, error) {
	return s.Mem.CreateDirect(path, 0)
}

func TestAStreamTakesTheMemoryThatItDeclares(t *testing.T) {
	// Four requests; together they are in huge pages from 2 MiB on, and no longer from 8 MiB on.
	for _, bytes := range []int64{0, 1, 4096, 100_000, 2<<20 - 1, 2 << 20, 7<<20 + 1, 8 << 20, 9<<20 + 5, 1 << 30,
		1 << 40} {
		before := offheap.InUse()
		s, err := CreateStream(sparse{NewMem()}, "a", bytes)
		if err != nil {
			t.Fatal(err)
		}
		if took, declared := offheap.InUse()-before, StreamBytes(bytes); took != declared || took == 0 || took > 8<<20 {
			t.Errorf("%d bytes: %d, and %d are declared", bytes, took, declared)
		}
		if err := s.Abort(); err != nil {
			t.Error(err)
		}
	}
}

// Whichever operation fails, the error is told, and nothing is left of the file or its memory. Without a
// failure all is there, and power may fail at any operation.
func TestStreamsTellWhatFails(t *testing.T) {
	content := randomBytes(7, 100_003)
	before := offheap.InUse()
	write := func(fsys FS) error {
		s, err := CreateStream(fsys, "/a", int64(len(content)))
		if err != nil {
			return err
		}
		return errors.Join(writeInPieces(s, 7, content), s.Commit(), s.Abort())
	}
	for n := int64(1); ; n++ {
		m := NewMem()
		put(t, m, "/a", "old")
		f := NewFault(m)
		f.FailAt(n, syscall.ENOSPC)
		err := write(f)
		if err == nil {
			wantSame(t, m, "/a", content)
			if n < 5 {
				t.Errorf("only %d operations could fail", n-1)
			}
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("operation %d: %v", n, err)
		}
		wantContent(t, m, "/a", "old")
		if names := list(t, m, "/"); !slices.Equal(names, []string{"a"}) {
			t.Errorf("operation %d leaves %q", n, names)
		}

		m = NewMem()
		put(t, m, "/a", "old")
		f = NewFault(m)
		f.FailFrom(n, syscall.EIO)
		if err := write(f); err == nil {
			t.Errorf("without power from operation %d on there is no error", n)
		}
		for seed := range uint64(3) {
			wantContent(t, m.CrashCloneKeeping(seed), "/a", "old")
		}
	}
	if left := offheap.InUse() - before; left != 0 {
		t.Errorf("%d bytes are not freed", left)
	}
}

func TestAStreamThatDoesNotFitIsRefusedAtOnceOrWhereTheDiskIsFull(t *testing.T) {
	for _, guess := range []int64{1 << 20, 0} {
		m := NewMem()
		m.SetCapacity(500_000)
		s, err := CreateStream(m, "/a", guess)
		if guess > 0 {
			wantError(t, err, syscall.ENOSPC)
		} else if err = errors.Join(writeInPieces(s, 0,
			make([]byte, 1<<20)), s.Abort()); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		if names := list(t, m, "/"); len(names) > 0 {
			t.Errorf("%q is left", names)
		}
		if free, _ := m.FreeBytes("/"); free != 500_000 {
			t.Errorf("%d bytes are free", free)
		}
	}
}

func TestDirectWritesAreAlignedOrRefused(t *testing.T) {
	for _, impl := range implementations {
		t.Run(impl.name, func(t *testing.T) {
			fsys, dir := impl.make(t)
			path := filepath.Join(dir, "a")
			_, err := fsys.(DirectCreator).CreateDirect(filepath.Join(dir, "no", "a"), 1<<20)
			wantError(t, err, fs.ErrNotExist)
			put(t, fsys, path+TempSuffix, "left-over")
			const align = PageBytes
			f, err := fsys.(DirectCreator).CreateDirect(path, 1<<20)
			if errors.Is(err, ErrNoDirect) {
				if names := list(t, fsys, dir); slices.Contains(names, "a") {
					t.Errorf("there are %q", names)
				}
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			block := AlignedBytes(2*align, align)
			copy(block, bytes.Repeat([]byte("0123456789abcdef"), 2*align/16))
			for _, c := range []struct {
				p   []byte
				off int64
			}{{block, 1}, {block[:align-1], 0}, {block[1 : align+1], 0}, {block, -int64(align)}} {
				_, err := f.WriteAt(c.p, c.off)
				wantError(t, err, nil)
			}
			for _, off := range []int64{int64(align), 0} {
				if n, err := f.WriteAt(block[off:][:align], off); n != align || err != nil {
					t.Fatalf("%d bytes, %v", n, err)
				}
			}
			if err := errors.Join(f.Truncate(int64(align)+5), f.Commit(), f.Abort()); err != nil {
				t.Fatal(err)
			}
			wantSame(t, fsys, path, block[:align+5])
			if _, err := f.WriteAt(block, 0); err == nil {
				t.Error("written after the commit")
			}
		})
	}
}

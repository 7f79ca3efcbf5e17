package vfs

import (
	"errors"
	"sync/atomic"
)

// Count is an FS that counts the files that are opened and the bytes that pass it. It passes direct writes through, and
// no other optional operation.
type Count struct {
	FS
	opened, read, written, direct atomic.Int64
	why                           why
}

// NewCount counts on top of fsys.
func NewCount(fsys FS) *Count { return &Count{FS: fsys} }

// Opened is how often files have been opened for reading so far.
func (c *Count) Opened() int64 { return c.opened.Load() }

// Read and Written are the bytes so far.
func (c *Count) Read() int64    { return c.read.Load() }
func (c *Count) Written() int64 { return c.written.Load() }

// WriteReceipt says how files were written: bytes past the page cache, and through it.
type WriteReceipt struct {
	Direct, Buffered int64
	Why              error // why a file that is not small could not be written past the cache; nil if none was
}

// WriteReceipt says how files were written so far.
func (c *Count) WriteReceipt() WriteReceipt {
	direct := c.direct.Load()
	return WriteReceipt{direct, c.Written() - direct, c.why.get()}
}

// why is the last reason why a file did not go past the page cache.
type why struct{ err atomic.Pointer[error] }

func (w *why) set(err error) {
	err = withoutPath(err)
	w.err.Store(&err)
}

func (w *why) get() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *Count) Open(path string) (File, error) {
	f, err := c.FS.Open(path)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	return &countedFile{f, c}, nil
}

func (c *Count) Create(path string) (PendingFile, error) {
	f, err := c.FS.Create(path)
	if err != nil {
		return nil, err
	}
	return &countedPending{PendingFile: f, count: c}, nil
}

func (c *Count) CreateDirect(path string, bytes int64) (PendingFile, int, error) {
	f, align, err := createDirect(c.FS, path, bytes)
	if errors.Is(err, ErrNoDirect) && bytes >= MinDirect {
		c.why.set(err)
	}
	if err != nil {
		return nil, 0, err
	}
	return &countedPending{PendingFile: f, count: c, direct: true}, align, nil
}

type countedFile struct {
	File
	count *Count
}

func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.count.read.Add(int64(n))
	return n, err
}

// countedPending counts the bytes of the file, without those that Truncate cuts off.
type countedPending struct {
	PendingFile
	count  *Count
	direct bool
	end    atomic.Int64 // of what WriteAt has written
}

func (f *countedPending) add(bytes int64) {
	f.count.written.Add(bytes)
	if f.direct {
		f.count.direct.Add(bytes)
	}
}

func (f *countedPending) Write(p []byte) (int, error) {
	n, err := f.PendingFile.Write(p)
	f.add(int64(n))
	return n, err
}

func (f *countedPending) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.PendingFile.WriteAt(p, off)
	f.add(int64(n))
	for end, most := off+int64(n), f.end.Load(); end > most && !f.end.CompareAndSwap(most, end); {
		most = f.end.Load()
	}
	return n, err
}

func (f *countedPending) Truncate(size int64) error {
	f.add(min(0, size-f.end.Load()))
	return f.PendingFile.Truncate(size)
}

package vfs

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
)

// PastCache is an FS whose files are read past the page cache, by whole pages, where the file system can (Directer).
// Reads go through the cache if it has the range, or if offset or memory is not a multiple of 4096. For speed, read
// large ranges into offheap memory. It passes direct writes and links through, and no other optional operation. It
// counts the bytes that are read and written.
type PastCache struct {
	FS
	opened        atomic.Int64
	read, written traffic
}

// NewPastCache reads files of fsys past the cache.
func NewPastCache(fsys FS) *PastCache { return &PastCache{FS: fsys} }

// Opened is how often files have been opened for reading so far.
func (c *PastCache) Opened() int64 { return c.opened.Load() }

// Read and Written count reads and writes so far.
func (c *PastCache) Read() Receipt    { return c.read.receipt() }
func (c *PastCache) Written() Receipt { return c.written.receipt() }

// Link implements Linker.
func (c *PastCache) Link(oldPath, newPath string) error {
	if linker, ok := c.FS.(Linker); ok {
		return linker.Link(oldPath, newPath)
	}
	return errors.ErrUnsupported
}

// Receipt says how bytes went: past the page cache, from what was in it, and through it.
type Receipt struct {
	Direct, Cached, Buffered int64
	Why                      error // why a file, if it is not small, could not go past the cache; nil if none was
}

// Bytes is the sum.
func (r Receipt) Bytes() int64 { return r.Direct + r.Cached + r.Buffered }

// traffic is a receipt that several goroutines add to.
type traffic struct {
	direct, cached, buffered atomic.Int64
	why                      atomic.Pointer[error]
}

func (t *traffic) receipt() Receipt {
	r := Receipt{t.direct.Load(), t.cached.Load(), t.buffered.Load(), nil}
	if why := t.why.Load(); why != nil {
		r.Why = *why
	}
	return r
}

func (t *traffic) refused(why error) {
	why = WithoutPath(why)
	t.why.Store(&why)
}

func (c *PastCache) Open(path string) (File, error) {
	f, err := c.FS.Open(path)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	return &pastCacheFile{File: f, fs: c}, nil
}

func (c *PastCache) Create(path string) (PendingFile, error) {
	f, err := c.FS.Create(path)
	if err != nil {
		return nil, err
	}
	return &countedPending{PendingFile: f, bytes: &c.written.buffered}, nil
}

func (c *PastCache) CreateDirect(path string, bytes int64) (PendingFile, error) {
	f, err := createDirect(c.FS, path, bytes)
	if errors.Is(err, ErrNoDirect) && bytes >= MinDirect {
		c.written.refused(err)
	}
	if err != nil {
		return nil, err
	}
	return &countedPending{PendingFile: f, bytes: &c.written.direct}, nil
}

// countedPending counts the bytes of the file, less what Truncate cuts off.
type countedPending struct {
	PendingFile
	bytes *atomic.Int64
	end   atomic.Int64 // of the written bytes
}

func (f *countedPending) Write(p []byte) (int, error) {
	n, err := f.PendingFile.Write(p)
	f.bytes.Add(int64(n))
	return n, err
}

func (f *countedPending) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.PendingFile.WriteAt(p, off)
	f.bytes.Add(int64(n))
	for end, most := off+int64(n), f.end.Load(); end > most && !f.end.CompareAndSwap(most, end); {
		most = f.end.Load()
	}
	return n, err
}

func (f *countedPending) Truncate(size int64) error {
	f.bytes.Add(min(0, size-f.end.Load()))
	return f.PendingFile.Truncate(size)
}

// cacher is the capability, on a File, to tell whether the page cache has a range of it.
type cacher interface {
	Cached(off, length int64) bool
}

// pastCacheFile is a file that is open the ordinary way and, from its first large read on, for direct reads.
type pastCacheFile struct {
	File
	fs      *PastCache
	once    sync.Once
	direct  File // nil: not to be had
	refused atomic.Bool
}

func (f *pastCacheFile) open() {
	d, ok := f.fs.FS.(Directer)
	if !ok {
		f.refuse(ErrNoDirect)
		return
	}
	direct, err := d.OpenDirect(f.Path())
	if err != nil {
		f.refuse(err)
		return
	}
	f.direct = direct
}

func (f *pastCacheFile) refuse(why error) {
	f.refused.Store(true)
	if errors.Is(why, ErrNoDirect) {
		f.fs.read.refused(why)
	} // else reading the file tells better
}

func (f *pastCacheFile) ReadAt(p []byte, off int64) (int, error) {
	whole := len(p) / PageBytes * PageBytes
	counter := &f.fs.read.buffered
	if whole > 0 && aligned(p[:whole], off) {
		if c, ok := f.File.(cacher); ok && c.Cached(off, int64(len(p))) {
			counter = &f.fs.read.cached
		} else if f.once.Do(f.open); !f.refused.Load() {
			n, err := f.readDirect(p, whole, off)
			if !errors.Is(err, syscall.EINVAL) {
				f.fs.read.direct.Add(int64(n))
				return n, err
			}
			f.refuse(pathError("read", f.Path(), ErrNoDirect))
		}
	}
	n, err := f.File.ReadAt(p, off)
	counter.Add(int64(n))
	return n, err
}

// pages are for the last page of reads that end within one.
var pages = sync.Pool{New: func() any { b := AlignedBytes(PageBytes, PageBytes); return &b }}

func (f *pastCacheFile) readDirect(p []byte, whole int, off int64) (int, error) {
	n, err := f.direct.ReadAt(p[:whole], off)
	if n < whole || whole == len(p) {
		return n, err
	}
	page := pages.Get().(*[]byte)
	defer pages.Put(page)
	m, err := f.direct.ReadAt(*page, off+int64(whole))
	m = copy(p[whole:], (*page)[:m])
	if n += m; n == len(p) {
		return n, nil
	}
	if err == nil {
		err = io.EOF
	}
	return n, err
}

func (f *pastCacheFile) Close() error {
	err := f.File.Close()
	f.once.Do(func() { f.refused.Store(true) })
	if f.direct != nil {
		err = errors.Join(err, f.direct.Close())
	}
	return err
}

// Doubt implements Doubter where the file does.
func (f *pastCacheFile) Doubt(off, bytes int64) bool { return Doubt(f.File, off, bytes) }

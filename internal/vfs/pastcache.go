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
// large ranges into offheap memory. It passes direct writes through, and no other optional operation.
type PastCache struct {
	FS
	direct, cached, buffered atomic.Int64
	why                      why
}

// NewPastCache reads files of fsys past the cache.
func NewPastCache(fsys FS) *PastCache { return &PastCache{FS: fsys} }

// ReadReceipt says how files were read: bytes past the page cache, from what was in it, and through it.
type ReadReceipt struct {
	Direct, Cached, Buffered int64
	Why                      error // why a file could not be read past the cache; nil if none was
}

// ReadReceipt says how files were read so far.
func (c *PastCache) ReadReceipt() ReadReceipt {
	return ReadReceipt{c.direct.Load(), c.cached.Load(), c.buffered.Load(), c.why.get()}
}

func (c *PastCache) Open(path string) (File, error) {
	f, err := c.FS.Open(path)
	if err != nil {
		return nil, err
	}
	return &pastCacheFile{File: f, fs: c}, nil
}

func (c *PastCache) CreateDirect(path string, bytes int64) (PendingFile, int, error) {
	return createDirect(c.FS, path, bytes)
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
	err := error(ErrNoDirect)
	if ok {
		var direct File
		var align int
		if direct, align, err = d.OpenDirect(f.Path()); err == nil {
			if PageBytes%align == 0 {
				f.direct = direct
				return
			}
			_ = direct.Close() // that was only opened
			err = errUnaligned
		}
	}
	f.refuse(err)
}

func (f *pastCacheFile) refuse(why error) {
	f.refused.Store(true)
	if errors.Is(why, ErrNoDirect) || errors.Is(why, errUnaligned) {
		f.fs.why.set(why)
	} // else reading the file tells better
}

func (f *pastCacheFile) ReadAt(p []byte, off int64) (int, error) {
	whole := len(p) / PageBytes * PageBytes
	counter := &f.fs.buffered
	if whole > 0 && aligned(p[:whole], off, PageBytes) {
		if c, ok := f.File.(cacher); ok && c.Cached(off, int64(len(p))) {
			counter = &f.fs.cached
		} else if f.once.Do(f.open); !f.refused.Load() {
			n, err := f.readDirect(p, whole, off)
			if !errors.Is(err, syscall.EINVAL) {
				f.fs.direct.Add(int64(n))
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

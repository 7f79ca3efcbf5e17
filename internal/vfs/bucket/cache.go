package bucket

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// The cache is a folder with two files for each version of an object: NAME.pages has the bytes that were read, where
// they are in the object, and holes; NAME.sums has 4 bytes for each page: its CRC-32C, little endian, or 0 where the
// page is not there. Bytes are written before their sums and checked by them when they are read, so a process may be
// killed, and the files may be removed, at any time: what is not whole is read from the bucket again. All processes of
// a machine may share the folder; each holds a shared lock on the .pages that it reads. Where there is no room, the
// file that was opened longest ago and that nobody has locked is removed; if there is none, pages are not kept.
const (
	pagesSuffix = ".pages"
	sumsSuffix  = ".sums"
)

type cache struct {
	f     *FS
	dir   string
	limit int64

	mu      sync.Mutex
	open    map[string]*pages // by name
	left    int64             // that may be written before the folder is measured again
	full    bool              // when it was measured last,
	checked time.Time         // which was then
	failed  bool              // the disk does not take any more
}

// pages is a version of an object in the cache, open. It is safe for concurrent use.
type pages struct {
	c      *cache
	name   string
	bytes  int64 // of the object
	users  int
	data   *os.File
	direct vfs.File // the same, or nil
	sums   *os.File
}

// pagesOf is the cache's part of an object; nil where there is no cache.
func (f *FS) pagesOf(at place, o object) *pages {
	f.mu.Lock()
	if !f.opened {
		f.opened = true
		if f.cache, f.cacheErr = f.openCache(); f.cacheErr != nil {
			f.o.Note(fmt.Sprintf("there is no cache for buckets: %v", f.cacheErr))
		}
	}
	c := f.cache
	f.mu.Unlock()
	if c == nil || o.bytes == 0 {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d", at.name, at.key, o.version, o.bytes))
	return c.pages(fmt.Sprintf("%x", sum[:16]), o.bytes)
}

func (f *FS) openCache() (*cache, error) {
	limit := f.o.CacheBytes
	if size := os.Getenv("HOPFEED_CACHE_SIZE"); limit == 0 && size != "" {
		named, err := units.ParseBytes(size)
		if err != nil {
			return nil, fmt.Errorf("HOPFEED_CACHE_SIZE: %w", err)
		}
		limit = CacheOf(named)
	}
	if limit == NoCache {
		return nil, nil
	}
	dir := f.o.CacheDir
	if dir == "" {
		at, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(at, "hopfeed")
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	c := &cache{f: f, dir: dir, limit: limit, open: map[string]*pages{}}
	if c.limit == 0 {
		free, err := f.FS.FreeBytes(dir)
		if err != nil {
			return nil, err
		}
		used, _ := c.measure()
		c.limit = (free + used) / 2
	}
	return c, nil
}

// Cache is the folder of the cache, how large it may become and how large it is; "" if there is none.
func (f *FS) Cache() (dir string, limit, used units.Bytes) {
	f.pagesOf(place{remote: &remote{}}, object{}) // opens it
	if f.cache == nil {
		return "", 0, 0
	}
	bytes, _ := f.cache.measure()
	return f.cache.dir, units.Bytes(f.cache.limit), units.Bytes(bytes)
}

// cacheFile is a file of the cache.
type cacheFile struct {
	path  string
	bytes int64 // on disk
	used  time.Time
}

// measure adds up what the files of the cache take on disk.
func (c *cache) measure() (total int64, files []cacheFile) {
	entries, _ := os.ReadDir(c.dir)
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != pagesSuffix && ext != sumsSuffix || len(e.Name()) != 32+len(ext) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // removed since it was listed
		}
		file := cacheFile{filepath.Join(c.dir, e.Name()), info.Size(), info.ModTime()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			file.bytes = int64(st.Blocks) * 512
		}
		total += file.bytes
		files = append(files, file)
	}
	return total, files
}

// room takes so many bytes from what may be written, and tells whether they are there.
func (c *cache) room(bytes int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed {
		return false
	}
	if c.left < bytes && (!c.full || time.Since(c.checked) > time.Second) {
		used, files := c.measure()
		slices.SortFunc(files, func(a, b cacheFile) int { return a.used.Compare(b.used) })
		for _, file := range files {
			if used+bytes > c.limit && strings.HasSuffix(file.path, pagesSuffix) && evict(file.path) {
				used -= file.bytes
			}
		}
		// Other processes write too, so it is measured again before all is taken.
		c.left, c.checked = min(c.limit-used, max(bytes, c.limit/32)), time.Now()
		c.full = c.left < bytes
	}
	if c.left < bytes {
		return false
	}
	c.left -= bytes
	return true
}

// evict removes the pages and sums of an object unless a process has locked them.
func evict(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	_ = os.Remove(strings.TrimSuffix(path, pagesSuffix) + sumsSuffix)
	return os.Remove(path) == nil
}

// pages opens an object of the cache; nil if that fails, which is told once.
func (c *cache) pages(name string, bytes int64) *pages {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.open[name]; p != nil {
		p.users++
		return p
	}
	p := &pages{c: c, name: name, bytes: bytes, users: 1}
	if err := p.open(); err != nil {
		c.fail(err)
		return nil
	}
	c.open[name] = p
	return p
}

// fail ends writing to the cache. c is locked.
func (c *cache) fail(err error) {
	if !c.failed {
		c.f.o.Note(fmt.Sprintf("the cache %s takes no more: %v", c.dir, err))
	}
	c.failed = true
}

func (p *pages) open() (err error) {
	path := filepath.Join(p.c.dir, p.name)
	for range 8 { // another process may remove the files between opening and locking them
		if p.data, err = os.OpenFile(path+pagesSuffix, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
			return err
		}
		if err = unix.Flock(int(p.data.Fd()), unix.LOCK_SH); err == nil {
			var locked, named os.FileInfo
			if locked, err = p.data.Stat(); err == nil {
				if named, err = os.Stat(path + pagesSuffix); err == nil && os.SameFile(locked, named) {
					break
				}
			}
		}
		p.data.Close()
		err = cmp.Or(err, errors.New("other processes remove it each time that it is opened"))
	}
	if err != nil {
		return err
	}
	now := time.Now()
	_ = os.Chtimes(path+pagesSuffix, now, now) // of files in use, the oldest goes first
	if p.sums, err = os.OpenFile(path+sumsSuffix, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return errors.Join(err, p.data.Close())
	}
	if direct, ok := p.c.f.FS.(vfs.Directer); ok {
		p.direct, _ = direct.OpenDirect(path + pagesSuffix) // else it is read through the page cache
	}
	return nil
}

// close ends one use.
func (p *pages) close() error {
	if p == nil {
		return nil
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.users--; p.users > 0 {
		return nil
	}
	delete(p.c.open, p.name)
	if p.direct != nil {
		_ = p.direct.Close()
	}
	return errors.Join(p.data.Close(), p.sums.Close())
}

// read fills dst with the bytes at an offset, all within the object: from the cache, or by fetch, and then keeps them.
// Pages that are cut, by the range or by the end of memory, are read whole.
func (p *pages) read(dst []byte, off int64, fetch func(dst []byte, off int64) error) error {
	const page = vfs.PageBytes
	end := off + int64(len(dst))
	if off%page == 0 && (end%page == 0 || end == p.bytes) {
		return p.readWhole(dst, off, fetch)
	}
	if whole := int64(len(dst)) / page * page; off%page == 0 && whole > 0 {
		if err := p.readWhole(dst[:whole], off, fetch); err != nil {
			return err
		}
		return p.read(dst[whole:], off+whole, fetch)
	}
	first := off / page * page
	buf := vfs.AlignedBytes(int(min(vfs.WholePages(end), p.bytes)-first), page)
	if err := p.readWhole(buf, first, fetch); err != nil {
		return err
	}
	copy(dst, buf[off-first:])
	return nil
}

// readWhole is read for whole pages.
func (p *pages) readWhole(dst []byte, off int64, fetch func(dst []byte, off int64) error) error {
	const page = vfs.PageBytes
	first := off / page
	sums := make([]byte, 4*((len(dst)+page-1)/page))
	n, _ := p.sums.ReadAt(sums, 4*first)
	missing, missingEnd := -1, 0 // pages
	for i := range len(sums) / 4 {
		if 4*i+4 > n || binary.LittleEndian.Uint32(sums[4*i:]) == 0 {
			if missing < 0 {
				missing = i
			}
			missingEnd = i + 1
		}
	}
	miss := func(from, to int) error {
		return p.fetch(dst[from*page:min(to*page, len(dst))], off+int64(from*page), fetch)
	}
	if missing >= 0 {
		if err := miss(missing, missingEnd); err != nil {
			return err
		}
		for _, rest := range [][2]int{{0, missing}, {missingEnd, len(sums) / 4}} {
			if rest[0] < rest[1] {
				part := dst[rest[0]*page : min(rest[1]*page, len(dst))]
				if err := p.readWhole(part, off+int64(rest[0]*page), fetch); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := p.readData(dst, off); err != nil {
		return miss(0, len(sums)/4)
	}
	for i := range len(sums) / 4 {
		if sumOf(dst[i*page:min((i+1)*page, len(dst))]) != binary.LittleEndian.Uint32(sums[4*i:]) {
			return miss(0, len(sums)/4)
		}
	}
	p.c.f.cached.Add(int64(len(dst)))
	return nil
}

// readData reads bytes of the file, past the page cache if that can be.
func (p *pages) readData(dst []byte, off int64) error {
	if p.direct != nil && len(dst)%vfs.PageBytes == 0 {
		if n, err := p.direct.ReadAt(dst, off); n == len(dst) || !errors.Is(err, syscall.EINVAL) && n > 0 {
			return err
		}
	}
	_, err := p.data.ReadAt(dst, off)
	return err
}

// sumOf is the entry of a page.
func sumOf(page []byte) uint32 { return cmp.Or(kernel.CRC32C(0, page), 1) }

// fetch reads whole pages from the bucket, and keeps them if there is room.
func (p *pages) fetch(dst []byte, off int64, fetch func(dst []byte, off int64) error) error {
	if err := fetch(dst, off); err != nil || !p.c.room(int64(len(dst))) {
		return err
	}
	const page = vfs.PageBytes
	sums := make([]byte, 0, 4*(len(dst)/page+1))
	for at := 0; at < len(dst); at += page {
		sums = binary.LittleEndian.AppendUint32(sums, sumOf(dst[at:min(at+page, len(dst))]))
	}
	_, err := p.data.WriteAt(dst, off)
	if err == nil {
		_, err = p.sums.WriteAt(sums, off/page*4)
	}
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		p.c.mu.Lock()
		p.c.fail(err)
		p.c.mu.Unlock()
	}
	return nil
}

// drop forgets the pages of a range.
func (p *pages) drop(off, bytes int64) {
	first := off / vfs.PageBytes
	_, _ = p.sums.WriteAt(make([]byte, 4*(vfs.WholePages(off+bytes)/vfs.PageBytes-first)), 4*first)
}

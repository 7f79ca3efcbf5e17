// Package bucket makes objects of object stores files of a vfs.FS: a path that is a URL (s3://, az://, gs://) is
// an object or a folder of them, file:// and all other paths are of the local file system.
//
// An object appears whole, when its file is committed. Until then it is a file on the local disk, in the state folder,
// and so are scratch files: they have the same paths within the FS, so a job that is continued on the same machine
// finds them. Folders exist as long as there is something in them. An object keeps the version that it had when it was
// opened; reads fail once another has its place. Requests that fail are repeated a bounded number of times, and nothing
// is renamed or exchanged in a bucket but single files, by copies.
package bucket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Options of an FS.
type Options struct {
	// Context ends reads, and pauses between requests; nil: context.Background.
	Context context.Context
	// Note tells the user something; nil: nothing is told.
	Note func(text string)
	// CacheDir is the folder of the cache; "": that of HOPFEED_CACHE_DIR, or "hopfeed" in the user's folder for caches.
	// CacheBytes is how large it may become: CacheOf(size), NoCache, or 0: as HOPFEED_CACHE_SIZE says, or half of what its
	// disk has free, the cache included.
	CacheDir   string
	CacheBytes int64
	// StateDir is the folder for files that are not committed and for scratch files; "": that of the environment
	// variable HOPFEED_STATE_DIR, or "hopfeed" in XDG_STATE_HOME or in ~/.local/state.
	StateDir string
	Retries  Retries
}

// NoCache is the CacheBytes of no cache.
const NoCache = -1

// CacheOf is the CacheBytes of a size that a user has named: a cache of 0 bytes is none.
func CacheOf(size units.Bytes) int64 {
	if size == 0 {
		return NoCache
	}
	return int64(size)
}

// FS is a file system whose paths may be URLs. It is a vfs.Directer, vfs.DirectCreator and vfs.Linker for local paths.
type FS struct {
	vfs.FS
	o Options
	*counters

	mu       sync.Mutex
	buckets  map[string]*remote
	leases   map[string]*lease // by path of the lock
	cache    *cache
	cacheErr error
	opened   bool // the cache was looked for

	concurrent bool // other processes may write the same objects: see Concurrent
}

// New is a file system for paths of local and for URLs.
func New(local vfs.FS, o Options) *FS {
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Retries == (Retries{}) {
		o.Retries = DefaultRetries
	}
	o.CacheDir = cmp.Or(o.CacheDir, os.Getenv("HOPFEED_CACHE_DIR"))
	return &FS{FS: local, o: o, counters: &counters{}, buckets: map[string]*remote{}, leases: map[string]*lease{}}
}

// Uncached is the file system without a cache.
func (f *FS) Uncached() vfs.FS {
	o := f.o
	o.CacheBytes = NoCache
	u := New(f.FS, o)
	u.counters = f.counters
	return u
}

// Concurrent is the file system as vfs.Concurrent has it: an object that is there already is not replaced, and uploads
// of other processes are left to them.
func (f *FS) Concurrent() vfs.FS {
	u := New(f.FS, f.o)
	u.counters, u.concurrent = f.counters, true
	return u
}

// Traffic is what has gone to and from buckets so far.
func (f *FS) Traffic() Traffic {
	return Traffic{f.fetched.Load(), f.cached.Load(), f.sent.Load(), f.repeated.Load()}
}

// remote is a bucket that is open.
type remote struct {
	store
	name  string // of the bucket and its server
	state string // folder of its files on the local disk
}

// place is where a path leads.
type place struct {
	path string
	*remote
	key string
	// local is the path of a local file; of an object, that of the file that becomes it.
	local string
}

// isLocal tells whether it is on the local disk.
func (at place) isLocal() bool { return at.remote == nil || isScratch(at.key) }

// find finds out where a path leads. Its error names the path.
func (f *FS) find(op, path string) (place, error) {
	at, ok, err := parse(path)
	if !ok {
		return place{path: path, local: at.key}, nil
	}
	var r *remote
	if err == nil {
		r, err = f.bucket(at)
	}
	if err != nil {
		return place{}, pathError(op, path, err)
	}
	return place{path, r, at.key, filepath.Join(r.state, filepath.FromSlash(at.key))}, nil
}

// findBoth finds out where two paths lead.
func (f *FS) findBoth(op, one, other string) (from, to place, err error) {
	if from, err = f.find(op, one); err == nil {
		to, err = f.find(op, other)
	}
	return from, to, err
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// bucket opens a bucket once.
func (f *FS) bucket(at location) (*remote, error) {
	name := fmt.Sprintf("%s-%s-%x", at.scheme, at.bucket, sha256.Sum256([]byte(at.query.Encode())))
	name = name[:len(at.scheme)+len(at.bucket)+2+8]
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.buckets[name]; r != nil {
		return r, nil
	}
	state, err := f.stateDir()
	if err != nil {
		return nil, err
	}
	r := &remote{name: name, state: filepath.Join(state, name)}
	if r.store, err = openers[at.scheme](f.o.Context, at); err != nil {
		return nil, err
	}
	f.buckets[name] = r
	return r, nil
}

func (f *FS) stateDir() (string, error) {
	if dir := cmp.Or(f.o.StateDir, os.Getenv("HOPFEED_STATE_DIR")); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "hopfeed"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for the state of jobs: %w (set HOPFEED_STATE_DIR)", err)
	}
	return filepath.Join(home, ".local", "state", "hopfeed"), nil
}

// clean is context.Background: what small requests run in, so that an interrupted job can clean up.
func clean() context.Context { return context.Background() }

// stat is the object at a place.
func (f *FS) stat(at place) (o object, err error) {
	if at.key == "" {
		return o, fs.ErrNotExist
	}
	err = f.attempt(clean(), at.path, at.store, func(ctx context.Context, _ func()) (err error) {
		o, err = at.store.stat(ctx, at.key)
		return err
	})
	return o, err
}

// list lists what is in the folder at a place; most as in store.
func (f *FS) list(at place, most int) (all []object, err error) {
	prefix := at.key + "/"
	if at.key == "" {
		prefix = ""
	}
	err = f.attempt(clean(), at.path, at.store, func(ctx context.Context, _ func()) (err error) {
		all, err = at.store.list(ctx, prefix, most)
		return err
	})
	return all, err
}

func (f *FS) Open(path string) (vfs.File, error) {
	at, err := f.find("open", path)
	if err != nil {
		return nil, err
	}
	if at.isLocal() {
		return f.FS.Open(at.local)
	}
	o, err := f.stat(at)
	if err != nil {
		return nil, pathError("open", path, err)
	}
	r := &file{f: f, at: at, object: o}
	if name := filepath.Base(at.key); name != "index.arrow" && filepath.Ext(name) != ".json" &&
		filepath.Base(filepath.Dir(at.key)) != "tasks" { // which are read once
		r.pages = f.pagesOf(at, o)
	}
	return r, nil
}

func (f *FS) OpenDirect(path string) (vfs.File, error) {
	at, err := f.find("open", path)
	if err != nil {
		return nil, err
	}
	direct, ok := f.FS.(vfs.Directer)
	if !ok || !at.isLocal() {
		return nil, pathError("open", path, vfs.ErrNoDirect)
	}
	return direct.OpenDirect(at.local)
}

// Link implements vfs.Linker for local paths.
func (f *FS) Link(oldPath, newPath string) error {
	from, to, err := f.findBoth("link", oldPath, newPath)
	if err != nil {
		return err
	}
	if linker, ok := f.FS.(vfs.Linker); ok && from.remote == nil && to.remote == nil {
		return linker.Link(from.local, to.local)
	}
	return pathError("link", newPath, errors.ErrUnsupported)
}

func (f *FS) Create(path string) (vfs.PendingFile, error) { return f.create(path, vfs.FS.Create) }

func (f *FS) CreateDirect(path string, bytes int64) (vfs.PendingFile, error) {
	return f.create(path, func(fsys vfs.FS, local string) (vfs.PendingFile, error) {
		if direct, ok := fsys.(vfs.DirectCreator); ok {
			return direct.CreateDirect(local, bytes)
		}
		return nil, pathError("create", path, vfs.ErrNoDirect)
	})
}

func (f *FS) create(path string, begin func(fsys vfs.FS, local string) (vfs.PendingFile, error)) (vfs.PendingFile,
	error) {
	at, err := f.find("create", path)
	if err != nil {
		return nil, err
	}
	if at.remote == nil {
		if f.concurrent {
			return begin(vfs.Concurrent(f.FS), at.local)
		}
		return begin(f.FS, at.local)
	}
	if at.key == "" {
		return nil, pathError("create", path, syscall.EISDIR)
	}
	if f.concurrent && !at.isLocal() {
		f.removeOrphans(at.local)
		at.local = fmt.Sprintf("%s.%d", vfs.OwnName(at.local), os.Getpid())
	}
	var p vfs.PendingFile
	err = f.inFolder(filepath.Dir(at.local), func() (err error) {
		p, err = begin(f.FS, at.local)
		return err
	})
	if err != nil || at.isLocal() {
		return p, err
	}
	return &pending{PendingFile: p, f: f, at: at}, nil
}

// removeOrphans removes what processes of this machine that were killed have left of an object.
func (f *FS) removeOrphans(local string) {
	left, _ := filepath.Glob(local + ".*" + vfs.TempSuffix + ".*" + vfs.TempSuffix)
	for _, path := range left {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(strings.TrimSuffix(path, vfs.TempSuffix)), "."))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = f.FS.Remove(path) // all else goes on without it
		}
	}
}

func (f *FS) MkdirAll(path string) error {
	at, err := f.find("mkdir", path)
	if err != nil || !at.isLocal() {
		return err
	}
	return f.inFolder(at.local, func() error { return nil })
}

// inFolder makes a local folder and calls do, and both again where prune has removed the folder meanwhile.
func (f *FS) inFolder(dir string, do func() error) (err error) {
	for range 10 {
		if err = f.FS.MkdirAll(dir); err == nil {
			err = do()
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) { // which a folder was that is gone again
			break
		}
	}
	return err
}

func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	if at.isLocal() {
		return f.FS.ReadDir(at.local)
	}
	all, err := f.list(at, 0)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	byName := map[string]fs.DirEntry{}
	// What is not committed nobody sees; scratch files of a job are none without its lock, which is in the bucket.
	if path.Base(at.key) != ".job" || len(all) > 0 {
		local, err := f.FS.ReadDir(at.local)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range local {
			if e.IsDir() && isScratch(path.Join(at.key, e.Name())) {
				byName[e.Name()] = e
			}
		}
	}
	for _, o := range all {
		if i := (info{o}); i.Name() != "" {
			byName[i.Name()] = fs.FileInfoToDirEntry(i)
		}
	}
	if len(byName) == 0 && at.key != "" {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	out := make([]fs.DirEntry, 0, len(byName))
	for _, e := range byName {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// info is what a listing tells of an object, or of a prefix as of a folder.
type info struct{ object }

func (i info) Name() string {
	if i.key == "" {
		return ""
	}
	return filepath.Base(i.key)
}
func (i info) Size() int64        { return i.bytes }
func (i info) ModTime() time.Time { return i.changed }
func (i info) IsDir() bool        { return strings.HasSuffix(i.key, "/") || i.key == "" }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

func (f *FS) Stat(path string) (fs.FileInfo, error) {
	at, err := f.find("stat", path)
	if err != nil {
		return nil, err
	}
	if at.isLocal() {
		return f.FS.Stat(at.local)
	}
	o, err := f.stat(at)
	if !errors.Is(err, fs.ErrNotExist) {
		return info{o}, pathError("stat", path, err)
	}
	if at.key != "" {
		below, err := f.list(at, 1)
		if err == nil && len(below) == 0 {
			err = fs.ErrNotExist
		}
		if err != nil {
			return nil, pathError("stat", path, err)
		}
	}
	return info{object{key: at.key + "/"}}, nil
}

// Resolve is the path of a URL with single slashes, and its query, without any, after the bucket, so that its folders
// are found by cutting it, and what lies beside it by adding a suffix.
func (f *FS) Resolve(path string) (string, error) {
	at, err := f.find("resolve", path)
	if err != nil || at.remote != nil {
		return withQueryFirst(path), err
	}
	return f.FS.Resolve(at.local)
}

// Remove removes a local file, or an object; a folder in a bucket is gone when nothing is in it.
func (f *FS) Remove(path string) error {
	at, err := f.find("remove", path)
	if err != nil {
		return err
	}
	if at.remote == nil {
		return f.FS.Remove(at.local)
	}
	if at.isLocal() {
		if err := f.FS.Remove(at.local); err != nil {
			return pathError("remove", path, vfs.WithoutPath(err))
		}
		f.prune(at)
		return nil
	}
	below, err := f.list(at, 1)
	if err == nil && len(below) > 0 {
		err = syscall.ENOTEMPTY
	}
	if err != nil {
		return pathError("remove", path, err)
	}
	f.mu.Lock()
	lock := f.leases[path]
	f.mu.Unlock()
	if lock != nil {
		lock.end() // else it would be renewed, and so made again
	}
	err = f.attempt(clean(), path, at.store, func(ctx context.Context, _ func()) error {
		return at.store.remove(ctx, at.key)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	f.prune(at)
	return pathError("remove", path, err)
}

// prune removes the local folders of a place that nothing is in any more, but not those of scratch files.
func (f *FS) prune(at place) {
	for key := path.Dir(at.key); key != "." && !isScratch(key); key = path.Dir(key) {
		if f.FS.Remove(filepath.Join(at.state, filepath.FromSlash(key))) != nil {
			return
		}
	}
}

// Sync has nothing to do in a bucket: what is committed is durable.
func (f *FS) Sync(path string) error {
	at, err := f.find("sync", path)
	if err != nil || !at.isLocal() {
		return err
	}
	return f.FS.Sync(at.local)
}

func (f *FS) Attribute(path, name string) (string, error) {
	at, err := f.findAttribute("getxattr", path)
	if err != nil {
		return "", err
	}
	return f.FS.Attribute(at, name)
}

func (f *FS) SetAttribute(path, name, value string) error {
	at, err := f.findAttribute("setxattr", path)
	if err != nil {
		return err
	}
	return f.FS.SetAttribute(at, name, value)
}

// findAttribute is the local path of what has attributes: nothing in a bucket has.
func (f *FS) findAttribute(op, path string) (local string, err error) {
	at, err := f.find(op, path)
	if err == nil && at.remote != nil {
		err = pathError(op, path, errors.ErrUnsupported)
	}
	return at.local, err
}

// unlimited is the room of a bucket.
const unlimited = 1 << 60

// FreeBytes has no limit for objects. Scratch files need room on the disk of the state folder.
func (f *FS) FreeBytes(path string) (int64, error) {
	at, err := f.find("statfs", path)
	if err != nil {
		return 0, err
	}
	if at.remote == nil {
		return f.FS.FreeBytes(at.local)
	}
	if !at.isLocal() {
		return unlimited, nil
	}
	dir, err := machine.NearestFolder(f.FS, at.local)
	if err != nil {
		return 0, err
	}
	return f.FS.FreeBytes(dir)
}

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system. It is a Directer, and its files are Mappers and Descriptors.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(path string) (File, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func openFile(path string) (*osFile, error) {
	// A directory would fail only when read, and opening a pipe waits for a writer.
	switch info, err := os.Stat(path); {
	case err != nil: // which opening puts into better words
	case info.IsDir():
		return nil, pathError("open", path, syscall.EISDIR)
	case !info.Mode().IsRegular():
		return nil, pathError("open", path, errors.New("not a regular file, which reading by position needs"))
	}
	f, err := os.Open(path)
	return &osFile{File: f}, err
}

func (osFS) MkdirAll(path string) error { return mkdirAll(path, syncDir) }

func mkdirAll(path string, sync func(dir string) error) error {
	path = filepath.Clean(path)
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return syncNames(path, sync)
	case err == nil:
		return pathError("mkdir", path, syscall.ENOTDIR)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := refuseDangling("mkdir", path); err != nil {
		return err
	}
	parent := filepath.Dir(path)
	if err := mkdirAll(parent, sync); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		// Somebody else may have made it meanwhile.
		if info, statErr := os.Stat(path); statErr != nil || !info.IsDir() {
			return err
		}
	}
	return sync(parent)
}

// syncNames makes the names durable by which an existing directory is reached, up to the root of its file system:
// whoever made it, or a directory above it, may not have synced them. A parent that may not be opened is left to its
// owner.
func syncNames(path string, sync func(dir string) error) error {
	at, err := (osFS{}).Resolve(path)
	if err != nil {
		return err
	}
	for parent := filepath.Dir(at); parent != at &&
		deviceID(parent) == deviceID(at); at, parent = parent, filepath.Dir(parent) {
		if err := sync(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// deviceID tells the file system that a directory is on; 0 where that cannot be found.
func deviceID(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return uint64(st.Dev)
}

func (osFS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osFS) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }
func (osFS) Sync(path string) error                     { return syncDir(path) }

func (osFS) Resolve(path string) (string, error) {
	const separator = string(filepath.Separator)
	at := path
	if !filepath.IsAbs(at) { // not by filepath.Abs, which takes link/.. to be the folder of the link
		here, err := os.Getwd()
		if err != nil {
			return "", err
		}
		at = here + separator + at
	}
	for rest := ""; ; {
		found, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(found, rest), nil
		}
		at = strings.TrimRight(at, separator)
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.VolumeName(at) {
			return "", pathError("resolve", path, err)
		}
		if err := refuseDangling("resolve", at); err != nil {
			return "", err
		}
		last := strings.LastIndex(at, separator) + 1
		at, rest = at[:last], filepath.Join(at[last:], rest)
	}
}

func (osFS) Rename(oldPath, newPath string) error {
	if err := sameParent(oldPath, newPath); err != nil {
		return err
	}
	if err := rename(oldPath, newPath); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(newPath)))
}

func (osFS) Exchange(onePath, otherPath string) error {
	if err := sameParent(onePath, otherPath); err != nil {
		return err
	}
	err := retryInterrupted(func() error { return exchange(onePath, otherPath) })
	if err == unix.EINVAL { // what file systems say that know the call and not this use of it
		err = errors.ErrUnsupported
	}
	if err != nil {
		return pathError("exchange", onePath, fmt.Errorf("with %s: %w", otherPath, err))
	}
	return syncDir(filepath.Dir(filepath.Clean(otherPath)))
}

// sameParent keeps a rename to what a sync of one directory makes durable, and away from links.
func sameParent(oldPath, newPath string) error {
	if filepath.Dir(filepath.Clean(oldPath)) != filepath.Dir(filepath.Clean(newPath)) {
		return pathError("rename", oldPath, fmt.Errorf("%s is in another directory", newPath))
	}
	if err := refuseLink("rename", oldPath); err != nil {
		return err
	}
	return refuseLink("rename", newPath)
}

// rename is os.Rename with a PathError.
func rename(oldPath, newPath string) error {
	err := os.Rename(oldPath, newPath)
	var link *os.LinkError
	if errors.As(err, &link) {
		return pathError("rename", oldPath, fmt.Errorf("to %s: %w", newPath, link.Err))
	}
	return err
}

// syncDir makes the entries of a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some network and user-space filesystems cannot sync a directory, and need not.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func (osFS) Lock(path string) (io.Closer, error) { return lock(path, os.Stat) }

// lockTries is how often a lock is tried for, a millisecond apart: Locked may have it for an instant, and the holder
// before may be removing its file.
const lockTries = 8

func lock(path string, stat func(string) (fs.FileInfo, error)) (io.Closer, error) {
	for tries := 1; ; tries++ {
		f, err := tryLock(path, stat)
		if err == nil {
			return f, nil
		}
		if err != unix.EWOULDBLOCK && err != errReplaced || tries == lockTries {
			if err == unix.EWOULDBLOCK {
				err = ErrLocked
			}
			return nil, pathError("lock", path, WithoutPath(err))
		}
		time.Sleep(time.Millisecond)
	}
}

var errReplaced = errors.New("another process removes or replaces the file each time that it is locked here")

func tryLock(path string, stat func(string) (fs.FileInfo, error)) (_ io.Closer, err error) {
	if err := refuseLink("lock", path); err != nil { // also to where there is nothing, which opening would make
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, err
	}
	// The holder before may have removed the file between our opening and locking it; a lock on a file that has no name
	// excludes nobody.
	locked, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch named, err := stat(path); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(locked, named):
		return nil, errReplaced
	case err != nil:
		return nil, err
	}
	return f, writeLockText(f)
}

// WithoutPath is err without the name of a file, for an error that names it anyway.
func WithoutPath(err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// writeLockText writes LockText into a lock file that is locked, unless it is there.
func writeLockText(f *os.File) error {
	state, err := readLock(f)
	switch {
	case err != nil || state == Marked:
		return err
	case state == NoLock:
		return errNotLock
	}
	_, err = f.WriteAt([]byte(LockText), 0)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name())) // which we have locked
	}
	return syncDir(filepath.Dir(f.Name()))
}

// Locked tries for a shared lock, which it gives back at once.
func (osFS) Locked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := flock(f, unix.LOCK_SH|unix.LOCK_NB); err {
	case nil:
		return false, nil
	case unix.EWOULDBLOCK:
		return true, nil
	default:
		return false, pathError("lock", path, err)
	}
}

func flock(f *os.File, how int) error {
	return retryInterrupted(func() error { return unix.Flock(int(f.Fd()), how) })
}

// attributePrefix is the name space of attributes of users (xattr(7)).
const attributePrefix = "user.hopfeed."

// maxAttribute is more bytes than an attribute has.
const maxAttribute = 4096

func (osFS) Attribute(path, name string) (string, error) {
	value := make([]byte, maxAttribute)
	n, err := unix.Getxattr(path, attributePrefix+name, value)
	switch {
	case errors.Is(err, noAttribute):
		return "", nil
	case err != nil:
		return "", pathError("getxattr", path, err)
	}
	return string(value[:n]), nil
}

func (osFS) SetAttribute(path, name, value string) error {
	if err := unix.Setxattr(path, attributePrefix+name, []byte(value), 0); err != nil {
		return pathError("setxattr", path, err)
	}
	return nil
}

func (osFS) FreeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := retryInterrupted(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0, pathError("statfs", path, err)
	}
	return int64(st.Bavail) * blockBytes(&st), nil
}

func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// The operating system's calls remove, replace and rename links themselves. Here whatever is written through a link
// goes to what it leads to, and the link stays.

func (osFS) Remove(path string) error {
	if err := refuseLink("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

// refuseLink returns ErrLink if path is a link.
func refuseLink(op, path string) error {
	if _, err := os.Readlink(path); err != nil { // also where there is nothing
		return nil
	}
	return pathError(op, path, fmt.Errorf("%w, which is never removed or replaced (move it away)", ErrLink))
}

// refuseDangling returns ErrLink if path is a link to what does not exist.
func refuseDangling(op, path string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return pathError(op, path, fmt.Errorf("%w to %s, which does not exist (make that, or give another path)", ErrLink,
		to))
}

// followLink is path or, if that is a link, what it leads to. A device, pipe or socket is an error: a new file would
// take the place of a device.
func followLink(path string) (string, error) {
	if _, err := os.Readlink(path); err == nil {
		if err := refuseDangling("create", path); err != nil {
			return "", err
		}
		found, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", pathError("create", path, err)
		}
		path = found
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return "", pathError("create", path, errNoFile)
	}
	return path, nil
}

var errNoFile = errors.New("it is a device, a pipe or a socket, which is never replaced (give another path)")

func (osFS) Create(path string) (PendingFile, error) {
	path, err := followLink(path)
	if err != nil {
		return nil, err
	}
	f, err := createTemp(path + TempSuffix)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, path: path}, nil
}

// createTemp makes a new file rather than empty the old one, which somebody may have open.
func createTemp(temp string) (*os.File, error) {
	if err := (osFS{}).Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// TempDir is the folder for files that nobody needs once a process has ended.
func TempDir() string { return os.TempDir() }

// Package vfs is the one door to files: every read, write, rename and lock of the project goes through an FS, so that
// the same code runs on the operating system, on an in-memory disk that can crash, and under injected faults.
//
// An FS and the Files it opens are safe for concurrent use; a PendingFile belongs to one goroutine.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"strings"
)

// ErrLocked is returned when another live job holds the lock that Lock asks for.
var ErrLocked = errors.New("locked by another job")

// ErrNoDirect is returned when a file cannot be read or written past the page cache (tmpfs, filesystems or platforms
// that refuse), or need not; the text says why.
var ErrNoDirect = errors.New("direct reads and writes not available")

// ErrFault is returned by Guard when touching a mapped file failed, which happens when the file was truncated, or its
// disk failed, after it was mapped.
var ErrFault = errors.New("mapped file cannot be read (truncated while open, or a disk error)")

// ErrLink is returned when a symbolic link is in the way: it leads nowhere, where something is to be made, or it would
// have to be removed or renamed itself, which never happens. All else follows links.
var ErrLink = errors.New("it is a symbolic link")

// Failed tells whether a file system failed, so that the error says nothing about the content of a file.
func Failed(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed)
}

// FS is a file system. Paths are spelled as on the host, relative or absolute. Errors are *fs.PathError or wrap one, so
// they name the path, and errors.Is(err, syscall.ENOSPC) tells a full disk on every implementation.
type FS interface {
	// Open opens a file for positioned reads.
	Open(path string) (File, error)
	// Create starts a file that appears under path, whole and durable, only by Commit. Its bytes go to path +
	// TempSuffix, which replaces a left-over one, and which may be opened meanwhile. Where path is a link, both are
	// beside what it leads to. The parent directory must exist.
	Create(path string) (PendingFile, error)
	// MkdirAll makes a directory and its missing parents, durably. The names of parents that exist become durable too:
	// whoever made them may not have synced them.
	MkdirAll(path string) error
	// ReadDir lists a directory sorted by name.
	ReadDir(path string) ([]fs.DirEntry, error)
	Stat(path string) (fs.FileInfo, error)
	// Resolve is the absolute path, without symbolic links, of what is at path, or would be if made: two paths of one
	// file or directory give one. A link to what does not exist is ErrLink.
	Resolve(path string) (string, error)
	// Remove removes a file or an empty directory. A path that is a link is ErrLink, and nothing is removed.
	Remove(path string) error
	// Rename moves a file or directory within one parent, durably.
	Rename(oldPath, newPath string) error
	// Exchange swaps what two names in one parent stand for, in one step and durably. Where the file system cannot, the
	// error is errors.ErrUnsupported, and nothing has happened.
	Exchange(onePath, otherPath string) error
	// Sync makes what has been made, renamed and removed in a directory durable.
	Sync(path string) error
	// Lock takes an exclusive lock on the file at path, which is created with LockText in it, durably, and holds it
	// until the Closer is closed or the process dies. It never waits: a lock held elsewhere is ErrLocked. A file that
	// holds something else is ErrNotLock, and stays as it is.
	Lock(path string) (io.Closer, error)
	// Locked tells whether somebody holds the lock, and makes and writes nothing.
	Locked(path string) (bool, error)
	// Attribute is the value that SetAttribute set; "": none. The file system keeps it beside the
	// bytes: no reader and no checksum sees it, it goes along when the file is renamed, and is lost in copies that do
	// not ask for it. Where the file system has none, the error is errors.ErrUnsupported.
	Attribute(path, name string) (string, error)
	SetAttribute(path, name, value string) error
	// FreeBytes tells how much more can be written below the directory path.
	FreeBytes(path string) (int64, error)
}

// TempSuffix ends the name of every file that is not committed yet.
const TempSuffix = ".tmp"

// File is a file open for positioned reads. ReadAt follows io.ReaderAt; on the operating system it retries interrupted
// reads.
type File interface {
	io.ReaderAt
	io.Closer
	// Path is the path that the file was opened by.
	Path() string
	// Size is the present size in bytes, asked anew at each call.
	Size() (int64, error)
}

// Directer is the capability, on an FS, to open files for reads that bypass the page cache. Offset, length and memory
// address of reads must then be multiples of PageBytes. Where that cannot be had the error wraps ErrNoDirect.
type Directer interface {
	OpenDirect(path string) (File, error)
}

// DirectCreator is the capability, on an FS, to write files past the page cache.
type DirectCreator interface {
	// CreateDirect is Create for a file of about this size, for which it makes room at once: a full disk shows
	// here. It is written by WriteAt alone, from several goroutines at a time; offset, length and memory address are
	// multiples of PageBytes. Truncate then cuts it to its size. Where that cannot be had, or the file is too small for
	// it to be worth its while, the error wraps ErrNoDirect, and nothing is left.
	CreateDirect(path string, bytes int64) (PendingFile, error)
}

// CreateScratch creates a file that never gets its final name, and opens it to be read while it is written.
func CreateScratch(fsys FS, path string) (PendingFile, File, error) {
	pending, err := fsys.Create(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := fsys.Open(path + TempSuffix)
	if err != nil {
		return nil, nil, errors.Join(err, pending.Abort())
	}
	return pending, file, nil
}

// createDirect is CreateDirect of fsys, if it has that.
func createDirect(fsys FS, path string, bytes int64) (PendingFile, error) {
	if direct, ok := fsys.(DirectCreator); ok {
		return direct.CreateDirect(path, bytes)
	}
	return nil, pathError("create", path, ErrNoDirect)
}

// Mapper is the capability, on a File, to be mapped into memory, read-only. The bytes must be touched only inside Guard
// and before unmap; a mapping outlives its File.
type Mapper interface {
	Map() (bytes []byte, unmap func() error, err error)
}

// Descriptor is the capability, on a File, to be read by its descriptor, for libraries that do so themselves (cuFile,
// io_uring). The descriptor is the File's own, valid until it is closed; if the file is from OpenDirect, reads by it
// bypass the page cache too. Wrappers that count reads or make them fail do not have it.
type Descriptor interface {
	Fd() uintptr
}

// PendingFile is a file being written that nobody sees yet. Exactly one of Commit and Abort takes effect, the first;
// Abort after Commit does nothing, so it can be deferred.
type PendingFile interface {
	// Write goes on where the Write before ended. WriteAt, which does not move that place, fills in bytes already
	// written, or beyond.
	io.Writer
	io.WriterAt
	// Truncate makes a file from CreateDirect shorter, or longer by zeros. Other files need not have it.
	Truncate(size int64) error
	// Commit syncs the bytes, renames the file to its final path, and syncs the directory. When it fails, nothing is
	// left under the final path (or what was there before is still there); only when syncing the directory, the last
	// step, fails may the new file have replaced an old one.
	Commit() error
	// Abort removes what was written.
	Abort() error
}

// ErrSize is returned when a file is longer than it can be, or ends while it is read.
var ErrSize = errors.New("wrong size")

// OpenSized opens a file and asks for its size.
func OpenSized(fsys FS, path string) (f File, size int64, err error) {
	if f, err = fsys.Open(path); err != nil {
		return nil, 0, err
	}
	if size, err = f.Size(); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// ReadFile reads a file of at most maxBytes bytes. Another file may take its place meanwhile; what is read is of one of
// the two.
func ReadFile(fsys FS, path string, maxBytes int64) ([]byte, error) {
	f, size, err := OpenSized(fsys, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxBytes {
		return nil, pathError("read", path, fmt.Errorf("%w: it has %d bytes, at most %d are expected", ErrSize, size,
			maxBytes))
	}
	b := AlignedBytes(int(size), PageBytes) // whether it is read past the page cache depends on its size alone
	if n, err := f.ReadAt(b, 0); int64(n) < size {
		if err == io.EOF {
			err = pathError("read", path, fmt.Errorf("%w: it ends after %d of its %d bytes", ErrSize, n, size))
		}
		return nil, err
	}
	return b, nil
}

// WriteFile writes a file, whole and durable: after an error the old content is there.
func WriteFile(fsys FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}

// LockText is the content of a lock file. By it, and not by its name, a program knows that a file and its folder
// are its own.
const LockText = "Hopfeed made this file, and locks it while it works in this folder.\n"

// ErrNotLock is returned when a file that is to be locked is there, and is no lock file of Hopfeed's.
var ErrNotLock = errors.New("it is not a lock file that Hopfeed has made")

// LockState is what there is in the place of a lock file.
type LockState int

const (
	NoLock   LockState = iota // something else
	Unmarked                  // a file that is empty, or as a crash may leave LockText: its start, or zeros
	Marked                    // a lock file
)

// lockState tells what content is.
func lockState(content string) LockState {
	switch {
	case content == LockText, content == LockText+"\x00": // of a bucket, before the name of the holder
		return Marked
	case len(content) <= len(LockText) && strings.HasPrefix(LockText, strings.TrimRight(content, "\x00")):
		return Unmarked
	}
	return NoLock
}

// StateOfLock tells what there is at path.
func StateOfLock(fsys FS, path string) (state LockState, err error) {
	for range 10 { // the holder of a lock in a bucket writes it anew from time to time
		if state, err = stateOfLock(fsys, path); !errors.Is(err, ErrOtherVersion) {
			break
		}
	}
	return state, err
}

// ErrOtherVersion is the error of reads from an object that has been written anew since it was opened.
var ErrOtherVersion = errors.New("another version has taken its place since it was opened")

func stateOfLock(fsys FS, path string) (LockState, error) {
	info, err := fsys.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return NoLock, err
	}
	f, err := fsys.Open(path)
	if err != nil {
		return NoLock, err
	}
	defer f.Close()
	return readLock(f)
}

func readLock(f io.ReaderAt) (LockState, error) {
	content := make([]byte, len(LockText)+1)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return NoLock, err
	}
	return lockState(string(content[:n])), nil
}

var errNotLock = fmt.Errorf("%w (move it away)", ErrNotLock)

// Guard calls f, which touches mapped files. Where the memory behind a mapping has gone, f stops there and Guard
// returns ErrFault; other panics go on. Goroutines that f starts are not guarded.
func Guard(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w, at address %#x", ErrFault, r.Addr())
		default:
			panic(r)
		}
	}()
	return f()
}

// Doubter is the capability, on a File, to be told that a range was read with another checksum than was written. It
// tells whether reading again may give other bytes: they came from elsewhere, or from a cache, which has dropped them.
type Doubter interface {
	Doubt(off, bytes int64) bool
}

// Doubt is Doubter.Doubt where f has that.
func Doubt(f File, off, bytes int64) bool {
	d, ok := f.(Doubter)
	return ok && d.Doubt(off, bytes)
}

// Receipter is the capability, on a File, to say by which path it is read, and something about that.
type Receipter interface {
	Receipt() (path, reason string)
}

// IsURL tells whether a path is of an object store.
func IsURL(path string) bool {
	scheme, rest, ok := strings.Cut(path, ":")
	return ok && strings.HasPrefix(rest, "/") && (scheme == "s3" || scheme == "az" || scheme == "gs")
}

// Package vfs is the one door to files: every read, write, rename and lock of the project goes through an FS, so that
// the same code runs on the operating system, on an in-memory disk that can crash, and under injected faults.
//
// An FS and the Files it opens are safe for concurrent use; a PendingFile belongs to one goroutine.
package vfs

import (
	"errors"
	"io"
	"io/fs"
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

// FS is a file system. Paths are those of the host, relative or absolute. Errors are *fs.PathError or wrap one, so they
// name the path, and errors.Is(err, syscall.ENOSPC) tells a full disk on every implementation.
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
	// Attribute is what SetAttribute has said of a file or directory; "": nothing. The file system keeps it beside the
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

// Directer is the capability, on an FS, to open files for reads that bypass the page cache. Reads must then have
// offset, length and memory address aligned to align bytes. Where that cannot be had the error wraps ErrNoDirect.
type Directer interface {
	OpenDirect(path string) (file File, align int, err error)
}

// DirectCreator is the capability, on an FS, to write files past the page cache.
type DirectCreator interface {
	// CreateDirect is Create for a file of about so many bytes, for which it makes room at once: a full disk shows
	// here. It is written by WriteAt alone, from several goroutines at a time, with offset, length and memory address
	// aligned to align bytes; Truncate then cuts it to its size. Where that cannot be had, or the file is too small for
	// it to be worth its while, the error wraps ErrNoDirect, and nothing is left.
	CreateDirect(path string, bytes int64) (file PendingFile, align int, err error)
}

// createDirect is CreateDirect of fsys, if it has that.
func createDirect(fsys FS, path string, bytes int64) (PendingFile, int, error) {
	if direct, ok := fsys.(DirectCreator); ok {
		return direct.CreateDirect(path, bytes)
	}
	return nil, 0, pathError("create", path, ErrNoDirect)
}

// Mapper is the capability, on a File, to be mapped into memory, read-only. The bytes must be touched only inside Guard
// and before unmap; a mapping outlives its File.
type Mapper interface {
	Map() (bytes []byte, unmap func() error, err error)
}

// Descriptor is the capability, on a File, to be read by its descriptor, for libraries that do so themselves (cuFile,
// io_uring). The descriptor is the File's own, valid until it is closed; of a file from OpenDirect, reads by it bypass
// the page cache too. Wrappers that count reads or make them fail do not have it.
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
	// Truncate makes the file shorter, or longer by zeros.
	Truncate(size int64) error
	// Commit syncs the bytes, renames the file to its final path, and syncs the directory. When it fails, nothing is
	// left under the final path (or what was there before is still there); only when syncing the directory, the last
	// step, fails may the new file have replaced an old one.
	Commit() error
	// Abort removes what was written.
	Abort() error
}

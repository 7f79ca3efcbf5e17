// Package folder makes folders for files that a job needs while it works, knows them again after the job was killed,
// and removes from them what the program has made and nothing else.
//
// A folder is Hopfeed's if its lock file says so (vfs.LockText). The lock file is made before anything else, and
// removed after everything else. A name alone proves nothing: a user may have a folder of any name.
package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// LockName is the lock file of a folder, and LockSuffix ends the names of others in it.
const (
	LockName   = "lock"
	LockSuffix = ".lock"
)

// Suffix ends the names of all scratch files. By it, in a folder with a lock file, they are told from a user's.
const Suffix = ".scratch"

// ErrDamaged is returned when a scratch file does not have the bytes that were written to it.
var ErrDamaged = errors.New("the scratch file is damaged: the disk returned different bytes than were written " +
	"(check the disk and run the command again)")

// ErrForeign is returned when something that Hopfeed has not made is in the way.
var ErrForeign = errors.New("it is there already, and Hopfeed has not made it")

// Ours tells whether Hopfeed has made the folder at path: its lock file says so, or there is nothing in it, or only a
// lock file without content; a crash may leave either. Without a folder the error is fs.ErrNotExist.
func Ours(fsys vfs.FS, path, lockName string) (bool, error) {
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return false, err
	}
	state := vfs.Unmarked
	for _, e := range entries {
		if e.Name() == lockName {
			if state, err = vfs.StateOfLock(fsys, filepath.Join(path, lockName)); errors.Is(err, fs.ErrNotExist) {
				state, err = vfs.Unmarked, nil // removed since it was listed
			}
			if err != nil {
				return false, err
			}
		}
	}
	switch state {
	case vfs.Marked:
		return true, nil
	case vfs.Unmarked:
		return len(entries) == 0 || len(entries) == 1 && entries[0].Name() == lockName, nil
	}
	return false, nil
}

// Foreign is the name of an entry of the folder at path for which ours is false, or "." if Hopfeed has not made the
// folder itself. Without such an entry, or without a folder, it is "".
func Foreign(fsys vfs.FS, path string, ours func(fs.DirEntry) bool) (name string, err error) {
	made, err := Ours(fsys, path, LockName)
	if err == nil && !made {
		return ".", nil
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = fsys.ReadDir(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	for _, e := range entries {
		if !ours(e) {
			return e.Name(), nil
		}
	}
	return "", err
}

// Within tells whether path is the folder dir or in it. It follows symbolic links.
func Within(fsys vfs.FS, path, dir string) (bool, error) {
	at, err := fsys.Resolve(path)
	dir, otherErr := fsys.Resolve(dir)
	inner, relErr := filepath.Rel(dir, at)
	return relErr == nil && filepath.IsLocal(inner), errors.Join(err, otherErr)
}

// Lock makes the folder at path and locks it. One that is there, and is not Hopfeed's, is ErrForeign and stays as it
// is; one that another process has locked is vfs.ErrLocked.
func Lock(fsys vfs.FS, path string) (lock io.Closer, err error) {
	for range 10 { // a job that ends removes the folder, and empty ones around it, perhaps before we have locked it
		var ours bool
		ours, err = Ours(fsys, path, LockName)
		missing := errors.Is(err, fs.ErrNotExist)
		if missing {
			if ours, err = true, fsys.MkdirAll(path); errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if !ours {
			return nil, foreign(path)
		}
		if lock, err = fsys.Lock(filepath.Join(path, LockName)); err == nil {
			return lock, nil
		}
		if missing {
			_ = fsys.Remove(path) // which works only if there is nothing in it
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, err
}

func foreign(path string) error {
	return fmt.Errorf("%s: %w (move it away, or give another output or scratch folder)", path, ErrForeign)
}

// MissingParents is how many of the folders that path lies in are not there; in a bucket, folders need not be.
func MissingParents(fsys vfs.FS, path string) (missing int, err error) {
	for path = filepath.Dir(path); !vfs.IsURL(path) && path != filepath.Dir(path); path = filepath.Dir(path) {
		if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return missing, err
		}
		missing++
	}
	return missing, nil
}

// RemoveEmptyParents removes the folders around path, up to the first that is not empty. made is their number, by
// MissingParents before they were made.
func RemoveEmptyParents(fsys vfs.FS, path string, made int) {
	for ; made > 0; made-- {
		if path = filepath.Dir(path); fsys.Remove(path) != nil {
			return
		}
	}
}

// Scratch is a folder of scratch files that one process has to itself.
type Scratch struct {
	fsys    vfs.FS
	path    string
	lock    io.Closer
	parents int // that OpenScratch has made
}

// OpenScratch makes the folder at path, as Lock does, and removes the scratch files that a killed process has left in
// it.
func OpenScratch(fsys vfs.FS, path string) (*Scratch, error) {
	parents, err := MissingParents(fsys, path)
	if err != nil {
		return nil, err
	}
	lock, err := Lock(fsys, path)
	if err != nil {
		return nil, err
	}
	if _, err := clear(fsys, path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Scratch{fsys, path, lock, parents}, nil
}

// Path is the path of the scratch file with this name.
func (s *Scratch) Path(name string) string { return filepath.Join(s.path, name+Suffix) }

// Dir is the folder.
func (s *Scratch) Dir() string { return s.path }

// Close removes the scratch files and, unless a user has put something there, the folder and those around it that
// OpenScratch has made.
func (s *Scratch) Close() error {
	err := errors.Join(Remove(s.fsys, s.path), s.lock.Close())
	if err == nil {
		RemoveEmptyParents(s.fsys, s.path, s.parents)
	}
	return err
}

// Remove removes the scratch files in a folder of Hopfeed's, then its lock files, and then the folder. What else is in
// it stays, and the error names it. A folder that is not there is no error. The caller knows whose folder it is.
func Remove(fsys vfs.FS, path string) error {
	left, err := clear(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("%s: %w (it is left, and so is the folder around it)", left, ErrForeign)
	}
	if err := fsys.Sync(path); err != nil { // what is without a lock file must be without anything else
		return err
	}
	entries, err := fsys.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a folder of a bucket is gone when nothing is in it
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), LockSuffix) {
			err = errors.Join(err, RemoveFile(fsys, filepath.Join(path, e.Name())))
		}
	}
	if err == nil {
		err = RemoveFile(fsys, filepath.Join(path, LockName))
	}
	if err == nil {
		err = fsys.Remove(path)
	}
	if errors.Is(err, syscall.ENOTEMPTY) {
		return nil // another process has locked it since then: it is that one's now
	}
	return err
}

// RemoveFile removes a file that may be gone.
func RemoveFile(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// clear removes the scratch files in a folder, and scratch folders in it, and tells what else there is but lock files.
func clear(fsys vfs.FS, path string) (left string, err error) {
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		at := filepath.Join(path, e.Name())
		switch {
		case e.IsDir():
			below, err := OpenScratch(fsys, at)
			if err == nil {
				err = below.Close()
			}
			switch {
			case errors.Is(err, ErrForeign) || errors.Is(err, vfs.ErrLocked):
				left = at
			case err != nil:
				return "", err
			}
		case e.Type().IsRegular() && strings.HasSuffix(vfs.WithoutTemp(e.Name()), Suffix):
			if err := RemoveFile(fsys, at); err != nil {
				return "", err
			}
		case e.Name() == LockName || strings.HasSuffix(e.Name(), LockSuffix):
			if state, err := vfs.StateOfLock(fsys, at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			} else if err == nil && state == vfs.NoLock {
				left = at
			}
		default:
			left = at
		}
	}
	return left, nil
}

// A complete output is replaced by another one in one step: the new one is made in a folder beside it, with a name that
// ends in ReplacementSuffix, the two are exchanged, and then the old one is removed.
//
// Where a file system cannot exchange, the old folder is renamed to a name that ends in ReplacedSuffix, and then the
// new one gets its place. A crash between the two leaves no folder under the name; Restore gives it back to the old
// one.
const (
	ReplacementSuffix = ".replacement"
	ReplacedSuffix    = ".replaced"
)

// CheckName refuses the names of folders that exist only while others are replaced.
func CheckName(path string) error {
	for _, suffix := range []string{ReplacementSuffix, ReplacedSuffix} {
		if strings.HasSuffix(filepath.Clean(path), suffix) {
			return fmt.Errorf("%s: %w: Hopfeed uses names that end in %s while it replaces folders "+
				"(give another name)", path, ErrForeign, suffix)
		}
	}
	return nil
}

// Swap puts path + ReplacementSuffix in the place of path, and tells where the old folder is then. path has no links.
func Swap(fsys vfs.FS, path string) (old string, err error) {
	replacement := path + ReplacementSuffix
	if err := fsys.Exchange(replacement, path); !errors.Is(err, errors.ErrUnsupported) {
		return replacement, err
	}
	old = path + ReplacedSuffix
	if err := fsys.Rename(path, old); err != nil {
		return replacement, err
	}
	if err := fsys.Rename(replacement, path); err != nil {
		return replacement, errors.Join(err, fsys.Rename(old, path))
	}
	return old, nil
}

// Restore gives the folder at path its name back that a crash in Swap has taken. lock is the path of a lock file
// within.
func Restore(fsys vfs.FS, path, lock string) error {
	_, err := fsys.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if path, err = fsys.Resolve(path); err != nil {
		return err
	}
	old := path + ReplacedSuffix
	state, err := vfs.StateOfLock(fsys, filepath.Join(old, lock))
	if errors.Is(err, fs.ErrNotExist) || err == nil && state != vfs.Marked {
		return nil
	}
	if err != nil {
		return err
	}
	if running, err := fsys.Locked(filepath.Join(old, lock)); running || err != nil {
		return err // a process is between the two renames
	}
	return fsys.Rename(old, path)
}

// WriteFiles writes files into a directory, which is made if need be: all of them, or none. An older file that was not
// replaced stays.
func WriteFiles(fsys vfs.FS, dir string, names []string, data [][]byte) (err error) {
	_, err = fsys.Stat(dir)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	var pending []vfs.PendingFile
	var made []string // files that were not there before
	defer func() {
		for _, f := range pending {
			_ = f.Abort() // nothing, where it was committed
		}
		if err == nil {
			return
		}
		for _, path := range made {
			_ = fsys.Remove(path)
		}
		if missing {
			_ = fsys.Remove(dir)
		}
	}()
	for i, name := range names {
		path := filepath.Join(dir, name)
		if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
			made = append(made, path)
		} else if err != nil {
			return err
		}
		f, err := fsys.Create(path)
		if err != nil {
			return err
		}
		pending = append(pending, f)
		if _, err := f.Write(data[i]); err != nil {
			return err
		}
	}
	for _, f := range pending {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

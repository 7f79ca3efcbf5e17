package export

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// jobSuffix follows the name of an output file in the name of its job's folder.
const jobSuffix = ".job"

// FileJob is a locked folder beside an output file while the file is written. It tells that what a killed process has
// left of the file is ours, and may hold a store that the file is made from.
type FileJob struct {
	Store  string // path of the store, which need not exist
	fsys   vfs.FS
	folder string
	lock   io.Closer
}

// CheckFile refuses an output file that exists, unless it is to be replaced, or that another process is writing.
func CheckFile(fsys vfs.FS, path string, replace bool) error {
	lock := filepath.Join(path+jobSuffix, folder.LockName)
	if locked, err := fsys.Locked(lock); err != nil || locked {
		return cmp.Or(err, fmt.Errorf("%s: another process is writing it: %w", path, vfs.ErrLocked))
	}
	if replace {
		return nil
	}
	exists := func(path string) error { return fmt.Errorf("%s: %w (--force replaces it)", path, format.ErrExists) }
	if _, err := fsys.Stat(path); err == nil {
		return exists(path)
	}
	state, err := vfs.StateOfLock(fsys, lock)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := fsys.Stat(path + vfs.TempSuffix); err == nil && state != vfs.Marked {
		return exists(path + vfs.TempSuffix)
	}
	return nil
}

// OpenFileJob makes the folder, and removes the store that a killed process has left in it.
func OpenFileJob(fsys vfs.FS, output string) (*FileJob, error) {
	dir := output + jobSuffix
	j := &FileJob{fsys: fsys, folder: dir, Store: filepath.Join(dir, "store")}
	var err error
	if j.lock, err = folder.Lock(fsys, dir); err != nil {
		return nil, err
	}
	if err := format.Remove(fsys, j.Store); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Close removes the folder with the store.
func (j *FileJob) Close() error {
	err := format.Remove(j.fsys, j.Store)
	if err == nil {
		err = folder.Remove(j.fsys, j.folder)
	}
	return errors.Join(err, j.lock.Close())
}

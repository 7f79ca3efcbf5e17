package folder

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

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

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

func (osFS) Create(path string) (PendingFile, error) {
	path, err := followLink(path)
	if err != nil {
		return nil, err
	}
	f, err := createTemp(path + TempSuffix)
	if err != nil {
		return nil, err
	}
	return &osPending{File: f, path: path}, nil
}

// createTemp makes a new file rather than empty the old one, which somebody may have open.
func createTemp(temp string) (*os.File, error) {
	if err := (osFS{}).Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

type osPending struct {
	*os.File
	path string
	done bool
}

func (f *osPending) Commit() (err error) {
	if f.done {
		return &fs.PathError{Op: "commit", Path: f.path, Err: fs.ErrClosed}
	}
	f.done = true
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	_, before := os.Lstat(f.path)
	if err := rename(f.Name(), f.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		if errors.Is(before, fs.ErrNotExist) {
			os.Remove(f.path)
		}
		return err
	}
	return nil
}

func (f *osPending) Abort() error {
	if f.done {
		return nil
	}
	f.done = true
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

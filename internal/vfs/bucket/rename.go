package bucket

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Rename renames local files, and a single object, which is copied, or removed if its new name is that of a file that
// is not committed. A folder that is local because of its name becomes one of objects: its files are sent, first those
// that do not end in .json, then the others, which make it complete.
func (f *FS) Rename(oldPath, newPath string) error {
	from, to, err := f.findBoth("rename", oldPath, newPath)
	if err != nil {
		return err
	}
	switch {
	case from.remote == nil && to.remote == nil,
		from.remote != nil && to.remote != nil && from.isLocal() && to.isLocal():
		return f.FS.Rename(from.local, to.local)
	case !from.isLocal() && strings.HasSuffix(to.key, vfs.TempSuffix):
		if _, err := f.Stat(oldPath); err != nil {
			return err
		}
		return f.Remove(oldPath)
	case filepath.Dir(filepath.Clean(oldPath)) != filepath.Dir(filepath.Clean(newPath)):
		return pathError("rename", oldPath, fmt.Errorf("%s is in another directory", newPath))
	}
	found, err := f.Stat(oldPath)
	if err != nil {
		return err
	}
	if !found.IsDir() {
		return f.move(oldPath, newPath)
	}
	if !from.isLocal() {
		return pathError("rename", oldPath, errNoFolders)
	}
	return f.moveFolder(oldPath, newPath)
}

// moveFolder sends the files of a local folder and of folders in it.
func (f *FS) moveFolder(oldPath, newPath string) error {
	entries, err := f.ReadDir(oldPath)
	for _, last := range []bool{false, true} {
		for _, e := range entries {
			at, to := filepath.Join(oldPath, e.Name()), filepath.Join(newPath, e.Name())
			switch {
			case err != nil || strings.HasSuffix(e.Name(), ".json") != last:
			case e.IsDir():
				err = f.moveFolder(at, to)
			default:
				err = f.move(at, to)
			}
		}
	}
	if err == nil {
		err = f.Remove(oldPath)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has gone with its last file
	}
	return err
}

var errNoFolders = fmt.Errorf("folders of an object store are not renamed: %w", errors.ErrUnsupported)

// move copies a file, and removes the old one.
func (f *FS) move(oldPath, newPath string) error {
	from, bytes, err := vfs.OpenSized(f, oldPath)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := f.Create(newPath)
	if err != nil {
		return err
	}
	defer to.Abort()
	if _, err := io.Copy(to, io.NewSectionReader(from, 0, bytes)); err != nil {
		return err
	}
	if err := to.Commit(); err != nil {
		return err
	}
	return f.Remove(oldPath)
}

func (f *FS) Exchange(onePath, otherPath string) error {
	one, other, err := f.findBoth("exchange", onePath, otherPath)
	if err != nil {
		return err
	}
	if one.remote != nil || other.remote != nil {
		return pathError("exchange", onePath, errors.ErrUnsupported)
	}
	return f.FS.Exchange(one.local, other.local)
}

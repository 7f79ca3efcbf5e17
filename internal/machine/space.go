package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CheckSpace returns ErrDoesNotFit if the disk has less space than an output needs.
func CheckSpace(fsys vfs.FS, output string, needed int64) error {
	at, err := NearestFolder(fsys, output)
	if err != nil {
		return err
	}
	free, err := fsys.FreeBytes(at)
	if err == nil && needed > free {
		err = fmt.Errorf("%w: %s needs %v of disk space, and %v is free (free space there, or use another disk)",
			ErrDoesNotFit, output, units.Bytes(needed), units.Bytes(free))
	}
	return err
}

// NearestFolder is path, or the nearest folder above it that exists. In a bucket, folders need not.
func NearestFolder(fsys vfs.FS, path string) (string, error) {
	if vfs.IsURL(path) {
		return path, nil
	}
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path, err
		}
	}
}

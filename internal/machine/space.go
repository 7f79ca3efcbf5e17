package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CheckSpace returns ErrDoesNotFit if the disk has less space than an output needs. The output need not exist: the
// nearest folder above it that does tells how much is free.
func CheckSpace(fsys vfs.FS, output string, needed int64) error {
	at := filepath.Clean(output)
	_, err := fsys.Stat(at)
	for ; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); _, err = fsys.Stat(at) {
		at = filepath.Dir(at)
	}
	if err != nil {
		return err
	}
	free, err := fsys.FreeBytes(at)
	if err == nil && needed > free {
		err = fmt.Errorf("%w: %s needs %v of disk space, and %v is free", ErrDoesNotFit, output, units.Bytes(needed),
			units.Bytes(free))
	}
	return err
}

package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

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

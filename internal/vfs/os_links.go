package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The operating system's calls remove, replace and rename links themselves. Here whatever is written through a link
// goes to what it leads to, and the link stays.

func (osFS) Remove(path string) error {
	if err := refuseLink("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

// refuseLink returns ErrLink if path is a link.
func refuseLink(op, path string) error {
	if _, err := os.Readlink(path); err != nil { // also where there is nothing
		return nil
	}
	return pathError(op, path, fmt.Errorf("%w, which is never removed or replaced (move it away)", ErrLink))
}

// refuseDangling returns ErrLink if path is a link to what does not exist.
func refuseDangling(op, path string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return pathError(op, path, fmt.Errorf("%w to %s, which does not exist (make that, or give another path)", ErrLink,
		to))
}

// followLink is path or, if that is a link, what it leads to. A device, pipe or socket is an error: a new file would
// take the place of a device.
func followLink(path string) (string, error) {
	if _, err := os.Readlink(path); err == nil {
		if err := refuseDangling("create", path); err != nil {
			return "", err
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", err
		}
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return "", pathError("create", path, errNoFile)
	}
	return path, nil
}

var errNoFile = errors.New("it is a device, a pipe or a socket, which is never replaced (give another path)")

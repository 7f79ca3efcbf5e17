package vfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Linker is the capability, on an FS, to give a file a second name.
type Linker interface {
	// Link makes newPath, which must not exist, a name of the file at oldPath, durably.
	Link(oldPath, newPath string) error
}

func (osFS) Link(oldPath, newPath string) error {
	if err := os.Link(oldPath, newPath); err != nil {
		return pathError("link", newPath, errors.Unwrap(err))
	}
	return syncDir(filepath.Dir(filepath.Clean(newPath)))
}

// Share gives newPath the bytes of the file at path, which nobody changes: as a second name of the file where the file
// system has those and path is on it, else as a copy.
func Share(fsys FS, path, newPath string) error {
	if linker, ok := fsys.(Linker); ok {
		at, err := fsys.Resolve(path) // a second name of a link would be a link
		if err == nil && linker.Link(at, newPath) == nil {
			return nil
		}
	}
	from, size, err := OpenSized(fsys, path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := CreateStream(fsys, newPath, size)
	if err != nil {
		return err
	}
	defer to.Abort()
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, io.NewSectionReader(from, 0, size), make([]byte, 1<<20))
	if err == nil && n < size {
		err = pathError("read", path, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return err
	}
	return to.Commit()
}

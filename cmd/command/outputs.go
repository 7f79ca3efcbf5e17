package command

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// followLink is the path of an output, or, if that is a symbolic link, what it leads to: files that a job needs
// lie beside that too. A link to what does not exist is vfs.ErrLink. "." becomes absolute: when a folder has been
// replaced, "." is the old one. In a URL, the query is moved before the folders.
func (a *app) followLink(path string) (string, error) {
	real, err := a.fs.Resolve(path)
	if err != nil || vfs.IsURL(path) {
		return real, err
	}
	dir, err := a.fs.Resolve(filepath.Dir(filepath.Clean(path)))
	if base := filepath.Base(filepath.Clean(path)); err != nil || base != "." && base != ".." && filepath.Join(dir,
		base) == real {
		return path, err
	}
	return real, nil
}

// checkOutputs refuses to write over any of some files in a directory, or into a graph or store, or where none can be
// written.
func (a *app) checkOutputs(dir string, names []string) error {
	if dir == "" {
		return nil
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		for _, path := range []string{path, path + vfs.TempSuffix} { // which writing would replace
			if _, err := a.fs.Stat(path); err == nil {
				return fmt.Errorf("%s: %w (give another directory)", path, format.ErrExists)
			}
			if _, err := a.fs.Resolve(path); errors.Is(err, vfs.ErrLink) {
				return err
			}
		}
	}
	if err := a.refuseWithin(filepath.Join(dir, names[0])); err != nil {
		return err
	}
	return a.checkWritable(dir, names[0])
}

// writeOutputs writes files into a directory; "": it does not.
func (a *app) writeOutputs(dir string, names []string, files ...[]byte) error {
	if dir == "" {
		return nil
	}
	return folder.WriteFiles(a.fs, dir, names, files)
}

// checkWritable finds out whether a file can be written into a directory, which is made if
// need be, and leaves nothing there.
func (a *app) checkWritable(dir, name string) (err error) {
	if _, err := a.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		defer func() { _ = a.fs.Remove(dir) }()
	}
	if err := a.fs.MkdirAll(dir); err != nil {
		return err
	}
	f, err := a.fs.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return f.Abort()
}

// refuseWithin refuses an output somewhere below a graph or store.
func (a *app) refuseWithin(output string) error {
	dir, err := format.Enclosing(a.fs, output)
	if err == nil && dir != "" {
		return usagef("%s: lies in the graph or store %s, to which nothing may be added: give another directory",
			output, dir)
	}
	return err
}

// refuseInside refuses an output in a folder that is read, or in its place.
func (a *app) refuseInside(output, source string) error {
	out, err := a.fs.Resolve(output)
	if err != nil {
		return err
	}
	in, err := a.fs.Resolve(source)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(in, out); err == nil && filepath.IsLocal(rel) {
		return usagef("%s: lies in %s, which this command reads: give another directory", output, source)
	}
	return nil
}

package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// metaName is the file that is written last: an export without it is incomplete.
const metaName = "meta.json"

// ours matches the names of files that an export writes.
var ours = regexp.MustCompile(
	`^(meta\.json|(edge_[a-z0-9_]+|node_[a-z0-9_]+|splits|orig_id|.+_hop-[0-9]+)\.npy)(\.tmp)?$`)

// ourFolder matches the folders of an export of a typed graph.
var ourFolder = regexp.MustCompile(`^(` + nodesFolder + `|` + edgesFolder + `)(/[a-z0-9_]+)?$`)

// output is the directory that an export writes. All files are written into a folder beside it, which is locked, and
// then takes its name or, to replace an export, is exchanged with it (folder.Swap): so the directory is complete, or
// not there.
type output struct {
	fsys    vfs.FS
	dir     string
	force   bool      // a complete export may be replaced
	real    string    // dir with links resolved
	at      string    // the folder that is written: beside it, or itself
	inPlace bool      // at is dir, which was there and empty, perhaps as a mount point: it stays whatever happens
	lock    io.Closer // of at
	files   []string  // written so far
	bytes   int64
}

// claim makes and locks the folder beside the directory dir, and removes what a killed export has left. It refuses a
// directory that is not an export, or holds features that one of these parts refers to.
func claim(fsys vfs.FS, dir string, force bool, parts []*npyExport) (o *output, err error) {
	if err := folder.CheckName(dir); err != nil {
		return nil, err
	}
	if err := folder.Restore(fsys, dir, npy.LockName); err != nil {
		return nil, err
	}
	o = &output{fsys: fsys, dir: dir, force: force}
	if o.real, err = fsys.Resolve(dir); err != nil {
		return nil, err
	}
	o.at = o.real + folder.ReplacementSuffix
	names, err := o.replaceable(dir, force)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && len(names) > 0 && names[0] == metaName && vfs.IsURL(dir) {
		return nil, fmt.Errorf("%s: %w: what is complete in a bucket is not replaced (give another URL, or remove it "+
			"with the bucket's tools)", dir, format.ErrExists)
	}
	if o.inPlace = err == nil && (len(names) == 0 || names[0] != metaName); o.inPlace {
		o.at = o.real
	}
	for _, path := range []string{o.at, o.real + folder.ReplacedSuffix} {
		if _, err := o.replaceable(path, true); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	for _, e := range parts {
		if err := o.checkSource(e.dir); err != nil {
			return nil, err
		}
	}
	if err := fsys.MkdirAll(o.at); err != nil {
		return nil, err
	}
	if o.lock, err = fsys.Lock(filepath.Join(o.at, npy.LockName)); errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s: another process is exporting to it: %w", dir, err)
	} else if err != nil {
		if !o.inPlace {
			_ = fsys.Remove(o.at) // unless there is something in it
		}
		return nil, err
	}
	// Another export may have finished before we had the lock.
	if _, err := o.replaceable(dir, force); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, o.leave(err)
	}
	if err := errors.Join(o.removeFiles(o.at), o.removeExport(o.real+folder.ReplacedSuffix)); err != nil {
		return nil, errors.Join(err, o.lock.Close())
	}
	return o, nil
}

// removeFiles removes the files of an export but not the lock file, without which none must be there.
func (o *output) removeFiles(dir string) error {
	names, err := o.replaceable(dir, true)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := folder.RemoveFile(o.fsys, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return o.fsys.Sync(dir)
}

// removeExport removes the files of an export, if there is any, and their folder.
func (o *output) removeExport(dir string) error {
	err := o.removeFiles(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = folder.RemoveFile(o.fsys, filepath.Join(dir, npy.LockName))
	}
	if err == nil && !(o.inPlace && dir == o.real) {
		err = o.fsys.Remove(dir)
	}
	return err
}

// publish gives the new export its name, and removes the old one.
func (o *output) publish() error {
	_, err := o.replaceable(o.dir, o.force || o.inPlace) // the user may have put files there meanwhile
	marker := filepath.Join(o.real, npy.LockName)
	if o.inPlace {
		return errors.Join(err, folder.RemoveFile(o.fsys, marker))
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := o.fsys.Rename(o.at, o.real); err != nil {
			return err
		}
		o.at = o.real
		return folder.RemoveFile(o.fsys, marker)
	}
	if err != nil {
		return err
	}
	lock, err := o.fsys.Lock(marker) // marks what is left of the old one, if we are killed
	if err != nil {
		return err
	}
	old, err := folder.Swap(o.fsys, o.real)
	if err == nil {
		err = o.removeExport(old)
	}
	return errors.Join(err, folder.RemoveFile(o.fsys, marker), lock.Close())
}

// replaceable lists the files of a directory, meta.json first, if all of them may be removed: a killed export has left
// them (it has a lock file) or, with force, they are a complete export (meta.json says so). A user's own arrays, which
// may have the same names, have neither.
func (o *output) replaceable(dir string, force bool) (names []string, err error) {
	killed, err := folder.Ours(o.fsys, dir, npy.LockName)
	if err != nil {
		return nil, err
	}
	if names, err = o.list(dir, "", killed); err != nil {
		return nil, err
	}
	if at := slices.Index(names, metaName); at > 0 {
		names = slices.Insert(slices.Delete(names, at, at+1), 0, metaName) // removed first: the rest is incomplete
	}
	meta := len(names) > 0 && names[0] == metaName
	switch {
	case meta && !o.marked(dir) || !meta && !killed && len(names) > 0:
		return nil, fmt.Errorf("%s: %w, and no export has written it: give another directory", dir, format.ErrExists)
	case meta && !force:
		return nil, fmt.Errorf("%s: %w (--force replaces it)", dir, format.ErrExists)
	}
	return names, nil
}

// list lists what an export has written to the directory dir, from a folder in it on: what is in a folder, and then the
// folder. locked: its lock file may be there.
func (o *output) list(dir, at string, locked bool) (names []string, err error) {
	entries, err := o.fsys.ReadDir(filepath.Join(dir, at))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		switch name := filepath.Join(at, entry.Name()); {
		case name == npy.LockName && locked:
		case entry.IsDir() && ourFolder.MatchString(filepath.ToSlash(name)):
			inside, err := o.list(dir, name, locked)
			if err != nil {
				return nil, err
			}
			names = append(append(names, inside...), name)
		case entry.IsDir() || !ours.MatchString(entry.Name()):
			return nil, fmt.Errorf("%s: %w, and holds %s, which no export has written: give another directory", dir,
				format.ErrExists, name)
		default:
			names = append(names, name)
		}
	}
	return names, nil
}

func (o *output) checkSource(source *format.Dir) error {
	for _, file := range source.Manifest.Sources() {
		at, err := o.fsys.Resolve(file)
		if err != nil {
			return err
		}
		if strings.HasPrefix(at, o.real+string(filepath.Separator)) {
			return fmt.Errorf("%s: %w, and holds the features that %s refers to: give another directory", o.dir,
				format.ErrExists, source.Path())
		}
	}
	return nil
}

// exporter is the value of exported_by in the meta.json of an export.
const exporter = "hopfeed"

func (o *output) marked(dir string) bool {
	f, err := o.fsys.Open(filepath.Join(dir, metaName))
	if err != nil {
		return false
	}
	defer f.Close()
	start := []byte("{\n  \"exported_by\": \"" + exporter + "\"")
	found := make([]byte, len(start))
	n, _ := f.ReadAt(found, 0)
	return bytes.Equal(found[:n], start)
}

// leave ends the export: if err is nil, the export gets its name, else what was written is removed. It returns err, or
// an error of its own.
func (o *output) leave(err error) error {
	if err == nil {
		err = o.publish()
	}
	if err != nil {
		_ = o.removeExport(o.at) // an error of its own matters less than err
	}
	return errors.Join(err, o.lock.Close())
}

// makeFolder makes a folder of the export.
func (o *output) makeFolder(name string) error { return o.fsys.MkdirAll(filepath.Join(o.at, name)) }

// writeJSON writes a value to a file of the export.
func (o *output) writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return o.create(name, int64(len(text))+1, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// create makes a file of about this size, calls body to write it, and commits it.
func (o *output) create(name string, bytes int64, body func(w io.Writer) error) error {
	f, err := vfs.CreateStream(o.fsys, filepath.Join(o.at, name), bytes)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := body(f); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	info, err := o.fsys.Stat(filepath.Join(o.at, name))
	if err == nil {
		o.files, o.bytes = append(o.files, name), o.bytes+info.Size()
	}
	return err
}

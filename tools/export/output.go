package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// metaName is written last: what is without is not whole.
const metaName = "meta.json"

// ours are the names that an export writes.
var ours = regexp.MustCompile(`^(meta\.json|edge_index\.npy|edge_weight\.npy|node_feat\.npy|node_label\.npy|node_id\.npy|splits\.npy|orig_id\.npy|.+_hop-[0-9]+\.npy)(` + regexp.QuoteMeta(vfs.TempSuffix) + `)?$`)

// output is the directory that an export writes. The files in it are whole or not
// there, and the last of them is meta.json. A whole export is replaced by one that is
// made in a folder beside it (folder.Swap).
type output struct {
	fsys  vfs.FS
	dir   string
	force bool // a whole export may be replaced
	made  bool // dir was not there
	lock  io.Closer
	at    string    // where files are written: dir, or the folder beside it
	real  string    // dir without links, if it is replaced
	lock2 io.Closer // of the folder beside it
	files []string  // written so far
	bytes int64
}

// claim makes a directory, or empties it of what a killed export has left, and locks
// it against other exports. It is not where source has left its features.
func claim(fsys vfs.FS, dir string, force bool, source *format.Dir) (*output, error) {
	if err := folder.CheckName(dir); err != nil {
		return nil, err
	}
	if err := folder.Restore(fsys, dir, npy.LockName); err != nil {
		return nil, err
	}
	o := &output{fsys: fsys, dir: dir, at: dir, force: force}
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		o.made = true
	} else if err != nil {
		return nil, err
	} else if _, err := o.replaceable(dir); err != nil {
		return nil, err
	}
	if err := o.checkSource(source); err != nil {
		return nil, err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	var err error
	if o.lock, err = o.fsys.Lock(filepath.Join(o.dir, npy.LockName)); errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s: another process is exporting to it: %w", o.dir, err)
	} else if err != nil {
		if o.made {
			err = o.leave(err)
		}
		return nil, err // not knowing whose lock it is
	}
	// Another export may have finished before we had the lock.
	old, err := o.replaceable(dir)
	if err != nil {
		return nil, o.leave(err)
	}
	if len(old) > 0 && old[0] == metaName {
		if err := o.replace(); err != nil {
			return nil, o.leave(err)
		}
		return o, nil
	}
	for _, name := range old {
		if err := o.remove(name); err != nil {
			return nil, errors.Join(err, o.lock.Close()) // its file stays: what is left is not whole
		}
	}
	return o, nil
}

// replace lets files be written beside the whole export that is there, and removes
// what a killed export has left beside it.
func (o *output) replace() (err error) {
	if o.real, err = o.fsys.Resolve(o.dir); err != nil {
		return err
	}
	for _, suffix := range []string{folder.ReplacedSuffix, folder.ReplacementSuffix} {
		beside := o.real + suffix
		_, err := o.fsys.Stat(beside)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = o.replaceable(beside)
		}
		if err != nil {
			return err
		}
		lock, err := o.fsys.Lock(filepath.Join(beside, npy.LockName))
		if err != nil {
			return err
		}
		if err := errors.Join(o.removeExport(beside), lock.Close()); err != nil {
			return err
		}
	}
	beside := o.real + folder.ReplacementSuffix
	if err := o.fsys.MkdirAll(beside); err != nil {
		return err
	}
	o.at = beside
	o.lock2, err = o.fsys.Lock(filepath.Join(beside, npy.LockName))
	return err
}

// removeExport removes an export, and the folder that it is in, which is locked.
func (o *output) removeExport(dir string) error {
	names, err := o.replaceable(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := folder.RemoveFile(o.fsys, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := o.fsys.Sync(dir); err != nil { // what is without a lock file must be without anything else
		return err
	}
	if err := folder.RemoveFile(o.fsys, filepath.Join(dir, npy.LockName)); err != nil {
		return err
	}
	return o.fsys.Remove(dir)
}

// swap puts what was written in the place of the export before, which it removes.
func (o *output) swap() error {
	if _, err := o.replaceable(o.dir); err != nil { // a user's file may have come meanwhile
		return err
	}
	var err error
	if o.at, err = folder.Swap(o.fsys, o.real); err != nil {
		return err
	}
	return o.removeExport(o.at)
}

func (o *output) remove(name string) error { return o.fsys.Remove(filepath.Join(o.at, name)) }

// replaceable lists what is in a directory and may be removed, meta.json first: what a
// killed export has left or, with force, a whole one. Somebody's own arrays have
// the same names, but neither the lock nor the mark in meta.json.
func (o *output) replaceable(dir string) (names []string, err error) {
	entries, err := o.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	killed, err := folder.Ours(o.fsys, dir, npy.LockName)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == npy.LockName && killed:
		case entry.IsDir() || !ours.MatchString(name):
			return nil, fmt.Errorf("%s: %w, and holds %s, which no export has written: give another directory", dir, format.ErrExists, name)
		case name == metaName:
			names = slices.Insert(names, 0, name) // without it, the rest counts as left by a killed export
		default:
			names = append(names, name)
		}
	}
	meta := len(names) > 0 && names[0] == metaName
	switch {
	case meta && !o.marked(dir) || !meta && !killed && len(names) > 0:
		return nil, fmt.Errorf("%s: %w, and no export has written it: give another directory", dir, format.ErrExists)
	case meta && !o.force:
		return nil, fmt.Errorf("%s: %w (--force replaces it)", dir, format.ErrExists)
	}
	return names, nil
}

// checkSource refuses the directory where source has left its features.
func (o *output) checkSource(source *format.Dir) error {
	out, err := o.fsys.Resolve(o.dir)
	if err != nil {
		return err
	}
	for _, file := range source.Manifest.Sources() {
		at, err := o.fsys.Resolve(file)
		if err != nil {
			return err
		}
		if filepath.Dir(at) == out {
			return fmt.Errorf("%s: %w, and holds the features that %s refers to: give another directory", o.dir, format.ErrExists, source.Path())
		}
	}
	return nil
}

// exporter marks meta.json as that of an export.
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

// leave unlocks the output directory, which after an error loses what was written,
// and returns err, or else what went wrong here. Where a file cannot be removed,
// that of the lock stays with it.
func (o *output) leave(err error) error {
	if err == nil && o.lock2 != nil {
		if err = o.swap(); err == nil {
			o.at = o.dir
		}
	}
	if err == nil {
		err = o.remove(npy.LockName)
	}
	if err != nil {
		o.giveUp() // err is the one to tell
	}
	if o.lock != nil {
		err = errors.Join(err, o.lock.Close())
	}
	if o.lock2 != nil {
		err = errors.Join(err, o.lock2.Close())
	}
	return err
}

// giveUp removes what was written.
func (o *output) giveUp() {
	if o.real != "" { // the whole export stays, with the old files or the new
		if o.at == o.dir || o.removeExport(o.at) == nil {
			_ = o.fsys.Remove(filepath.Join(o.dir, npy.LockName))
		}
		return
	}
	var left error
	for _, name := range slices.Backward(o.files) {
		left = errors.Join(left, o.remove(name))
	}
	if left == nil {
		_ = o.remove(npy.LockName)
	}
	if o.made {
		_ = o.fsys.Remove(o.dir)
	}
}

// create writes one file by means of body, and commits it.
func (o *output) create(name string, body func(w vfs.PendingFile) error) error {
	f, err := o.fsys.Create(filepath.Join(o.at, name))
	if err != nil {
		return err
	}
	defer f.Abort()
	counted := &counter{PendingFile: f}
	if err := body(counted); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	o.files = append(o.files, name)
	o.bytes += counted.bytes
	return nil
}

type counter struct {
	vfs.PendingFile
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.PendingFile.Write(p)
	c.bytes += int64(n)
	return n, err
}

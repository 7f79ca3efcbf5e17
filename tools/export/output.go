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

// metaName is the file that is written last: an export without it is incomplete.
const metaName = "meta.json"

// ours matches the names of files that an export writes.
var ours = regexp.MustCompile(`^(meta\.json|(edge_(index|weight)|node_(feat|label|id)|splits|orig_id|.+_hop-[0-9]+)\.npy)(` +
	regexp.QuoteMeta(vfs.TempSuffix) + `)?$`)

// output is the directory that an export writes. Each file appears when it is complete, and
// meta.json last. To replace a complete export, the new one is written into a folder beside
// it, and then the two folders are exchanged (folder.Swap).
type output struct {
	fsys  vfs.FS
	dir   string
	force bool // a complete export may be replaced
	made  bool // dir did not exist before
	lock  io.Closer
	at    string    // the folder that files are written to: dir, or the one beside it
	real  string    // dir with links resolved, if it is to be replaced
	lock2 io.Closer // the lock of the folder beside dir
	files []string  // written so far
	bytes int64
}

// claim makes and locks the directory dir, and removes what a killed export has left in it.
// It refuses a directory that holds features that source refers to.
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
		return nil, err // the lock may be another export's, so it is left alone
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
			return nil, errors.Join(err, o.lock.Close()) // the lock file stays, to mark the rest as incomplete
		}
	}
	return o, nil
}

// replace makes the folder beside dir that the new export is written to. It removes what a
// killed export has left there.
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

// removeExport removes the files of an export and their folder, whose lock the caller holds.
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
	if err := o.fsys.Sync(dir); err != nil { // files of an export must never be there without the lock file
		return err
	}
	if err := folder.RemoveFile(o.fsys, filepath.Join(dir, npy.LockName)); err != nil {
		return err
	}
	return o.fsys.Remove(dir)
}

// swap exchanges the new export and the old one, and removes the old one.
func (o *output) swap() error {
	if _, err := o.replaceable(o.dir); err != nil { // the user may have put files there meanwhile
		return err
	}
	var err error
	if o.at, err = folder.Swap(o.fsys, o.real); err != nil {
		return err
	}
	return o.removeExport(o.at)
}

func (o *output) remove(name string) error { return o.fsys.Remove(filepath.Join(o.at, name)) }

// replaceable lists the files of a directory, meta.json first, if all of them may be removed:
// those that a killed export has left (it has a lock file) or, with force, a complete export
// (meta.json says so). A user's own arrays, which may have the same names, have neither.
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
			return nil, fmt.Errorf("%s: %w, and holds %s, which no export has written: give another directory", dir,
				format.ErrExists, name)
		case name == metaName:
			names = slices.Insert(names, 0, name) // removed first, so that the rest counts as incomplete
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

// checkSource refuses a directory that holds features that source refers to.
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

// leave ends the export: if err is not nil, it removes what was written; then it unlocks the
// directory. It returns err, or the first error of its own. The lock file stays if another
// file could not be removed.
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
		o.giveUp() // its own error matters less than err
	}
	if o.lock != nil {
		err = errors.Join(err, o.lock.Close())
	}
	if o.lock2 != nil {
		err = errors.Join(err, o.lock2.Close())
	}
	return err
}

// giveUp removes the files that were written.
func (o *output) giveUp() {
	if o.real != "" { // dir keeps a complete export, the old or the new one
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

// create makes a file of about so many bytes, calls body to write it, and commits it.
func (o *output) create(name string, bytes int64, body func(w io.Writer) error) error {
	f, err := vfs.CreateStream(o.fsys, filepath.Join(o.at, name), bytes)
	if err != nil {
		return err
	}
	defer f.Abort()
	counted := &counter{Writer: f}
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
	io.Writer
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes += int64(n)
	return n, err
}

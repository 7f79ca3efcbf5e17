package tune

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
)

// Files of a search, beside checkpoint.TrialsFile.
const (
	BalancedConfig = "config.yaml"
	FastestConfig  = "fastest.yaml"
	SmallestConfig = "smallest.yaml"
	AccurateConfig = "accurate.yaml"
	PageFile       = "tuning.html"
)

// Files are written when a search has ended.
var Files = []string{BalancedConfig, FastestConfig, SmallestConfig, AccurateConfig, PageFile}

// Folder is the folder of a search, locked against others.
type Folder struct {
	fs   vfs.FS
	path string
	made bool   // path did not exist before
	job  string // with the lock
	lock io.Closer
}

// OpenFolder locks the folder of a search, makes it if need be, and returns the trials that are logged there. It
// refuses a folder that holds anything else.
func OpenFolder(fsys vfs.FS, path string) (f *Folder, done []Trial, err error) {
	entries, err := fsys.ReadDir(path)
	f = &Folder{fs: fsys, path: path, made: errors.Is(err, fs.ErrNotExist), job: filepath.Join(path, ".job")}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), vfs.TempSuffix)
		if name != checkpoint.TrialsFile && !slices.Contains(Files, name) && name != filepath.Base(f.job) {
			return nil, nil, fmt.Errorf("%s: %w, and holds %s, which no search has written (give another --output)",
				path, format.ErrExists, e.Name())
		}
	}
	if f.lock, err = folder.Lock(fsys, f.job); errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("another search works in %s: %w", path, err)
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := checkpoint.ReadTrials(fsys, path)
	if err == nil {
		if done, err = Decode(text); err != nil {
			err = fmt.Errorf("%s: %w: %w", path, checkpoint.ErrInvalid, err)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, done, nil
}

// Save logs the trials.
func (f *Folder) Save(trials []Trial) error {
	text, err := Encode(trials)
	if err != nil {
		return err
	}
	return folder.WriteFiles(f.fs, f.path, []string{checkpoint.TrialsFile}, [][]byte{text})
}

// Publish writes Files, in that order. Without data nothing was chosen, and what was chosen before is removed.
func (f *Folder) Publish(data [][]byte) error {
	if data != nil {
		return folder.WriteFiles(f.fs, f.path, Files, data)
	}
	for _, name := range Files {
		if err := folder.RemoveFile(f.fs, filepath.Join(f.path, name)); err != nil {
			return err
		}
	}
	return nil
}

// Close unlocks the folder. It removes the folder if this search made it and nothing is in it.
func (f *Folder) Close() error { return checkpoint.Unlock(f.fs, f.job, f.made, f.lock) }

package main

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
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Files of a search, beside checkpoint.TrialsFile.
const (
	tunedConfig    = "config.yaml" // the balanced point
	fastestConfig  = "fastest.yaml"
	smallestConfig = "smallest.yaml"
	accurateConfig = "accurate.yaml"
	tunedPage      = "tuning.html"
)

// tunedFiles are written when a search has ended.
var tunedFiles = []string{tunedConfig, fastestConfig, smallestConfig, accurateConfig, tunedPage}

// tuning is the folder of a search, locked against others.
type tuning struct {
	app  *app
	path string
	made bool   // path did not exist before
	job  string // with the lock
	lock io.Closer
}

// openTuning locks the folder of a search, makes it if need be, and returns the trials that are logged there. They must
// be of the points that are searched now. A folder that holds anything else is refused.
func (a *app) openTuning(path string, points *tune.Points) (t *tuning, done []tune.Trial, err error) {
	if path == "" {
		return nil, nil, usagef("--output: want a folder")
	}
	if err := a.refuseWithin(filepath.Join(path, checkpoint.TrialsFile)); err != nil {
		return nil, nil, err
	}
	entries, err := a.fs.ReadDir(path)
	t = &tuning{app: a, path: path, made: errors.Is(err, fs.ErrNotExist), job: filepath.Join(path, ".job")}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), vfs.TempSuffix)
		if name != checkpoint.TrialsFile && !slices.Contains(tunedFiles, name) && name != filepath.Base(t.job) {
			return nil, nil, fmt.Errorf("%s: %w, and holds %s, which no search has written (give another --output)", path, format.ErrExists, e.Name())
		}
	}
	if t.lock, err = folder.Lock(a.fs, t.job); errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("another search works in %s: %w", path, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if done, err = t.load(points); err != nil {
		return nil, nil, errors.Join(err, t.close())
	}
	return t, done, nil
}

func (t *tuning) load(points *tune.Points) ([]tune.Trial, error) {
	text, err := checkpoint.ReadTrials(t.app.fs, t.path)
	if err != nil {
		return nil, err
	}
	done, err := tune.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", t.path, checkpoint.ErrInvalid, err)
	}
	for _, trial := range done {
		if !points.Has(trial.Settings) {
			return nil, fmt.Errorf("%s: %w, and holds trials of other settings (give another --output): trial %d: %s", t.path, format.ErrExists,
				trial.Number, strings.Join(differences(trial.Settings, points.Nearest(trial.Settings)), ", "))
		}
	}
	return done, nil
}

// save logs the trials.
func (t *tuning) save(trials []tune.Trial) error {
	text, err := tune.Encode(trials)
	if err != nil {
		return err
	}
	return t.app.writeFiles(t.path, []string{checkpoint.TrialsFile}, [][]byte{text})
}

// publish writes what is chosen, in the order of tunedFiles; nil: nothing is, and what was chosen before is removed.
func (t *tuning) publish(data [][]byte) error {
	if data != nil {
		return t.app.writeFiles(t.path, tunedFiles, data)
	}
	for _, name := range tunedFiles {
		if err := folder.RemoveFile(t.app.fs, filepath.Join(t.path, name)); err != nil {
			return err
		}
	}
	return nil
}

// close unlocks the folder, and removes it if this search made it and there is nothing in it.
func (t *tuning) close() error {
	err := folder.RemoveFile(t.app.fs, filepath.Join(t.job, folder.LockName))
	if err == nil {
		_ = t.app.fs.Remove(t.job) // which works only if there is nothing in it
		if t.made {
			_ = t.app.fs.Remove(t.path)
		}
	}
	return errors.Join(err, t.lock.Close())
}

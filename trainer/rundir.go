package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// ErrRunExists is returned when the directory of a run holds what a new training may not
// replace or stand beside.
var ErrRunExists = errors.New("already exists")

// RunDir is a directory that the checkpoint of a training is saved in, locked against other
// trainings. It holds
//
//	checkpoint.json         the checkpoint; it names the files below that belong to it
//	KIND-<digest>.SUFFIX    what is too large for it, under the first 16 digits of its SHA-256
//	.job/lock               while a training goes on, or where one was killed
//
// A file with a digest never changes, and checkpoint.json is replaced in one step by one that
// names others; only then those before are removed. So a crash at any time leaves
// the checkpoint before or the new one, complete, and perhaps files that neither names,
// which the next training removes.
type RunDir struct {
	fsys          vfs.FS
	path          string
	lock          io.Closer
	created       bool            // by this training, with nothing saved yet
	referenced    map[string]bool // files that checkpoint.json names
	written       map[string]bool // of these, by this training
	commitUnknown bool            // whether checkpoint.json is the one before or the new one
}

// jobFolder is there while a training goes on, as in graphs and stores: its lock file tells
// that the directory is Hopfeed's.
const jobFolder = ".job"

// contentFile is a file that is named by its digest.
var contentFile = regexp.MustCompile(`^((?:parameters|split)-[0-9a-f]{16}\.arrow|history-[0-9a-f]{16}\.jsonl)(\.tmp)?$`)

// CheckRun fails unless a training may be saved in a directory: there is none, it is
// empty, or all that it holds was left by trainings; a checkpoint only where it may be
// replaced.
func CheckRun(fsys vfs.FS, path string, replace bool) error {
	_, err := checkRun(fsys, path, replace)
	return err
}

// checkRun also tells which files the checkpoint that is there names.
func checkRun(fsys vfs.FS, path string, replace bool) (named map[string]bool, err error) {
	entries, err := fsys.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	foreign := func(name string) error {
		return fmt.Errorf("%s: %w, and holds %s, which no training has written and none may replace (give another directory)", path, ErrRunExists, name)
	}
	job := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == jobFolder })
	checkpoint := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == CheckpointFile })
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == jobFolder && e.IsDir():
			at := filepath.Join(path, name)
			ours, err := folder.Ours(fsys, at, folder.LockName)
			inside := []fs.DirEntry(nil)
			if err == nil {
				inside, err = fsys.ReadDir(at)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed since it was listed
				return nil, err
			}
			if err == nil && !ours {
				return nil, foreign(name)
			}
			for _, i := range inside {
				if i.Name() != folder.LockName {
					return nil, foreign(filepath.Join(name, i.Name()))
				}
			}
		case !e.IsDir() && (name == CheckpointFile || name == CheckpointFile+vfs.TempSuffix || contentFile.MatchString(name)) && (job || checkpoint):
		default:
			return nil, foreign(name)
		}
	}
	if !checkpoint {
		return nil, nil
	}
	text, err := readFile(fsys, filepath.Join(path, CheckpointFile), maxJSONBytes)
	if err != nil {
		return nil, err
	}
	var j checkpointJSON
	if json.Unmarshal(text, &j) != nil || j.Kind != checkpointKind {
		return nil, foreign("a damaged " + CheckpointFile)
	}
	if !replace {
		return nil, fmt.Errorf("%w: %s (--force replaces the model in it)", ErrRunExists, path)
	}
	named = map[string]bool{}
	for _, f := range j.files() {
		named[f.File] = true
	}
	return named, nil
}

// OpenRun locks a directory for the checkpoint of a training, and makes it if it does not exist. An
// older checkpoint stays there until the first Save. If another training has the lock, the error is
// vfs.ErrLocked.
func OpenRun(fsys vfs.FS, path string, replace bool) (r *RunDir, err error) {
	if err := CheckRun(fsys, path, replace); err != nil {
		return nil, err
	}
	r = &RunDir{fsys: fsys, path: path, written: map[string]bool{}}
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		r.created = true
	} else if err != nil {
		return nil, err
	}
	r.lock, err = folder.Lock(fsys, filepath.Join(path, jobFolder))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("another training is being saved in %s: %w", path, err)
	}
	if err != nil {
		if r.created {
			_ = removeEmpty(fsys, path)
		}
		return nil, err
	}
	// Another training may have ended before we had the lock.
	if r.referenced, err = checkRun(fsys, path, replace); err != nil {
		_ = r.release() // says no more than err
		return nil, err
	}
	return r, nil
}

// Path is the directory.
func (r *RunDir) Path() string { return r.path }

// Save replaces the checkpoint of the directory. If it fails, the directory holds the previous one or,
// if only the last sync failed, the new one.
func (r *RunDir) Save(c *Checkpoint) error {
	text, files, err := c.encode()
	if err != nil {
		return err
	}
	if err := r.removeUnreferenced(); err != nil { // what a Save that failed has left
		return err
	}
	named := map[string]bool{}
	for _, f := range files {
		named[f.name] = true
		if r.written[f.name] {
			continue
		}
		if err := writeFile(r.fsys, filepath.Join(r.path, f.name), f.data); err != nil {
			return err
		}
	}
	r.commitUnknown = true
	if err := writeFile(r.fsys, filepath.Join(r.path, CheckpointFile), text); err != nil {
		return err
	}
	r.commitUnknown, r.created, r.referenced, r.written = false, false, named, named
	return r.removeUnreferenced()
}

// removeUnreferenced removes the files of earlier checkpoints, which checkpoint.json does not name.
func (r *RunDir) removeUnreferenced() error {
	if r.commitUnknown {
		return nil
	}
	entries, err := r.fsys.ReadDir(r.path)
	if err != nil {
		return err
	}
	removed := false
	for _, e := range entries {
		name := e.Name()
		if contentFile.MatchString(name) && !r.referenced[name] || name == CheckpointFile+vfs.TempSuffix {
			if err := r.fsys.Remove(filepath.Join(r.path, name)); err != nil {
				return err
			}
			removed = true
		}
	}
	if removed { // before .job may go, which tells whose files they are
		return r.fsys.Sync(r.path)
	}
	return nil
}

// Close unlocks the directory. If OpenRun made it and nothing was saved, it is removed.
func (r *RunDir) Close() error { return errors.Join(r.removeUnreferenced(), r.release()) }

// release removes .job and, where nothing was saved, the directory, and then unlocks. Where it
// is not known what was saved, .job stays, by which the next training knows the directory.
func (r *RunDir) release() error {
	if r.commitUnknown {
		return r.lock.Close()
	}
	job := filepath.Join(r.path, jobFolder)
	err := folder.RemoveFile(r.fsys, filepath.Join(job, folder.LockName))
	if err == nil {
		err = removeEmpty(r.fsys, job)
	}
	if err == nil && r.created {
		err = removeEmpty(r.fsys, r.path)
	}
	return errors.Join(err, r.lock.Close())
}

// removeEmpty removes a directory, unless somebody has put something into it.
func removeEmpty(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

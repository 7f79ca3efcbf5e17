package trainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

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
//	metrics.jsonl           the epochs, of which the first belong to the checkpoint
//	config.yaml             the settings of the training, for people and programs
//	trials.jsonl            what was tried before the training, if anything: see SaveTrials
//	.job/lock               while a training goes on, or where one was killed
//
// A file with a digest never changes, and checkpoint.json is replaced in one step by one that
// names others; only then those before are removed. So a crash at any time leaves
// the checkpoint before or the new one, complete, and perhaps files that neither names,
// which the next training removes. metrics.jsonl only grows while a training goes on, and is written before
// checkpoint.json, which says how many bytes belong to it.
type RunDir struct {
	fsys          vfs.FS
	path          string
	lock          io.Closer
	created       bool              // by this training, with nothing saved yet
	committed     bool              // checkpoint.json is of this training
	referenced    map[string]bool   // files that checkpoint.json names
	written       map[string]bool   // of these, by this training
	plain         map[string][]byte // content of metrics.jsonl, config.yaml and trials.jsonl, as far as they are of this training
	heldTrials    []byte            // trials.jsonl, until the checkpoint of another training may go
	commitUnknown bool              // whether checkpoint.json is the one before or the new one
}

// jobFolder is there while a training goes on, as in graphs and stores: its lock file tells
// that the directory is Hopfeed's.
const jobFolder = ".job"

// contentFile is a file that is named by its digest.
var contentFile = regexp.MustCompile(`^(split-[0-9a-f]{16}\.arrow|(?:parameters|state)-[0-9a-f]{16}\.safetensors)(\.tmp)?$`)

// isPlainFile tells whether a file is one of those that have the same name in every run.
func isPlainFile(name string) bool {
	return slices.Contains([]string{MetricsFile, ConfigFile, TrialsFile}, strings.TrimSuffix(name, vfs.TempSuffix))
}

// CheckRun fails unless a training may be saved in a directory: there is none, it is
// empty, or all that it holds was left by trainings.
func CheckRun(fsys vfs.FS, path string) error {
	_, err := checkRun(fsys, path)
	return err
}

// checkRun also tells which files the checkpoint that is there names.
func checkRun(fsys vfs.FS, path string) (named map[string]bool, err error) {
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
		case !e.IsDir() && (name == CheckpointFile || name == CheckpointFile+vfs.TempSuffix || isPlainFile(name) || contentFile.MatchString(name)) && (job || checkpoint):
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
	named = map[string]bool{}
	for _, f := range j.files() {
		named[f.File] = true
	}
	return named, nil
}

// OpenRun locks a directory for the checkpoint of a training, and makes it if it does not exist. An
// older checkpoint stays there until the first Save. If another training has the lock, the error is
// vfs.ErrLocked.
func OpenRun(fsys vfs.FS, path string) (r *RunDir, err error) {
	if err := CheckRun(fsys, path); err != nil {
		return nil, err
	}
	r = &RunDir{fsys: fsys, path: path, written: map[string]bool{}, plain: map[string][]byte{}}
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
	if r.referenced, err = checkRun(fsys, path); err != nil {
		_ = r.release() // says no more than err
		return nil, err
	}
	return r, nil
}

// Load returns what was saved in the directory, for a training that goes on from there; nil if nothing
// was. Without it, the first Save starts over.
func (r *RunDir) Load() (*Checkpoint, error) {
	if r.referenced == nil {
		return nil, nil
	}
	c, err := LoadRun(r.fsys, r.path)
	if err == nil {
		r.committed, r.written = true, maps.Clone(r.referenced)
		for _, name := range []string{MetricsFile, ConfigFile, TrialsFile} {
			r.plain[name] = append([]byte(nil), r.plain[name]...)
		}
	}
	return c, err
}

// Replaces tells whether the next Save replaces the checkpoint of another training.
func (r *RunDir) Replaces() bool { return r.referenced != nil && !r.committed }

// TrialsFile has what was tried before a training, a JSON object a line.
const TrialsFile = "trials.jsonl"

// LoadTrials returns the content of trials.jsonl, nil if there is none. Without it, SaveTrials or the
// first Save starts over.
func (r *RunDir) LoadTrials() ([]byte, error) {
	data, err := ReadTrials(r.fsys, r.path)
	if data != nil {
		r.plain[TrialsFile] = data
	}
	return data, err
}

// ReadTrials returns the content of trials.jsonl in a directory, nil if there is none.
func ReadTrials(fsys vfs.FS, dir string) ([]byte, error) {
	data, err := readFile(fsys, filepath.Join(dir, TrialsFile), maxMetricsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// SaveTrials replaces trials.jsonl; where the directory holds another training, that is left to the first Save.
// Until a checkpoint is saved, .job stays with it after Close, by which the next training knows the directory.
func (r *RunDir) SaveTrials(data []byte) error {
	if r.Replaces() {
		r.heldTrials = data
		return nil
	}
	return r.savePlain(TrialsFile, data)
}

// savePlain writes a file of a fixed name, unless it has that content already.
func (r *RunDir) savePlain(name string, data []byte) error {
	if before, ok := r.plain[name]; ok && bytes.Equal(before, data) {
		return nil
	}
	if err := writeFile(r.fsys, filepath.Join(r.path, name), data); err != nil {
		return err
	}
	r.plain[name] = data
	return nil
}

// Path is the directory.
func (r *RunDir) Path() string { return r.path }

// Save replaces the checkpoint of the directory. If it fails, the directory holds the previous one or,
// if only the last sync failed, the new one.
func (r *RunDir) Save(c *Checkpoint) error {
	text, files, metrics, err := c.encode()
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
	if len(c.Config) > 0 {
		text, err := EncodeConfig(c.Config)
		if err == nil {
			err = r.savePlain(ConfigFile, text)
		}
		if err != nil {
			return err
		}
	}
	if r.heldTrials != nil {
		if err := r.savePlain(TrialsFile, r.heldTrials); err != nil {
			return err
		}
		r.heldTrials = nil
	}
	if err := r.savePlain(MetricsFile, metrics); err != nil {
		return err
	}
	r.commitUnknown = true
	if err := writeFile(r.fsys, filepath.Join(r.path, CheckpointFile), text); err != nil {
		return err
	}
	r.commitUnknown, r.created, r.committed, r.referenced, r.written = false, false, true, named, named
	return r.removeUnreferenced()
}

// removeUnreferenced removes what is left of earlier checkpoints: files that checkpoint.json does not name
// and, if it is of this training, that are not of this training.
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
		unused := contentFile.MatchString(name) && !r.referenced[name] || name == CheckpointFile+vfs.TempSuffix
		if isPlainFile(name) {
			_, ours := r.plain[name]
			unused = r.committed && !ours || r.referenced == nil && !(ours && name == TrialsFile) || strings.HasSuffix(name, vfs.TempSuffix)
		}
		if unused {
			delete(r.plain, name)
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
// is not known what was saved, or there are trials only, .job stays, by which the next training knows the
// directory.
func (r *RunDir) release() error {
	if _, trials := r.plain[TrialsFile]; r.commitUnknown || trials && r.referenced == nil {
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

// EncodeConfig returns settings as YAML, a line each, by name.
func EncodeConfig(settings map[string]string) ([]byte, error) {
	lines := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		lines.Content = append(lines.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &yaml.Node{Kind: yaml.ScalarNode, Value: settings[name]})
	}
	return yaml.Marshal(lines)
}

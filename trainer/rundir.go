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
//
// A training that replaces another one writes its files of fixed names beside those that are there, with
// the suffix .new, empty where it has none, then checkpoint.json, and then renames them, metrics.jsonl last. So
// these files are those of checkpoint.json, or wait beside them, if and only if metrics.jsonl.new begins with the
// metrics that checkpoint.json describes. Who reads the directory looks there too, and the next training
// finishes the renaming.
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
	staged        map[string][]byte // content of files that are to be renamed, by the name that they get
	commitUnknown bool              // whether checkpoint.json is the one before or the new one
}

// jobFolder is there while a training goes on, as in graphs and stores: its lock file tells
// that the directory is Hopfeed's.
const jobFolder = ".job"

// contentFile is a file that is named by its digest.
var contentFile = regexp.MustCompile(`^(split-[0-9a-f]{16}\.arrow|(?:parameters|state)-[0-9a-f]{16}\.safetensors)(\.tmp)?$`)

// plainFiles are those that have the same name in every run, in the order in which they are renamed.
var plainFiles = []string{ConfigFile, TrialsFile, MetricsFile}

// newSuffix ends the names of files that are to be renamed.
const newSuffix = ".new"

// isPlainFile tells whether a file is one of these, to be renamed or not written to its end.
func isPlainFile(name string) bool {
	return slices.Contains(plainFiles, strings.TrimSuffix(strings.TrimSuffix(name, vfs.TempSuffix), newSuffix))
}

// replaced tells whether files with newSuffix belong to checkpoint.json.
func replaced(fsys vfs.FS, dir string) (bool, error) {
	metrics, err := readFile(fsys, filepath.Join(dir, MetricsFile+newSuffix), maxMetricsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, err := readFile(fsys, filepath.Join(dir, CheckpointFile), maxJSONBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var j checkpointJSON
	if err != nil || json.Unmarshal(text, &j) != nil {
		return false, err // what is damaged is found by who reads it
	}
	return j.Metrics.check(metrics[:max(0, min(j.Metrics.Size, int64(len(metrics))))]) == nil, nil
}

// readPlain reads one of plainFiles as it belongs to checkpoint.json. If it has none, the error is
// fs.ErrNotExist.
func readPlain(fsys vfs.FS, dir, name string) ([]byte, error) {
	waits, err := replaced(fsys, dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	if waits {
		data, err := readFile(fsys, path+newSuffix, maxMetricsBytes)
		if !errors.Is(err, fs.ErrNotExist) { // renamed already
			if err == nil && len(data) == 0 {
				err = fs.ErrNotExist
			}
			return data, err
		}
	}
	return readFile(fsys, path, maxMetricsBytes)
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
	if r.referenced, err = checkRun(fsys, path); err == nil {
		err = r.finishReplacing()
	}
	if err != nil {
		_ = r.release() // says no more than err
		return nil, err
	}
	return r, nil
}

// finishReplacing renames what a training that was killed has left to be renamed.
func (r *RunDir) finishReplacing() error {
	waits, err := replaced(r.fsys, r.path)
	if err != nil || !waits {
		return err
	}
	r.staged = map[string][]byte{}
	for _, name := range plainFiles {
		data, err := readFile(r.fsys, filepath.Join(r.path, name+newSuffix), maxMetricsBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		r.staged[name] = data
	}
	return r.renameStaged()
}

// renameStaged gives staged files their names. What is empty, but metrics.jsonl, tells that there is none.
func (r *RunDir) renameStaged() error {
	for _, name := range plainFiles {
		data, staged := r.staged[name]
		if !staged {
			continue
		}
		path := filepath.Join(r.path, name)
		var err error
		if len(data) > 0 || name == MetricsFile {
			err = r.fsys.Rename(path+newSuffix, path)
			r.plain[name] = data
		} else {
			if err = r.fsys.Remove(path); err == nil { // durably, before the file goes that says so
				err = r.fsys.Sync(r.path)
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = r.fsys.Remove(path + newSuffix)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // which has happened, though its error said otherwise
			return err
		}
		delete(r.staged, name)
	}
	return nil
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
	data, err := readPlain(fsys, dir, TrialsFile)
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
	plain := map[string][]byte{MetricsFile: metrics}
	if len(c.Config) > 0 {
		if plain[ConfigFile], err = EncodeConfig(c.Config); err != nil {
			return err
		}
	}
	if r.heldTrials != nil {
		plain[TrialsFile] = r.heldTrials
	}
	var staged map[string][]byte
	if r.Replaces() {
		staged = map[string][]byte{}
	}
	for _, name := range plainFiles {
		data, given := plain[name]
		switch {
		case staged != nil:
			staged[name] = data
			err = writeFile(r.fsys, filepath.Join(r.path, name+newSuffix), data)
		case given:
			err = r.savePlain(name, data)
		}
		if err != nil {
			return err
		}
	}
	r.commitUnknown = true
	if err := writeFile(r.fsys, filepath.Join(r.path, CheckpointFile), text); err != nil {
		return err
	}
	r.heldTrials, r.staged = nil, staged
	r.commitUnknown, r.created, r.committed, r.referenced, r.written = false, false, true, named, named
	return r.removeUnreferenced()
}

// removeUnreferenced renames staged files, and removes what is left of earlier checkpoints: files that
// checkpoint.json does not name and, if it is of this training, that are not of this training.
func (r *RunDir) removeUnreferenced() error {
	if r.commitUnknown {
		return nil
	}
	if err := r.renameStaged(); err != nil {
		return err
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
			unused = r.committed && !ours || r.referenced == nil && !(ours && name == TrialsFile) || strings.HasSuffix(name, vfs.TempSuffix) || strings.HasSuffix(name, newSuffix)
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

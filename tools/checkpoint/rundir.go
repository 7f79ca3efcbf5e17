package checkpoint

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

// ErrExists is returned when a run folder holds what a new training may not replace or stand beside.
var ErrExists = errors.New("already exists")

// TrialsFile has the trials before a training, a JSON object a line.
const TrialsFile = "trials.jsonl"

// RunDir is a run folder that a training has locked, to save its checkpoints. It holds
//
//	checkpoint.json         the checkpoint; it names the files below that belong to it
//	KIND-<digest>.SUFFIX    large content, named by the first 16 digits of its SHA-256
//	metrics.jsonl           the epochs; the first lines belong to the checkpoint
//	config.yaml             the settings of the training, for people and programs
//	trials.jsonl            what was tried before the training, if anything: see SaveTrials
//	.job/lock               while a training goes on, or where one was killed
//
// A file with a digest never changes. A Save writes new files, then replaces checkpoint.json in one step, and only then
// removes the files that it no longer names. So a crash at any time leaves the checkpoint before or the new one,
// complete, and perhaps unnamed files, which the next training removes. metrics.jsonl only grows while a training goes
// on, and is written before checkpoint.json, which says how many of its bytes count.
//
// A training that replaces another one writes its files of fixed names with the suffix .new beside the old ones (empty
// where it has none), then checkpoint.json, and then renames them, metrics.jsonl last. So the .new files belong to
// checkpoint.json if and only if metrics.jsonl.new begins with the metrics that checkpoint.json describes. Readers look
// there too, and the next training finishes the renaming.
type RunDir struct {
	fsys          vfs.FS
	path          string
	lock          io.Closer
	created       bool              // by this training, with nothing saved yet
	committed     bool              // checkpoint.json is of this training
	referenced    map[string]bool   // files that checkpoint.json names; nil: there is none
	written       map[string]bool   // files with a digest that this training has written, or checked
	plain         map[string][]byte // content of metrics.jsonl, config.yaml and trials.jsonl of this training
	heldTrials    []byte            // trials.jsonl, until the checkpoint of another training may go
	staged        map[string][]byte // content of .new files, by the name that they get
	commitUnknown bool              // checkpoint.json may be the one before or the new one
}

// jobFolder is there while a training goes on, as in graphs and stores. Its lock file tells that the folder is ours.
const jobFolder = ".job"

// contentFile matches the name of a file that is named by its digest.
var contentFile = regexp.MustCompile(
	`^(split-[0-9a-f]{16}\.arrow|(?:parameters|state)-[0-9a-f]{16}\.safetensors)(\.tmp)?$`)

// plainFiles have the same names in every run folder; they are renamed in this order.
var plainFiles = []string{ConfigFile, TrialsFile, MetricsFile}

// newSuffix ends the names of files that are to be renamed.
const newSuffix = ".new"

// isPlainFile tells whether a file is one of plainFiles, perhaps to be renamed or not written to its end.
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
	text, err := readFile(fsys, filepath.Join(dir, File), maxJSONBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var m manifest
	if err != nil || json.Unmarshal(text, &m) != nil {
		return false, err // readers find the damage
	}
	size := max(0, min(m.Metrics.Size, int64(len(metrics))))
	return m.Metrics.check(metrics[:size]) == nil, nil
}

// readPlain reads the content of one of plainFiles that belongs to checkpoint.json; fs.ErrNotExist if there is none.
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

// CheckRun fails unless a training may be saved in a folder: it does not exist, is empty, or holds only what trainings
// have left.
func CheckRun(fsys vfs.FS, path string) error {
	_, err := checkRun(fsys, path)
	return err
}

// checkRun also returns the files that the checkpoint in the folder names; nil: there is no checkpoint.
func checkRun(fsys vfs.FS, path string) (named map[string]bool, err error) {
	entries, err := fsys.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	foreign := func(name string) error {
		return fmt.Errorf("%s: %w, and holds %s, which no training has written and none may replace "+
			"(give another directory)", path, ErrExists, name)
	}
	job := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == jobFolder })
	checkpoint := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == File })
	for _, e := range entries {
		name := e.Name()
		ours := name == File || name == File+vfs.TempSuffix || isPlainFile(name) || contentFile.MatchString(name)
		switch {
		case name == jobFolder && e.IsDir():
			isLock := func(e fs.DirEntry) bool { return e.Name() == folder.LockName }
			if found, err := folder.Foreign(fsys, filepath.Join(path, name), isLock); err != nil {
				return nil, err
			} else if found != "" {
				return nil, foreign(filepath.Join(name, found))
			}
		case e.IsDir() || !ours || !job && !checkpoint:
			return nil, foreign(name)
		}
	}
	if !checkpoint {
		return nil, nil
	}
	text, err := readFile(fsys, filepath.Join(path, File), maxJSONBytes)
	if err != nil {
		return nil, err
	}
	var m manifest
	if json.Unmarshal(text, &m) != nil || m.Kind != kind {
		return nil, foreign("a damaged " + File)
	}
	named = map[string]bool{}
	for _, f := range m.files() {
		named[f.File] = true
	}
	return named, nil
}

// OpenRun locks a folder for the checkpoint of a training, and makes it if it does not exist. An older checkpoint stays
// until the first Save. If another training has the lock, the error is vfs.ErrLocked.
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

// renameStaged gives staged files their names. An empty file says that there is none, but for metrics.jsonl.
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
			if err = r.fsys.Remove(path); err == nil { // durably, before the file is removed that says so
				err = r.fsys.Sync(r.path)
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = r.fsys.Remove(path + newSuffix)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // not there: an earlier rename succeeded despite its error
			return err
		}
		delete(r.staged, name)
	}
	return nil
}

// Load returns what was saved in the folder, for a training that goes on from there; nil: nothing was saved. Unless it
// is called, the first Save starts over.
func (r *RunDir) Load() (*Checkpoint, error) {
	if r.referenced == nil {
		return nil, nil
	}
	c, err := LoadRun(r.fsys, r.path)
	if err == nil {
		r.committed, r.written = true, maps.Clone(r.referenced)
		for _, name := range plainFiles {
			r.plain[name] = append([]byte(nil), r.plain[name]...)
		}
	}
	return c, err
}

// Replaces tells whether the next Save replaces the checkpoint of another training.
func (r *RunDir) Replaces() bool { return r.referenced != nil && !r.committed }

// LoadTrials returns the content of trials.jsonl, nil if there is none. Unless it is called, SaveTrials or the first
// Save starts over.
func (r *RunDir) LoadTrials() ([]byte, error) {
	data, err := ReadTrials(r.fsys, r.path)
	if data != nil {
		r.plain[TrialsFile] = data
	}
	return data, err
}

// ReadTrials returns the content of trials.jsonl in a folder, nil if there is none.
func ReadTrials(fsys vfs.FS, dir string) ([]byte, error) {
	data, err := readPlain(fsys, dir, TrialsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// SaveTrials replaces trials.jsonl; if the folder holds another training, the first Save does so. Until a checkpoint is
// saved, Close leaves .job beside it, so that the next training knows the folder.
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
	if err := vfs.WriteFile(r.fsys, filepath.Join(r.path, name), data); err != nil {
		return err
	}
	r.plain[name] = data
	return nil
}

// Path is the folder.
func (r *RunDir) Path() string { return r.path }

// Save replaces the checkpoint of the folder. If it fails, the folder holds the previous one or, if only the last sync
// failed, the new one.
func (r *RunDir) Save(c *Checkpoint) error {
	text, files, metrics, err := c.encode()
	if err != nil {
		return err
	}
	if err := r.removeUnreferenced(); err != nil { // left by a Save that failed
		return err
	}
	named := map[string]bool{}
	for _, f := range files {
		named[f.name] = true
		if r.written[f.name] {
			continue
		}
		if err := vfs.WriteFile(r.fsys, filepath.Join(r.path, f.name), f.data); err != nil {
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
			err = vfs.WriteFile(r.fsys, filepath.Join(r.path, name+newSuffix), data)
		case given:
			err = r.savePlain(name, data)
		}
		if err != nil {
			return err
		}
	}
	r.commitUnknown = true
	if err := vfs.WriteFile(r.fsys, filepath.Join(r.path, File), text); err != nil {
		return err
	}
	r.heldTrials, r.staged = nil, staged
	r.commitUnknown, r.created, r.committed, r.referenced, r.written = false, false, true, named, named
	return r.removeUnreferenced()
}

// removeUnreferenced renames staged files, and removes files of earlier checkpoints that checkpoint.json does
// not name and, if checkpoint.json is of this training, plain files of others.
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
		unused := contentFile.MatchString(name) && !r.referenced[name] || name == File+vfs.TempSuffix
		if isPlainFile(name) {
			_, ours := r.plain[name]
			unused = r.committed && !ours || r.referenced == nil && !(ours && name == TrialsFile) ||
				strings.HasSuffix(name, vfs.TempSuffix) || strings.HasSuffix(name, newSuffix)
		}
		if unused {
			delete(r.plain, name)
			if err := r.fsys.Remove(filepath.Join(r.path, name)); err != nil {
				return err
			}
			removed = true
		}
	}
	if removed { // before .job is removed, which tells that the files are ours
		return r.fsys.Sync(r.path)
	}
	return nil
}

// Close unlocks the folder. If OpenRun made it and nothing was saved, it is removed.
func (r *RunDir) Close() error { return errors.Join(r.removeUnreferenced(), r.release()) }

// release removes .job and, if nothing was saved, the folder, and then unlocks. If it is unknown what was saved, or
// there are trials only, .job stays, so that the next training knows the folder.
func (r *RunDir) release() error {
	if _, trials := r.plain[TrialsFile]; r.commitUnknown || trials && r.referenced == nil {
		return r.lock.Close()
	}
	return Unlock(r.fsys, filepath.Join(r.path, jobFolder), r.created, r.lock)
}

// Unlock removes the folder job with its lock file and, if this program made it, the folder around it, and then
// unlocks. A folder that somebody has put something into stays.
func Unlock(fsys vfs.FS, job string, made bool, lock io.Closer) error {
	err := folder.RemoveFile(fsys, filepath.Join(job, folder.LockName))
	if err == nil {
		err = removeEmpty(fsys, job)
	}
	if err == nil && made {
		err = removeEmpty(fsys, filepath.Dir(job))
	}
	return errors.Join(err, lock.Close())
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
		for _, text := range []string{name, settings[name]} {
			lines.Content = append(lines.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: text})
		}
	}
	return yaml.Marshal(lines)
}

package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/jsontext"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Names in jobFolder.
const (
	lockName    = folder.LockName
	scratchName = "scratch"
	tasksName   = "tasks"
	jobName     = "job.json"
	tableSuffix = ".table"
)

// ScratchFolder is where, in the directory, Scratch makes its folder.
const ScratchFolder = jobFolder + "/" + scratchName

// OtherJobError is returned when an interrupted job has left results in a directory, and another job is started
// there. It is ErrExists.
type OtherJobError struct {
	Dir  string
	Have string // CreateOptions.Job of the interrupted job
	Want string // CreateOptions.Job of the job that was started
}

func (e *OtherJobError) Error() string {
	return fmt.Sprintf("%s: %v: a job with other options has begun to write it (run that command again to finish "+
		"it, or use --force to start anew)", e.Dir, ErrExists)
}

// Is makes errors.Is(err, ErrExists) true.
func (e *OtherJobError) Is(target error) bool { return target == ErrExists }

// jobState is job.json, which identifies the job of a directory. It is made durable after the records of earlier jobs
// are removed, and before the job writes anything. Once the manifest has another checksum than Base, the job is
// published, and job.json is ignored.
type jobState struct {
	Job  string `json:"job"`
	Base string `json:"base,omitempty"` // checksum of the manifest that the job extends or replaces
	// Replaces: Base is replaced by the version written beside the directory.
	Replaces bool   `json:"replaces,omitempty"`
	Layout   Layout `json:"layout"`
}

// tableRecord says that a table is finished, all of its files durable.
type tableRecord struct {
	Folder string        `json:"folder"`
	Files  []writtenFile `json:"files"`
}

func recordName(folder string) string { return strings.ReplaceAll(folder, "/", "~") + tableSuffix }

// recordedFolder is the inverse of recordName.
func recordedFolder(name string) (folder string, ok bool) {
	name, ok = strings.CutSuffix(name, tableSuffix)
	folder = strings.ReplaceAll(name, "~", "/")
	return folder, ok && isTableFolder(folder)
}

// WriteRecord writes a JSON file that ends with a line with its checksum, and makes it durable. Jobs keep their state
// in such files.
func WriteRecord(fsys vfs.FS, path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return vfs.WriteFile(fsys, path, fmt.Appendf(b, "\n%s\n", hex32(kernel.CRC32C(0, b))))
}

// ReadRecord is the inverse of WriteRecord.
func ReadRecord(fsys vfs.FS, path string, v any) error {
	end := 0
	b, err := readAgain(fsys, path, maxIndexBytes, func(b []byte) error {
		end = max(0, len(b)-len("\n00000000\n"))
		if want := fmt.Sprintf("\n%s\n", hex32(kernel.CRC32C(0, b[:end]))); string(b[end:]) != want {
			return &CorruptError{path, -1, "it does not end with its checksum"}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := jsontext.Decode(b[:end], v); err != nil {
		return &CorruptError{path, -1, err.Error()}
	}
	return nil
}

// readJob reads job.json; without one, state is nil.
func readJob(fsys vfs.FS, dir string) (state *jobState, err error) {
	state = new(jobState)
	err = ReadRecord(fsys, filepath.Join(dir, jobFolder, jobName), state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var damage *CorruptError
	if errors.As(err, &damage) {
		damage.Reason += " (remove the folder " + jobFolder +
			" and run the command again; what the interrupted job has computed is computed again)"
	}
	return state, err
}

// isJobFile tells whether .job may have a file or folder of this name.
func isJobFile(e fs.DirEntry) bool {
	name := vfs.WithoutTemp(e.Name())
	_, isRecord := recordedFolder(name)
	switch {
	case e.IsDir():
		return e.Name() == scratchName || e.Name() == tasksName
	case e.Name() == lockName:
		return true
	}
	return e.Type().IsRegular() && (name == jobName || name == indexName || isRecord)
}

// foreignInJob is the first path in .job, or .job itself, that Hopfeed has not made; "" if there is none.
func foreignInJob(fsys vfs.FS, dir string) (string, error) {
	name, err := folder.Foreign(fsys, filepath.Join(dir, jobFolder), isJobFile)
	if name == "" {
		return "", err
	}
	return path.Join(jobFolder, name), nil
}

// clearJob removes the files of earlier jobs from .job, scratch files included, but not the lock, nor files that
// Hopfeed has not made. Removals need not survive a crash, so it syncs the removal of the records before it removes
// job.json.
func clearJob(fsys vfs.FS, dir string) error {
	job := filepath.Join(dir, jobFolder)
	entries, err := fsys.ReadDir(job)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := filepath.Join(job, e.Name())
		switch {
		case !isJobFile(e) || e.Name() == lockName || e.Name() == jobName:
		case e.IsDir():
			err = folder.Remove(fsys, at)
		default:
			err = folder.RemoveFile(fsys, at)
		}
		if err != nil {
			return err
		}
	}
	if err := fsys.Sync(job); err != nil {
		return err
	}
	if err := folder.RemoveFile(fsys, filepath.Join(job, jobName)); err != nil {
		return err
	}
	return fsys.Sync(job)
}

// removeJob removes .job, the lock file last. If a user has put a file there, it stays, the folder too, and removeJob
// fails.
func removeJob(fsys vfs.FS, dir string) error {
	if err := clearJob(fsys, dir); err != nil {
		return err
	}
	if foreign, err := foreignInJob(fsys, dir); err != nil {
		return err
	} else if foreign != "" {
		return fmt.Errorf("%s: %w", filepath.Join(dir, foreign), folder.ErrForeign)
	}
	job := filepath.Join(dir, jobFolder)
	if err := folder.RemoveFile(fsys, filepath.Join(job, lockName)); err != nil {
		return err
	}
	return fsys.Remove(job)
}

// resume goes on with the interrupted job of state if it is this one. Else it removes what that job has left, and
// starts this one.
func (w *Writer) resume(state *jobState) error {
	current := jobState{Job: w.job, Layout: w.layout}
	if w.base != nil {
		current.Base = w.base.CRC32C
	}
	if w.replacedCRC != "" {
		current.Base, current.Replaces = w.replacedCRC, true
	}
	same := w.job != "" && state != nil && reflect.DeepEqual(*state, current)
	if same {
		if err := w.reuseFinishedTables(); err != nil {
			return err
		}
	} else if err := clearJob(w.fsys, w.dir); err != nil {
		return err
	}
	if err := w.removeFiles(w.files); err != nil {
		return err
	}
	if same || w.job == "" && w.replacedCRC == "" {
		return nil
	}
	return WriteRecord(w.fsys, w.jobPath(jobName), current)
}

// reuseFinishedTables counts each recorded table as finished if its files are there with their sizes. Other tables
// are written again.
func (w *Writer) reuseFinishedTables() error {
	entries, err := w.fsys.ReadDir(filepath.Join(w.dir, jobFolder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := recordedFolder(e.Name()); !ok {
			continue
		}
		var r tableRecord
		err := ReadRecord(w.fsys, w.jobPath(e.Name()), &r)
		for i := 0; err == nil && i < len(r.Files); i++ {
			err = checkSize(w.fsys, filepath.Join(w.outputDir, filepath.FromSlash(r.Files[i].Path)), r.Files[i].Size)
		}
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		w.files = append(w.files, r.Files...)
		w.finished[r.Folder] = true
	}
	return nil
}

// finish counts a table as finished, whose files are durable. If the job can resume, it records that first.
func (w *Writer) finish(folder string, files []writtenFile) error {
	if w.job != "" {
		if err := WriteRecord(w.fsys, w.jobPath(recordName(folder)), tableRecord{folder, files}); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, files...)
	w.finished[folder] = true
	return nil
}

// isFinished tells whether a table is complete, written now or by an earlier run of the job.
func (w *Writer) isFinished(folder string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished[folder]
}

// Finished tells whether a matrix is complete: written by this run or an earlier one of the job, or in the store that
// the job extends.
func (w *Writer) Finished(id MatrixID) bool { return w.isFinished(MatrixFolder(id)) }

// OpenFinished opens a matrix that this job has finished, before Publish, so that the job can read it. The caller
// closes it.
func (w *Writer) OpenFinished(id MatrixID) (*Matrix, error) {
	layout := w.layout.Of(id)
	t := matrixTable(MatrixFolder(id), layout)
	d := &Dir{fsys: w.fsys, path: w.outputDir, layout: w.layout}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.finished[t.folder] {
		return nil, fmt.Errorf("%s: %s is not finished", w.dir, id)
	}
	slices.SortFunc(w.files, comparePaths)
	var extents [][]arrowfile.Extent
	for _, f := range w.files {
		d.Manifest.Files = append(d.Manifest.Files, f.FileEntry)
		extents = append(extents, f.Extents)
	}
	if err := t.findParts(&d.Manifest, extents); err != nil {
		return nil, &CorruptError{w.jobPath(recordName(t.folder)), -1, err.Error()}
	}
	return &Matrix{ID: id, Layout: layout, dir: d, table: &t}, nil
}

func (w *Writer) jobPath(name string) string { return filepath.Join(w.dir, jobFolder, name) }

// Scratch makes a folder for temporary files of the job, and returns its path. Publish and Abort remove it; Suspend
// leaves it.
func (w *Writer) Scratch() (string, error) {
	folder := w.jobPath(scratchName)
	return folder, w.fsys.MkdirAll(folder)
}

// Suspend ends the writer and keeps what it has written, so that the same job can go on later. After Publish or Abort
// it does nothing. No other call may be running.
func (w *Writer) Suspend() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	return errors.Join(w.stopWriting(), w.unlock())
}

// Job says what the job of a directory has done so far.
type Job struct {
	Published bool // a complete version is there for readers
	Running   bool // a live process is at work
	// Unfinished: a job has begun, and has not been published. Started again, it goes on, or if Text is empty starts
	// over.
	Unfinished bool
	Extends    bool     // the unfinished job adds to the complete version
	Text       string   // CreateOptions.Job
	Finished   []string // folders of complete tables, such as features/sym/hop-1
	Bytes      int64    // of the files that the job has written, complete or not
}

// Has tells whether a matrix is complete.
func (j *Job) Has(id MatrixID) bool { return slices.Contains(j.Finished, MatrixFolder(id)) }

// JobStatus says what the job of a directory has done so far. Any process that can read the directory may call it; it
// changes nothing.
func JobStatus(fsys vfs.FS, dir string) (*Job, error) {
	real, err := fsys.Resolve(dir)
	if err != nil {
		return nil, err
	}
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if state, err := vfs.StateOfLock(fsys, filepath.Join(real+folder.ReplacedSuffix, jobFolder,
			lockName)); err == nil && state == vfs.Marked {
			dir = real + folder.ReplacedSuffix // until the next job gives it its name back
		}
	}
	running, err := fsys.Locked(filepath.Join(dir, jobFolder, lockName))
	if err != nil {
		return nil, err
	}
	state, err := readJob(fsys, dir)
	if err != nil {
		return nil, err
	}
	entries, jobErr := fsys.ReadDir(filepath.Join(dir, jobFolder))
	if jobErr != nil && !errors.Is(jobErr, fs.ErrNotExist) {
		return nil, jobErr
	}
	// Last, as a job that is published meanwhile has a manifest before .job goes.
	m, err := readManifest(fsys, dir)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, err
	}
	j := &Job{Published: m != nil, Running: running, Unfinished: jobErr == nil && state.unfinished(m)}
	if !j.Unfinished {
		return j, nil
	}
	if state != nil {
		j.Text = state.Job
	}
	for _, e := range entries {
		if folder, ok := recordedFolder(e.Name()); ok {
			j.Finished = append(j.Finished, folder)
		}
	}
	replaces := state != nil && state.Replaces
	j.Extends = m != nil && !replaces
	if replaces {
		dir = real + folder.ReplacementSuffix
	}
	found, err := listContents(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil // nothing is written yet
	}
	if err != nil {
		return nil, err
	}
	for _, path := range found.files {
		if j.Extends {
			if _, listed := m.findFile(path); listed || path == manifestName || path == indexName {
				continue
			}
		}
		// A file may get its final name, or go, between the two looks.
		if info, err := fsys.Stat(filepath.Join(dir, filepath.FromSlash(path))); err == nil {
			j.Bytes += info.Size()
		}
	}
	return j, nil
}

// unfinished tells whether the job of a .job folder has yet to be published. m is the manifest of the directory, or
// nil. (A published job may have left its .job folder.)
func (s *jobState) unfinished(m *Manifest) bool {
	switch {
	case m == nil:
		return true
	case s == nil:
		return false
	}
	return s.Base == m.CRC32C
}

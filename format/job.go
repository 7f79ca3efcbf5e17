package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Names in jobFolder.
const (
	lockName    = "lock"
	scratchName = "scratch"
	jobName     = "job.json"
	tableSuffix = ".table"
)

// ScratchFolder is where, in the directory, Scratch makes its folder.
const ScratchFolder = jobFolder + "/" + scratchName

// OtherJobError is returned when a directory holds what an interrupted job has
// finished, and the job that is started is another. It is ErrExists.
type OtherJobError struct {
	Dir  string
	Have string // CreateOptions.Job of the interrupted job
	Want string // that of the one started
}

func (e *OtherJobError) Error() string {
	return fmt.Sprintf("%s: %v: what another job has begun (finish that job, or --force starts anew)", e.Dir, ErrExists)
}

// Is makes errors.Is(err, ErrExists) true.
func (e *OtherJobError) Is(target error) bool { return target == ErrExists }

// jobState is job.json: what the job of a directory is. It is durable before
// anything that the job writes, and what jobs before have recorded is gone by then.
type jobState struct {
	Job    string `json:"job"`
	Base   string `json:"base,omitempty"` // checksum of the manifest that the job extends
	Layout Layout `json:"layout"`
}

// tableRecord says that a table is finished, all of its files durable.
type tableRecord struct {
	Folder string         `json:"folder"`
	Files  []recordedFile `json:"files"`
}

type recordedFile struct {
	FileEntry
	Extents []arrowfile.Extent `json:"extents"`
}

func recordName(folder string) string { return strings.ReplaceAll(folder, "/", "~") + tableSuffix }

// recordedFolder is the inverse of recordName.
func recordedFolder(name string) (folder string, ok bool) {
	name, ok = strings.CutSuffix(name, tableSuffix)
	folder = strings.ReplaceAll(name, "~", "/")
	return folder, ok && isTableFolder(folder)
}

// writeSealed commits a JSON file that ends with its checksum.
func writeSealed(fsys vfs.FS, path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return writeFile(fsys, path, fmt.Appendf(b, "\n%s\n", hex32(crc32.Checksum(b, castagnoli))))
}

// readSealed is its inverse.
func readSealed(fsys vfs.FS, path string, v any) error {
	b, err := readWhole(fsys, path, maxIndexBytes)
	if err != nil {
		return err
	}
	end := max(0, len(b)-len("\n00000000\n"))
	if want := fmt.Sprintf("\n%s\n", hex32(crc32.Checksum(b[:end], castagnoli))); string(b[end:]) != want {
		return &CorruptError{path, -1, "it does not end with its checksum"}
	}
	if err := json.Unmarshal(b[:end], v); err != nil {
		return &CorruptError{path, -1, err.Error()}
	}
	return nil
}

// readJob reads job.json; without one, state is nil.
func readJob(fsys vfs.FS, dir string) (state *jobState, err error) {
	state = new(jobState)
	err = readSealed(fsys, filepath.Join(dir, jobFolder, jobName), state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var damage *CorruptError
	if errors.As(err, &damage) {
		damage.Reason += " (remove the folder " + jobFolder + ", and what the interrupted job has done is lost)"
	}
	return state, err
}

// clearJob removes what jobs before have left in .job, scratch files included,
// but the lock. Removals need not survive a crash, so job.json is renamed after
// those of the records, which makes them durable.
func clearJob(fsys vfs.FS, dir string) error {
	job := filepath.Join(dir, jobFolder)
	entries, err := fsys.ReadDir(job)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName && e.Name() != jobName {
			if err := fsys.RemoveAll(filepath.Join(job, e.Name())); err != nil {
				return err
			}
		}
	}
	state := filepath.Join(job, jobName)
	if err := fsys.Rename(state, state+vfs.TempSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return fsys.Remove(state + vfs.TempSuffix)
}

// resume goes on with the job that state tells of, if it is this one, or else
// starts it: then what an interrupted job has left is gone.
func (w *Writer) resume(state *jobState) error {
	mine := jobState{Job: w.job, Layout: w.layout}
	if w.base != nil {
		mine.Base = w.base.CRC32C
	}
	same := w.job != "" && state != nil && reflect.DeepEqual(*state, mine)
	if same {
		if err := w.restore(); err != nil {
			return err
		}
	} else if err := clearJob(w.fsys, w.dir); err != nil {
		return err
	}
	if err := w.wipe(w.files); err != nil {
		return err
	}
	if same || w.job == "" {
		return nil
	}
	return writeSealed(w.fsys, w.jobPath(jobName), mine)
}

// restore takes over the finished tables that are recorded, and whose files are
// there. Others are written again.
func (w *Writer) restore() error {
	entries, err := w.fsys.ReadDir(filepath.Join(w.dir, jobFolder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := recordedFolder(e.Name()); !ok {
			continue
		}
		var r tableRecord
		err := readSealed(w.fsys, w.jobPath(e.Name()), &r)
		var files []writtenFile
		for i := 0; err == nil && i < len(r.Files); i++ {
			f := r.Files[i]
			files = append(files, writtenFile{f.FileEntry, f.Extents})
			err = checkSize(w.fsys, filepath.Join(w.dir, filepath.FromSlash(f.Path)), f.Size)
		}
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		w.files = append(w.files, files...)
		w.finished[r.Folder] = true
	}
	return nil
}

// finish takes a table over whose files are complete. If the job can go on, that
// is recorded first.
func (w *Writer) finish(folder string, files []writtenFile) error {
	if w.job != "" {
		r := tableRecord{Folder: folder}
		for _, f := range files {
			r.Files = append(r.Files, recordedFile{f.FileEntry, f.extents})
		}
		if err := writeSealed(w.fsys, w.jobPath(recordName(folder)), r); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, files...)
	w.finished[folder] = true
	return nil
}

// isFinished tells whether a table is complete, written now or by an earlier run
// of the job.
func (w *Writer) isFinished(folder string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished[folder]
}

// Finished tells whether a matrix is complete, written now or by an earlier run
// of the job, or part of the store that the job extends.
func (w *Writer) Finished(id MatrixID) bool { return w.isFinished(matrixFolder(id)) }

func (w *Writer) jobPath(name string) string { return filepath.Join(w.dir, jobFolder, name) }

// Scratch makes a folder for files of the caller's own, which nobody reads but
// the job: it stays as long as the job can go on, and Publish and Abort remove it.
func (w *Writer) Scratch() (string, error) {
	folder := w.jobPath(scratchName)
	return folder, w.fsys.MkdirAll(folder)
}

// Suspend ends the writer and leaves what it has written, for the same job to go
// on. After Publish and Abort it does nothing. No other call may be running.
func (w *Writer) Suspend() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	return errors.Join(w.end(), w.lock.Close())
}

// Job is how far the job of a directory is.
type Job struct {
	Published bool // a complete version is there for readers
	Running   bool // a live process is at work
	// Unfinished tells whether a job has begun and not been published: it goes on
	// when it is started again, or over where Text is empty.
	Unfinished bool
	Text       string   // CreateOptions.Job
	Finished   []string // folders of complete tables, such as features/sym/hop-1
	Bytes      int64    // of the files that the job has written, complete or not
}

// Has tells whether a matrix is complete.
func (j *Job) Has(id MatrixID) bool { return slices.Contains(j.Finished, matrixFolder(id)) }

// JobStatus tells how far the job of a directory is, to any process that can
// read it, and leaves the job alone.
func JobStatus(fsys vfs.FS, dir string) (*Job, error) {
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
	found, err := scan(fsys, dir)
	if err != nil {
		return nil, err
	}
	for _, path := range found.files {
		if m != nil {
			if _, listed := m.find(path); listed || path == manifestName || path == indexName {
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

// unfinished tells whether the job of a .job folder has yet to be published, in a
// directory that has this manifest, or none: a finished one may have left its folder.
func (s *jobState) unfinished(m *Manifest) bool {
	switch {
	case m == nil:
		return true
	case s == nil:
		return false
	}
	return s.Base == m.CRC32C
}

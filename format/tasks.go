package format

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Tasks writes the matrices of a store part by part, by any number of processes on any machines. They hold no lock, and
// two may write the same part at a time. A file appears whole, under its name, and has the same bytes whoever writes
// it. The folder .job/tasks has a record for each part that is written, and files that processes have for each other;
// Writer.Publish removes it.
type Tasks struct {
	Job    string // CreateOptions.Job
	Base   string // checksum of the manifest of the store that is extended, or ""
	Layout Layout // of the store

	w *Writer
}

// TasksFolder is where, in the directory, files of tasks are.
const TasksFolder = jobFolder + "/" + tasksName

// HasTasks tells whether tasks are writing a store, or have been.
func HasTasks(fsys vfs.FS, dir string) (bool, error) {
	_, err := fsys.Stat(filepath.Join(dir, filepath.FromSlash(TasksFolder)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MakeTasksFolder makes TasksFolder, where it is not there, and returns its path. base is as in Tasks.
func MakeTasksFolder(fsys vfs.FS, dir, base string) (string, error) {
	if err := folder.CheckName(dir); err != nil {
		return "", err
	}
	if base == "" {
		if err := mayReplace(fsys, dir, KindStore, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	lock := filepath.Join(dir, jobFolder, lockName)
	state, err := vfs.StateOfLock(fsys, lock)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if state != vfs.Marked {
		made, err := folder.Lock(fsys, filepath.Join(dir, jobFolder))
		if err == nil {
			err = made.Close()
		}
		if err != nil && !errors.Is(err, vfs.ErrLocked) { // else another process makes it
			return "", err
		}
	}
	tasks := filepath.Join(dir, filepath.FromSlash(TasksFolder))
	return tasks, fsys.MkdirAll(tasks)
}

// BeginTasks records the job whose matrices are written by tasks. The folder .job is there. It may be called again,
// by several processes at a time, with the same t.
func BeginTasks(fsys vfs.FS, dir string, t Tasks) error {
	if _, err := t.Layout.check(); err != nil {
		return err
	}
	state, err := readJob(fsys, dir)
	if err == nil && state == nil {
		return WriteRecord(vfs.Concurrent(fsys), filepath.Join(dir, jobFolder, jobName),
			jobState{Job: t.Job, Base: t.Base, Layout: t.Layout})
	}
	if err == nil && (state.Job != t.Job || state.Base != t.Base || state.Replaces) {
		return &OtherJobError{dir, state.Job, t.Job}
	}
	return err
}

// OpenTasks opens a job that BeginTasks has recorded. Without one the error is fs.ErrNotExist.
func OpenTasks(fsys vfs.FS, dir string) (*Tasks, error) {
	state, err := readJob(fsys, dir)
	if err != nil {
		return nil, err
	}
	if state == nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, jobFolder, jobName), fs.ErrNotExist)
	}
	kind, err := state.Layout.check()
	if err == nil && kind != KindStore {
		err = fmt.Errorf("it is of a %s", kind)
	}
	if err != nil {
		return nil, &CorruptError{filepath.Join(dir, jobFolder, jobName), -1, err.Error()}
	}
	w := newWriter(vfs.Concurrent(fsys), dir, KindStore, state.Layout, state.Job)
	return &Tasks{state.Job, state.Base, state.Layout, w}, nil
}

// Parts is the number of parts of a matrix.
func (l Layout) Parts() int { return countParts(l.chunks(), chunksPerPart(l.chunkBytes())) }

// partChunks are the chunks of part k.
func (l Layout) partChunks(k int) (first, end int) {
	step := chunksPerPart(l.chunkBytes())
	return min(k*step, l.chunks()), min((k+1)*step, l.chunks())
}

// PartRows are the rows [first, end) of part k of a matrix.
func (l Layout) PartRows(k int) (first, end int64) {
	a, b := l.partChunks(k)
	first, _ = l.chunk(a)
	end, _ = l.chunk(b)
	return first, end
}

func (t *Tasks) recordPath(table string, k int) string {
	return t.w.jobPath(fmt.Sprintf("%s/%s-%d%s", tasksName, recordName(table), k, folder.Suffix))
}

// readPart reads the record of a part. The file is there, with its size; else the error is fs.ErrNotExist.
func (t *Tasks) readPart(id MatrixID, k int) (f writtenFile, err error) {
	path, file := t.recordPath(MatrixFolder(id), k), filepath.Join(t.w.dir, PartPath(MatrixFolder(id), k))
	if err = ReadRecord(t.w.fsys, path, &f); err == nil {
		err = checkSize(t.w.fsys, file, f.Size)
	}
	if errors.Is(err, ErrCorrupt) { // they are written anew
		err = errors.Join(fs.ErrNotExist, folder.RemoveFile(t.w.fsys, path), folder.RemoveFile(t.w.fsys, file))
	}
	return f, err
}

// HasPart tells whether a part is written.
func (t *Tasks) HasPart(id MatrixID, k int) (bool, error) {
	_, err := t.readPart(id, k)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Part starts to write part k of a matrix, which has the rows PartRows.
func (t *Tasks) Part(id MatrixID, k int) (*PartWriter, error) {
	layout := t.Layout.Of(id)
	some := matrixTable(MatrixFolder(id), layout)
	first, end := layout.partChunks(k)
	some.chunks = end
	p, err := t.w.newTable(some, chunksPerPart(layout.chunkBytes()))
	if err != nil {
		return nil, err
	}
	p.part, p.nextChunk = k, first
	if err := p.startPart(); err != nil {
		return nil, err
	}
	return &PartWriter{MatrixWriter{id: id, layout: &layout, p: p}, t, k}, nil
}

// PartWriter writes a part of a matrix, in row order.
type PartWriter struct {
	m     MatrixWriter
	tasks *Tasks
	k     int
}

// Write is MatrixWriter.Write.
func (p *PartWriter) Write(rows []byte) error { return p.m.Write(rows) }

// Commit finishes the part, and records it. It fails if rows are missing.
func (p *PartWriter) Commit() error {
	if p.m.err != nil {
		return p.m.err
	}
	if err := p.m.checkAll(); err != nil {
		return err
	}
	if err := p.m.p.commitPart(); err != nil {
		return err
	}
	return WriteRecord(p.tasks.w.fsys, p.tasks.recordPath(p.m.p.table.folder, p.k), p.m.p.files[0])
}

// Abort removes a part that is not committed.
func (p *PartWriter) Abort() error { return p.m.p.abort() }

// Rows writes the row table, as Writer.Rows does, and records it: see Writer.HasRowsOf.
func (t *Tasks) Rows(table *RowTable) error {
	err := t.w.Rows(table)
	if err != nil {
		err = errors.Join(err, t.w.stopWriting())
	}
	return err
}

// Finish records that a matrix is written, all of its parts. The job that Create or Extend then goes on with has it.
func (t *Tasks) Finish(id MatrixID) error {
	var files []writtenFile
	for k := range t.Layout.Of(id).Parts() {
		f, err := t.readPart(id, k)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	slices.SortFunc(files, comparePaths)
	table := MatrixFolder(id)
	return WriteRecord(t.w.fsys, t.w.jobPath(recordName(table)), tableRecord{table, files})
}

package preprop

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// countStart counts the starts of the job, in a scratch file for each shard, with how far
// the job was then. So the next process can tell that one which was killed saved nothing.
// It returns how many starts just before this one saved nothing, and whether there were
// starts before.
func (j *job) countStart(fsys vfs.FS) (noProgress int, before bool, err error) {
	path := filepath.Join(j.scratch, startsPrefix+j.Shard.name()+folder.Suffix)
	found, err := readSmallFile(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	progress := j.progress()
	var starts int
	var at uint32
	if n, _ := fmt.Sscanf(found, "%d %08x\n", &starts, &at); n == 2 {
		if before = true; at == progress {
			noProgress = starts
		}
	}
	return noProgress, before, writeSmallFile(fsys, path, fmt.Sprintf("%d %08x\n", noProgress+1, progress))
}

// readSmallFile reads a file of one line.
func readSmallFile(fsys vfs.FS, path string) (string, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line := make([]byte, 64)
	n, err := f.ReadAt(line, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(line[:n]), err
}

// progress is a checksum of what the job has finished. It changes when the job finishes more.
func (j *job) progress() uint32 {
	var done []string
	for k, id := range j.matrices {
		if j.finished[id] {
			done = append(done, id.String())
		}
		for _, rest := range missing(j.columns, j.resultColumns[k]) {
			done = append(done, fmt.Sprint(id, rest))
		}
	}
	for _, c := range j.checkpoints {
		if c.first < j.columns.end && j.columns.first < c.end {
			done = append(done, fmt.Sprint(c))
		}
	}
	slices.Sort(done)
	return crc32.ChecksumIEEE([]byte(strings.Join(done, "\n")))
}

package preprop

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

// countStart counts the starts of the job, in a scratch file for each shard, with how far
// the job was then. So the next process can tell that one which was killed saved nothing.
// It returns how many starts just before this one saved nothing, and whether there were
// starts before.
func (s *jobContext) countStart(j *engine.Job) (noProgress int, before bool, err error) {
	path := filepath.Join(j.Scratch, startsPrefix+j.Process+folder.Suffix)
	found, err := readSmallFile(s.fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	progress := j.FinishedSum()
	var starts int
	var at uint32
	if n, _ := fmt.Sscanf(found, "%d %08x\n", &starts, &at); n == 2 {
		if before = true; at == progress {
			noProgress = starts
		}
	}
	return noProgress, before, writeSmallFile(s.fsys, path, fmt.Sprintf("%d %08x\n", noProgress+1, progress))
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

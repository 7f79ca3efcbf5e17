package preprop

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

// startsRecord is a scratch file of each shard that counts the starts of its job which saved nothing.
type startsRecord struct {
	Starts   int    `json:"starts"`
	Progress uint32 `json:"progress"` // engine.Job.FinishedSum at the last start
}

// countStart counts a start of the job. So the next process can tell that one which was killed saved nothing. It
// returns how many starts just before this one saved nothing, and whether there were starts before.
func (s *jobContext) countStart(j *engine.Job) (noProgress int, before bool, err error) {
	path := filepath.Join(j.Scratch, startsPrefix+j.Process+folder.Suffix)
	var last startsRecord
	err = format.ReadRecord(s.fsys, path, &last)
	if before = err == nil; !before && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, format.ErrCorrupt) {
		return 0, false, err
	}
	now := j.FinishedSum()
	if before && last.Progress == now {
		noProgress = last.Starts
	}
	return noProgress, before, format.WriteRecord(s.fsys, path, startsRecord{noProgress + 1, now})
}

package preprop

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// doneBytes is how many bytes the job has written already. It does not count the store that the job extends or, with
// Force, replaces.
func (s *jobContext) doneBytes() (int64, error) {
	job, err := format.JobStatus(s.fsys, s.storeDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion) {
		return 0, nil // a damaged job is replaced, or refused later
	}
	if err != nil {
		return 0, err
	}
	scratch, err := usedBytes(s.fsys, scratchInStore(s.storeDir))
	return job.Bytes + scratch, err
}

// fitDisk fails unless a check finds room for what a job has yet to write. Where there is none for checkpoints, the job
// writes none.
func (s *jobContext) fitDisk(p *Plan, check func(*Plan) error) error {
	err := check(p)
	if errors.Is(err, machine.ErrDoesNotFit) && p.CheckpointBytes > 0 {
		p.DropCheckpoints()
		if err = check(p); err == nil {
			s.options.Note("the disk has no room for checkpoints: a hop that is interrupted will be computed again " +
				"from its beginning")
		}
	}
	return err
}

func (s *jobContext) checkRoom(p *Plan) error {
	there, err := s.doneBytes()
	if err != nil {
		return err
	}
	at, err := readScratchRecord(s.fsys, s.storeDir)
	if err != nil {
		return err
	}
	if s.options.Force {
		at = nil // the job starts anew
	}
	parent := s.scratchParent(at)
	if parent == "" && vfs.IsURL(s.storeDir) {
		inside := scratchInStore(s.storeDir) // on the local disk
		used, err := usedBytes(s.fsys, inside)
		if err != nil {
			return err
		}
		return machine.CheckSpace(s.fsys, inside, p.ScratchBytes-used)
	}
	if parent == "" {
		return machine.CheckSpace(s.fsys, s.storeDir, p.DiskBytes-there)
	}
	used := int64(0)
	if at != nil {
		if used, err = usedBytes(s.fsys, at.folder(parent)); err != nil {
			return err
		}
	}
	if err := machine.CheckSpace(s.fsys, parent, p.ScratchBytes-used); err != nil {
		return err
	}
	return machine.CheckSpace(s.fsys, s.storeDir, p.StoreBytes-there)
}

// usedBytes is the size of all files in a folder, 0 if there is none.
func usedBytes(fsys vfs.FS, dir string) (int64, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	total := int64(0)
	for _, e := range entries {
		var bytes int64
		if e.IsDir() {
			bytes, err = usedBytes(fsys, filepath.Join(dir, e.Name()))
		} else if info, infoErr := e.Info(); infoErr == nil { // else it was removed meanwhile
			bytes = info.Size()
		}
		if err != nil {
			break
		}
		total += bytes
	}
	return total, err
}

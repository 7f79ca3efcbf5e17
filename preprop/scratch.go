package preprop

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
)

// scratchInStore is the folder of a store for the records of the job, and for scratch files unless Options.Scratch
// names another.
func scratchInStore(storeDir string) string {
	return filepath.Join(storeDir, filepath.FromSlash(format.ScratchFolder))
}

// Names of records in a scratch folder. They hold no results.
const (
	scratchRecordName = "place" + folder.Suffix
	startsName        = "starts" + folder.Suffix // see countStart
)

func isRecord(name string) bool { return name == scratchRecordName || name == startsName }

// scratchRecord is a file in scratchInStore that tells other processes of the job where its scratch files are.
type scratchRecord struct {
	// Parent is Options.Scratch, without symbolic links, on the machine that began the job. Empty: the files are
	// beside this record.
	Parent string `json:"parent"`
	// ID names the folder in Parent. It is a random number that the job draws when it begins, so that a job that
	// starts anew, or makes the same store elsewhere, never takes another job's files for its own.
	ID string `json:"id"`
	// Made tells that the folder was created. While it is false, the folder may or may not exist, and is created if
	// it does not.
	Made bool `json:"made"`
	// Parents is how many folders, Parent and those around it, the job makes for it. It removes the empty ones.
	Parents int `json:"parents,omitempty"`
}

// folder is the folder of the scratch files, where parent is the name of Parent on this machine.
func (p *scratchRecord) folder(parent string) string { return filepath.Join(parent, "hopfeed-"+p.ID) }

// readScratchRecord reads the record of a store's job. It is nil if there is none.
func readScratchRecord(fsys vfs.FS, storeDir string) (*scratchRecord, error) {
	p := new(scratchRecord)
	err := format.ReadRecord(fsys, filepath.Join(scratchInStore(storeDir), scratchRecordName), p)
	var damage *format.CorruptError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &damage):
		damage.Reason = "the record of where the job's scratch files are is damaged (remove it: what these files " +
			"have is then computed again)"
	}
	return p, err
}

func (p *scratchRecord) write(fsys vfs.FS, storeDir string) error {
	return format.WriteRecord(fsys, filepath.Join(scratchInStore(storeDir), scratchRecordName), p)
}

// scratchParent is the parent of the scratch folder, by its name on this machine; "" if scratch files are in the store.
func (s *jobContext) scratchParent(p *scratchRecord) string {
	switch {
	case p == nil || p.Parent != "" && s.options.Scratch != "":
		return s.options.Scratch
	default:
		return p.Parent
	}
}

// scratchFolder returns the folder for scratch files, which is the same for every process of the job: the first one
// chooses and records it. The caller holds the lock of the job.
func (s *jobContext) scratchFolder(store *format.Writer) (string, error) {
	inside, err := store.Scratch()
	if err != nil {
		return "", err
	}
	p, err := readScratchRecord(s.fsys, s.storeDir)
	if err != nil {
		return "", err
	}
	if p == nil {
		p = &scratchRecord{Made: true}
		if s.options.Scratch != "" {
			id := make([]byte, 8)
			rand.Read(id) // it never fails
			p.ID, p.Made = hex.EncodeToString(id), false
			if p.Parent, err = s.fsys.Resolve(s.options.Scratch); err == nil {
				p.Parents, err = folder.MissingParents(s.fsys, p.folder(p.Parent))
			}
			if err != nil {
				return "", err
			}
		}
		if err := p.write(s.fsys, s.storeDir); err != nil {
			return "", err
		}
	}
	if p.Parent == "" {
		if s.options.Scratch != "" {
			return "", fmt.Errorf("--scratch %s: %w: the unfinished job has its scratch files in the store, in %s "+
				"(run without --scratch to go on, or %s)", s.options.Scratch, ErrOptions, inside, s.giveUp(""))
		}
		return inside, nil
	}
	at := p.folder(s.scratchParent(p))
	if p.Made {
		if ours, err := folder.Ours(s.fsys, at, folder.LockName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		} else if !ours {
			return "", fmt.Errorf("%s: %w: this folder does not have the scratch files of the unfinished job: the "+
				"machine that began it wrote them to %s (set --scratch to the name that %s has on this machine; if "+
				"the files are lost, %s)", at, ErrOptions, p.folder(p.Parent), p.Parent, s.giveUp(""))
		}
		return at, nil
	}
	lock, err := folder.Lock(s.fsys, at) // creates the folder
	if err != nil {
		return "", err
	}
	p.Made = true
	return at, errors.Join(lock.Close(), p.write(s.fsys, s.storeDir))
}

// dropScratch removes the scratch folder of the job, if it is outside the store. It first records that the folder is
// not there, so that another process creates it again. The caller holds the lock of the job.
func (s *jobContext) dropScratch() error {
	p, err := readScratchRecord(s.fsys, s.storeDir)
	if err != nil || p == nil || p.Parent == "" {
		return err
	}
	// with Force, Options.Scratch may differ from the recorded one
	for _, parent := range []string{s.scratchParent(p), p.Parent} {
		at := p.folder(parent)
		ours, err := folder.Ours(s.fsys, at, folder.LockName)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !ours {
			continue
		}
		if err != nil {
			return err
		}
		p.Made = false
		if err := p.write(s.fsys, s.storeDir); err != nil {
			return err
		}
		if err := removeSteps(s.fsys, at); err != nil {
			return err
		}
		err = folder.Remove(s.fsys, at)
		folder.RemoveEmptyParents(s.fsys, at, p.Parents)
		return err
	}
	if p.Made {
		s.options.Note(fmt.Sprintf("the scratch files of the replaced job are not visible on this machine, so they "+
			"stay: remove %s on the machine that has it", p.folder(p.Parent)))
	}
	return nil
}

// startsRecord is a scratch file that counts the starts of its job which saved nothing.
type startsRecord struct {
	Starts   int    `json:"starts"`
	Progress uint32 `json:"progress"` // jobContext.finishedSum at the last start
}

// countStart counts a start of the job, so that the next process can tell that one which was killed saved nothing. It
// returns how much of the time checkpoints may take, by the starts before. The caller holds the lock of the job.
func (s *jobContext) countStart(store *format.Writer) (share float64, err error) {
	path := filepath.Join(s.scratch, startsName)
	var last startsRecord
	err = format.ReadRecord(s.fsys, path, &last)
	before := err == nil
	if !before && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, format.ErrCorrupt) {
		return 0, err
	}
	now, err := s.finishedSum(store)
	if err != nil {
		return 0, err
	}
	noProgress := 0
	if before && last.Progress == now {
		noProgress = last.Starts
	}
	switch {
	case noProgress > 0:
		share = engine.NoProgressShare
	case before:
		share = engine.InterruptedShare
	default:
		share = engine.SteadyShare
	}
	if noProgress >= 2 {
		s.options.Note(fmt.Sprintf("%s: the last %d starts of this job saved nothing, because they ended too early "+
			"(give the job more time; with --max-time it says how much it needs)", s.storeDir, noProgress))
	}
	return share, format.WriteRecord(s.fsys, path, startsRecord{noProgress + 1, now})
}

// finishedSum is a checksum of the names of what is finished: matrices, and what the scratch folder has.
func (s *jobContext) finishedSum(store *format.Writer) (uint32, error) {
	var done []string
	for _, id := range s.target.matrices() {
		if store.Finished(id) {
			done = append(done, id.String())
		}
	}
	entries, err := s.fsys.ReadDir(s.scratch)
	if errors.Is(err, fs.ErrNotExist) { // a folder of a bucket is not there while nothing is in it
		err = nil
	}
	for _, e := range entries {
		if isResult(e) {
			done = append(done, e.Name())
		}
	}
	slices.Sort(done)
	return crc32.ChecksumIEEE([]byte(strings.Join(done, "\n"))), err
}

// isResult tells whether an entry of a folder of scratch files is something that the job can go on with.
func isResult(e fs.DirEntry) bool {
	return isStep(e) || strings.HasSuffix(e.Name(), folder.Suffix) && !isRecord(e.Name())
}

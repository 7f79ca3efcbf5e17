package engine

import (
	"errors"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// syncing is a file system whose pending files can be made durable without a name,
// as those of the operating system can. It lists what is there meanwhile, once all have removed theirs.
type syncing struct {
	*vfs.Mem
	removed sync.WaitGroup
	mu      sync.Mutex
	seen    []string

	synced int // how often files were
}

func (s *syncing) Remove(path string) error {
	defer s.removed.Done()
	return s.Mem.Remove(path)
}

func (s *syncing) list() error {
	s.removed.Wait()
	entries, err := s.ReadDir("folder")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced++
	for _, e := range entries {
		s.seen = append(s.seen, e.Name())
	}
	return err
}

type syncingFile struct {
	vfs.PendingFile
	fsys *syncing
}

func (f *syncingFile) Commit() error { return errors.Join(f.fsys.list(), f.PendingFile.Commit()) }

func (s *syncing) Create(path string) (vfs.PendingFile, error) {
	f, err := s.Mem.Create(path)
	return &syncingFile{f, s}, err
}

func (s *syncing) CreateDirect(path string, bytes int64) (vfs.PendingFile, error) {
	f, err := s.Mem.CreateDirect(path, bytes)
	if err != nil {
		return nil, err
	}
	return &syncingFile{f, s}, nil
}

func TestHopsAreMeasuredInAnyRoom(t *testing.T) {
	for _, room := range []int64{8 << 20, 64 << 20, 200 << 20} {
		for _, degree := range []int64{0, 1, 14, 1000} {
			w := &plan.Work{Nodes: 3e6, Edges: 3e6 * degree, Threads: 2, Stored: format.Layout{DType: format.Float16}}
			var matrices [2]*product.Matrix
			for i, rows := range [2]int64{room * 7 / 8 / 512, room / 8 / 512} {
				var err error
				if matrices[i], err = product.NewMatrix(rows, 256, format.Float16); err != nil {
					t.Fatal(err)
				}
				defer matrices[i].Buf.Free()
			}
			for _, rowBytes := range []int{64, 512} {
				if s, err := measureHop(t.Context(), w, rowBytes, matrices); err != nil || !(s > 0) || s > 1 {
					t.Errorf("room %d, degree %d, rows of %d bytes: %v s an edge, %v", room, degree, rowBytes, s, err)
				}
			}
		}
	}
}

func TestTheRateOfWritingIsMeasuredByManyAtOnceAndNothingIsLeftByTheKilled(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		fsys := &syncing{Mem: vfs.NewMem()}
		if refuse {
			fsys.NoDirect = true
		}
		if err := fsys.MkdirAll("folder"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		fsys.removed.Add(3)
		for range 3 {
			wg.Go(func() {
				if rate, err := measureWrite(fsys, "folder/store"); err != nil || !(rate > 0) {
					t.Errorf("rate %v, %v", rate, err)
				}
			})
		}
		wg.Wait()
		if entries, err := fsys.ReadDir("folder"); err != nil || len(entries) > 0 || len(fsys.seen) > 0 ||
			fsys.synced != 3 {
			t.Errorf("at the end %v, meanwhile %v, synced %d times, %v", entries, fsys.seen, fsys.synced, err)
		}
	}
}

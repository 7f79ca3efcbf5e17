package preprop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Repaired says what a repair did.
type Repaired struct {
	Store   string                `json:"store"`
	Files   []string              `json:"files"`  // written anew
	Chunks  int                   `json:"chunks"` // of these, that were computed anew; the others were sound
	Left    []format.CorruptError `json:"left"`   // what is wrong and cannot be repaired
	Seconds float64               `json:"seconds"`
}

// repairBytes is about how much of a part is computed at a time.
const repairBytes = 256 << 20

// Repair verifies the hop store storeDir and mends what is damaged or missing with
// the graph that it was made from: of each file that is not sound, the damaged chunks
// are computed anew, the others copied, and the file is replaced once it is, byte for
// byte, what it was. Of the options it takes Threads, MemoryBytes and Progress.
// A manifest or an index that is damaged cannot be mended, and files that
// the manifest does not list are left; both come back in Left.
func Repair(ctx context.Context, fsys vfs.FS, storeDir, graphDir string, o Options) (*Repaired, error) {
	start := time.Now()
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	report, err := format.Verify(ctx, fsys, storeDir, o.Threads, o.Progress)
	if err != nil {
		return nil, err
	}
	r := &Repaired{Store: storeDir, Files: []string{}, Left: []format.CorruptError{}}
	store, err := format.OpenDamaged(fsys, storeDir)
	if errors.Is(err, format.ErrCorrupt) {
		r.Left = report.Bad
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if store.Manifest.Kind != format.KindStore {
		return nil, fmt.Errorf("%s: %w: it is a %s, and only hop stores can be repaired (import graphs again)", storeDir, ErrOptions, store.Manifest.Kind)
	}
	s, err := openSite(fsys, graphDir, storeDir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.noOthers(); err != nil {
		return nil, err
	}
	if err := s.recall(ctx, &store.Manifest, o); err != nil {
		return nil, err
	}
	for _, file := range damagedFiles(store, report.Bad) {
		computed, err := s.mend(ctx, store, file)
		if err != nil {
			return nil, err
		}
		r.Files, r.Chunks = append(r.Files, file), r.Chunks+computed
	}
	for _, bad := range report.Bad {
		if !slices.ContainsFunc(r.Files, func(file string) bool { return filepath.Join(storeDir, filepath.FromSlash(file)) == bad.File }) {
			r.Left = append(r.Left, bad)
		}
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// damagedFiles are the parts, named as in the manifest, that a report finds bad.
func damagedFiles(store *format.Dir, bad []format.CorruptError) []string {
	var out []string
	for _, f := range store.Manifest.Files {
		path := filepath.Join(store.Path(), filepath.FromSlash(f.Path))
		if slices.ContainsFunc(bad, func(b format.CorruptError) bool { return b.File == path }) {
			out = append(out, f.Path)
		}
	}
	return out
}

// recall makes s the site of the job that the store is of.
func (s *site) recall(ctx context.Context, m *format.Manifest, o Options) error {
	if err := s.checkMadeFrom(m); err != nil {
		return err
	}
	o.Rows, o.ChunkRows, o.Split, o.Seed, o.Force, o.Operators, o.Hops = m.RowSet, m.ChunkRows, m.Split, m.Seed, false, nil, 0
	for _, there := range m.Operators {
		operator, err := ParseOperator(there.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", s.storeDir, err)
		}
		o.Operators, o.Hops = append(o.Operators, operator), max(o.Hops, there.Hops)
	}
	var err error
	if o.DType, err = dtype.Parse(m.DType); err != nil {
		return fmt.Errorf("%s: %w", s.storeDir, err)
	}
	if s.o, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		return fmt.Errorf("%s: %w: %w", s.storeDir, ErrOptions, err)
	}
	if err := s.chooseRows(ctx); err != nil {
		return err
	}
	s.target.Operators = m.Operators
	return nil
}

// mend writes one file anew, and tells how many chunks were computed.
func (s *site) mend(ctx context.Context, store *format.Dir, file string) (computed int, err error) {
	bad, err := store.DamagedChunks(ctx, file)
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(file, "rows/") {
		return len(bad), store.MendRows(ctx, file, s.table)
	}
	id, ok := store.Manifest.MatrixOf(file)
	if !ok {
		return 0, fmt.Errorf("%s: no matrix has a file %s", s.storeDir, file)
	}
	m, err := store.Matrix(id)
	if err != nil {
		return 0, err
	}
	rowBytes := s.layout.Features * s.o.DType.Size()
	var rows []byte // of the chunks [first, end) of bad
	first, end := 0, 0
	return len(bad), store.Mend(ctx, file, func(k int, dst []byte) error {
		at := slices.Index(bad, k)
		if at < 0 {
			return fmt.Errorf("%s: chunk %d was sound, and is not any more (run repair again)", file, k)
		}
		if at >= end {
			first, end = at, at
			var nodes []uint32
			for ; end < len(bad) && (end == first || len(nodes)*rowBytes < repairBytes); end++ {
				row, n := m.ChunkRowRange(bad[end])
				nodes = append(nodes, s.nodes[row:row+int64(n)]...)
			}
			if rows, err = s.compute(ctx, id, nodes); err != nil {
				return err
			}
		}
		skipped := 0
		for _, earlier := range bad[first:at] {
			_, n := m.ChunkRowRange(earlier)
			skipped += n * rowBytes
		}
		copy(dst, rows[skipped:])
		return nil
	})
}

// compute is the rows of nodes of one matrix, in this order.
func (s *site) compute(ctx context.Context, id format.MatrixID, nodes []uint32) ([]byte, error) {
	some := *s
	some.nodes = nodes
	j, err := some.newJob()
	if err != nil {
		return nil, err
	}
	for _, other := range j.matrices {
		j.finished[other] = other != id
	}
	for _, c := range j.chains {
		c.hops = min(c.hops, id.Hop)
	}
	row := s.layout.Features * s.o.DType.Size()
	out := make([]byte, len(nodes)*row)
	if some.o.MemoryBytes > 0 {
		some.o.MemoryBytes = max(1, some.o.MemoryBytes-int64(len(out)))
	}
	if j.plan, err = some.plan(ctx, j); err != nil {
		return nil, err
	}
	j.scratch = filepath.Join(insideScratch(s.storeDir), "repair") // beside what a job has that is to go on
	if err := s.fsys.MkdirAll(j.scratch); err != nil {
		return nil, err
	}
	size := s.o.DType.Size()
	j.collect = func(m *matrix) {
		for i, v := range nodes {
			copy(out[i*row+m.first*size:], m.rows(int64(v), int64(v)+1))
		}
	}
	return out, errors.Join(j.run(ctx), s.fsys.RemoveAll(j.scratch))
}

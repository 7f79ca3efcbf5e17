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
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Repaired says what a repair did.
type Repaired struct {
	Store   string                `json:"store"`
	Files   []string              `json:"files"`  // written again
	Chunks  int                   `json:"chunks"` // of these files, computed again; the others were not damaged
	Left    []format.CorruptError `json:"left"`   // damage that cannot be repaired
	Seconds float64               `json:"seconds"`
}

// repairBytes is about how many bytes of a part are computed at a time, if they fit.
const repairBytes = 256 << 20

// Repair verifies the hop store storeDir and repairs files that are damaged or missing, with the graph that the store
// was made from. It computes the damaged chunks of a file again, copies its sound chunks, and replaces the file only
// when all bytes are as they were. It uses the options Threads, MemoryBytes and Progress. A damaged manifest or
// index, and files that the manifest does not list, are not repaired; they are returned in Left.
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
		return nil, fmt.Errorf("%s: %w: it is a %s, and only a hop store can be repaired (import a graph again)",
			storeDir, ErrOptions, store.Manifest.Kind)
	}
	graph, err := openMaker(ctx, fsys, graphDir, storeDir, &store.Manifest, o)
	if err != nil {
		return nil, err
	}
	defer graph.close()
	r.Left = append(r.Left, report.Bad...)
	for _, f := range store.Manifest.Files {
		path := filepath.Join(store.Path(), filepath.FromSlash(f.Path))
		left := slices.DeleteFunc(slices.Clone(r.Left), func(b format.CorruptError) bool {
			return b.File == path || b.File == path+vfs.TempSuffix // which a killed repair has left, and this one writes over
		})
		if len(left) == len(r.Left) {
			continue
		}
		computed, err := mendFile(ctx, graph, store, f.Path)
		if err != nil {
			return nil, err
		}
		r.Left, r.Files, r.Chunks = left, append(r.Files, f.Path), r.Chunks+computed
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// maker makes rows of a store anew, from the graph that the store was made from.
type maker interface {
	rowTable() *format.RowTable // of the store
	// computeRows computes the rows of these nodes of one matrix, in this order.
	computeRows(ctx context.Context, id format.MatrixID, nodes []uint32) ([]byte, error)
	close() error
}

// openMaker opens the graph, and chooses rows by the options of the job that made the store.
func openMaker(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, m *format.Manifest, o Options) (maker,
	error) {
	o.Rows, o.ChunkRows, o.Split, o.Seed, o.Force = m.RowSet, m.ChunkRows, m.Split, m.Seed, false
	o.LabelHops = m.LabelHops
	var err error
	if o.DType, err = dtype.Parse(m.DType); err != nil {
		return nil, fmt.Errorf("%s: %w", storeDir, err)
	}
	if format.IsTyped(fsys, graphDir) {
		return openTypedMaker(ctx, fsys, graphDir, storeDir, m, o)
	}
	s, err := openJobContext(fsys, graphDir, storeDir)
	if err == nil {
		if err = s.restoreTarget(ctx, m, o); err != nil {
			err = errors.Join(err, s.close())
		}
	}
	return s, err
}

// errOtherGraph says that a store was made from another graph.
func errOtherGraph(storeDir, graphDir string) error {
	return fmt.Errorf("%s: %w: it was not made from %s, or that graph has changed since", storeDir, ErrOptions, graphDir)
}

func (s *jobContext) rowTable() *format.RowTable { return s.table }

// restoreTarget sets s to the options and the target of the job that made the store.
func (s *jobContext) restoreTarget(ctx context.Context, m *format.Manifest, o Options) error {
	if err := s.checkMadeFrom(m); err != nil {
		return err
	}
	err := s.askFor(&o, m.Operators)
	if err != nil {
		return err
	}
	if s.options, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		return fmt.Errorf("%s: %w: %w", s.storeDir, ErrOptions, err)
	}
	if err := s.chooseRows(ctx); err != nil {
		return err
	}
	s.target.Operators, s.labels = m.Operators, s.options.labels(&s.graph.Manifest)
	return s.loadLabels(ctx)
}

// mendFile repairs one file, and returns how many chunks were computed.
func mendFile(ctx context.Context, graph maker, store *format.Dir, file string) (computed int, err error) {
	bad, err := store.DamagedChunks(ctx, file)
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(file, "rows/") {
		return len(bad), store.RepairRows(ctx, file, graph.rowTable())
	}
	id, ok := store.Manifest.MatrixOf(file)
	if !ok {
		return 0, fmt.Errorf("%s: no matrix has a file %s", store.Path(), file)
	}
	m, err := store.Matrix(id)
	if err != nil {
		return 0, err
	}
	rowBytes := m.Layout.Features * m.Layout.DType.Size()
	var rows []byte // of the chunks [first, end) of bad
	first, end := 0, 0
	return len(bad), store.RepairPart(ctx, file, func(k int, dst []byte) error {
		at := slices.Index(bad, k)
		if at < 0 {
			return fmt.Errorf("%s: chunk %d was damaged during the repair (run repair again)", file, k)
		}
		if at >= end {
			first, rows = at, nil
			for most := repairBytes; ; most /= 4 {
				var nodes []uint32
				for end = first; end < len(bad) && (end == first || len(nodes)*rowBytes < most); end++ {
					row, n := m.ChunkRowRange(bad[end])
					nodes = append(nodes, graph.rowTable().NodeID[row:row+int64(n)]...)
				}
				rows, err = graph.computeRows(ctx, id, nodes)
				if end == first+1 || !errors.Is(err, machine.ErrDoesNotFit) {
					break // else with fewer
				}
			}
			if err != nil {
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

func (s *jobContext) computeRows(ctx context.Context, id format.MatrixID, nodes []uint32) ([]byte, error) {
	some := *s
	some.nodes = nodes
	j, err := some.newJob()
	if err != nil {
		return nil, err
	}
	for _, other := range j.Matrices {
		j.Finished[other] = other != id
	}
	for _, c := range j.Sequences {
		c.Hops = min(c.Hops, id.Hop)
	}
	row := s.layout.Features * s.options.DType.Size()
	out := make([]byte, len(nodes)*row)
	// The row table, the nodes and these rows, with those before them that the collector has yet to free.
	some.held = plan.PickedBytes(&s.graph.Manifest, int64(len(s.nodes))) + 2*int64(len(out)+4*len(nodes))
	if j.Plan, err = some.planJob(ctx, j); err != nil {
		return nil, err
	}
	j.Plan.CheckpointBytes = 0 // a repair that is interrupted begins again
	// An unfinished job keeps its own scratch files in the folder above.
	scratch, err := folder.OpenScratch(s.fsys, filepath.Join(scratchInStore(s.storeDir), "repair"))
	if err != nil {
		return nil, err
	}
	j.Scratch = scratch.Dir()
	size := s.options.DType.Size()
	j.Receive = func(m *product.Matrix) {
		part, width := make([]byte, m.RowBytes()), int(m.RowBytes())
		for i := range nodes {
			copy(out[i*row+m.First*size:][:width], j.Rows(part, m, int64(i), int64(i)+1))
		}
	}
	return out, errors.Join(j.Run(ctx), scratch.Close())
}

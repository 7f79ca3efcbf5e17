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
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
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
	defer graph.job.close()
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

// errOtherGraph says that a store was made from another graph.
func errOtherGraph(storeDir, graphDir string) error {
	return fmt.Errorf("%s: %w: it was not made from %s, or that graph has changed since", storeDir, ErrOptions, graphDir)
}

// mendFile repairs one file, and returns how many chunks were computed.
func mendFile(ctx context.Context, graph *maker, store *format.Dir, file string) (computed int, err error) {
	bad, err := store.DamagedChunks(ctx, file)
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(file, "rows/") {
		return len(bad), store.RepairRows(ctx, file, graph.table)
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
					nodes = append(nodes, graph.table.NodeID[row:row+int64(n)]...)
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

package preprop

import (
	"fmt"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// processBytes is what the program takes beside what it plans: code, stacks,
// heap, chunks on their way to and from disk.
const processBytes = 64 << 20

// memoryNeeded is the most memory that a job takes, in bytes.
func memoryNeeded(graph *format.Manifest, o *Options, storedRows int64) int64 {
	n := graph.Nodes
	row := int64(graph.Features) * int64(o.DType.Size())
	rowTable := int64(4+graph.Splits) + max(4, int64(graph.Labels))
	need := processBytes + (n+storedRows)*rowTable + n*row
	if o.Hops > 0 {
		need += n * row                 // the hop that is made
		need += 8*(n+1) + 4*graph.Edges // topology
		if graph.Weighted {
			need += 4 * graph.Edges
		}
		need += 4 * n                   // factors of the operator
		need += int64(o.Hops) * (n / 8) // node sets
	}
	return need
}

// checkMemory compares the need of a job with its budget.
func checkMemory(graph *format.Manifest, o *Options, storedRows int64) error {
	need := memoryNeeded(graph, o, storedRows)
	if o.MemoryBytes > 0 && need > o.MemoryBytes {
		return fmt.Errorf("propagation %w: it needs %v of memory and may use %v (--memory)",
			machine.ErrDoesNotFit, units.Bytes(need), units.Bytes(o.MemoryBytes))
	}
	return nil
}

// diskNeeded is about the size of a store, rounded up, in bytes.
func diskNeeded(graph *format.Manifest, layout format.Layout, storedRows int64, matrices int) int64 {
	const page = 4096 // bodies start on page boundaries, after a page of metadata
	chunks := int64(0)
	for _, r := range layout.Regions {
		chunks += int64(r.Chunks)
	}
	row := int64(layout.Features) * int64(layout.DType.Size())
	rowTable := int64(4+graph.Splits) + max(4, int64(graph.Labels))
	return int64(matrices)*(storedRows*row+chunks*2*page) + storedRows*rowTable + chunks*2*page
}

// checkDisk compares the size of a store with the room there is for dir.
func checkDisk(fsys vfs.FS, dir string, need int64) error {
	for { // the first folder that exists
		_, err := fsys.Stat(dir)
		if parent := filepath.Dir(dir); err != nil && parent != dir {
			dir = parent
			continue
		}
		break
	}
	free, err := fsys.FreeBytes(dir)
	if err != nil {
		return err
	}
	if need > free {
		return fmt.Errorf("the store %w: it takes %v and there are %v free under %s",
			machine.ErrDoesNotFit, units.Bytes(need), units.Bytes(free), dir)
	}
	return nil
}

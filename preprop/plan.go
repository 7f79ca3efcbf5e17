package preprop

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// processBytes is what the program takes beside what it plans: code, stacks,
// heap, what is on its way to and from disk.
const processBytes = 64 << 20

// memoryNeeded is the most memory that a job takes, in bytes.
func memoryNeeded(graph *format.Manifest, o *Options, features format.DType, storedRows int64) int64 {
	n := graph.Nodes
	row := int64(graph.Features) * int64(o.DType.Size())
	chunk := int64(graph.ChunkRows) * int64(graph.Features) * int64(features.Size())
	need := n*row + int64(o.Threads)*chunk + max(stagingBytes, row)
	if o.Hops > 0 {
		building, kept := topologyMemory(graph, o.Operators)
		need += n*row + kept // the hop that is made, topologies
		bases := map[Operator]bool{}
		most := int64(0)
		for _, operator := range o.Operators {
			terms := operator.series()
			own := 4 * n * int64(graph.Features) * int64(terms.spares(o.DType))
			if storedRows < n {
				own += int64(o.Hops*terms.products()) * (n/8 + 8) // node sets
			}
			if operator.Name == Col {
				own = max(own, 8*n) // degrees
			}
			most = max(most, own)
			bases[operator.base()] = true
		}
		need += most + 4*n*int64(len(bases)) // factors
		need = max(need, building)
	}
	return processBytes + 2*rowTableBytes(graph) + 4*storedRows + need
}

// topologyMemory is what newTopologies takes at most, and what it leaves.
func topologyMemory(graph *format.Manifest, operators []Operator) (building, kept int64) {
	given := topologyBytes(graph.Nodes, graph.Edges, graph.Weighted)
	sizes := map[string]int64{
		AsGiven: given, Reverse: given,
		Undirected: topologyBytes(graph.Nodes, 2*graph.Edges, graph.Weighted),
	}
	used := map[string]bool{}
	for _, o := range operators {
		if !used[o.Graph] {
			kept += sizes[o.Graph]
		}
		used[o.Graph] = true
	}
	building = given
	if used[Reverse] || used[Undirected] {
		building += sizes[Reverse]
	}
	if used[Undirected] {
		building += sizes[Undirected]
	}
	return building, kept
}

// diskNeeded is the size of a store in bytes: exact for the matrices, which are
// nearly all of it, and rounded up for the rest.
func diskNeeded(graph *format.Manifest, layout format.Layout, storedRows int64, operators []Operator, hops int) (int64, error) {
	total, err := layout.MatrixBytes(format.Input)
	for _, o := range operators {
		hop, hopErr := layout.MatrixBytes(format.MatrixID{Operator: o.String(), Hop: 1})
		total, err = total+int64(hops)*hop, errors.Join(err, hopErr)
	}
	const page = 4096      // a chunk of the row table takes a page of metadata and is padded to whole pages
	const indexRow = 3 * 8 // of a chunk
	chunks := int64(0)
	for _, r := range layout.Regions {
		chunks += int64(r.Chunks)
	}
	tables := int64(1 + 1 + len(operators)*hops)
	return total + rowTableBytes(graph) + 4*storedRows + (chunks+2)*2*page + tables*(chunks*indexRow+200), err
}

// rowTableBytes is about what the row table of a graph takes, on disk or in
// memory; that of a store has a part of its rows and the node ids beside.
func rowTableBytes(graph *format.Manifest) int64 {
	const stringHeader = 16
	need := folderBytes(graph, "nodes/")
	if graph.OrigIDs {
		need += stringHeader * graph.Nodes
	}
	return need
}

// folderBytes is the size of the graph's files whose paths start with folder.
func folderBytes(graph *format.Manifest, folder string) int64 {
	total := int64(0)
	for _, f := range graph.Files {
		if strings.HasPrefix(f.Path, folder) {
			total += f.Size
		}
	}
	return total
}

// checkDisk compares the size of a store with the room there is for dir.
func checkDisk(fsys vfs.FS, dir string, need int64) error {
	for dir != filepath.Dir(dir) { // up to a folder that exists
		if _, err := fsys.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
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

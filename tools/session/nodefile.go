package session

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// chosenBytes bounds the memory for each byte of a file that names nodes.
const chosenBytes = 32

// NodesInFile lists the nodes of a graph that a text file names, ascending. Each line has an original id, if the graph
// has original ids, or else the number of a node. A file that names no node, or an unknown one, is ErrOptions.
func NodesInFile(ctx context.Context, graph *format.Dir, fsys vfs.FS, path string, budget machine.Limit) ([]uint32,
	error) {
	f, size, err := vfs.OpenSized(fsys, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := budget.Fits("the nodes in "+path, chosenBytes*size); err != nil {
		return nil, err
	}
	m := &graph.Manifest
	nodes := []uint32{}
	named := map[string]bool{} // original ids: whether the graph has them
	lines := bufio.NewScanner(io.NewSectionReader(f, 0, size))
	for line := 1; lines.Scan(); line++ {
		id := strings.TrimSpace(lines.Text())
		if id == "" {
			continue
		}
		if m.OrigIDs {
			named[id] = false
			continue
		}
		node, err := strconv.ParseUint(id, 10, 32)
		if err != nil || int64(node) >= m.Nodes {
			return nil, fmt.Errorf("%w: %s: line %d is %.50q: want the number of a node, from 0 to %d",
				ErrOptions, path, line, id, m.Nodes-1)
		}
		nodes = append(nodes, uint32(node))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.OrigIDs {
		err := graph.VisitRows(ctx, func(t *format.RowTable, first int64) {
			for i, id := range t.OrigID {
				if _, wanted := named[id]; wanted {
					named[strings.Clone(id)] = true
					nodes = append(nodes, uint32(first)+uint32(i))
				}
			}
		})
		if err != nil {
			return nil, err
		}
		for id, found := range named {
			if !found {
				return nil, fmt.Errorf("%w: %s: no node of the graph has the original id %.50q",
					ErrOptions, path, units.Printable(id))
			}
		}
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) == 0 {
		return nil, fmt.Errorf("%w: %s names no node", ErrOptions, path)
	}
	return nodes, nil
}

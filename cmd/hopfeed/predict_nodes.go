package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/session"
)

// chosenBytes bounds the memory for each byte of a file that names nodes.
const chosenBytes = 32

// chooseNodes lists the nodes of a graph to predict, ascending; nil is all.
func (a *app) chooseNodes(ctx context.Context, graph *format.Dir, o predictOptions) ([]uint32, error) {
	m := &graph.Manifest
	if o.split > 0 && o.split >= m.Splits {
		return nil, usagef("--split %d: %s has %d splits, numbered from 0", o.split, o.input, m.Splits)
	}
	if o.nodes != "" {
		return a.readNodes(ctx, graph, o.nodes)
	}
	if o.rows == allRows {
		return nil, nil
	}
	if err := a.budget.Fits(fmt.Sprintf("choosing among %d nodes", m.Nodes), 4*m.Nodes); err != nil {
		return nil, err
	}
	return session.NodesOf(ctx, graph, o.rows, o.split)
}

// readNodes reads a file that names nodes of a graph, one a line: original ids if the graph has them.
func (a *app) readNodes(ctx context.Context, graph *format.Dir, path string) ([]uint32, error) {
	f, err := a.fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if err := a.budget.Fits("the nodes in "+path, chosenBytes*size); err != nil {
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
			return nil, usagef("--node-file %s: line %d is %.50q: want the number of a node, from 0 to %d", path, line, id, m.Nodes-1)
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
				return nil, usagef("--node-file %s: no node of the graph has the original id %.50q", path, units.Printable(id))
			}
		}
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) == 0 {
		return nil, usagef("--node-file %s: it names no node", path)
	}
	return nodes, nil
}

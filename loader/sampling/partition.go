package sampling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/need"
)

// MostPartitions is the most parts that a graph is divided into.
const MostPartitions = 1 << 12

// partitionPasses is how often nodes are streamed: from the second time on, neighbours that come later count by the
// part that they had before (Nishimura and Ugander 2013, Section 3.1).
const partitionPasses = 4

// Partition divides the n nodes of a topology into parts of at most n/parts nodes, rounded up. Few edges go from one
// part to another (a3gnn Algorithm 1, line 2). Nodes come in their order, and each goes to the part with the largest
//
//	(its in-neighbours there) * (1 - nodes of the part / most nodes of a part),
//
// which is linear deterministic greedy (Stanton and Kliot 2012); among equals to the smallest part. The result is the
// part of each node, and the number of edges that cross.
func Partition(ctx context.Context, t Topology, parts int) (of []uint16, cut int64, err error) {
	n := t.Nodes()
	if parts < 1 || parts > MostPartitions || int64(parts) > max(n, 1) {
		return nil, 0, fmt.Errorf("%w: %d partitions of %d nodes: want 1 to %d, and a node in each", ErrOptions, parts, n,
			MostPartitions)
	}
	of = make([]uint16, n)
	most := (n + int64(parts) - 1) / int64(parts)
	sizes, near := make([]int64, parts), make([]int64, parts)
	r := listReader{topology: t}
	for pass := range partitionPasses {
		clear(sizes)
		err := eachList(ctx, &r, false, func(v uint32, sources []uint32, _ []float32) {
			for _, u := range sources {
				if u < v || pass > 0 {
					near[of[u]]++
				}
			}
			best := -1
			var score float64
			for p, size := range sizes {
				if size == most {
					continue
				}
				s := float64(near[p]) * (1 - float64(size)/float64(most))
				if best < 0 || s > score || s == score && size < sizes[best] {
					best, score = p, s
				}
			}
			of[v] = uint16(best)
			sizes[best]++
			clear(near)
		})
		if err != nil {
			return nil, 0, err
		}
	}
	cut, err = CutOf(ctx, t, of)
	return of, cut, err
}

// DealSeeds gives quota[d] of the seed nodes to each device d, so that each trains on partitions of its own (a3gnn
// Algorithm 1, lines 3 to 5): a part goes to the device with the most room, the part with the most seeds first. Seeds
// that their device has no room for go to others; moved is their number. holder is the device of each part that has
// seeds, else -1. The quotas' sum is the number of seeds.
func DealSeeds(of []uint16, seeds []uint32, quota []int64) (own [][]uint32, holder []int, moved int) {
	counts := make([]int64, MostPartitions)
	for _, v := range seeds {
		counts[of[v]]++
	}
	parts := make([]int, len(counts))
	for p := range parts {
		parts[p] = p
	}
	slices.SortStableFunc(parts, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
	room := slices.Clone(quota)
	holder = slices.Repeat([]int{-1}, len(counts))
	for _, p := range parts {
		if counts[p] > 0 {
			d := slices.Index(room, slices.Max(room))
			holder[p] = d
			room[d] = max(0, room[d]-counts[p])
		}
	}
	own = make([][]uint32, len(quota))
	var others []uint32
	for _, v := range seeds {
		if d := holder[of[v]]; int64(len(own[d])) < quota[d] {
			own[d] = append(own[d], v)
		} else {
			others = append(others, v)
		}
	}
	moved = len(others)
	for d, n := range quota {
		left := n - int64(len(own[d]))
		own[d], others = append(own[d], others[:left]...), others[left:]
	}
	return own, holder, moved
}

// CutOf is the number of edges between nodes of different parts.
func CutOf(ctx context.Context, t Topology, of []uint16) (cut int64, err error) {
	err = eachList(ctx, &listReader{topology: t}, false, func(v uint32, sources []uint32, _ []float32) {
		for _, u := range sources {
			if of[u] != of[v] {
				cut++
			}
		}
	})
	return cut, err
}

// eachList calls do with the lists of all nodes, in order.
func eachList(ctx context.Context, r *listReader, weighted bool, do visitor) error {
	var nodes []uint32
	n := r.topology.Nodes()
	for lo := int64(0); lo < n; lo += int64(len(nodes)) {
		nodes = nodes[:0]
		for v := lo; v < min(n, lo+8*chunkNodes); v++ {
			nodes = append(nodes, uint32(v))
		}
		if err := r.visit(ctx, nodes, weighted, do); err != nil {
			return err
		}
	}
	return nil
}

// WithinPartitions copies a topology into memory without the edges that cross from one part to another: a sampler then
// finds only nodes of a seed node's own part (G_s in a3gnn Algorithm 1). cut is CutOf(of). The caller
// closes the result; t may be closed before.
func WithinPartitions(ctx context.Context, t Topology, of []uint16, cut int64) (Topology, error) {
	c, err := format.NewCSC(t.Nodes(), t.Edges()-cut, t.Weighted())
	if err != nil {
		return nil, err
	}
	end := 0
	err = eachList(ctx, &listReader{topology: t}, t.Weighted(), func(v uint32, sources []uint32, weights []float32) {
		for i, u := range sources {
			if of[u] != of[v] || end == len(c.Neighbors) { // a mapped file may have changed
				continue
			}
			c.Neighbors[end] = u
			if weights != nil {
				c.Weights[end] = weights[i]
			}
			end++
		}
		c.Offsets[v+1] = int64(end)
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return InMemory(c), nil
}

// PartitionNeed is the memory of Partition and, if no edge crosses, of WithinPartitions.
func PartitionNeed(m *format.Manifest) need.Terms {
	within := TopologyNeed(m)
	within.Name = "topology within partitions"
	return need.Terms{within,
		{Name: "partitions", Place: need.Heap, Bytes: 8 * min(m.Edges, chunkEdges), Until: need.Topology},
		{Name: "parts of nodes", Place: need.Heap, Bytes: 2 * m.Nodes, Until: need.Profile}}
}

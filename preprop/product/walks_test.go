package product

import (
	"context"
	"errors"
	"testing"

	"github.com/hopfeed/hopfeed/format"
)

// countedTopology counts walks.
type countedTopology struct {
	MemoryTopology
	walks int
}

func (c *countedTopology) Each(ctx context.Context, from int64, threads int, list *EdgeFactors,
	body func(b *Range) error) error {
	c.walks++
	return c.MemoryTopology.Each(ctx, from, threads, list, body)
}

func TestWorksWalkTogetherAndEndTogether(t *testing.T) {
	const nodes = 100_000
	broken := errors.New("broken")
	for _, c := range []struct {
		walks []int // of each work
		fails int   // the work that fails after its walks, or -1
		want  int
	}{
		{nil, -1, 0}, {[]int{0}, -1, 0}, {[]int{2, 0, 3, 1}, -1, 3}, {[]int{2, 1, 4}, 1, 1}, {[]int{2, 0}, 1, 0},
	} {
		graph := &countedTopology{MemoryTopology: MemoryTopology{&format.CSC{Offsets: make([]int64, nodes+1)}}}
		seen := make([]NodeSet, len(c.walks))
		var works []func(walk WalkAll) error
		for i, walks := range c.walks {
			seen[i] = NewNodeSet(nodes)
			works = append(works, func(walk WalkAll) error {
				for range walks {
					err := walk(func(b *Range) error {
						for v := b.First; v < b.First+b.Rows(); v++ {
							seen[i].Add(v)
						}
						return nil
					})
					if err != nil {
						return err
					}
				}
				if i == c.fails {
					return broken
				}
				return nil
			})
		}
		err := WalkTogether(context.Background(), graph, 3, works...)
		if errors.Is(err, broken) != (c.fails >= 0) || graph.walks != c.want {
			t.Errorf("%v: %d walks, %v", c, graph.walks, err)
		}
		for i, walks := range c.walks {
			if c.fails < 0 && seen[i].Count() != int64(min(walks, 1)*nodes) {
				t.Errorf("%v: work %d has seen %d nodes", c, i, seen[i].Count())
			}
		}
	}
}

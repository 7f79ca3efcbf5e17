package product

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
)

func TestOwnLabelsOfManyWalksAreRefused(t *testing.T) {
	const n = 1000 // all connected: a walk of r steps ends in each node n^r times, over n^2 edges
	csc := &format.CSC{Offsets: make([]int64, n+1)}
	nodes := make([]uint32, n)
	for v := range nodes {
		nodes[v], csc.Offsets[v+1] = uint32(v), int64(v+1)*n
	}
	for range n {
		csc.Neighbors = append(csc.Neighbors, nodes...)
	}
	l := &Labels{Columns: 1, classes: make([]int32, n)}
	p := Level{&Propagator{Graph: &MemoryTopology{csc}}, csc}
	var ids []format.MatrixID
	for hop := range 20 {
		ids = append(ids, format.MatrixID{Operator: "sym", Hop: hop + 1})
	}
	own := l.Own(nodes, format.Float32)
	if err := checkOwnTerms(context.Background(), slices.Repeat([]Level{p}, 2), nodes, own.Rows, ids, 1); err != nil {
		t.Errorf("two hops: %v", err)
	}
	err := l.Compute(context.Background(), own, slices.Repeat([]Level{p}, 20), nodes, format.Float32, ids, 1)
	var many *ErrTooManyTerms
	if !errors.As(err, &many) || many.Hops != 20 || many.Terms < 2e11 || many.Terms > 2.2e11 ||
		!strings.Contains(err.Error(), "lower --label-hops") {
		t.Errorf("twenty hops: %v", err)
	}
	if len(own.Rows) != n || !slices.IsSorted(own.Rows) {
		t.Errorf("%d elements", len(own.Rows))
	}
}

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// However much memory there is, a block has 2^32-1 edges at most: a graph of more comes in chunks, or is refused before
// it is read.
func TestAGraphOfTooManyEdgesForABlockComesInChunks(t *testing.T) {
	graph, err := format.OpenGraph(disk(t, generateLine), "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	a := &app{threads: 2, budget: machine.Limit{Bytes: 1 << 50, By: "the test"}}
	spec, err := trainer.Spec{Model: "gcn", Matrices: graph.Matrices(), Features: 6, Classes: 3}.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	needs := graphNeeds{spec: spec, placement: placement.Auto, train: true, sampler: "neighbor", fanouts: []int{3, 3}, seeds: 50, trainSet: 200, workers: 2,
		batches: batchCount{buffers: 2, onDevice: 2, samples: 12}}
	all := needs
	all.all, all.sampler = true, ""
	for _, edges := range []int64{1<<32 - 1 - 300, 1<<32 - 300} { // gcn adds a self-loop to each of 300 nodes
		graph.Manifest.Edges = edges
		fits := edges < 1<<32-300
		p, err := a.planGraph(a.machine(t.Context()), graph, needs)
		if want := map[bool]string{true: placement.Device, false: placement.Host}[fits]; err != nil || p.placement != want {
			t.Errorf("%d edges: %s, %v, want %s", edges, p.placement, err, want)
		}
		_, err = a.planGraph(a.machine(t.Context()), graph, all)
		if fits != (err == nil) || !fits && (!errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "give --batch")) {
			t.Errorf("%d edges in a batch: %v", edges, err)
		}
		device := needs
		device.placement = placement.Device
		if _, err := a.planGraph(a.machine(t.Context()), graph, device); fits != (err == nil) {
			t.Errorf("%d edges on the device: %v", edges, err)
		}
	}
}

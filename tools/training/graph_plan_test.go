package training

import (
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// However much memory there is, a block has 2^32-1 edges at most: a graph of more comes in chunks, or is refused before
// it is read.
func TestAGraphOfTooManyEdgesForABlockComesInChunks(t *testing.T) {
	d := vfs.NewMem()
	source, err := ingest.SBM(ingest.SBMOptions{GenerateOptions: ingest.GenerateOptions{Nodes: 300, Edges: 1500,
		Features: 6, Classes: 3, Labeled: 0.9},
		Homophily: 0.8, Separation: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Run(t.Context(), d, source, "graph",
		ingest.Options{MemoryBytes: 1 << 30, Threads: 2}); err != nil {
		t.Fatal(err)
	}
	graph, err := format.OpenGraph(d, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	m := session.ThisMachine(t.Context(), machine.Limit{Bytes: 1 << 50, By: "the test"}, 2, devices.Options{})
	train := session.Partition{}.Train
	train.List = make([]uint32, 200)
	o := Options{Machine: m, Train: true, Part: session.Partition{Train: train},
		Spec: trainer.Spec{Model: "gcn", Matrices: graph.Matrices(), Features: 6, Classes: 3}}
	o.Sampling, o.BatchRows = Sampling{Sampler: "neighbor", Fanouts: []int{3, 3}}, 50
	jobOf := func(o Options) graphJob {
		job, err := o.job(300, 1)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	job := jobOf(o)
	full, onDevice := o, o
	full.Sampling, full.BatchRows = Sampling{Sampler: FullSampler}, 200
	onDevice.Placement = placement.Device
	all, device := jobOf(full), jobOf(onDevice)
	for _, edges := range []int64{1<<32 - 1 - 300, 1<<32 - 300} { // gcn adds a self-loop to each of 300 nodes
		graph.Manifest.Edges = edges
		fits := edges < 1<<32-300
		p, err := planGraph(graph, job)
		if want := map[bool]string{true: placement.Device,
			false: placement.Host}[fits]; err != nil || p.where != want {
			t.Errorf("%d edges: %+v, %v, want %s", edges, p, err, want)
		}
		_, err = planGraph(graph, all)
		if fits != (err == nil) || !fits && (!errors.Is(err, machine.ErrDoesNotFit) ||
			!strings.Contains(err.Error(), "give --batch")) {
			t.Errorf("%d edges in a batch: %v", edges, err)
		}
		if _, err := planGraph(graph, device); fits != (err == nil) {
			t.Errorf("%d edges on the device: %v", edges, err)
		}
	}
}

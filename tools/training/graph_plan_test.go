package training

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// sbm opens a graph of 300 nodes with 6 features and 3 classes.
func sbm(t *testing.T) *format.Dir {
	t.Helper()
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
	t.Cleanup(func() { graph.Close() })
	return graph
}

func shapeOf(t *testing.T, graph *format.Dir) *sampling.Shape {
	shape, err := sampling.ShapeOf(graph)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// sampled trains a gcn on a graph of sbm, on machines with such devices.
func sampled(t *testing.T, graph *format.Dir, want devices.Options) Options {
	m := session.ThisMachine(t.Context(), machine.Limit{Bytes: 1 << 50, By: "the test"}, 2, want)
	train := session.Partition{}.Train
	train.List = make([]uint32, 200)
	o := Options{Machine: m, Train: true, Part: session.Partition{Train: train},
		Spec: trainer.Spec{Model: "gcn", Matrices: graph.Matrices(), Features: 6, Classes: 3}}
	o.Sampling, o.BatchRows = Sampling{Sampler: "neighbor", Fanouts: []int{3, 3}}, 50
	return o
}

// A device reads no mapped lists, so a cache of lists takes none of its memory beside --map.
func TestMappedListsAreNotPlannedOnTheDevice(t *testing.T) {
	graph := sbm(t)
	for _, mapped := range []bool{false, true} {
		o := sampled(t, graph, devices.Options{Emulate: host.Emulation{GPUs: 1, Memory: 1 << 30}})
		o.Schedule.Name, o.Cache, o.Mapped = "gpu", "ducati:9000", mapped
		job, err := o.job(shapeOf(t, graph), 1)
		if err != nil {
			t.Fatal(err)
		}
		p, err := planGraph(job)
		if err != nil {
			t.Fatal(err)
		}
		if planned := slices.ContainsFunc(p.terms, func(t need.Term) bool {
			return t.Place == need.Device && strings.HasPrefix(t.Name, "cached adjacency lists")
		}); planned == mapped {
			t.Errorf("mapped %t: lists on the device %t", mapped, planned)
		}
	}
}

// What gradients that wait take is planned for a run that goes on, too, whose number of them no flag says.
func TestARunThatGoesOnPlansForItsGradients(t *testing.T) {
	graph := sbm(t)
	o := sampled(t, graph, devices.Options{})
	o.Schedule.Name = scheduler.MultiQueue
	before := &trainer.State{}
	before.Options.Queues = &trainer.Queues{Period: 40, Lag: 31, OnArrival: true}
	o.Schedule.GoOn(before)
	if job, err := o.job(shapeOf(t, graph), 1); err != nil || job.gradients != 32 || o.Schedule.SyncEvery != 40 ||
		o.Schedule.Updates != OnArrival {
		t.Errorf("%d gradients wait by %+v, %v", job.gradients, o.Schedule, err)
	}
}

// However much memory there is, a block has 2^32-1 edges at most: a graph of more comes in chunks, or is refused before
// it is read.
func TestAGraphOfTooManyEdgesForABlockComesInChunks(t *testing.T) {
	graph := sbm(t)
	o := sampled(t, graph, devices.Options{})
	jobOf := func(o Options) graphJob {
		job, err := o.job(shapeOf(t, graph), 1)
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
		p, err := planGraph(job)
		if want := map[bool]string{true: placement.Device,
			false: placement.Host}[fits]; err != nil || p.where != want {
			t.Errorf("%d edges: %+v, %v, want %s", edges, p, err, want)
		}
		_, err = planGraph(all)
		if fits != (err == nil) || !fits && (!errors.Is(err, machine.ErrDoesNotFit) ||
			!strings.Contains(err.Error(), "give --batch")) {
			t.Errorf("%d edges in a batch: %v", edges, err)
		}
		if _, err := planGraph(device); fits != (err == nil) {
			t.Errorf("%d edges on the device: %v", edges, err)
		}
	}
}

// Each device trains on seed nodes of its own partition, as far as equal shares allow, and samples nothing else; its
// cache has rows of that partition alone.
func TestDevicesTrainOnPartitionsOfTheirOwn(t *testing.T) {
	graph := sbm(t)
	for _, queued := range []bool{false, true} {
		o := sampled(t, graph, devices.Options{Emulate: host.Emulation{GPUs: 2, Memory: 1 << 30}})
		for i := range o.Part.Train.List {
			o.Part.Train.List[i] = uint32(i)
		}
		o.Partitions, o.Cache = 2, "degree:40rows"
		if queued {
			o.Schedule.Name = scheduler.MultiQueue
		}
		g, err := OpenGraph(t.Context(), graph, o)
		if err != nil {
			t.Fatal(err)
		}
		of, _, err := sampling.Partition(t.Context(), g.topology, 2)
		sets, setErr := g.TrainSets(3)
		if err = errors.Join(err, setErr); err != nil {
			t.Fatal(err)
		}
		trained, foreign := make([]int, 300), 0
		for rank, set := range sets {
			part, other := of[set.RowNumbers(0, 0)[0]], map[uint32]bool{}
			for batch := range set.Batches() {
				for _, v := range set.RowNumbers(0, batch) {
					if trained[v]++; of[v] != part {
						foreign++
						other[v] = true
					}
				}
			}
			inputs := 0
			if err := set.Visit(t.Context(), 1, 1, 0, 0, set.Batches(), func(b *sampling.MiniBatch) bool {
				alone := !slices.ContainsFunc(b.Seeds, func(v uint32) bool { return other[v] })
				for _, v := range b.Inputs {
					if inputs++; alone && of[v] != part {
						t.Errorf("device %d of part %d samples node %d of another", rank, part, v)
					}
				}
				return true
			}); err != nil || inputs == 0 {
				t.Error(inputs, err)
			}
			for v := range uint32(300) {
				if g.samplers[rank].Caches[0].Contains(v) && of[v] != part {
					t.Errorf("device %d of part %d caches node %d of another", rank, part, v)
				}
			}
		}
		want := slices.Concat(slices.Repeat([]int{1}, 200), make([]int, 100))
		t.Log(foreign, "seeds on another device")
		if !slices.Equal(trained, want) || foreign > 30 ||
			!strings.Contains(strings.Join(g.Report().Reasons, "\n"), fmt.Sprint("shares ", foreign, " of the 200")) {
			t.Errorf("%d seeds on another device: %q; epochs have nodes %v times", foreign, g.Report().Reasons, trained)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

package preprop

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// rented is a machine whose rates are easy to calculate with.
func rented() *machine.Hardware {
	return &machine.Hardware{Cores: 32, Memory: 256e9, MemoryBandwidth: 150e9, GatherBandwidth: 20e9,
		Storage: machine.Storage{Count: 1, Read: 2e9, Write: 1e9}, Bucket: machine.Bucket{Read: 1.5e9}}
}

func cluster(memory int64, hops int) Options {
	h := rented()
	return Options{Hops: hops, Operators: []operator.Operator{{Name: operator.Sym}},
		Rows: format.RowsAll, DryRun: true, Hardware: h, Threads: h.Cores, MemoryBytes: memory}
}

// IGB-large, 10^8 nodes with 1024 float32 features and 1.2 * 10^9 edges, by 32 machines, worked by hand:
//
//	writes go to the disk, then to the bucket: 1 / (1/1 + 1/1.5) = 0.6 GB/s
//	cut    each of 32 reads and writes 409.6 GB / 32 = 12.8 GB: 12.8/1.5 + 12.8/0.6 = 29.87 s
//	hops   each reads 12.8 GB, the topology, 8 * 10^8 + 4 * 1.2 * 10^9 = 5.6 GB, and nodes, 0.4 GB, and writes its
//	       columns of 4 matrices, 51.2 GB: 18.8/1.5 + 51.2/0.6 = 97.87 s; it holds 2 matrices, 25.6 GB, and the topology
//	       beside it adds 3 * 1.3 * 10^9 rows of 128 bytes, in 192 bytes of lines at 20 GB/s, 37.44 s,
//	       lists 1.2 * 10^9 coefficients, in 128 bytes each at 20 GB/s, 7.68 s, and first uses memory at 50 GB/s
//	rows   reads the row table, 5 bytes a node, three times, and writes it and the nodes, 0.4 GB: 1.5/1.5 + 0.9/0.6 s
//	write  each reads and writes 1638.4 GB / 32 = 51.2 GB: 51.2/1.5 + 51.2/0.6 = 119.47 s
func TestIGBLargeOn32MachinesIsPlannedAsByHand(t *testing.T) {
	d := Described{Nodes: 1e8, Edges: 1.2e9, Features: 1024, Rows: 1e8}
	o := cluster(200e9, 3)
	o.Tasks = 32
	p, err := PlanTasks(d, 32, o)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.001*want {
			t.Errorf("%s: %v, by hand %v", what, got, want)
		}
	}
	touch := float64(p.Stages[2].MemoryBytes-64<<20) / 50e9
	for i, c := range []struct {
		kind                   string
		tasks                  int
		read, written, seconds float64
	}{{kind: "rows", tasks: 1, read: 1.5e9, written: 0.9e9, seconds: 1 + 0.9/0.6},
		{"cut", 32, 409.6e9, 409.6e9, 29.87},
		{"hops", 32, 32 * 18.8e9, 1638.4e9, 97.87 + 37.44 + 7.68 + touch}, {"write", 32, 1638.4e9, 1638.4e9, 119.47},
		{kind: "publish", tasks: 1}} {
		s := p.Stages[i]
		if s.Kind != c.kind || s.Tasks != c.tasks || s.Seconds != s.TaskSeconds {
			t.Errorf("%+v, want %s", s, c.kind)
		}
		near(c.kind+" reads", float64(s.ReadBytes), c.read)
		near(c.kind+" writes", float64(s.WrittenBytes), c.written)
		near(c.kind+" takes", s.Seconds, c.seconds)
	}
	if m := p.Stages[2].MemoryBytes; m < 31.2e9 || m > 36e9 || p.Hops.Panels != 1 || !p.Hops.TopologyInMemory {
		t.Errorf("a task hops takes %v: %+v", units.Bytes(m), p.Hops)
	}
	near("the bucket holds", float64(p.SharedBytes), float64(409.6e9+1638.4e9+p.StoreBytes))

	o.Tasks = 33
	again, err := PlanTasks(d, 32, o)
	if err != nil {
		t.Fatal(err)
	}
	near("33 cuts on 32 machines", again.Stages[1].Seconds, 2*29.87*32/33)
	o.Tasks, o.Hardware.Bucket.All = 32, 24e9 // 0.75 GB/s a machine
	again, err = PlanTasks(d, 32, o)
	if err != nil {
		t.Fatal(err)
	}
	near("cuts of a bucket of 24 GB/s", again.Stages[1].Seconds, 12.8/0.75+12.8*(1/0.75+1))
	o.Hardware.Bucket = machine.Bucket{}
	again, err = PlanTasks(d, 32, o)
	if err != nil {
		t.Fatal(err)
	}
	near("cuts of a folder of 2 GB/s", again.Stages[1].Seconds, 409.6/2+409.6/1)
}

// With 10^9 nodes and 4 * 10^10 edges, a topology takes 168 GB: machines with less stream it.
func TestTheNumberOfTasksFollowsFromTheMemoryOfMachines(t *testing.T) {
	d := Described{Nodes: 1e9, Edges: 4e10, Features: 128, Rows: 1e8}
	large, err := PlanTasks(d, 8, cluster(500e9, 3))
	if err != nil {
		t.Fatal(err)
	}
	small, err := PlanTasks(d, 8, cluster(100e9, 3))
	if err != nil {
		t.Fatal(err)
	}
	if !large.Hops.TopologyInMemory || small.Hops.TopologyInMemory || small.ReadBytes <= large.ReadBytes ||
		small.Seconds <= large.Seconds {
		t.Errorf("with 500 GB %+v of %+v, with 100 GB %+v of %+v", large, large.Hops, small, small.Hops)
	}
	more, err := PlanTasks(d, 32, cluster(500e9, 3))
	if err != nil || more.Seconds >= large.Seconds || more.Tasks < 32 {
		t.Errorf("on 32 machines: %+v, %v", more, err)
	}
	for machines, o := range map[int]Options{0: cluster(500e9, 3), 8: cluster(1e9, 3)} {
		if _, err := PlanTasks(d, machines, o); !errors.Is(err, ErrOptions) && !errors.Is(err, machine.ErrDoesNotFit) {
			t.Errorf("%d machines: %v", machines, err)
		}
	}
}

func TestTasksOfAStoreWithoutRowsArePlanned(t *testing.T) {
	o := cluster(1<<30, 2)
	o.Rows = format.RowsLabeled
	if p, err := PlanTasks(Described{Nodes: 3, Edges: 5, Features: 4}, 2, o); err != nil || p.Stages[3].ReadBytes != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestTasksReadAndWriteWhatWasPlanned(t *testing.T) {
	fsys := vfs.NewMem()
	graph := randomGraph(2, 20_000, 64)
	graph.rows.OrigID = nil
	graph.write(t, fsys, "graph")
	csc := graph.csc()
	d := Described{Nodes: 20_000, Edges: int64(csc.Edges()), Features: 64, Rows: 20_000}
	for _, tasks := range []int{1, 2, 4} {
		o := cluster(1<<30, 3)
		o.Threads, o.Hardware, o.DryRun, o.Tasks = 2, nil, false, tasks
		p, err := PlanTasks(d, tasks, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := fsys.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
		list, err := ListTasks(context.Background(), fsys, "graph", "store", o)
		if err != nil {
			t.Fatal(err)
		}
		read, written, count := map[string]int64{}, map[string]int64{}, map[string]int{}
		for _, task := range list {
			r, err := RunTask(context.Background(), fsys, "graph", "store", task.Name, o)
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(task.Name, "-")
			read[kind] += r.GraphBytesRead + r.TaskBytesRead
			written[kind] += r.BytesWritten
			count[kind]++
		}
		for _, s := range p.Stages[1:4] {
			off := math.Abs(float64(read[s.Kind])/float64(s.ReadBytes) - 1)
			if s.Kind != "write" {
				off = max(off, math.Abs(float64(written[s.Kind])/float64(s.WrittenBytes)-1))
			}
			if count[s.Kind] != s.Tasks || off > 0.05 {
				t.Errorf("%d tasks, %s: %d read %d and wrote %d bytes, planned %+v", tasks, s.Kind, count[s.Kind],
					read[s.Kind], written[s.Kind], s)
			}
		}
	}
}

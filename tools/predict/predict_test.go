package predict

import (
	"context"
	"encoding/csv"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

const (
	nodes, features, classes = 70, 3, 4
	scale                    = 0.5 // of the model's input
)

// example is a graph, its store of all nodes, and models with random parameters.
type example struct {
	fsys       *vfs.Mem
	adjacency  [nodes][nodes]float64 // [destination][source]
	x          [nodes][features]float64
	parameters []float32 // weights [classes, features], then biases
}

func newExample(t *testing.T) *example {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 5))
	e := &example{fsys: vfs.NewMem()}
	topology, x := &format.CSC{Offsets: []int64{0}}, []float32{}
	rows := format.RowTable{Rows: nodes, Labels: make([]int32, nodes), Splits: make([]uint8, nodes), NumSplits: 1}
	for v := range nodes {
		for u := range nodes {
			if v%9 != 0 && random.IntN(nodes) < 4 { // some have no in-neighbours
				w := 0.5 + random.Float32()
				topology.Neighbors, topology.Weights = append(topology.Neighbors, uint32(u)), append(topology.Weights, w)
				e.adjacency[v][u] = float64(w)
			}
		}
		topology.Offsets = append(topology.Offsets, int64(len(topology.Neighbors)))
		for f := range features {
			x = append(x, random.Float32()-0.5)
			e.x[v][f] = float64(x[len(x)-1])
		}
		rows.Labels[v], rows.Splits[v] = int32(v%classes), uint8(v%4)
	}
	for range classes * (features + 1) {
		e.parameters = append(e.parameters, 4*random.Float32()-2)
	}
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: nodes}}, 16, features, format.Float32)
	w, err := format.Create(e.fsys, "graph", layout, format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Matrix(format.Input)
	if err := errors.Join(err, m.Write(dtype.BytesOf(x)), m.Close(), w.Topology(topology), w.Rows(&rows),
		w.Publish(&format.Manifest{Kind: format.KindGraph, Directed: true, Classes: classes})); err != nil {
		t.Fatal(err)
	}
	o := preprop.Options{Operators: []operator.Operator{{Name: operator.Sym}}, Hops: 2, Rows: format.RowsAll, Threads: 1}
	if _, err := preprop.Propagate(t.Context(), e.fsys, "graph", "store", o); err != nil {
		t.Fatal(err)
	}
	return e
}

// probabilities are softmax(scale (S^hops X) W^T + b) in float64, where S is D^-1/2 (A+I) D^-1/2.
func (e *example) probabilities(hops int) (p [nodes][classes]float64) {
	a, degree := e.adjacency, [nodes]float64{}
	for v := range nodes {
		if a[v][v] == 0 {
			a[v][v] = 1
		}
		for u := range nodes {
			degree[v] += a[v][u]
		}
	}
	x := e.x
	for range hops {
		var y [nodes][features]float64
		for v := range nodes {
			for u := range nodes {
				for f := range features {
					y[v][f] += a[v][u] * x[u][f] / math.Sqrt(degree[v]*degree[u])
				}
			}
		}
		x = y
	}
	for v := range nodes {
		sum := 0.0
		for c := range classes {
			z := float64(e.parameters[classes*features+c])
			for f := range features {
				z += scale * x[v][f] * float64(e.parameters[c*features+f])
			}
			p[v][c] = math.Exp(z)
			sum += p[v][c]
		}
		for c := range classes {
			p[v][c] /= sum
		}
	}
	return p
}

// predict predicts by a model of one linear layer: sgc of hop 2, or gcn as printed.
func (e *example) predict(ctx context.Context, fsys vfs.FS, model, input string, o Options) (*Result, error) {
	dir, err := format.OpenAny(fsys, input)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	spec := trainer.Spec{Model: model, Features: features, Classes: classes,
		Matrices: []trainer.MatrixID{{Operator: "sym", Hop: 2}}}
	if model == "gcn" {
		spec.Matrices = []trainer.MatrixID{{Operator: "x", Hop: 0}}
		spec.Settings = trainer.Values{"layers": 1, "as-printed": 1}
	}
	if spec, err = spec.Normalized(); err != nil {
		return nil, err
	}
	options, err := trainer.Options{Epochs: 1, LearningRate: 1}.Normalized(spec)
	if err != nil {
		return nil, err
	}
	c := &checkpoint.Checkpoint{Data: checkpoint.DataSetOf(&dir.Manifest), Trained: trainer.Trained{
		Spec: spec, Options: options, Scales: []float32{scale}, Parameters: e.parameters}}
	o.Checkpoint, o.Input, o.FS, o.Threads = "run", input, fsys, 2
	o.Budget, o.Progress, o.Note = machine.Limit{Bytes: 1 << 30}, progress.Silent, func(string) {}
	o.BatchRows, o.Placement = 16, "auto"
	o.Open = func(ctx context.Context, dir *format.Dir, c *checkpoint.Checkpoint, so session.Options,
		parts []session.Part) (training.Input, []trainer.NamedRows, error) {
		so.Machine = session.ThisMachine(ctx, o.Budget, o.Threads, devices.Options{})
		return training.OpenToApply(ctx, dir, c, so, parts, false, "")
	}
	return Predict(ctx, c, dir, o)
}

// table reads a table of predictions: probabilities by node. It checks that each class is the most probable one.
func table(t *testing.T, fsys vfs.FS, path string) map[int][]float64 {
	t.Helper()
	text, err := vfs.ReadFile(fsys, path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[int][]float64{}
	for _, line := range lines[1:] {
		v, err := strconv.Atoi(line[0])
		if err != nil {
			t.Fatal(err)
		}
		best := 0
		for c, text := range line[2:] {
			p, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			if out[v] = append(out[v], p); p > out[v][best] {
				best = c
			}
		}
		if line[1] != strconv.Itoa(best) {
			t.Errorf("node %d: class %s of probabilities %v", v, line[1], out[v])
		}
	}
	return out
}

func TestPredictionsAreThoseOfAFloat64Loop(t *testing.T) {
	e := newExample(t)
	if err := vfs.WriteFile(e.fsys, "some.txt", []byte("69\n3\n0\n")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model, input string
		o            Options
		hops         int
		of           func(v int) bool // nodes that are predicted
	}{
		{"sgc", "store", Options{Rows: training.AllRows}, 2, func(int) bool { return true }},
		{"sgc", "store", Options{Rows: format.RegionTest}, 2, func(v int) bool { return uint8(v%4) == format.SplitTest }},
		{"sgc", "graph", Options{Rows: training.AllRows}, 2, func(int) bool { return true }},
		{"sgc", "graph", Options{Rows: format.RegionValid}, 2, func(v int) bool { return uint8(v%4) == format.SplitValid }},
		{"sgc", "graph", Options{NodesFile: "some.txt"}, 2, func(v int) bool { return v == 0 || v == 3 || v == 69 }},
		{"gcn", "graph", Options{Rows: training.AllRows}, 1, func(int) bool { return true }},
		{"gcn", "graph", Options{NodesFile: "some.txt"}, 1, func(v int) bool { return v == 0 || v == 3 || v == 69 }},
	} {
		name := c.model + " of " + c.input + " rows " + c.o.Rows + c.o.NodesFile
		c.o.Output = "out.csv"
		r, err := e.predict(t.Context(), e.fsys, c.model, c.input, c.o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, want := table(t, e.fsys, "out.csv"), e.probabilities(c.hops)
		if int(r.Rows) != len(got) {
			t.Errorf("%s: %d rows, the result says %d", name, len(got), r.Rows)
		}
		for v := range nodes {
			p, predicted := got[v]
			if predicted != c.of(v) {
				t.Errorf("%s: node %d: predicted %v", name, v, predicted)
			}
			for k := range p {
				if math.Abs(p[k]-want[v][k]) > 2e-6 {
					t.Errorf("%s: node %d, class %d: %v, want %v", name, v, k, p[k], want[v][k])
				}
			}
		}
		left(t, e.fsys, name)
	}
}

// left fails if there is a folder of a prediction.
func left(t *testing.T, fsys vfs.FS, name string) {
	t.Helper()
	if _, err := fsys.Stat("out.csv.job"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: out.csv.job is left (%v)", name, err)
	}
}

// A prediction of damaged input ends with format.ErrCorrupt, whichever byte of a file it reads has changed, or it is
// the same as before. It leaves nothing.
func TestPredictionsOfDamagedInputAreRefusedOrTheSame(t *testing.T) {
	e := newExample(t)
	o := Options{Rows: training.AllRows, Output: "out.csv"}
	random := rand.New(rand.NewPCG(1, 1))
	for _, input := range []string{"store", "graph"} {
		if _, err := e.predict(t.Context(), e.fsys, "sgc", input, o); err != nil {
			t.Fatal(err)
		}
		want, err := vfs.ReadFile(e.fsys, "out.csv", 1<<20)
		if err := errors.Join(err, e.fsys.Remove("out.csv")); err != nil {
			t.Fatal(err)
		}
		refused := 0
		for _, file := range []string{"manifest.json", "index.arrow", "nodes/part-00000.arrow", "rows/part-00000.arrow",
			"features/x/hop-0/part-00000.arrow", "features/sym/hop-2/part-00000.arrow", "topology/part-00000.arrow"} {
			path := input + "/" + file
			whole, err := vfs.ReadFile(e.fsys, path, 1<<20)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for k := range 12 {
				damaged := append([]byte{}, whole...)
				if k == 0 {
					damaged = damaged[:len(damaged)/2]
				} else {
					damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
				}
				if err := vfs.WriteFile(e.fsys, path, damaged); err != nil {
					t.Fatal(err)
				}
				_, err := e.predict(t.Context(), e.fsys, "sgc", input, o)
				got, _ := vfs.ReadFile(e.fsys, "out.csv", 1<<20)
				switch {
				case err == nil && string(got) != string(want):
					t.Errorf("%s, damage %d: other predictions", path, k)
				case err != nil && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion):
					t.Errorf("%s, damage %d: %v", path, k, err)
				case err != nil && got != nil:
					t.Errorf("%s, damage %d: %v, and a table", path, k, err)
				}
				if err != nil {
					refused++
				}
				left(t, e.fsys, path)
				if got != nil {
					if err := e.fsys.Remove("out.csv"); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := vfs.WriteFile(e.fsys, path, whole); err != nil {
				t.Fatal(err)
			}
		}
		if refused < 10 {
			t.Errorf("%s: only %d damages were refused", input, refused)
		}
	}
}

// A process that is killed leaves what the next one removes, and that one writes the same table.
func TestAKilledPredictionIsMadeAgain(t *testing.T) {
	e := newExample(t)
	o := Options{Rows: training.AllRows, Output: "out.csv"}
	if _, err := e.predict(t.Context(), e.fsys, "sgc", "graph", o); err != nil {
		t.Fatal(err)
	}
	want, err := vfs.ReadFile(e.fsys, "out.csv", 1<<20)
	if err := errors.Join(err, e.fsys.Remove("out.csv"), e.fsys.Sync(".")); err != nil {
		t.Fatal(err)
	}
	for n, more := int64(1), true; more; n += 7 {
		disk := e.fsys.CrashClone()
		fault := vfs.NewFault(disk)
		fault.FailFrom(n, errors.New("killed"))
		_, err := e.predict(t.Context(), fault, "sgc", "graph", o)
		if more = fault.Operations() >= n; more && err == nil {
			t.Errorf("killed at operation %d: no error", n)
		}
		if _, err := e.predict(t.Context(), disk, "sgc", "graph", o); err != nil {
			t.Fatalf("after operation %d: %v", n, err)
		}
		if got, err := vfs.ReadFile(disk, "out.csv", 1<<20); err != nil || string(got) != string(want) {
			t.Errorf("after operation %d: %v, or other predictions", n, err)
		}
		left(t, disk, "again")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.predict(ctx, e.fsys, "sgc", "graph", o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	left(t, e.fsys, "interrupted")
}

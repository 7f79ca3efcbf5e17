package trainer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/loader"
)

// gradientCases has at least one case of every model.
var gradientCases = []struct {
	name  string
	spec  Spec
	mixed float64 // fraction of unlabelled rows
	alone bool    // the model needs all rows of a batch on all ranks
}{
	{"sgc on one matrix", Spec{Model: "sgc", Matrices: hops("sym", 2)[2:]}, 0, false},
	{"sgc on the last hops of two operators", Spec{Model: "sgc", Matrices: []MatrixID{hop("sym", 2), hop("rw", 2)}}, 0,
		false},
	{"sgc with unlabelled rows", Spec{Model: "sgc", Matrices: hops("sym", 0)}, 0.3, false},
	{"sign of two layers", Spec{Model: "sign", Matrices: hops("sym", 2), Settings: signOf(5, 2, 0)}, 0, false},
	{"sign of three layers with dropout", Spec{Model: "sign", Matrices: hops("sym", 2), Settings: signOf(5, 3, 0.4)}, 0,
		false},
	{"sign of four layers", Spec{Model: "sign", Matrices: hops("sym", 1), Settings: signOf(6, 4, 0)}, 0.2, false},
	{"sign on two operators with dropout", Spec{Model: "sign",
		Matrices: append(hops("sym", 2), hop("rw", 1), hop("rw", 2)), Settings: signOf(4, 3, 0.2)}, 0, false},
	{"sgc on matrices of different widths", Spec{Model: "sgc", Matrices: []MatrixID{hop("a<b", 1), hop("a<c", 1)},
		Widths: map[string]int{"a<b": 5, "a<c": 2}}, 0, false},
	{"sign on matrices of different widths", Spec{Model: "sign",
		Matrices: append(hops("sym", 0), hop("a<b", 1), hop("a<c", 1)),
		Widths:   map[string]int{"a<b": 5, "a<c": 1}, Settings: signOf(5, 3, 0)}, 0, false},
	{"gamlp on matrices of different widths", Spec{Model: "gamlp",
		Matrices: append(hops("sym", 0), hop("a<b", 1), hop("a<c", 1)),
		Widths:   map[string]int{"a<b": 5, "a<c": 1}, Settings: signOf(5, 2, 0)}, 0, false},
	{"sehgnn on matrices of different widths, with dropout", Spec{Model: "sehgnn",
		Matrices: append(hops("sym", 0), hop("a<b", 1), hop("a<c", 1)),
		Widths:   map[string]int{"a<b": 5, "a<c": 1}, Settings: sehgnnOf(6, 3, 2, 0.3)}, 0, false},
	{"sehgnn on the input alone", Spec{Model: "sehgnn", Matrices: hops("sym", 0), Settings: sehgnnOf(4, 2, 1, 0)}, 0,
		false},
	{"nars on subsets of relations, with dropout", Spec{Model: "nars", Matrices: append(hops("sym", 0),
		hop("rw:a<b=2<a", 1), hop("rw:a<b=1<b", 1), hop("rw:a<b-a<c=2<b", 1), hop("rw:a<b-a<c=1<b", 1),
		hop("rw:a<b-a<c=2<a", 1)),
		Widths: map[string]int{"rw:a<b=1<b": 5, "rw:a<b-a<c=1<b": 5, "rw:a<b-a<c=2<b": 5}, Settings: signOf(4, 3, 0.3)},
		0.2, false},
	{"nars on two operators", Spec{Model: "nars", Matrices: append(hops("sym", 2), hop("rw", 1)),
		Settings: signOf(5, 2, 0)}, 0, false},
	{"nars on the input alone", Spec{Model: "nars", Matrices: hops("sym", 0), Settings: signOf(4, 3, 0)}, 0, false},
	{"sign on the input alone", Spec{Model: "sign", Matrices: hops("sym", 0), Settings: signOf(4, 3, 0)}, 0, false},
	{"ssgc on one operator", Spec{Model: "ssgc", Matrices: hops("sym", 2)}, 0, false},
	{"ssgc on two operators", Spec{Model: "ssgc", Matrices: append(hops("sym", 2), hop("rw", 1)),
		Settings: Values{"alpha": 0.3}}, 0.2, false},
	{"ssgc without a share of the input", Spec{Model: "ssgc", Matrices: hops("sym", 2), Settings: Values{"alpha": 0}},
		0, false},
	{"ssgc on the input alone", Spec{Model: "ssgc", Matrices: hops("sym", 0)}, 0, false},
	{"gamlp of two layers", Spec{Model: "gamlp", Matrices: hops("sym", 2), Settings: signOf(5, 2, 0)}, 0, false},
	{"gamlp of three layers on two operators with dropout", Spec{Model: "gamlp",
		Matrices: append(hops("sym", 3), hop("rw", 1)), Settings: Values{"hidden": 5, "layers": 3, "dropout": 0.3,
			"hop-dropout": 0.4}}, 0.2, false},
	{"gamlp on the input alone", Spec{Model: "gamlp", Matrices: hops("sym", 0), Settings: signOf(4, 3, 0)}, 0, false},
	{"hoga", Spec{Model: "hoga", Matrices: hops("sym", 2), Settings: hogaOf(6, 1, 1, 0)}, 0, true},
	{"hoga of two layers and two heads with dropout", Spec{Model: "hoga", Matrices: hops("sym", 2),
		Settings: hogaOf(6, 2, 2, 0.2)}, 0.2, true},
	{"hoga on two operators, one with fewer hops", Spec{Model: "hoga", Matrices: append(hops("sym", 2), hop("rw", 1)),
		Settings: hogaOf(5, 1, 1, 0)}, 0, true},
	{"gcn of one layer", Spec{Model: "gcn", Matrices: hops("sym", 0), Settings: blocksOf(5, 1, 0, 0, 0)}, 0, false},
	{"gcn of three layers with dropout", Spec{Model: "gcn", Matrices: hops("sym", 0),
		Settings: blocksOf(5, 3, 0.3, 0, 0)}, 0.2, false},
	{"gcn of two layers with residuals and norms", Spec{Model: "gcn", Matrices: hops("sym", 0),
		Settings: blocksOf(4, 2, 0.2, 1, 1)}, 0, false},
	{"sage of two layers with dropout", Spec{Model: "sage", Matrices: hops("sym", 0),
		Settings: blocksOf(5, 2, 0.3, 0, 0)}, 0.2, false},
	{"rgcn on a graph of one type", Spec{Model: "rgcn", Matrices: hops("sym", 0), Settings: blocksOf(5, 1, 0, 0, 0)}, 0,
		false},
	{"sage with norms", Spec{Model: "sage", Matrices: hops("sym", 0), Settings: blocksOf(5, 2, 0, 1, 0)}, 0, false},
	{"gat of one head", Spec{Model: "gat", Matrices: hops("sym", 0), Settings: blocksOf(4, 1, 0, 0, 0)}, 0, false},
	{"gat of two layers and two heads with residuals, norms and dropout",
		Spec{Model: "gat", Matrices: hops("sym", 0), Settings: gatOf(6, 2, 0.2, 2)}, 0.2, false},
	{"gcn of one layer as printed", Spec{Model: "gcn", Matrices: hops("sym", 0), Settings: printedOf(5, 1, 0, 1)}, 0,
		false},
	{"gcn of three layers as printed", Spec{Model: "gcn", Matrices: hops("sym", 0),
		Settings: printedOf(3, 3, 0.3, 1)}, 0.2, false},
	{"sage of two layers as printed", Spec{Model: "sage", Matrices: hops("sym", 0),
		Settings: printedOf(5, 2, 0.3, 1)}, 0, false},
	{"gat of two layers and two heads as printed", Spec{Model: "gat", Matrices: hops("sym", 0),
		Settings: printedOf(6, 2, 0.2, 2)}, 0.2, false},
	{"gat of one head as printed", Spec{Model: "gat", Matrices: hops("sym", 0), Settings: printedOf(4, 2, 0, 1)}, 0,
		false},
	{"hoga on the input alone", Spec{Model: "hoga", Matrices: hops("sym", 0), Settings: hogaOf(6, 1, 1, 0)}, 0, true},
}

func sehgnnOf(hidden, layers, heads int, dropout float64) Values {
	return Values{"hidden": float64(hidden), "layers": float64(layers), "heads": float64(heads), "dropout": dropout}
}

// blocksOf are settings of models on blocks, and gatOf of one with residuals and norms.
func blocksOf(hidden, layers int, dropout, norm, residual float64) Values {
	return Values{"hidden": float64(hidden), "layers": float64(layers), "dropout": dropout, "norm": norm,
		"residual": residual, "heads": 1}
}

func gatOf(hidden, layers int, dropout float64, heads int) Values {
	v := blocksOf(hidden, layers, dropout, 1, 1)
	v["heads"] = float64(heads)
	return v
}

// printedOf are settings of models on blocks as their papers print them.
func printedOf(hidden, layers int, dropout float64, heads int) Values {
	v := blocksOf(hidden, layers, dropout, 1, 1)
	v["heads"], v["as-printed"] = float64(heads), 1
	return v
}

func TestEveryModelHasItsGradientsCompared(t *testing.T) {
	for _, k := range kinds {
		compared := false
		for _, c := range gradientCases {
			compared = compared || c.spec.Model == k.name
		}
		if !compared {
			t.Errorf("%s has no case in gradientCases", k.name)
		}
	}
}

func TestABatchWithoutRowsOnThisRankHasNoGradient(t *testing.T) {
	dev := openDevice(t, host.Options{})
	n, err := newNetwork(dev, Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 2, Classes: 3}, 4,
		taskFor(t, true))
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	n.stream.Fill(n.params.grad, 7)
	none := gds.Tensor{Cols: 2, Stride: 2, DType: gds.Float32}
	n.gradient(&loader.Batch{GlobalRows: 5, X: []gds.Tensor{none}, Labels: gds.Tensor{Rows: 1, DType: gds.Int32}}, 0)
	grad, err := n.download(n.params.grad)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(grad, func(g float32) bool { return g != 0 }) {
		t.Errorf("gradient %v", grad)
	}
}

func TestModelsChooseTheirMatrices(t *testing.T) {
	store := append(hops("sym", 3), hop("rw", 1), hop("rw", 2))
	paths := append(hops("sym", 0), hop("rw:p<a", 1), hop("rw:p<c.p", 1), hop("rw:p<a<p", 1), hop("rw:p<a<p:labels", 1))
	subsets := append(hops("sym", 0), hop("rw:p<a-p<c=1<a", 1), hop("rw:p<a-p<c=2<a", 1))
	for _, c := range []struct {
		name, model string
		stored      []MatrixID
		operators   []string
		hops        []int
		want        string // or the error
	}{
		{"sgc reads the last hop alone", "sgc", hops("sym", 3), nil, nil, "[sym/hop-3]"},
		{"sgc reads the hop that is asked for", "sgc", hops("sym", 3), nil, []int{2}, "[sym/hop-2]"},
		{"sgc reads the last hop of each operator", "sgc", store, nil, nil, "[sym/hop-3 rw/hop-2]"},
		{"sgc without hops reads the input", "sgc", store, nil, []int{0}, "[x/hop-0]"},
		{"sgc on a store of the input alone", "sgc", hops("sym", 0), nil, nil, "[x/hop-0]"},
		{"sign reads all hops", "sign", hops("sym", 2), nil, nil, "[x/hop-0 sym/hop-1 sym/hop-2]"},
		{"sign reads up to the hop that is asked for", "sign", store, nil, []int{2},
			"[x/hop-0 sym/hop-1 sym/hop-2 rw/hop-1 rw/hop-2]"},
		{"one operator of two", "sign", store, []string{"rw"}, nil, "[x/hop-0 rw/hop-1 rw/hop-2]"},
		{"as many hops of each operator as are asked for", "ssgc", store, nil, []int{3, 1},
			"[x/hop-0 sym/hop-1 sym/hop-2 sym/hop-3 rw/hop-1]"},
		{"operators in another order", "sgc", store, []string{"rw", "sym"}, []int{2, 3}, "[rw/hop-2 sym/hop-3]"},
		{"too many numbers of hops", "sign", store, []string{"rw"}, []int{1, 2},
			"2 numbers of hops for the 1 operators rw (2 hops): give one for each, or one for all"},
		{"no hops of one operator", "sign", store, nil, []int{1, 0},
			"0 hops of rw wanted: leave out the operator instead"},
		{"more hops than there are", "sign", store, nil, []int{3},
			"3 hops wanted, but the store has rw (2 hops): propagate with more hops"},
		{"metapaths of up to a number of relations", "sehgnn", paths, nil, []int{1},
			"[x/hop-0 rw:p<a/hop-1 rw:p<c.p/hop-1]"},
		{"all metapaths", "sehgnn", paths, nil, []int{2},
			"[x/hop-0 rw:p<a/hop-1 rw:p<c.p/hop-1 rw:p<a<p/hop-1 rw:p<a<p:labels/hop-1]"},
		{"named metapaths", "sehgnn", paths, []string{"rw:p<a<p", "rw:p<a"}, []int{2},
			"[x/hop-0 rw:p<a<p/hop-1 rw:p<a/hop-1]"},
		{"hops of subsets of relations", "nars", subsets, nil, []int{1}, "[x/hop-0 rw:p<a-p<c=1<a/hop-1]"},
		{"no metapath", "sehgnn", paths, nil, []int{0}, "[x/hop-0]"},
		{"more relations than metapaths have", "sehgnn", paths, nil, []int{3},
			"3 hops wanted, but the metapaths of the store have up to 2 relations: propagate with more hops"},
		{"a named metapath of more relations", "sehgnn", paths, []string{"rw:p<a", "rw:p<a<p"}, []int{1},
			"1 hop wanted, but rw:p<a<p has 2 relations: leave out hops or the operator"},
		{"numbers of hops of metapaths", "sehgnn", paths, []string{"rw:p<a", "rw:p<a<p"}, []int{1, 2},
			"2 hops wanted, but each metapath of a typed graph, such as rw:p<a<p, is one matrix: give one number for all"},
		{"hops of a store without any", "sgc", hops("sym", 0), nil, []int{2},
			"2 hops wanted, but the store has the input features only: propagate with more hops"},
		{"an operator that is not there", "sgc", store, []string{"ppr"}, nil,
			`the store has no operator "ppr": it has sym (3 hops), rw (2 hops)`},
		{"a model that is not there", "mlp", store, nil, nil,
			`there is no model "mlp": the models are sgc, ssgc, sign, gamlp, hoga, sehgnn, nars, gcn, sage, gat, rgcn`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, err := Matrices(c.model, c.stored, c.operators, c.hops)
			got := fmt.Sprint(ids)
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if err != nil {
				return
			}
			operators, numbers := Spec{Matrices: ids}.Choice()
			grown := append(hops("sym", 5), hop("rw", 1), hop("rw", 2), hop("rw", 3), hop("col", 1))
			grown = append(append(grown, paths[1:]...), append(subsets[1:], hop("rw:p<v", 1))...)
			if again, err := Matrices(c.model, grown, operators, numbers); err != nil || fmt.Sprint(again) != got {
				t.Errorf("operators %v and hops %v choose %v, %v; want %s", operators, numbers, again, err, got)
			}
		})
	}
}

func TestImpossibleModelsAreRefused(t *testing.T) {
	good := Spec{Model: "sign", Matrices: hops("sym", 2), Features: 8, Classes: 3, Settings: signOf(4, 3, 0)}
	if _, _, err := good.normalized(); err != nil {
		t.Fatal(err)
	}
	set := func(name string, value float64) func(*Spec) {
		return func(s *Spec) { s.Settings = maps.Clone(s.Settings); s.Settings[name] = value }
	}
	for _, c := range []struct {
		name string
		edit func(*Spec)
		want string
	}{
		{"no matrices", func(s *Spec) { s.Matrices = nil }, "0 matrices"},
		{"no features", func(s *Spec) { s.Features = 0 }, "0 features"},
		{"no classes", func(s *Spec) { s.Classes = 0 }, "0 classes"},
		{"negative hidden units", set("hidden", -1), "sign: hidden -1: must be an integer from 1 to 1048576"},
		{"one layer", set("layers", 1), "sign: layers 1: must be an integer from 2 to 256"},
		{"half a layer", set("layers", 2.5), "layers 2.5"},
		{"layers that are no number", set("layers", math.NaN()), "layers NaN"},
		{"all dropped", set("dropout", 1), "sign: dropout 1: must be at least 0 and below 1"},
		{"dropout that is no number", set("dropout", math.NaN()), "dropout NaN"},
		{"a matrix twice", func(s *Spec) { s.Matrices = append(s.Matrices, s.Matrices[1]) }, "matrices of a model"},
		{"a negative hop", func(s *Spec) { s.Matrices = []MatrixID{hop("sym", -1)} }, "matrices of a model"},
		{"a size that overflows", func(s *Spec) { s.Features, s.Settings = maxWidth, signOf(maxWidth, 256, 0) },
			"too large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good
			c.edit(&s)
			if _, _, err := s.normalized(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAModelHasAValueForEachOfItsSettings(t *testing.T) {
	for _, c := range []struct {
		model       string
		given, want Values
	}{
		{"sgc", Values{"hidden": 64, "dropout": 0.5}, Values{}},
		{"sign", nil, signOf(128, 3, 0.7)},
		{"sign", Values{"hidden": 64, "dropout": 0, "heads": 2}, signOf(64, 3, 0)},
	} {
		c.want["as-printed"] = 0
		s, err := Spec{Model: c.model, Matrices: hops("sym", 0), Features: 2, Classes: 2,
			Settings: c.given}.Normalized()
		if err != nil || !maps.Equal(s.Settings, c.want) || s.Settings == nil {
			t.Errorf("%s with %v has %v, %v; want %v", c.model, c.given, s.Settings, err, c.want)
		}
	}
}

// TestModelsAsPrintedAreNeitherNormalizedNorStandardized checks what as-printed means beside the layers.
func TestModelsAsPrintedAreNeitherNormalizedNorStandardized(t *testing.T) {
	for _, k := range kinds {
		for _, asPrinted := range []float64{0, 1} {
			spec, err := Spec{Model: k.name, Matrices: hops("sym", 0), Features: 2, Classes: 2,
				Settings: Values{"as-printed": asPrinted, "norm": 1, "residual": 1}}.Normalized()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"norm", "residual"} {
				if got, has := spec.Settings[name]; has && got != 1-asPrinted {
					t.Errorf("%s with as-printed %v has %s %v", k.name, asPrinted, name, got)
				}
			}
			o := Options{Epochs: 1, LearningRate: 1}
			want := map[float64]string{0: "matrix", 1: "none"}[asPrinted]
			if o, err = o.Normalized(spec); err != nil || o.Standardize != want {
				t.Errorf("%s with as-printed %v is standardized by %q, %v", k.name, asPrinted, o.Standardize, err)
			}
			o.Standardize = "column" // what is asked for stays
			if o, err = o.Normalized(spec); err != nil || o.Standardize != "column" {
				t.Errorf("%s with as-printed %v is standardized by %q, %v", k.name, asPrinted, o.Standardize, err)
			}
		}
	}
}

// TestSettingsOfOneNameAreOneFlag would fail if two models declared the same name with other words.
func TestSettingsOfOneNameAreOneFlag(t *testing.T) {
	known := map[string]Setting{}
	for _, k := range kinds {
		for _, s := range k.settings {
			if err := s.check(s.Default); err != nil || s.Name == "" || s.Help == "" {
				t.Errorf("%s: %+v: %v", k.name, s, err)
			}
			if o, ok := known[s.Name]; ok && (o.Help != s.Help || o.Integer != s.Integer) {
				t.Errorf("%s: %+v, but another model has %+v", k.name, s, o)
			}
			known[s.Name] = s
		}
	}
	if len(ModelSettings()) != len(known) {
		t.Errorf("%+v", ModelSettings())
	}
}

func TestInitialValuesAreThoseOfALinearLayer(t *testing.T) {
	spec := Spec{Model: "sign", Matrices: hops("sym", 1), Features: 50, Classes: 3, Settings: signOf(40, 3, 0)}
	_, b, err := spec.normalized()
	if err != nil {
		t.Fatal(err)
	}
	p := &b.params
	values := p.initial(1)
	for _, q := range p.list {
		bound := 1 / math.Sqrt(float64(map[string]int{"hop-0": 50, "hop-1": 50, "hidden-1": 80,
			"out": 40}[strings.Split(q.name, ".")[0]]))
		mean, largest := 0.0, 0.0
		own := values[q.first : q.first+q.rows*q.cols]
		for _, v := range own {
			mean += float64(v) / float64(len(own))
			largest = max(largest, math.Abs(float64(v)))
		}
		// Uniform in [-bound, bound): the mean of n has deviation bound/sqrt(3n).
		if largest > bound*(1+1e-6) || len(own) > 30 && largest < 0.85*bound ||
			math.Abs(mean) > 4*bound/math.Sqrt(3*float64(len(own))) {
			t.Errorf("%s: mean %v, largest %v, want within %v", q.name, mean, largest, bound)
		}
	}
	if other := p.initial(2); sameBits(values, other) {
		t.Error("two seeds give the same values")
	}
	// They are part of what a seed means: these must never change.
	_, b, _ = Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 1, Classes: 2}.normalized()
	if got := b.params.initial(1); fmt.Sprint(got) != "[-0.50100434 0.49479926 -0.120883584 -0.52338386]" {
		t.Errorf("seed 1 gives %v", got)
	}
}

func TestANetworkFreesItsMemoryWhenTheDeviceIsFull(t *testing.T) {
	dev := openDevice(t, host.Options{MemoryBytes: 64 << 10})
	_, err := newNetwork(dev, Spec{Model: "sign", Matrices: hops("sym", 1), Features: 8, Classes: 3,
		Settings: signOf(16, 3, 0)}, 1000, taskFor(t, true))
	if err == nil || !strings.Contains(err.Error(), gds.ErrOutOfMemory.Error()) {
		t.Errorf("got %v", err)
	}
	if used := dev.Usage().InUse; used != 0 {
		t.Errorf("%d bytes still in use", used)
	}
}

package trainer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

// typedToy is a batch of a typed graph: its lists of edges, for the definition, and its blocks, for the model.
type typedToy struct {
	kinds  [][]int     // of nodes: of the rows, then of the sources of layers, the last layer's first
	lists  [][][][]int // [layer][relation][destination]: sources
	blocks []toyBlock
	parts  [][]uint32
	x      []rows64 // of each type
	ids    []uint32 // of the inputs, within their types
}

var typedToySpec = Spec{
	Matrices: []MatrixID{{Operator: "a"}, {Operator: "b"}, {Operator: "c"}}, Features: 3,
	Widths: map[string]int{"a": 3, "b": 2, "c": 1}, Classes: 4,
	Relations: []Relation{{"a", "cites", "a"}, {"a", "", "b"}, {"b", "", "a"}, {"b", "none", "b"}, {"c", "", "a"}},
}

// newTypedToy has rows of type a. Node v has v % 4 in-neighbours in each relation to its type, but "none"; the last row
// has none at all.
func newTypedToy(s Spec, layers, rows int) *typedToy {
	d := &typedToy{kinds: [][]int{make([]int, rows)}}
	for i := range layers {
		kinds := slices.Clone(d.kinds[i])
		for k := range 7 {
			kinds = append(kinds, k%3)
		}
		var lists [][][]int
		for r, of := range s.Relations {
			var sources []int
			for u, kind := range kinds {
				if kind == s.typeOf(of.Source) {
					sources = append(sources, u)
				}
			}
			list := make([][]int, len(d.kinds[i]))
			for v, kind := range d.kinds[i] {
				for e := range v % 4 {
					if kind == s.typeOf(of.Destination) && of.Name != "none" && v != rows-1 {
						at := rng.Hash(uint64(10*i+r), uint64(8*v+e)) % uint64(len(sources))
						list[v] = append(list[v], sources[at])
					}
				}
			}
			lists = append(lists, list)
		}
		d.kinds, d.lists = append(d.kinds, kinds), slices.Insert(d.lists, 0, lists)
	}
	inputs := d.kinds[layers]
	within, counts := make([]int, len(inputs)), make([]int, len(s.Matrices))
	for u, kind := range inputs {
		within[u] = counts[kind]
		counts[kind]++
	}
	for kind, n := range counts {
		x := make(rows64, n) // to be learned
		if s.given(kind) > 0 {
			x, _ = random64(uint64(kind), n, s.given(kind))
		}
		d.x = append(d.x, x)
		for i := range n {
			d.ids = append(d.ids, uint32(max(n, s.Nodes[s.Matrices[kind].Operator])-1-i))
		}
	}
	for layer := range layers {
		kinds, sources := d.kinds[layers-1-layer], d.kinds[layers-layer]
		along := toyBlock{Sources: len(sources), Offsets: []uint32{0}}
		sums := toyBlock{Destinations: len(kinds), Offsets: []uint32{0}}
		parts, rows := []uint32{0}, make([][]uint32, len(kinds))
		add := func(v int, from []int) {
			rows[v] = append(rows[v], uint32(along.Destinations))
			for _, u := range from {
				if layer == 0 {
					u = within[u]
				}
				along.Indices, along.Weights = append(along.Indices, uint32(u)), append(along.Weights, 1/float32(len(from)))
			}
			along.Offsets = append(along.Offsets, uint32(len(along.Indices)))
			along.Destinations++
		}
		for r, of := range s.Relations {
			for v, kind := range kinds {
				if kind == s.typeOf(of.Destination) {
					add(v, d.lists[layer][r][v])
				}
			}
			parts = append(parts, uint32(along.Destinations))
		}
		for kind := range s.Matrices {
			for v := range kinds {
				if kinds[v] == kind {
					add(v, []int{v})
				}
			}
			parts = append(parts, uint32(along.Destinations))
		}
		for _, of := range rows {
			sums.Indices = append(sums.Indices, of...)
			sums.Offsets = append(sums.Offsets, uint32(len(sums.Indices)))
		}
		sums.Weights, sums.Sources = slices.Repeat([]float32{1}, len(sums.Indices)), along.Destinations
		d.blocks, d.parts = append(d.blocks, along, sums), append(d.parts, parts, nil)
	}
	return d
}

// batch brings the toy to the device of a network.
func (d *typedToy) batch(t *testing.T, n *network, labels []int32) *loader.Batch {
	t.Helper()
	mem := gds.Memory{Device: n.mem.Device}
	t.Cleanup(func() {
		if err := mem.Free(); err != nil {
			t.Error(err)
		}
	})
	b := &loader.Batch{Rows: len(labels), GlobalRows: len(labels), Apart: true}
	upload := func(rows, cols int, kind gds.DType, from []byte) gds.Tensor {
		to, err := matrixOf(&mem, "toy", rows, cols, kind)
		if err == nil {
			err = gds.Upload(mem.Device, n.stream, to, from)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	for i, block := range d.blocks {
		to, err := block.upload(&mem, n.stream)
		if err != nil {
			t.Fatal(err)
		}
		to.Parts = d.parts[i]
		b.Blocks = append(b.Blocks, to)
	}
	if len(n.spec.Nodes) > 0 {
		b.InputIDs = upload(1, len(d.ids), gds.Uint32, dtype.BytesOf(d.ids))
	}
	for kind, x := range d.x {
		if n.spec.given(kind) == 0 {
			b.X = append(b.X, gds.NewTensor(nil, len(x), 0, gds.Float32))
			continue
		}
		b.X = append(b.X, upload(len(x), n.spec.Width(kind), gds.Float32, dtype.BytesOf(x.flat())))
	}
	b.Labels = upload(1, len(labels), gds.Int32, dtype.BytesOf(labels))
	return b
}

// relational64 is a relational model on the lists of a toy.
func (v *values64) relational64(s Spec, d *typedToy, x []rows64, seed uint64) rows64 {
	layers, printed := s.Settings.integer("layers"), s.Settings["as-printed"] == 1
	x = slices.Clone(x)
	for kind, id := range s.Matrices {
		n, width := s.Nodes[id.Operator], s.Width(kind)
		if n == 0 {
			continue
		}
		table := v.take(n * width)
		x[kind] = nil
		for i := range d.x[kind] {
			x[kind] = append(x[kind], table[(n-1-i)*width:][:width])
		}
	}
	var h rows64 // of the sources of a layer
	next := make([]int, len(x))
	for _, kind := range d.kinds[layers] {
		h = append(h, x[kind][next[kind]])
		next[kind]++
	}
	for i := range layers {
		kinds, last := d.kinds[layers-1-i], printed && i == layers-1
		out := s.Settings.integer("hidden")
		if last {
			out = s.Classes
		}
		y := make(rows64, len(kinds))
		for to := range y {
			y[to] = make([]float64, out)
		}
		width := func(kind int) int {
			if i > 0 {
				return s.Settings.integer("hidden")
			}
			return s.Width(kind)
		}
		add := func(to int, w, from []float64) {
			for o := range out {
				y[to][o] += inner64(w[o*len(from):][:len(from)], from)
			}
		}
		made := map[int][]float64{} // weights of relations, of bases
		if bases := s.Settings.integer("bases"); bases > 0 {
			for from := range s.Matrices {
				var of []int
				for r, one := range s.Relations {
					if s.typeOf(one.Source) == from || i > 0 {
						of = append(of, r)
					}
				}
				if len(of) == 0 || i > 0 && from > 0 {
					continue
				}
				size := out * width(from)
				basis, factors := v.take(bases*size), v.take(len(of)*bases)
				for k, r := range of {
					made[r] = make([]float64, size)
					for b := range bases {
						for j := range size {
							made[r][j] += factors[k*bases+b] * basis[b*size+j]
						}
					}
				}
			}
		}
		for r, of := range s.Relations {
			w, isMade := made[r]
			if !isMade {
				w = v.take(out * width(s.typeOf(of.Source)))
			}
			for to, list := range d.lists[i][r] {
				mean := make([]float64, width(s.typeOf(of.Source)))
				for _, u := range list {
					for j := range mean {
						mean[j] += h[u][j] / float64(len(list))
					}
				}
				add(to, w, mean)
			}
		}
		for kind := range s.Matrices {
			w, bias := v.take(out*width(kind)), v.take(out)
			for to := range kinds {
				if kinds[to] == kind {
					add(to, w, h[to])
					for o := range out {
						y[to][o] += bias[o]
					}
				}
			}
		}
		if last {
			return y
		}
		if s.Settings["norm"] == 1 {
			y = v.layerNorm(y)
		}
		h = reluDropout(y, float32(s.Settings["dropout"]), rng.Hash(seed, uint64(i+1)))
	}
	return v.affine(s.Classes, h)
}

func TestGradientsOfRelationalModelsAreThoseOfTheirDefinition(t *testing.T) {
	const rows, seed = 9, 99
	for _, c := range []struct {
		model    string
		settings Values
		discrete bool
		nodes    map[string]int
	}{
		{"rgcn", Values{"hidden": 5, "layers": 1, "dropout": 0}, false, nil},
		{"rgcn", Values{"hidden": 5, "layers": 2, "dropout": 0.3}, true, nil},
		{"sage", Values{"hidden": 5, "layers": 2, "dropout": 0.3, "norm": 1}, false, nil},
		{"rgcn", Values{"hidden": 4, "layers": 3, "dropout": 0, "as-printed": 1}, true, nil},
		{"rgcn", Values{"hidden": 5, "layers": 2, "dropout": 0.3, "bases": 2}, false, nil},
		{"rgcn", Values{"hidden": 4, "layers": 2, "dropout": 0, "bases": 7, "norm": 1}, true, nil},
		{"sage", Values{"hidden": 5, "layers": 2, "dropout": 0.3, "embedding": 3}, false, map[string]int{"b": 14}},
		{"rgcn", Values{"hidden": 4, "layers": 1, "dropout": 0, "embedding": 2, "bases": 2}, true,
			map[string]int{"a": 23, "c": 11}},
	} {
		t.Run(fmt.Sprint(c.model, c.settings), func(t *testing.T) {
			s := typedToySpec
			s.Model, s.Settings, s.Nodes = c.model, c.settings, c.nodes
			task, err := Options{}.task(s, true)
			if err != nil {
				t.Fatal(err)
			}
			n, err := newNetwork(openDevice(t, host.Options{Discrete: c.discrete}), s, rows, task)
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			d, labels := newTypedToy(s, s.Settings.integer("layers"), rows), make([]int32, rows)
			for i := range labels {
				labels[i] = int32(i%5) - 1
			}
			var inputs []InputScale
			x := make([]rows64, len(d.x)) // standardized
			for kind, of := range d.x {
				in := InputScale{Scale: 0.5 + 0.25*float32(kind), Mean: make([]float32, s.Width(kind))}
				for j := range s.Width(kind) {
					in.Factor = append(in.Factor, []float32{2, 1, 0.5}[j])
				}
				if s.given(kind) == 0 {
					in.Scale, in.Factor = 1, slices.Repeat([]float32{1}, s.Width(kind))
				}
				inputs, x[kind] = append(inputs, in), of.clone()
				for _, row := range x[kind] {
					for j := range row {
						row[j] *= float64(in.Scale) * float64(in.Factor[j])
					}
				}
			}
			initial := someValues(n.params, 6)
			if err := n.upload(n.params.value, initial); err != nil {
				t.Fatal(err)
			}
			if err := n.setInputs(inputs); err != nil {
				t.Fatal(err)
			}
			n.restore() // the values are for standardized features, as the gradient is
			n.stream.Fill(n.lossSum, 0)
			b := d.batch(t, n, labels)
			if err := n.admit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			n.gradient(b, seed)
			gradient, err := n.download(n.params.grad)
			if err != nil {
				t.Fatal(err)
			}
			loss, err := n.readLoss(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			values := widen(initial)
			lossOf := func() float64 {
				parameters := values64(values)
				return crossEntropy64(parameters.relational64(n.spec, d, x, seed), labels) / rows
			}
			if want := lossOf(); math.Abs(float64(loss)/rows/want-1) > 1e-5 {
				t.Errorf("loss %v, want %v", loss/rows, want)
			}
			compareLearnt(t, "", n.params, gradient, values, lossOf)

			b.Blocks[0].Parts = b.Blocks[0].Parts[1:]
			if err := n.admit(t.Context(), b); err == nil || !strings.Contains(err.Error(), "parts") {
				t.Errorf("a block with %d parts: %v", len(b.Blocks[0].Parts)-1, err)
			}
		})
	}
}

func TestSpecsWithRelationsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(s *Spec)
		want   string
	}{
		{func(s *Spec) { s.Model = "gat" }, "gat reads a graph of one type"},
		{func(s *Spec) {
			s.Settings, s.Relations, s.Matrices = Values{"bases": 2}, nil, s.Matrices[:1]
		}, "bases are for the relations of a typed graph"},
		{func(s *Spec) { s.Model = "sign" }, "sign reads a graph of one type"},
		{func(s *Spec) { s.Relations = []Relation{{"a", "", "d"}} }, "relations"},
		{func(s *Spec) { s.Relations = append(slices.Clone(s.Relations), s.Relations[0]) }, "relations"},
		{func(s *Spec) { s.Settings = Values{"embedding": 4} }, "0 types of nodes without features"},
		{func(s *Spec) { s.Nodes = map[string]int{"b": 4} }, "embedding 0, and there are 1 types"},
		{func(s *Spec) {
			s.Settings, s.Nodes = Values{"embedding": 4}, map[string]int{"d": 4}
		}, "cannot learn the rows of 4 nodes of d"},
		{func(s *Spec) { s.Relations = nil }, "reads features of a graph"},
		{func(s *Spec) { s.Matrices = append(slices.Clone(s.Matrices), s.Matrices[0]) }, "matrices"},
	} {
		s := typedToySpec
		s.Model = "rgcn"
		if _, err := s.Normalized(); err != nil {
			t.Fatal(err)
		}
		c.change(&s)
		if _, err := s.Normalized(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	s := typedToySpec
	s.Model = "rgcn"
	saved, scales, err := s.Saved([]float32{1, 2, 3}).Spec()
	if err != nil || !slices.Equal(saved.Relations, s.Relations) || !slices.Equal(scales, []float32{1, 2, 3}) {
		t.Errorf("saved as %v, with scales %v: %v", saved, scales, err)
	}
}

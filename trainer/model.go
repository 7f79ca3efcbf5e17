package trainer

import (
	"fmt"
	"slices"
	"strings"
)

// kinds lists all models.
var kinds = []kind{sgcKind, signKind}

// kind is a kind of model: its name, its defaults, and how it is built. All functions are pure.
type kind struct {
	name, about string
	// chooseMatrices lists the matrices that the model reads, given the input features and
	// the last hop, >= 1, of each operator to use.
	chooseMatrices func(input MatrixID, last []MatrixID) []MatrixID
	// normalize checks a Spec's Hidden, Layers and Dropout, and sets those to zero that the
	// model does not use.
	normalize func(*Spec) error
	// build declares parameters and activations.
	build func(Spec, *builder) model
	// size is the standard deviation that the elements of input matrices are scaled to,
	// given the number of columns: see group.measureScales.
	size     func(features int) float64
	defaults Settings // but for the weight decay
	// decay is the default weight decay times the number of training rows.
	decay float64
}

// model is a function from the feature matrices of a batch (pass.x) to logits. Both methods
// enqueue work on the pass. Layers may wait for those of the other ranks in between (pass.sum).
type model interface {
	// forward computes the logits [p.rows, classes].
	forward(p *pass) *activation
	// backward adds to the gradients of all parameters, from that of the logits which the
	// last forward of the same pass returned.
	backward(p *pass)
}

// Models lists the names of the models, each with a line about it.
func Models() (names, about []string) {
	for _, k := range kinds {
		names, about = append(names, k.name), append(about, k.about)
	}
	return names, about
}

func findKind(name string) (*kind, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		names, _ := Models()
		return nil, fmt.Errorf("there is no model %q: the models are %s", name, strings.Join(names, ", "))
	}
	return &kinds[i], nil
}

// Matrices selects what a model reads of a store that has the matrices stored
// (the input first, as hop 0): hops of each of the operators named. No operators
// means all there are, hops < 0 as many as each has, and hops 0 the input alone.
func Matrices(model string, stored []MatrixID, operators []string, hops int) ([]MatrixID, error) {
	k, err := findKind(model)
	if err != nil {
		return nil, err
	}
	var input *MatrixID
	var last []MatrixID // of every operator
	for i, id := range stored {
		if id.Hop == 0 {
			input = &stored[i]
			continue
		}
		at := slices.IndexFunc(last, func(l MatrixID) bool { return l.Operator == id.Operator })
		if at < 0 {
			last = append(last, id)
		} else {
			last[at].Hop = max(last[at].Hop, id.Hop)
		}
	}
	if input == nil {
		return nil, fmt.Errorf("the store lacks its input features (hop 0)")
	}
	if hops == 0 {
		return k.chooseMatrices(*input, nil), nil
	}
	wanted := last
	if len(operators) > 0 {
		wanted = nil
		for _, name := range operators {
			at := slices.IndexFunc(last, func(l MatrixID) bool { return l.Operator == name })
			if at < 0 {
				return nil, fmt.Errorf("the store has no operator %q: it has %s", name, hopsText(last))
			}
			wanted = append(wanted, last[at])
		}
	}
	if hops > 0 {
		wanted = slices.Clone(wanted)
		for i := range wanted {
			if wanted[i].Hop < hops {
				return nil, fmt.Errorf("%d hops wanted, but the store has %s: propagate with more hops", hops, hopsText(wanted[i:i+1]))
			}
			wanted[i].Hop = hops
		}
		if len(wanted) == 0 {
			return nil, fmt.Errorf("%d hops wanted, but the store has the input features only: propagate with more hops", hops)
		}
	}
	return k.chooseMatrices(*input, wanted), nil
}

func hopsText(last []MatrixID) string {
	if len(last) == 0 {
		return "none"
	}
	parts := make([]string, len(last))
	for i, l := range last {
		parts[i] = fmt.Sprintf("%s (%d hops)", l.Operator, l.Hop)
	}
	return strings.Join(parts, ", ")
}

// Spec is everything that determines a model's parameters and what they mean.
// Fields that a model does not use (Hidden, Layers and Dropout of sgc) are ignored.
type Spec struct {
	Model    string
	Matrices []MatrixID // what a batch holds, in this order
	Features int        // columns of each
	Classes  int
	Hidden   int
	Layers   int
	Dropout  float64
}

// Limits of a Spec. They are far beyond what is useful, and keep sizes that come from a file
// from overflowing.
const (
	maxMatrices   = 1 << 12
	maxWidth      = 1 << 20
	maxLayers     = 1 << 8
	maxParameters = 1 << 31
)

// Normalized returns the Spec with zeros in the fields that its model does not use. A Spec of
// which no model can be made is ErrOptions.
func (s Spec) Normalized() (Spec, error) {
	s, _, err := s.normalized()
	return s, err
}

// normalized is validate, with its errors as ErrOptions.
func (s Spec) normalized() (Spec, *builder, error) {
	s, b, err := s.validate()
	if err != nil {
		return s, nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return s, b, nil
}

// validate checks a Spec. It returns the Spec with zeros in the fields that its model does not
// use, and what the model declares.
func (s Spec) validate() (Spec, *builder, error) {
	k, err := findKind(s.Model)
	if err != nil {
		return s, nil, err
	}
	for _, v := range []struct {
		what         string
		value, least int
		most         int
	}{
		{"matrices", len(s.Matrices), 1, maxMatrices},
		{"features", s.Features, 1, maxWidth},
		{"classes", s.Classes, 1, maxWidth},
		{"hidden units", s.Hidden, 0, maxWidth},
		{"layers", s.Layers, 0, maxLayers},
	} {
		if v.value < v.least || v.value > v.most {
			return s, nil, fmt.Errorf("a model with %d %s: must be %d to %d", v.value, v.what, v.least, v.most)
		}
	}
	if !(s.Dropout >= 0 && s.Dropout < 1) {
		return s, nil, fmt.Errorf("dropout %v: must be at least 0 and below 1", s.Dropout)
	}
	seen := map[MatrixID]bool{}
	for _, id := range s.Matrices {
		if id.Operator == "" || id.Hop < 0 || id.Hop > maxMatrices || seen[id] {
			return s, nil, fmt.Errorf("the matrices of a model cannot be %v", s.Matrices)
		}
		seen[id] = true
	}
	s.Matrices = slices.Clone(s.Matrices)
	if err := k.normalize(&s); err != nil {
		return s, nil, err
	}
	// An upper bound of every model's largest matrix, before anything is summed.
	widest := int64(len(s.Matrices)) * int64(max(s.Features, s.Hidden))
	if tall := int64(max(s.Hidden, s.Classes)); widest > maxParameters/tall/int64(max(1, s.Layers)) {
		return s, nil, fmt.Errorf("a model of %d matrices of %d features, %d hidden units and %d classes is too large",
			len(s.Matrices), s.Features, s.Hidden, s.Classes)
	}
	b := &builder{size: k.size(s.Features)}
	b.model = k.build(s, b)
	return s, b, nil
}

func (s Spec) lastHop() int {
	last := 0
	for _, id := range s.Matrices {
		last = max(last, id.Hop)
	}
	return last
}

// builder collects what a model consists of, before there is memory for it.
type builder struct {
	model       model
	size        float64 // see kind
	parameters  parameters
	activations []*activation
	inputLayers []*inputLayer
}

// inputLayer declares a linear layer that reads the input matrices from.
func (b *builder) inputLayer(name string, out int, s Spec, from []int) *inputLayer {
	widths := slices.Repeat([]int{s.Features}, len(from))
	r := &inputLayer{linear: newLinear(&b.parameters, name, out, widths...), from: from}
	b.inputLayers = append(b.inputLayers, r)
	return r
}

func (b *builder) activation(cols int) *activation {
	a := &activation{cols: cols}
	b.activations = append(b.activations, a)
	return a
}

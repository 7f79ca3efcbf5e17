package trainer

import (
	"fmt"
	"slices"
)

// Spec is everything that determines a model's parameters and what they mean.
type Spec struct {
	Model    string
	Matrices []MatrixID // what a batch holds, in this order
	Features int        // columns of each
	Classes  int
	Settings Values // settings that are not here have their defaults; those of other models are ignored
}

// Limits of a Spec. They are far beyond what is useful, and keep sizes that come from a file
// from overflowing.
const (
	maxMatrices   = 1 << 12
	maxWidth      = 1 << 20
	maxParameters = 1 << 31
)

// Normalized returns the Spec with a value for each setting of its model, and no others. A Spec of
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

// validate checks a Spec. It returns the Spec with a value for each setting, and what the model
// declares.
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
	} {
		if v.value < v.least || v.value > v.most {
			return s, nil, fmt.Errorf("a model with %d %s: must be %d to %d", v.value, v.what, v.least, v.most)
		}
	}
	s.Settings = k.values(s.Settings)
	for _, setting := range k.settings {
		if err := setting.check(s.Settings[setting.Name]); err != nil {
			return s, nil, fmt.Errorf("%s: %w", s.Model, err)
		}
	}
	seen := map[MatrixID]bool{}
	for _, id := range s.Matrices {
		if id.Operator == "" || id.Hop < 0 || id.Hop > maxMatrices || seen[id] {
			return s, nil, fmt.Errorf("the matrices of a model cannot be %v", s.Matrices)
		}
		seen[id] = true
	}
	s.Matrices = slices.Clone(s.Matrices)
	b := &builder{size: k.size(s.Features)}
	b.model = k.build(s, b)
	if b.parameters.count > maxParameters {
		return s, nil, fmt.Errorf("%s of %d matrices of %d features and %d classes, %v, is too large: it has %d parameters",
			s.Model, len(s.Matrices), s.Features, s.Classes, s.Settings, b.parameters.count)
	}
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

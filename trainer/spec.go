package trainer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hopfeed/hopfeed/internal/safetensors"
)

// Spec is everything that determines a model's parameters and what they mean.
type Spec struct {
	Model    string
	Matrices []MatrixID // of a batch, in this order; with Relations, one for each type, whose operator is its name
	Features int        // columns of each, where Widths does not say otherwise
	// Widths are the columns of the matrices of operators, by name, that have not Features of them; nil: none.
	Widths map[string]int
	// Relations are those of the typed graph that batches are sampled from; nil: it has one type, or there is none.
	Relations []Relation
	// Nodes are the types of the typed graph without features, by name, with the number of their nodes. Each node learns a
	// row of as many columns as the setting embedding says.
	Nodes    map[string]int
	Classes  int    // columns that the model puts out: one for each class, label or value
	Target   Target // what they are
	Settings Values // missing ones have their defaults; settings of other models are ignored
}

// Limits of a Spec. They are more than is useful, and keep sizes from a file from overflowing.
const (
	maxMatrices   = 1 << 12
	maxWidth      = 1 << 20
	maxParameters = 1 << 31
)

// Normalized returns the Spec with a value for each setting of its model, and no others. It returns ErrOptions if the
// Spec does not describe a model.
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

// validate checks a Spec. It returns the Spec with a value for each setting, and its declarations.
func (s Spec) validate() (Spec, *builder, error) {
	k, err := findKind(s.Model)
	if err != nil {
		return s, nil, err
	}
	within := func(what string, value, most int) error {
		return must(1 <= value && value <= most, "a model with %d %s: must be 1 to %d", value, what, most)
	}
	_, known := targets[s.Target]
	err = cmp.Or(within("matrices", len(s.Matrices), maxMatrices), within("classes", s.Classes, maxWidth),
		must(known, "there is no target %q", s.Target), k.checkSettings(&s),
		must(len(s.Relations) == 0 || k.relational, "%s reads a graph of one type (models of typed graphs are rgcn and sage)",
			s.Model),
		must(k.aggregation == "" || len(s.Matrices) == 1 || len(s.Relations) > 0, "%s reads features of a graph, not %v",
			s.Model, s.Matrices),
		must(s.Settings["bases"] == 0 || len(s.Relations) > 0, "bases are for the relations of a typed graph, and this "+
			"one has one type"),
		s.checkRelations(), s.checkNodes())
	if err != nil {
		return s, nil, err
	}
	seen := map[MatrixID]bool{}
	for _, id := range s.Matrices {
		if id.Operator == "" || id.Hop < 0 || id.Hop > maxMatrices || seen[id] {
			return s, nil, fmt.Errorf("the matrices of a model cannot be %v", s.Matrices)
		}
		width := s.Width(len(seen))
		seen[id] = true
		if err := within("features in "+id.String(), width, maxWidth); err != nil {
			return s, nil, err
		}
		if k.oneWidth && width != s.Width(0) {
			return s, nil, fmt.Errorf("%s mixes matrices, which must then have as many columns: %s has %d, %s has %d (choose "+
				"operators, or a model that does not, such as sign)", s.Model, s.Matrices[0], s.Width(0), id, width)
		}
	}
	s.Matrices = slices.Clone(s.Matrices)
	b := &builder{size: k.size}
	b.logits = k.build(s, b)
	if s.Target == ValuesTarget {
		b.rescale(s)
	}
	return s, b, must(b.params.count <= maxParameters, "%s of %d matrices of %d features and %d classes, %v, "+
		"is too large: it has %d parameters", s.Model, len(s.Matrices), s.Features, s.Classes, s.Settings,
		b.params.count)
}

// ReadsOwnRows tells whether the model, if it is made of blocks, reads the rows of their destinations beside sums along
// edges.
func (s Spec) ReadsOwnRows() (bool, error) {
	_, b, err := s.normalized()
	return err == nil && b.messages != nil && b.messages.own, err
}

// checkSettings gives each setting of the kind a value.
func (k *kind) checkSettings(s *Spec) error {
	s.Settings = k.values(s.Settings)
	var err error
	for _, setting := range k.settings {
		err = cmp.Or(err, setting.check(s.Settings[setting.Name]))
	}
	if err == nil && k.check != nil {
		err = k.check(s.Settings)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Model, err)
	}
	return nil
}

// SavedSpec is a Spec in files, with the scale of each matrix.
type SavedSpec struct {
	Name     string         `json:"name"`
	Matrices []savedMatrix  `json:"matrices"`
	Features int            `json:"features"`
	Widths   map[string]int `json:"widths,omitempty"`
	// Relations are those of a typed graph; the operators of Matrices are then its types.
	Relations []Relation     `json:"relations,omitempty"`
	Nodes     map[string]int `json:"nodes,omitempty"` // of types whose rows are learned
	Classes   int            `json:"classes"`
	Target    Target         `json:"target,omitempty"`
	Settings  Values         `json:"settings"`
}

type savedMatrix struct {
	Operator string  `json:"operator"`
	Hop      int     `json:"hop"`
	Scale    float32 `json:"scale"`
}

// Saved converts a Spec for a file; scales has a number for each matrix.
func (s Spec) Saved(scales []float32) SavedSpec {
	saved := SavedSpec{Name: s.Model, Features: s.Features, Widths: s.Widths, Relations: s.Relations, Nodes: s.Nodes,
		Classes: s.Classes, Target: s.Target, Settings: s.Settings}
	for i, id := range s.Matrices {
		saved.Matrices = append(saved.Matrices, savedMatrix{id.Operator, id.Hop, scales[i]})
	}
	return saved
}

// Spec is the inverse of Spec.Saved, with a value for each setting. A setting that this version's model does not have
// is an error, since it may change what parameters mean.
func (saved SavedSpec) Spec() (s Spec, scales []float32, err error) {
	s = Spec{Model: saved.Name, Features: saved.Features, Widths: saved.Widths, Relations: saved.Relations,
		Nodes: saved.Nodes, Classes: saved.Classes, Target: saved.Target, Settings: saved.Settings}
	for _, m := range saved.Matrices {
		s.Matrices = append(s.Matrices, MatrixID{Operator: m.Operator, Hop: m.Hop})
		scales = append(scales, m.Scale)
	}
	k, err := findKind(s.Model)
	if err != nil {
		return s, nil, err
	}
	known := k.values(nil)
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		if _, ok := known[name]; !ok {
			return s, nil, fmt.Errorf("%s has no setting %q in this version", s.Model, name)
		}
	}
	s, _, err = s.validate()
	return s, scales, err
}

// Tensors are the model's parameters by name, as parts of a flat vector.
func (s Spec) Tensors(flat []float32) (all []safetensors.Tensor, err error) {
	_, declared, err := s.normalized()
	if err != nil {
		return nil, err
	}
	if n := declared.params.count; len(flat) != n {
		return nil, fmt.Errorf("%d values for %d parameters", len(flat), n)
	}
	for _, q := range declared.params.list {
		values := flat[q.first : q.first+q.rows*q.cols]
		all = append(all, safetensors.Tensor{Name: q.name, Shape: []int{q.rows, q.cols}, Data: values})
	}
	return all, nil
}

// given is how many columns a matrix of a batch has.
func (s Spec) given(matrix int) int {
	if s.Nodes[s.Matrices[matrix].Operator] > 0 {
		return 0
	}
	return s.Width(matrix)
}

// Width is the number of columns of a matrix, by its place in Matrices, learned ones too.
func (s Spec) Width(matrix int) int {
	if s.Nodes[s.Matrices[matrix].Operator] > 0 {
		return s.Settings.integer("embedding")
	}
	if width := s.Widths[s.Matrices[matrix].Operator]; width > 0 {
		return width
	}
	return s.Features
}

// widest is the number of columns of the widest matrix.
func (s Spec) widest() (columns int) {
	for i := range s.Matrices {
		columns = max(columns, s.Width(i))
	}
	return columns
}

func (s Spec) lastHop() int {
	last := 0
	for _, id := range s.Matrices {
		last = max(last, id.Hop)
	}
	return last
}

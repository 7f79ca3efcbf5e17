package trainer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// kinds lists all models.
var kinds = []kind{sgcKind, ssgcKind, signKind, gamlpKind, hogaKind, sehgnnKind, narsKind, gcnKind, sageKind, gatKind,
	rgcnKind}

// kind is a kind of model: its name, its defaults, and how it is built. All functions are pure.
type kind struct {
	name, about string
	// aggregation is what the blocks are to estimate that the model computes on; "": it reads no graph, but
	// matrices of a store.
	aggregation sampling.Aggregation
	relational  bool // it reads typed graphs too
	// chooseMatrices lists the matrices that the model reads, given the input features (none where the rows have none
	// of their own) and the last hop, >= 1, of each operator to use.
	chooseMatrices func(input, last []MatrixID) []MatrixID
	settings       []Setting
	// check returns an error if values contradict each other, though each Setting allows its own; nil: none do.
	check func(Values) error
	// build declares parameters and activations, adds layers, and returns the logits [rows, classes]. The Spec has a
	// value for each setting.
	build func(Spec, *builder) *activation
	// size is the standard deviation that the elements of an input matrix are scaled to,
	// given the number of its columns: see group.measureInputs.
	size func(columns int) float64
	// oneWidth: all matrices must have as many columns.
	oneWidth bool
	defaults Settings // but for the values of settings, and for the weight decay
	// decay is the default weight decay times the number of training rows, fewDecay the same for few rows (0: decay),
	// and mostDecay the largest default (0: any).
	decay, fewDecay, mostDecay float64
	// few changes the defaults for at most fewRows training rows; nil: they are the same.
	few func(*Settings)
	// leastBatches is how many batches an epoch has at least by default, as long as these have leastBatchRows rows.
	leastBatches int
}

// values are the given values, defaults for settings without one, and no others. A model as its paper prints it has
// no norm and no residual.
func (k *kind) values(given Values) Values {
	v := Values{}
	for _, s := range k.settings {
		value, ok := given[s.Name]
		if !ok {
			value = s.Default
		}
		v[s.Name] = value
	}
	for _, tuned := range []string{"norm", "residual"} {
		if _, has := v[tuned]; has && v.asPrinted() {
			v[tuned] = 0
		}
	}
	return v
}

// Models lists the names of the models, each with a line about it.
func Models() (names, about []string) {
	for _, k := range kinds {
		names, about = append(names, k.name), append(about, k.about)
	}
	return names, about
}

// AggregationOf is the aggregation that blocks estimate for a model; "": it reads matrices of a store instead.
func AggregationOf(model string) (sampling.Aggregation, error) {
	k, err := findKind(model)
	if err != nil {
		return "", err
	}
	return k.aggregation, nil
}

// ReadsRelations tells whether a model reads typed graphs.
func ReadsRelations(model string) bool {
	k, err := findKind(model)
	return err == nil && k.relational
}

// ReadsLastHop tells whether a model reads one hop of each operator: which one is then a setting to be chosen.
func ReadsLastHop(model string) (bool, error) {
	k, err := findKind(model)
	if err != nil {
		return false, err
	}
	read := k.chooseMatrices([]MatrixID{{}}, []MatrixID{{Operator: "any", Hop: 2}})
	return len(read) == 1 && read[0].Hop == 2, nil
}

func findKind(name string) (*kind, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		names, _ := Models()
		return nil, fmt.Errorf("there is no model %q: the models are %s", name, strings.Join(names, ", "))
	}
	return &kinds[i], nil
}

// Matrices selects the matrices that a model reads, from those stored (the input first, as hop 0): hops of each of the
// operators named; no operators means all. hops has one number for all operators (0: the input alone) or one for each;
// none means all hops of each. Of metapaths of a typed graph, each of which is an operator with one matrix, one number
// means those of up to so many relations.
func Matrices(model string, stored []MatrixID, operators []string, hops []int) ([]MatrixID, error) {
	k, err := findKind(model)
	if err != nil {
		return nil, err
	}
	input, last := lastHops(stored)
	noHops := slices.Equal(hops, []int{0})
	if len(input) == 0 && (noHops || len(last) == 0) {
		return nil, fmt.Errorf("the store lacks its input features (hop 0)")
	}
	if noHops {
		return k.chooseMatrices(input, nil), nil
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
	if len(hops) == 0 {
		return k.chooseMatrices(input, wanted), nil
	}
	err = cmp.Or(
		must(len(wanted) > 0, "%s wanted, but the store has the input features only: propagate with more hops",
			units.Count(int64(hops[0]), "hop")),
		must(len(hops) == 1 || len(hops) == len(wanted),
			"%d numbers of hops for the %d operators %s: give one for each, or one for all", len(hops), len(wanted),
			hopsText(wanted)))
	if err == nil && len(hops) == 1 && isPath(wanted[0]) {
		if wanted, err = pathsUpTo(wanted, hops[0], len(operators) > 0); err != nil {
			return nil, err
		}
		return k.chooseMatrices(input, wanted), nil
	}
	wanted = slices.Clone(wanted)
	for i := range wanted {
		w, n := &wanted[i], hops[min(i, len(hops)-1)]
		err = cmp.Or(err,
			must(n >= 1, "%d hops of %s wanted: leave out the operator instead", n, w.Operator),
			must(w.Hop >= n || !isPath(*w), "%s wanted, but each metapath of a typed graph, such as %s, is one matrix: give "+
				"one number for all", units.Count(int64(n), "hop"), w.Operator),
			must(w.Hop >= n, "%s wanted, but the store has %s: propagate with more hops", units.Count(int64(n), "hop"),
				hopsText(wanted[i:i+1])))
		w.Hop = n
	}
	if err != nil {
		return nil, err
	}
	return k.chooseMatrices(input, wanted), nil
}

// isPath tells that the operator of a matrix is a metapath of a typed graph.
func isPath(id MatrixID) bool { return strings.Contains(id.Operator, "<") }

// pathsUpTo are the metapaths of up to most relations. Named ones must all be.
func pathsUpTo(metapaths []MatrixID, most int, named bool) (paths []MatrixID, err error) {
	longest := 0
	for _, id := range metapaths {
		n := originOf(id).hops
		if longest = max(longest, n); n <= most {
			paths = append(paths, id)
		} else if named {
			return nil, fmt.Errorf("%s wanted, but %s has %s: leave out hops or the operator", units.Count(int64(most), "hop"),
				id.Operator, units.Count(int64(n), "relation"))
		}
	}
	return paths, must(len(paths) > 0 && most <= longest, "%s wanted, but the metapaths of the store have up to %s: "+
		"propagate with more hops", units.Count(int64(most), "hop"), units.Count(int64(longest), "relation"))
}

// lastHops are the input, if it is there, and the last hop of each operator.
func lastHops(stored []MatrixID) (input, last []MatrixID) {
	for i, id := range stored {
		at := slices.IndexFunc(last, func(l MatrixID) bool { return l.Operator == id.Operator })
		switch {
		case id.Hop == 0:
			input = stored[i : i+1]
		case at < 0:
			last = append(last, id)
		default:
			last[at].Hop = max(last[at].Hop, id.Hop)
		}
	}
	return input, last
}

// CommonHops lists the operators of stored matrices that are wanted, or all, and the number of hops that all of them
// have.
func CommonHops(stored []MatrixID, wanted []string) (operators []string, hops int) {
	_, last := lastHops(stored)
	for _, l := range last {
		if len(wanted) > 0 && !slices.Contains(wanted, l.Operator) {
			continue
		}
		if len(operators) == 0 || l.Hop < hops {
			hops = l.Hop
		}
		operators = append(operators, l.Operator)
	}
	return operators, hops
}

// Choice is what Matrices chooses these matrices by, from any store that has them.
func (s Spec) Choice() (operators []string, hops []int) {
	_, last := lastHops(s.Matrices)
	if last == nil {
		return nil, []int{0}
	}
	for _, l := range last {
		operators, hops = append(operators, l.Operator), append(hops, l.Hop)
	}
	switch {
	case isPath(last[0]):
		hops = nil
	case slices.Min(hops) == slices.Max(hops):
		hops = hops[:1]
	}
	return operators, hops
}

func hopsText(last []MatrixID) string {
	if len(last) == 0 {
		return "none"
	}
	parts := make([]string, len(last))
	for i, l := range last {
		parts[i] = fmt.Sprintf("%s (%s)", l.Operator, units.Count(int64(l.Hop), "hop"))
	}
	return strings.Join(parts, ", ")
}

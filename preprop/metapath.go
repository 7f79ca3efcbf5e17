package preprop

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Metapath is what features of one type travel along, to the nodes of the target type.
type Metapath struct {
	Name         string  `json:"name"` // as paper<author<paper: from the target to the type whose features it brings
	Features     int     `json:"features"`
	Bytes        int64   `json:"bytes"` // of the matrix
	Seconds      float64 `json:"predicted_seconds"`
	Device       string  `json:"device,omitempty"`        // that computes it, or cpu; "": it was there
	DeviceReason string  `json:"device_reason,omitempty"` // why it is another than the job's
}

// IsHop tells that it is a hop of a subset of relations.
func (m Metapath) IsHop() bool { return isHop(m.Name) }

func (m Metapath) String() string {
	on := ""
	switch {
	case m.DeviceReason != "":
		on = fmt.Sprintf(" on the processor, since %s", m.DeviceReason)
	case m.Device != "" && m.Device != CPU:
		on = " on " + m.Device
	}
	return fmt.Sprintf("%s: %s, %s, about %.1f s%s", m.Name, units.Count(int64(m.Features), "column"),
		units.Bytes(m.Bytes), m.Seconds, on)
}

// typedMatrix is a matrix that the store of a typed graph has, or that the job makes such a matrix of: the features of
// the nodes of a type, or the mean of other matrices over the relations to one type.
type typedMatrix struct {
	name         string            // the metapath from head to source; of a subset, head, source and hop
	key          string            // the same for the same matrix, in names of folders
	head, source *format.NodeType  // whose nodes its rows are, and whose features its columns
	relations    []format.Relation // to head; none: the features themselves
	inputs       []*typedMatrix    // of the source of each relation; nil: nothing of source has come there
	users        []*typedMatrix    // that it is an input of
	labels       bool              // what travels is labels of training nodes
	stored       []string          // operators' metapaths under which the store has its rows
}

// title is what the store calls a matrix of the name.
func (n *typedMatrix) title(name string) string {
	if n.labels {
		return name + ":labels"
	}
	return name
}

// path lists the matrices from the first that a matrix is made of, by one relation each, to itself.
func (n *typedMatrix) path() (all []*typedMatrix) {
	for ; len(n.relations) > 0; n = n.inputs[0] {
		all = append(all, n)
	}
	slices.Reverse(all)
	return all
}

// leaf tells whether no other matrix is made of it, so that it is made for the stored rows alone.
func (n *typedMatrix) leaf() bool { return len(n.users) == 0 }

// madeOf lists a matrix and all that it is made of, each once.
func (n *typedMatrix) madeOf() (all []*typedMatrix) {
	var visit func(one *typedMatrix)
	visit = func(one *typedMatrix) {
		if one != nil && !slices.Contains(all, one) {
			all = append(all, one)
			for _, x := range one.inputs {
				visit(x)
			}
		}
	}
	visit(n)
	return all
}

// spent lists the inputs of a matrix of which nothing more is made.
func (n *typedMatrix) spent(done map[*typedMatrix]bool) (all []*typedMatrix) {
	for i, x := range n.inputs {
		missing := func(user *typedMatrix) bool { return !done[user] }
		if x != nil && !slices.Contains(n.inputs[:i], x) && !slices.ContainsFunc(x.users, missing) {
			all = append(all, x)
		}
	}
	return all
}

// typedMatrices are all matrices of a job, each once.
type typedMatrices struct {
	typed *format.Typed
	known map[string]*typedMatrix // by key
	roots []*typedMatrix          // features
	// labels: labels of training nodes travel, so the target is the only type with features, a column a class.
	labels bool
}

func newTypedMatrices(t *format.Typed) *typedMatrices {
	return &typedMatrices{typed: t, known: map[string]*typedMatrix{}}
}

// labelMatrices makes typedMatrices in which labels travel, a column a class.
func labelMatrices(t *format.Typed, columns int) *typedMatrices {
	labelled := *t
	labelled.Types = slices.Clone(t.Types)
	for i := range labelled.Types {
		n := &labelled.Types[i]
		if n.Features = 0; n.Name == t.Target {
			n.Features = columns
		}
	}
	m := newTypedMatrices(&labelled)
	m.labels = true
	return m
}

// features is the features of a type.
func (m *typedMatrices) features(nodeType string) (*typedMatrix, error) {
	source, _ := m.typed.Type(nodeType)
	if source.Features == 0 {
		return nil, fmt.Errorf("nodes of type %s have no features", source.Name)
	}
	x, known := m.known[(&typedMatrix{labels: m.labels}).title(source.Name)]
	if !known {
		x = &typedMatrix{name: source.Name, head: source, source: source, labels: m.labels}
		x.key = x.title(x.name)
		m.known[x.key], m.roots = x, append(m.roots, x)
	}
	return x, nil
}

// relationsKey stands for relations in names of folders.
func relationsKey(relations []format.Relation) string {
	h := sha256.New()
	for _, r := range relations {
		fmt.Fprintln(h, r)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// mean is the mean over relations to one type of inputs, some of which are not nil.
func (m *typedMatrices) mean(name string, relations []format.Relation, inputs []*typedMatrix) *typedMatrix {
	h := sha256.New()
	fmt.Fprintln(h, relationsKey(relations))
	var source *format.NodeType
	for _, x := range inputs {
		key := ""
		if x != nil {
			key, source = x.key, x.source
		}
		fmt.Fprintln(h, key)
	}
	key := fmt.Sprintf("%x", h.Sum(nil)[:8])
	if one, known := m.known[key]; known {
		one.name = min(one.name, name) // the same in any order, for a run that goes on
		return one
	}
	head, _ := m.typed.Type(relations[0].Destination)
	one := &typedMatrix{name: name, key: key, head: head, source: source, relations: relations, inputs: inputs,
		labels: m.labels}
	for i, x := range inputs {
		if x != nil && !slices.Contains(inputs[:i], x) {
			x.users = append(x.users, one)
		}
	}
	m.known[key] = one
	return one
}

// store says that the store shall have the rows of a matrix, under the name of an operator's metapath.
func (m *typedMatrices) store(one *typedMatrix, name string) error {
	if len(name) > 85 { // the operator's name has some characters more
		return fmt.Errorf("metapath %s is too long for the name of a folder (give fewer --hops, or the metapaths "+
			"that you need by --metapaths)", name)
	}
	if !slices.Contains(one.stored, name) {
		one.stored = append(one.stored, name)
	}
	return nil
}

// stored are the names under which the store shall have a matrix.
func (m *typedMatrices) stored() map[string]bool {
	names := map[string]bool{}
	for _, one := range m.known {
		for _, name := range one.stored {
			names[name] = true
		}
	}
	return names
}

// inOrder lists all matrices, inputs before what is made of them, and each soon before its users: what is not stored is
// on disk until then.
func (m *typedMatrices) inOrder() (all []*typedMatrix) {
	done := map[*typedMatrix]bool{nil: true}
	var visit func(one *typedMatrix)
	visit = func(one *typedMatrix) {
		missing := func(x *typedMatrix) bool { return !done[x] }
		if done[one] || slices.ContainsFunc(one.inputs, missing) {
			return
		}
		done[one], all = true, append(all, one)
		for _, next := range one.users {
			visit(next)
		}
	}
	slices.SortFunc(m.roots, func(a, b *typedMatrix) int { return strings.Compare(a.name, b.name) })
	for _, root := range m.roots {
		visit(root)
	}
	return all
}

// stepName spells a relation as a part of a metapath: destination<source, or with the relation's name where there are
// several between the two types.
func stepName(t *format.Typed, r format.Relation) string {
	same := 0
	for _, other := range t.Relations {
		if other.Source == r.Source && other.Destination == r.Destination {
			same++
		}
	}
	if same > 1 && r.Name != "" {
		return r.Destination + "<" + r.Name + "."
	}
	return r.Destination + "<"
}

// add adds the metapath, or the hop of a subset, that text spells, and returns of how many steps it is.
func (m *typedMatrices) add(text string) (hops int, err error) {
	if isHop(text) {
		return m.addHop(text)
	}
	relations, err := m.parse(text)
	if err == nil {
		err = m.addPath(relations)
	}
	return len(relations), err
}

// addPath adds a metapath, given from its head, and all that it is made from.
func (m *typedMatrices) addPath(relations []format.Relation) error {
	x, err := m.features(relations[len(relations)-1].Source)
	if err != nil {
		return err
	}
	name := x.name
	for _, r := range slices.Backward(relations) {
		name = stepName(m.typed, r) + name
		x = m.mean(name, []format.Relation{r}, []*typedMatrix{x})
	}
	return m.store(x, name)
}

// addAllPaths adds all metapaths of up to hops relations to the target that start from a type with features.
func (m *typedMatrices) addAllPaths(hops int) error {
	const most = 1000
	count := 0
	return eachPath(m.typed, hops, func(relations []format.Relation) error {
		if n, _ := m.typed.Type(relations[len(relations)-1].Source); n.Features == 0 {
			return nil
		}
		if count++; count > most {
			return fmt.Errorf("there are more than %d metapaths of up to %d relations (name some with --metapaths)", most,
				hops)
		}
		return m.addPath(relations)
	})
}

// eachPath calls visit with every metapath of 1 to hops relations that leads to the target. It visits a metapath before
// it extends it.
func eachPath(t *format.Typed, hops int, visit func(relations []format.Relation) error) error {
	var extend func(relations []format.Relation, tail string) error
	extend = func(relations []format.Relation, tail string) error {
		if len(relations) > 0 {
			if err := visit(relations); err != nil {
				return err
			}
		}
		if len(relations) == hops {
			return nil
		}
		for _, r := range t.Relations {
			if r.Destination == tail {
				if err := extend(append(slices.Clone(relations), r), r.Source); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return extend(nil, t.Target)
}

// parse reads a metapath such as paper<author<paper, or paper<cites.paper where several relations lead from one type to
// the other.
func (m *typedMatrices) parse(text string) ([]format.Relation, error) {
	parts := strings.Split(text, "<")
	if len(parts) < 2 || parts[0] != m.typed.Target {
		return nil, fmt.Errorf("metapath %q: want %s<TYPE, perhaps with more types", text, m.typed.Target)
	}
	var relations []format.Relation
	head := parts[0]
	for _, part := range parts[1:] {
		name, source, named := strings.Cut(part, ".")
		if !named {
			name, source = "", part
		}
		var found []format.Relation
		for _, r := range m.typed.Relations {
			if r.Destination == head && r.Source == source && (!named || r.Name == name) {
				found = append(found, r)
			}
		}
		isNamed := func(r format.Relation) bool { return r.Name != "" }
		if rest := slices.DeleteFunc(slices.Clone(found), isNamed); len(found) > 1 && len(rest) == 1 {
			found = rest
		}
		if len(found) != 1 {
			var all []string
			for _, r := range m.typed.Relations {
				if r.Destination == head {
					all = append(all, stepName(m.typed, r)+r.Source)
				}
			}
			what := fmt.Sprintf("there is no relation %s<%s (there are: %%s)", head, part)
			if len(found) > 1 {
				what = fmt.Sprintf("%s<%s may be any of %d relations: name one (%%s)", head, part, len(found))
			}
			return nil, fmt.Errorf("metapath %q: "+what, text, strings.Join(all, ", "))
		}
		relations, head = append(relations, found[0]), source
	}
	return relations, nil
}

package preprop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Metapath is what features of one type travel along, to the nodes of the target type.
type Metapath struct {
	Name     string  `json:"name"` // as paper<author<paper: from the target to the type whose features it brings
	Features int     `json:"features"`
	Bytes    int64   `json:"bytes"` // of the matrix
	Seconds  float64 `json:"predicted_seconds"`
}

func (m Metapath) String() string {
	return fmt.Sprintf("%s: %s, %s, about %.1f s", m.Name, units.Count(int64(m.Features), "column"), units.Bytes(m.Bytes),
		m.Seconds)
}

// pathNode is a relation at the head of a metapath, in a tree whose root is the type that features come from: what is
// below a node begins with what the node has made.
type pathNode struct {
	name     string // the metapath from its head to the root
	relation format.Relation
	source   *format.NodeType // at the root
	labels   bool             // what travels is labels of training nodes
	stored   bool             // its head is the target, and the store shall have it
	before   *pathNode        // nil: it begins at the root
	next     []*pathNode
}

// title names the metapath, and says if labels travel along it.
func (n *pathNode) title() string {
	if n.labels {
		return n.name + ":labels"
	}
	return n.name
}

// folder is a part of the names of folders for what is made of the node.
func (n *pathNode) folder() string { return strings.NewReplacer("<", "-", ":", "-").Replace(n.title()) }

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

// pathTree is the trees of metapaths, one for each type with features that one of them starts from.
type pathTree struct {
	typed *format.Typed
	roots map[string][]*pathNode // by type
	// labels: labels of training nodes travel, so the target is the only type with features, a column a class.
	labels bool
}

// labelTree is the trees of metapaths of labels that have these columns.
func labelTree(t *format.Typed, columns int) *pathTree {
	labelled := *t
	labelled.Types = slices.Clone(t.Types)
	for i := range labelled.Types {
		n := &labelled.Types[i]
		if n.Features = 0; n.Name == t.Target {
			n.Features = columns
		}
	}
	return &pathTree{typed: &labelled, roots: map[string][]*pathNode{}, labels: true}
}

// each calls visit with each root.
func (t *pathTree) each(visit func(root *pathNode)) {
	if t == nil {
		return
	}
	for _, n := range t.typed.Types {
		for _, root := range t.roots[n.Name] {
			visit(root)
		}
	}
}

// add adds a metapath, given from its head, and all that it is made from.
func (t *pathTree) add(relations []format.Relation) error {
	last := relations[len(relations)-1]
	source, _ := t.typed.Type(last.Source)
	if source.Features == 0 {
		return fmt.Errorf("nodes of type %s have no features", source.Name)
	}
	level, name := t.roots[source.Name], source.Name
	var at *pathNode
	for _, r := range slices.Backward(relations) {
		name = stepName(t.typed, r) + name
		i := slices.IndexFunc(level, func(n *pathNode) bool { return n.relation == r })
		if i < 0 {
			one := &pathNode{name: name, relation: r, source: source, labels: t.labels, before: at}
			if at == nil {
				t.roots[source.Name] = append(t.roots[source.Name], one)
			} else {
				at.next = append(at.next, one)
			}
			at, level = one, nil
			continue
		}
		at, level = level[i], level[i].next
	}
	if len(name) > 85 { // the operator's name has some characters more
		return fmt.Errorf("metapath %s is too long for the name of a folder", name)
	}
	at.stored = true
	return nil
}

// addAll adds all metapaths of up to hops relations to the target that start from a type with features.
func (t *pathTree) addAll(hops int) error {
	const most = 1000
	count := 0
	var extend func(relations []format.Relation, head string) error
	extend = func(relations []format.Relation, tail string) error {
		if n, _ := t.typed.Type(tail); len(relations) > 0 && n.Features > 0 {
			if count++; count > most {
				return fmt.Errorf("there are more than %d metapaths of up to %d relations (name some with --metapaths)", most,
					hops)
			}
			if err := t.add(relations); err != nil {
				return err
			}
		}
		if len(relations) == hops {
			return nil
		}
		for _, r := range t.typed.Relations {
			if r.Destination == tail {
				if err := extend(append(slices.Clone(relations), r), r.Source); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return extend(nil, t.typed.Target)
}

// parse reads a metapath such as paper<author<paper, or paper<cites.paper where several relations lead from one type to
// the other.
func (t *pathTree) parse(text string) ([]format.Relation, error) {
	parts := strings.Split(text, "<")
	if len(parts) < 2 || parts[0] != t.typed.Target {
		return nil, fmt.Errorf("metapath %q: want %s<TYPE, perhaps with more types", text, t.typed.Target)
	}
	var relations []format.Relation
	head := parts[0]
	for _, part := range parts[1:] {
		name, source, named := strings.Cut(part, ".")
		if !named {
			name, source = "", part
		}
		var found []format.Relation
		for _, r := range t.typed.Relations {
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
			for _, r := range t.typed.Relations {
				if r.Destination == head {
					all = append(all, stepName(t.typed, r)+r.Source)
				}
			}
			return nil, fmt.Errorf("metapath %q: %d relations are %s<%s (there are: %s)", text, len(found), head, part,
				strings.Join(all, ", "))
		}
		relations, head = append(relations, found[0]), source
	}
	return relations, nil
}

// stored lists the nodes whose matrices the store shall have.
func (t *pathTree) stored() (out []*pathNode) {
	var visit func(nodes []*pathNode)
	visit = func(nodes []*pathNode) {
		for _, n := range nodes {
			if n.stored {
				out = append(out, n)
			}
			visit(n.next)
		}
	}
	t.each(func(root *pathNode) { visit([]*pathNode{root}) })
	return out
}

package training

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// TypedShape is what a model reads of a graph or store: its matrices and layout and, of a typed graph (Dir.Typed), the
// features of each type, whose name is the operator of their matrix, and the relations.
func TypedShape(dir *format.Dir) (matrices []trainer.MatrixID, layout format.Layout, relations []trainer.Relation) {
	matrices, layout = dir.Matrices(), dir.Layout()
	if dir.Typed == nil {
		return matrices, layout, nil
	}
	matrices, layout.Widths = nil, map[string]int{}
	for _, n := range dir.Typed.Types {
		matrices = append(matrices, trainer.MatrixID{Operator: n.Name})
		layout.Widths[n.Name] = n.Features
	}
	for _, r := range dir.Typed.Relations {
		relations = append(relations, trainer.Relation{Source: r.Source, Name: r.Name, Destination: r.Destination})
	}
	return matrices, layout, relations
}

// bareTypes are the types without features, with the number of their nodes; nil: there are none.
func bareTypes(t *format.Typed) (nodes map[string]int) {
	for _, n := range t.Types {
		if n.Features == 0 {
			if nodes == nil {
				nodes = map[string]int{}
			}
			nodes[n.Name] = int(n.Nodes)
		}
	}
	return nodes
}

// CheckRelations refuses a graph whose relations are not those of the training of a model, or which has other nodes
// than those whose rows it has learned.
func CheckRelations(dir *format.Dir, spec trainer.Spec) error {
	_, _, relations := TypedShape(dir)
	if slices.Equal(relations, spec.Relations) {
		for name, nodes := range spec.Nodes {
			if n, _ := dir.Typed.Type(name); n.Features > 0 || n.Nodes != int64(nodes) {
				return session.Refuse("the model has learned rows of %d nodes of %s, and this graph has %d, with %d "+
					"features (train a model on this graph, or one without --embedding)", nodes, name, n.Nodes, n.Features)
			}
		}
		return nil
	}
	text := func(all []trainer.Relation) string {
		var names []string
		for _, r := range all {
			names = append(names, r.String())
		}
		return cmp.Or(strings.Join(names, ", "), "none, as it has one type")
	}
	return session.Refuse("the relations of the model's graph were %s, and those of this one are %s", text(spec.Relations),
		text(relations))
}

// checkTyped refuses a typed graph that no model can be trained on.
func checkTyped(input string, t *format.Typed) error {
	if len(t.Relations) == 0 {
		return session.Refuse("%s has no relations", input)
	}
	return nil
}

// checkFeatures refuses types without features unless their nodes learn rows.
func checkFeatures(input string, spec trainer.Spec) error {
	if spec.Settings["embedding"] > 0 {
		return nil
	}
	for _, id := range spec.Matrices {
		if spec.Nodes[id.Operator] > 0 {
			return session.Refuse("%s has no features of %s: import it with --missing-features, or give --embedding, how many "+
				"columns each node learns", input, id.Operator)
		}
	}
	return nil
}

// checkTyped refuses what is for graphs of one type.
func (o *Options) checkTyped() error {
	s := &o.Sampling
	for _, c := range []struct {
		refused bool
		what    string
	}{
		{o.Train && s.Sampler != "neighbor" && s.Sampler != FullSampler, "--sampler " + s.Sampler},
		{s.divides(), "--partitions and --partition-file"},
		{o.Scratch != "", "--scratch"},
	} {
		if c.refused {
			return session.Refuse("%s: that is for graphs of one type; typed ones are sampled by neighbor or full", c.what)
		}
	}
	return nil
}

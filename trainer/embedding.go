package trainer

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

// embeddingSetting is for models that learn rows of nodes without features.
func embeddingSetting() Setting {
	return Setting{Name: "embedding", Help: "of a typed graph: columns that each node of a type without features " +
		"learns; 0: all types must have features", Below: maxWidth + 1, Integer: true}
}

// embedding is the rows that the nodes of a type learn, in place of features.
type embedding struct {
	kind  int
	table *parameter  // [nodes, columns]
	rows  *activation // of the inputs of a batch
	sum   *activation // scratch of the same shape
}

// embeddings declares the rows of types without features, by type; nil: the type has some. As in the examples of
// PyTorch Geometric (hetero_link_pred.py) and DGL (rgcn-hetero), they begin at random, here with a standard deviation
// of 1, as features have, and are learned like all else.
func (b *builder) embeddings(s Spec) []*embedding {
	all := make([]*embedding, len(s.Matrices))
	for kind, id := range s.Matrices {
		nodes := s.Nodes[id.Operator]
		if nodes == 0 {
			continue
		}
		width := s.Width(kind)
		e := &embedding{kind: kind, table: b.params.declare("embedding."+id.Operator, nodes, width, math.Sqrt(3)),
			rows: b.activation(typeLevel-kind, width), sum: b.scratch(typeLevel-kind, width)}
		b.add(func(p *pass) {
			if rows := e.rows.value(p); rows.Rows > 0 {
				p.Gather(rows, e.table.value, e.numbers(p))
			}
		}, func(p *pass) {
			if rows := e.rows.gradient(p); rows.Rows > 0 {
				p.Scatter(e.table.grad, rows, e.numbers(p))
			}
		})
		all[kind] = e
	}
	return all
}

// numbers are those of the inputs of the type.
func (e *embedding) numbers(p *pass) gds.Tensor {
	first := 0
	for _, x := range p.X[:e.kind] {
		first += x.Rows
	}
	return p.InputIDs.Columns(first, first+p.X[e.kind].Rows)
}

// begin begins the gradient of the rows, to which layers add; e may be nil.
func (e *embedding) begin(p *pass) {
	if e != nil {
		p.Fill(e.rows.gradient(p), 0)
	}
}

// checkNodes returns an error unless the types whose rows are learned are types, and there are columns for them.
func (s Spec) checkNodes() error {
	if (s.Settings["embedding"] > 0) != (len(s.Nodes) > 0) {
		return fmt.Errorf("embedding %v, and there are %d types of nodes without features: their nodes learn as many columns",
			s.Settings["embedding"], len(s.Nodes))
	}
	for name, nodes := range s.Nodes {
		if s.typeOf(name) < 0 || len(s.Relations) == 0 || nodes < 1 || nodes > maxParameters {
			return fmt.Errorf("a model with the types %v cannot learn the rows of %d nodes of %s", s.Matrices, nodes, name)
		}
	}
	return nil
}

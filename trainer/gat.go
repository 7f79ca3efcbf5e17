package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// gatKind is GAT (Velickovic et al. 2018) with several heads side by side, which share the hidden units.
// Every node attends to itself too.
var gatKind = graphKind(kind{
	name: "gat", about: "graph attention, then a linear layer; reads a graph",
	aggregation: sampling.Plain,
	settings:    append(messagePassingSettings(1), residualSetting(1), headsSetting(4)),
	check:       checkHeads,
	build: func(s Spec, b *builder) *activation {
		heads := s.Settings.integer("heads")
		// A pass over a whole graph computes one layer after another, so all layers share these.
		scores, stats := b.scratch(graphLevel, 2*heads), b.scratch(targetLevel, 2*heads)
		along := func(b *builder, name string, level, out int) alongEdges {
			c := newEdgeAttention(b, name, level, out, heads)
			c.scores.ofGraph, c.stats.ofGraph = scores, stats
			return c
		}
		return b.messagePassing(s, s.Settings["residual"] == 1, along, heads)
	},
})

// headsSetting is for models with attention, whose kind.check is checkHeads.
func headsSetting(value float64) Setting {
	return Setting{
		Name: "heads", Help: "number of attention heads, which divides that of hidden units",
		Default: value, Least: 1, Below: 65, Integer: true,
	}
}

// checkHeads is kind.check of models with heads.
func checkHeads(v Values) error {
	if hidden, heads := v.integer("hidden"), v.integer("heads"); hidden%heads != 0 {
		return fmt.Errorf("hidden %d with heads %d: must be a multiple of heads", hidden, heads)
	}
	return nil
}

// leakySlope is the slope of LeakyReLU below zero in GAT (section 2.1).
const leakySlope = 0.2

// edgeAttention is attention along edges among products with the weights of a layer. Its vector a (Equation 3)
// is attention [2, out]: row 0 for sources, row 1 for destinations, a part of columns for each head.
type edgeAttention struct {
	attention     *parameter
	heads         int
	scores, stats *activation // of sources, and of destinations
}

func newEdgeAttention(b *builder, name string, level, out, heads int) *edgeAttention {
	c := &edgeAttention{heads: heads}
	c.attention = b.params.declare(name+".attention", 2, out, linearBound(out/heads))
	c.attention.decays = true
	c.scores, c.stats = b.activation(level, 2*heads), b.scratch(level-1, 2*heads)
	return c
}

func (c *edgeAttention) linear() bool { return false }

// head is the part of a matrix for head h.
func (c *edgeAttention) head(x gds.Tensor, h int) gds.Tensor {
	size := x.Cols / c.heads
	return x.Columns(h*size, (h+1)*size)
}

func (c *edgeAttention) forward(p *pass, y, values gds.Tensor, block loader.Block) {
	scores, stats := c.scores.value(p), c.stats.value(p)
	for h := range c.heads {
		p.Gemm(false, true, 1, c.head(values, h), c.head(c.attention.value, h), 0, c.head(scores, h))
	}
	p.AttendEdges(y, stats, values, scores, block.Offsets, block.Indices, leakySlope)
}

func (c *edgeAttention) backward(p *pass, gvalues, gy, values gds.Tensor, block loader.Block) {
	scores, gscores, stats := c.scores.value(p), c.scores.gradient(p), c.stats.value(p)
	p.AttendEdgesGrad(gvalues, gscores, gy, stats, values, scores, block.Offsets, block.Indices, leakySlope)
	for h := range c.heads {
		p.Gemm(false, false, 1, c.head(gscores, h), c.head(c.attention.value, h), 1, c.head(gvalues, h))
		p.Gemm(true, false, 1, c.head(gscores, h), c.head(values, h), 1, c.head(c.attention.grad, h))
	}
}

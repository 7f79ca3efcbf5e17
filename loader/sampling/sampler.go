package sampling

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Sampler makes mini-batches. It has memory of its own, which it uses again, and belongs to one
// goroutine at a time: each takes one from Method.NewSampler.
type Sampler interface {
	// Sample makes dst the mini-batch of seeds, which are distinct. The result is a function of the
	// method, the seeds and the key (see Key) alone. Graph-wise samplers choose seeds themselves,
	// as many nodes, edges or walks as there are seeds, and use their number only: dst.Seeds says
	// which they are. After an error dst is not valid.
	Sample(dst *MiniBatch, seeds []uint32, key uint64) error
	io.Closer
}

// Key names the random numbers of a batch.
func Key(seed uint64, epoch, batch int) uint64 {
	return rng.Hash(rng.Hash(rng.Derive(seed, "sampling"), uint64(epoch)), uint64(batch))
}

// All as a fanout is all in-neighbours.
const All = -1

// Options say how a method samples.
type Options struct {
	// Fanouts has a number for each layer; the first is the layer nearest the seeds. It is the
	// in-neighbours of each node (node-wise), the nodes of the layer (layer-wise), or ignored
	// (graph-wise: the number of layers counts).
	Fanouts []int
	// Aggregation is what weights estimate; "": Mean.
	Aggregation Aggregation
	// Replace draws with replacement.
	Replace bool
	Threads int // of NewMethod; 0: GOMAXPROCS
}

// Method is a way to sample a graph: what samplers of all goroutines share. It is safe for
// concurrent use.
type Method struct {
	name     string
	topology Topology
	options  Options
	factors  *factors
	kind     *methodKind
}

// methodKind is an entry of the table of methods.
type methodKind struct {
	newSampler func(m *Method) (Sampler, error)
}

var methodKinds = map[string]*methodKind{
	"neighbor": {newSampler: newNodeWise},
	"full":     {newSampler: newNodeWise},
}

// Names lists the names of methods.
func Names() []string { return slices.Sorted(maps.Keys(methodKinds)) }

// NewMethod prepares the method of that name for a topology, which the caller closes after the
// method.
func NewMethod(name string, topology Topology, o Options) (_ *Method, err error) {
	kind := methodKinds[name]
	if kind == nil {
		return nil, fmt.Errorf("no sampler is called %q: there are %s", name, strings.Join(Names(), ", "))
	}
	if len(o.Fanouts) == 0 {
		return nil, fmt.Errorf("sampler %s: no fanouts: one for each layer of the model, such as 15,10,5", name)
	}
	for i, f := range o.Fanouts {
		if f < 1 && f != All {
			return nil, fmt.Errorf("sampler %s: fanout %d of layer %d from the seeds: must be positive, or %d for all", name, f, i, All)
		}
	}
	m := &Method{name: name, topology: topology, options: o, kind: kind}
	if m.options.Aggregation == "" {
		m.options.Aggregation = Mean
	}
	m.options.Fanouts = slices.Clone(o.Fanouts)
	if name == "full" {
		for i := range m.options.Fanouts {
			m.options.Fanouts[i] = All
		}
	}
	if m.factors, err = newFactors(topology, m.options.Aggregation, o.Threads); err != nil {
		return nil, fmt.Errorf("sampler %s: %w", name, err)
	}
	return m, nil
}

// NewSampler makes a sampler for one goroutine, which closes it.
func (m *Method) NewSampler() (Sampler, error) { return m.kind.newSampler(m) }

// Layers is the number of blocks of a mini-batch.
func (m *Method) Layers() int { return len(m.options.Fanouts) }

// Close frees what samplers share, after all samplers are closed.
func (m *Method) Close() error { return m.factors.close() }

// begin makes dst an empty mini-batch of distinct seeds, which have the local ids 0 and up. local is
// scratch memory.
func (m *Method) begin(dst *MiniBatch, seeds []uint32, known *relabeler, local *[]uint32) error {
	for i, v := range seeds {
		if int64(v) >= m.topology.Nodes() {
			return fmt.Errorf("seed %d is node %d: the graph has %d nodes", i, v, m.topology.Nodes())
		}
	}
	known.forget()
	*local = resize(*local, len(seeds))
	dst.Inputs = known.add(dst.Inputs[:0], seeds, *local)
	if len(dst.Inputs) < len(seeds) {
		for i, id := range *local {
			if seeds[id] == seeds[i] && int(id) < i {
				return fmt.Errorf("seeds %d and %d are both node %d: the seeds of a batch must be distinct", id, i, seeds[i])
			}
		}
	}
	dst.Seeds = append(dst.Seeds[:0], seeds...)
	dst.SeedWeights = dst.SeedWeights[:0]
	if cap(dst.Blocks) < m.Layers() {
		dst.Blocks = make([]Block, m.Layers())
	}
	dst.Blocks = dst.Blocks[:m.Layers()]
	return nil
}

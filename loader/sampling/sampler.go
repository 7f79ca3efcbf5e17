package sampling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// Key names the random numbers of a batch.
func Key(seed uint64, epoch, batch int) uint64 {
	return rng.Hash(rng.Hash(rng.Derive(seed, "sampling"), uint64(epoch)), uint64(batch))
}

// All as a fanout is all in-neighbours.
const All = -1

// maxFanout is far beyond what is useful, and few enough draws for a batch to end.
const maxFanout = 1 << 24

// Options say how a method samples.
type Options struct {
	// Fanouts has a number for each layer; the first is the layer nearest the seeds. It is the in-neighbours of each
	// node (node-wise), the nodes of the layer (layer-wise), or ignored (graph-wise: the number of layers counts).
	Fanouts []int `json:"fanout"`
	// Aggregation is what weights estimate; "": Mean.
	Aggregation Aggregation `json:"aggregation"`
	// Replace draws with replacement, in the methods neighbor, locality, ladies and fastgcn (flat ones and those
	// of papers too).
	Replace bool `json:"replace"`
	// ByWeight lets neighbor draw in-neighbours with probabilities proportional to the weights of their edges.
	ByWeight bool `json:"by_weight"`
	// Cached tells which nodes locality prefers, Bias times as much as others (1: not at all; 0: 1).
	// For results that can be repeated, it is a function of the node and the epoch.
	Cached func(node uint32) bool `json:"-"`
	Bias   float64                `json:"bias"`
	// Debias makes locality's estimates unbiased, by coefficients of mq-gnn Eq. 13; otherwise all
	// that are drawn have the same, as in a3gnn.
	Debias bool `json:"debias"`
	// EdgeIDs: blocks say which edges of the graph they have.
	EdgeIDs bool `json:"edge_ids"`
	// ByType, of a typed graph, makes two blocks of each layer, for models with weights for each relation. The
	// destinations of the first are rows of lists in parts: for each relation, the nodes of the type that it leads to;
	// then for each type, its nodes again, with themselves as only source. The second adds up the rows of each node, with
	// weights of 1. Inputs are ordered by type, of each those first that are destinations of the first layer, in their
	// order, and the indices of the first block of all count within each type.
	ByType bool `json:"-"`
	// Subgraph, unless it is "", makes one block of a mini-batch, in which each node is sampled for once (neighbor and
	// full, aggregation mean).
	Subgraph Subgraph `json:"subgraph"`
	// Disjoint gives each seed of a subgraph a tree of its own: a node that several seeds reach is there several times.
	Disjoint bool `json:"disjoint"`
	// Limits are the times of edges or nodes of a subgraph; nil: there are none. Seeds with times are Disjoint.
	Limits *Limits `json:"-"`
	// Targets are the nodes that graph-wise methods may choose as seeds; nil: all.
	Targets []uint32 `json:"-"`
	Threads int      `json:"-"` // of NewMethod; 0: parallel.Threads
}

// Method is a way to sample a graph, which any number of goroutines use at a time.
type Method struct {
	name     string
	topology Topology
	typed    *typedTopology // the topology, if it is of a typed graph; else nil
	options  Options
	kind     *methodKind
	factors  *factors
	columns  *columns   // of FastGCN and saint-node
	shape    saintShape // of GraphSAINT
	targets  nodeSet    // that GraphSAINT may choose as seeds
	buffers  []*offheap.Buffer

	mu   sync.Mutex
	idle []*sampler
}

// methodKind is an entry of the table of methods.
type methodKind struct {
	newChooser func(m *Method, sources *relabeler) chooser
	relabels   bool                                       // its choosers give local ids to sources
	prepare    func(ctx context.Context, m *Method) error // what choosers share; may be nil
	replace    bool                                       // it can draw with replacement
	graphWise  bool                                       // it chooses seeds itself
	layerWise  bool                                       // a fanout is nodes of a layer
	apart      bool                                       // destinations are sources only if they are drawn
	normalized bool                                       // coefficients of a node are divided by their sum
	onDevice   bool                                       // devices can sample by it too

	nodeBytes, edgeBytes int64 // of what prepare allocates, for each node and edge of the graph
	fanouts              int64 // a node has at most fanouts * fanout edges; 0: fanout
}

var methodKinds = map[string]*methodKind{
	"neighbor": {newChooser: newNeighbor, replace: true, onDevice: true},
	"full":     {newChooser: newNeighbor, onDevice: true},
	"labor":    {newChooser: newLabor, onDevice: true, fanouts: 2},
	"labor-1":  {newChooser: newLabor, relabels: true, fanouts: 2},
	"locality": {newChooser: newLocality, replace: true},

	"ladies":              layerWiseKind(layerWise{}),
	"ladies-flat":         layerWiseKind(layerWise{flat: true}),
	"ladies-debias":       layerWiseKind(layerWise{debias: true}),
	"ladies-flat-debias":  layerWiseKind(layerWise{flat: true, debias: true}),
	"fastgcn":             layerWiseKind(layerWise{ofGraph: true}),
	"fastgcn-flat":        layerWiseKind(layerWise{ofGraph: true, flat: true}),
	"fastgcn-debias":      layerWiseKind(layerWise{ofGraph: true, debias: true}),
	"fastgcn-flat-debias": layerWiseKind(layerWise{ofGraph: true, flat: true, debias: true}),

	"ladies-paper":              layerWiseKind(layerWise{apart: true}),
	"ladies-flat-paper":         layerWiseKind(layerWise{apart: true, flat: true}),
	"ladies-debias-paper":       layerWiseKind(layerWise{apart: true, debias: true}),
	"ladies-flat-debias-paper":  layerWiseKind(layerWise{apart: true, flat: true, debias: true}),
	"fastgcn-paper":             layerWiseKind(layerWise{apart: true, ofGraph: true}),
	"fastgcn-flat-paper":        layerWiseKind(layerWise{apart: true, ofGraph: true, flat: true}),
	"fastgcn-debias-paper":      layerWiseKind(layerWise{apart: true, ofGraph: true, debias: true}),
	"fastgcn-flat-debias-paper": layerWiseKind(layerWise{apart: true, ofGraph: true, flat: true, debias: true}),

	"saint-node": {newChooser: newSaint, relabels: true, prepare: saintNodes(true), graphWise: true, nodeBytes: 8},
	"saint-node-paper": {newChooser: newSaint, relabels: true, prepare: saintNodes(false), graphWise: true,
		nodeBytes: 8},
	"saint-edge": {newChooser: newSaint, relabels: true, prepare: saintEdges, graphWise: true, nodeBytes: 12},
	"saint-rw": {newChooser: newSaint, relabels: true, prepare: saintWalks, graphWise: true, nodeBytes: 4,
		edgeBytes: 4},
}

func layerWiseKind(s layerWise) *methodKind {
	k := &methodKind{newChooser: s.chooser, relabels: true, replace: !s.debias, layerWise: true, apart: s.apart,
		normalized: s.apart && !s.ofGraph && !s.debias}
	if s.ofGraph {
		k.prepare, k.nodeBytes = prepareColumns(!s.flat, s.apart, false), 8
	}
	return k
}

// Names lists the names of methods.
func Names() []string { return slices.Sorted(maps.Keys(methodKinds)) }

// ErrOptions is returned for options that no method has.
var ErrOptions = errors.New("unusable options")

// NewMethod prepares the method of that name for a topology, which the caller closes after the
// method. Wrong options are ErrOptions.
func NewMethod(ctx context.Context, name string, topology Topology, o Options) (_ *Method, err error) {
	kind := methodKinds[name]
	if kind == nil {
		return nil, fmt.Errorf("%w: no sampler is called %q: there are %s", ErrOptions, name,
			strings.Join(Names(), ", "))
	}
	if len(o.Fanouts) == 0 {
		return nil, fmt.Errorf("%w: sampler %s needs fanouts: one for each layer of the model, such as 15,10,5",
			ErrOptions, name)
	}
	for i, f := range o.Fanouts {
		if (f < 1 || f > maxFanout) && f != All {
			return nil, fmt.Errorf("%w: sampler %s: fanout %d of layer %d from the seeds: must be 1 to %d, or %d "+
				"for all", ErrOptions, name, f, i, maxFanout, All)
		}
	}
	if err := o.check(name, topology); err != nil {
		return nil, fmt.Errorf("%w: sampler %s: %w", ErrOptions, name, err)
	}
	m := &Method{name: name, topology: topology, options: o, kind: kind}
	m.typed, _ = topology.(*typedTopology)
	m.options.Fanouts = slices.Clone(o.Fanouts)
	if m.options.Aggregation == "" {
		m.options.Aggregation = Mean
	}
	if m.options.Bias == 0 {
		m.options.Bias = 1
	}
	if name == "full" {
		for i := range m.options.Fanouts {
			m.options.Fanouts[i] = All
		}
	}
	if m.targets, err = newTargets(o.Targets, topology.Nodes()); err != nil {
		return nil, fmt.Errorf("%w: sampler %s: %w", ErrOptions, name, err)
	}
	if err = m.prepareFactors(ctx); err == nil && kind.prepare != nil {
		err = kind.prepare(ctx, m)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sampler %s: %w", name, err), m.Close())
	}
	return m, nil
}

// check refuses options that the method cannot follow.
func (o *Options) check(name string, t Topology) error {
	switch _, typed := t.(*typedTopology); {
	case typed && name != "neighbor" && name != "full":
		return errors.New("of a typed graph, only neighbor and full sample")
	case typed && (o.Disjoint || o.Subgraph == Induced):
		return errors.New("a subgraph of a typed graph has the edges that were sampled, and one tree for all seeds " +
			"(neither disjoint nor induced)")
	case typed && o.Aggregation != "" && o.Aggregation != Mean:
		return fmt.Errorf("weights of the edges of a typed graph estimate means over relations, not aggregation %s",
			o.Aggregation)
	case o.ByType && (!typed || o.Subgraph != "" || o.EdgeIDs):
		return errors.New("blocks by type are of a typed graph, no subgraphs, and without numbers of edges")
	case o.Replace && !methodKinds[name].replace:
		return errors.New("it cannot draw with replacement")
	case o.ByWeight && name != "neighbor":
		return errors.New("only neighbor draws by the weights of edges")
	case o.ByWeight && !t.Weighted():
		return errors.New("the graph has no weights to draw by")
	case o.Targets != nil && !methodKinds[name].graphWise:
		return errors.New("it does not choose seeds")
	case (o.Cached != nil || o.Bias != 0 || o.Debias) && name != "locality":
		return errors.New("only locality prefers cached nodes")
	case o.Subgraph != "" && o.Subgraph != Directional && o.Subgraph != Induced:
		return fmt.Errorf("there is no subgraph %q: want %s or %s", o.Subgraph, Directional, Induced)
	case o.Subgraph != "" && (name != "neighbor" && name != "full" || o.ByWeight):
		return errors.New("only neighbor and full sample one subgraph for all layers, and not by weights")
	case o.Subgraph != "" && o.Aggregation != "" && o.Aggregation != Mean:
		return fmt.Errorf("a subgraph has the edges of the graph alone: aggregation %s would add self-loops",
			o.Aggregation)
	case o.Limits != nil && !o.Disjoint:
		return errors.New("seeds with times have trees of their own (disjoint)")
	case o.Disjoint && o.Subgraph == "":
		return errors.New("seeds have trees of their own in subgraphs only")
	case name == "locality" && o.Cached == nil:
		return errors.New("locality needs to know which nodes are cached")
	case o.Bias < 0 || math.IsInf(o.Bias, 0) || math.IsNaN(o.Bias) || o.Bias > 0 && o.Bias < 1:
		return fmt.Errorf("bias %v towards cached nodes: must be 1 (none) or more", o.Bias)
	}
	return nil
}

// Layers is the number of fanouts, and Blocks that of the blocks of a mini-batch.
func (m *Method) Layers() int { return len(m.options.Fanouts) }
func (m *Method) Blocks() int {
	switch {
	case m.options.Subgraph != "":
		return 1
	case m.options.ByType:
		return 2 * m.Layers()
	}
	return m.Layers()
}

// Close frees the memory, when no call of Sample goes on.
func (m *Method) Close() (err error) {
	for _, s := range m.idle {
		err = errors.Join(err, s.close())
	}
	for _, b := range m.buffers {
		err = errors.Join(err, b.Free())
	}
	m.idle, m.buffers = nil, nil
	return err
}

// ChoosesSeeds tells whether a method is graph-wise: its samplers choose the seeds themselves, of Options.Targets.
func ChoosesSeeds(name string) bool {
	k := methodKinds[name]
	return k != nil && k.graphWise
}

// OnDevice tells whether devices can sample by a method too.
func OnDevice(name string) bool {
	k := methodKinds[name]
	return k != nil && k.onDevice
}

// Apart tells whether the destinations of a method's blocks are not among the sources, unless they are drawn.
func Apart(name string) bool {
	k := methodKinds[name]
	return k != nil && k.apart
}

// shared allocates memory for n values that all calls of Sample share.
func shared[T dtype.Number](m *Method, n int64) ([]T, error) {
	var zero T
	b, err := offheap.Alloc(n * int64(unsafe.Sizeof(zero)))
	if err != nil {
		return nil, err
	}
	m.buffers = append(m.buffers, b)
	return dtype.As[T](b.Bytes()), nil
}

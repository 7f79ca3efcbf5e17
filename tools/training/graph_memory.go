package training

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
)

// InferenceRows is how many rows a model that reads a graph is evaluated on at a time.
const InferenceRows = 8192

// optimalTraceBytes is the memory of an optimal cache's look-ahead in trainings.
const optimalTraceBytes = 64 << 20

// The names of terms that are counted again once more is known.
const (
	modelTerm        = "model"
	copiesTerm       = "copies of parameters"
	profiledTerm     = "model while batches are measured"
	neighborhoodTerm = "neighbourhood of validated nodes"
	validationTerm   = "layers of validation"
)

// batchNeed is the memory of a batch, of its activations and of work along its edges.
type batchNeed struct {
	sampling.BatchMemory
	activations, work int64
	inputs            []int64 // of each type
}

// count lists what the graph in its place, its model and its batches take.
func (p *graphPlan) count() (failed error) {
	bytes := func(bytes int64, err error) int64 {
		failed = cmp.Or(failed, err)
		return bytes
	}
	m, spec := &p.graph.Manifest, p.Spec
	n, from, labels := m.Nodes, p.source(), sampling.LabelsNeed(m).Bytes
	inMemory, topology := from.FeatureBytes(), from.TopologyBytes()
	p.inputBytes = inMemory + topology + labels + 8*n
	evaluated, most := n, n // in all sets; in one
	if valid, test := len(p.Part.Valid.List), len(p.Part.Test.List); p.Train {
		if evaluated = cmp.Or(int64(valid+test), n); p.evaluated != nil {
			most = int64(max(1, valid, test))
		}
	}
	p.terms = append(slices.Clone(p.Held), from.Terms()...)
	p.add("lists of nodes", need.Heap, 8*n, "", "")
	if p.sampled != nil && p.Options.Sampling.divides() {
		p.terms = append(p.terms, sampling.PartitionNeed(m)...)
	}
	if p.pins() {
		p.add("topology in pinned memory", need.Pinned, topology, "", need.Topology)
	}
	if p.preload {
		p.terms = append(p.terms, sampling.AllListsNeed(m)...)
	}

	p.evaluating = int(min(int64(cmp.Or(p.evaluating, InferenceRows)), most))
	p.rows = p.modelRows()
	model := bytes(spec.DeviceBytes(p.rows, p.Train))
	pinned := bytes(spec.PinnedBytes(p.rows, p.devices, p.gradients, p.Train))
	p.add(profiledTerm, need.Pinned, pinned, need.Profile, need.Profile)
	p.add(modelTerm, need.Pinned, pinned, need.Epoch, "")
	p.add(copiesTerm, need.Heap, bytes(spec.HostBytes(p.devices)), need.Epoch, "")
	if p.gradients > 0 { // what a step changes, as of the last synchronisation
		model += 4 * gds.Aligned(4*bytes(spec.Parameters()))
	}
	switch {
	case p.all:
		layers, _, _, err := spec.GraphShape(p.elements != nil)
		if model += labels; err != nil {
			return err
		}
		p.batch = p.expect(slices.Repeat([]sampling.BlockShape{{Destinations: n, Sources: n,
			Edges: wholegraph.Edges(m, p.aggregation)}}, layers), nil, bytes)
	case p.sampled != nil:
		p.batch = p.expectSample(p.sampled, int64((p.BatchRows+p.devices-1)/p.devices), bytes)
	}
	if p.evaluated != nil {
		p.evaluation = p.expectSample(p.evaluated, int64(p.evaluating), bytes)
		p.evaluations = int((most + int64(p.evaluating) - 1) / int64(p.evaluating))
	}
	if p.sampled != nil {
		failed = cmp.Or(failed, p.countSamplers())
	}
	p.route = p.sampled != nil && p.sampled.Routed && !p.scarce
	if b := &p.batch; p.scarce {
		p.scarceBytes = b.activations + b.work + int64(p.batches.OnDevice)*b.Device
		p.batches, b.activations, b.work = scheduler.Held{}, 0, 0
	}
	p.add(modelTerm, need.Device, model, need.Profile, "")
	p.add("activations", need.Device, p.batch.activations, need.Profile, "")
	p.add("work along edges", need.Device, p.batch.work, need.Profile, "")
	p.modelBytes = model + p.batch.activations + p.batch.work
	if p.evaluated != nil {
		return cmp.Or(p.countTyped(evaluated, bytes), failed)
	}
	return cmp.Or(p.countWhole(evaluated, bytes), failed)
}

// add adds a term.
func (p *graphPlan) add(name string, place need.Place, bytes int64, from, until need.Phase) {
	p.terms = append(p.terms, need.Term{Name: name, Place: place, Bytes: bytes, From: from, Until: until})
}

// limited are the options of a sampler with as many samples at a time as the plan has.
func (p *graphPlan) limited(o *session.SampledOptions) *session.SampledOptions {
	s := *o
	if s.Samples = p.samples; s.Samples > 0 {
		s.Workers = min(s.Workers, s.Samples)
	}
	return &s
}

// countSamplers adds what samplers, caches and seeds of training take.
func (p *graphPlan) countSamplers() error {
	s, where, inputs := p.limited(p.sampled), p.where, slices.Clone(p.batch.inputs)
	for i, n := range p.evaluation.inputs {
		inputs[i] = max(inputs[i], n)
	}
	if p.there() { // so that caches only count
		where = ""
	}
	terms, err := s.SamplerTerms(p.graph, p.Machine.Devices.Info, where, inputs, p.devices)
	terms = append(terms, need.OnHeap("training nodes", int64(p.devices)*(p.graph.All.Nodes/8+4*int64(len(s.Seeds)))))
	p.terms = append(p.terms, terms.During(need.Profile, "")...)
	return err
}

// countTyped adds what a typed graph takes, of whose nodes some are evaluated by batches on the first device.
func (p *graphPlan) countTyped(evaluated int64, bytes func(int64, error) int64) error {
	p.add("numbers of rows", need.FirstDevice, 4*evaluated+2*gds.Align, need.Epoch, "")
	p.add("nodes that are evaluated", need.Heap, 8*evaluated+2*p.graph.All.Nodes/8, need.Epoch, "")
	p.add("parameters on their way", need.Pinned, 4*bytes(p.Spec.Parameters()), need.Profile, "")
	if p.where == placement.Storage {
		p.inputBytes -= p.source().FeatureBytes()
	}
	if p.where == placement.Device {
		var all, widest int64
		var staging need.Term
		for _, t := range p.graph.Types {
			all += gds.Aligned(gds.Bytes(int(t.Nodes), t.Features, gds.Float32))
			widest = max(widest, gds.Aligned(gds.Bytes(int(t.Nodes), t.Features, t.DType)))
			if one := features.UploadNeed(t.Nodes, t.Features); one.Bytes > staging.Bytes {
				staging = one
			}
		}
		p.terms = append(p.terms, staging)
		p.add("features on the device", need.Device, all, need.Features, "")
		p.add("features while they are read", need.OffHeap, widest, need.Features, need.Features)
	}
	s := p.limited(p.evaluated)
	p.terms = append(p.terms, sampling.SamplersNeed(s.Sampler, p.aggregation, p.graph.All, s.Workers))
	return nil
}

// countWhole adds what a whole graph takes, whose nodes the first device evaluates together.
func (p *graphPlan) countWhole(evaluated int64, bytes func(int64, error) int64) error {
	m, spec, info := &p.graph.Manifest, p.Spec, p.Machine.Devices.Info
	n, sparse, labels, inMemory := m.Nodes, p.elements != nil, sampling.LabelsNeed(m).Bytes, p.source().FeatureBytes()
	_, _, stateColumns, err := spec.GraphShape(sparse)
	if err != nil {
		return err
	}
	p.add("nodes that are evaluated", need.FirstDevice, (labels/max(n, 1)+8)*evaluated+2*3*gds.Align, // two sets, three
		need.Epoch, "") // vectors each
	scratch := bytes(spec.GraphBytes(int(n), sparse, false))
	if info.EdgeWork {
		p.edgeBytes = spec.EdgeWorkBytes(1, 1)
	}
	if p.where != placement.Device {
		p.spillBytes = 4 * n * int64(stateColumns)
		p.terms = append(p.terms, wholegraph.ChunksNeed(m, p.aggregation, stateColumns, p.spilled)...)
		const some = 1 << 14
		few, one := min(n, some), bytes(spec.GraphBytes(some, sparse, false))
		p.nodeBytes = (bytes(spec.GraphBytes(2*some, sparse, false)) - one) / some
		p.layers = max(0, bytes(spec.GraphBytes(int(few), sparse, false))-few*p.nodeBytes)
		return nil
	}
	onDevice := gds.Bytes(int(n), m.Features, gds.Float32)
	if sparse {
		onDevice = inMemory
	}
	whole := append(wholegraph.OpeningNeed(m, p.aggregation),
		need.Term{Name: "features on the device", Place: need.FirstDevice, Bytes: onDevice, From: need.Features},
		need.Term{Name: "edges on the device", Place: need.FirstDevice, From: need.Edges,
			Bytes: wholegraph.Bytes(m, p.aggregation, p.elements) + 4*gds.Align - onDevice},
		need.Term{Name: "layers of all nodes", Place: need.FirstDevice, Bytes: scratch, From: need.Epoch})
	p.reasons = []string{"the whole graph fits on the device: " + units.Bytes(whole.Peak(need.FirstDevice)).String()}
	if p.preload {
		p.reasons = append(p.reasons, "and the device samples it there")
	}
	p.terms = append(p.terms, whole...)
	since := need.Profile // samples take features from the whole graph where they can
	if sparse {
		since = need.Features
	} else {
		p.add("features while they are read", need.OffHeap, inMemory, need.Features, need.Features)
	}
	if sparse || p.sampled != nil && !p.there() {
		p.add("features", need.OffHeap, inMemory, since, "")
	}
	if info.EdgeWork {
		p.add("work along edges of all nodes", need.FirstDevice,
			max(0, spec.EdgeWorkBytes(n, wholegraph.Edges(m, p.aggregation))-p.batch.work), need.Profile, "")
	}
	if p.Train {
		neighborhood := wholegraph.NeighborhoodBytes(n, m.Edges)
		if sparse {
			neighborhood += inMemory
		}
		p.add(neighborhoodTerm, need.FirstDevice, neighborhood, need.Epoch, "")
		p.add(validationTerm, need.FirstDevice, bytes(spec.GraphBytes(int(n), sparse, true))-scratch, need.Epoch, "")
	}
	return nil
}

// expectSample estimates what a batch of some seed nodes takes.
func (p *graphPlan) expectSample(s *session.SampledOptions, seeds int64, bytes func(int64, error) int64) batchNeed {
	blocks, inputs := sampling.ExpectedBlocks(p.graph, s.Sampler, s.Sampling.Fanouts, seeds, p.aggregation)
	var rows []sampling.ExpectedRows
	for i, t := range p.graph.Types {
		r := sampling.ExpectedRows{Inputs: inputs[i], Features: t.Features, DType: t.DType,
			There: p.there() && t.Features > 0}
		if r.Cached = p.Cache != "" && !r.There; r.There {
			r.DType = gds.Float32
		}
		if p.elements != nil {
			r.Elements = float64(p.elements.Count()+1) / float64(t.Nodes)
		}
		rows = append(rows, r)
	}
	of := inputs
	if p.graph.Typed == nil {
		of = nil
	}
	b := p.expect(blocks, of, bytes)
	b.activations, b.inputs = gds.Room(b.activations), inputs
	b.BatchMemory = sampling.ExpectedBatch(&p.graph.Manifest, rows, s.Sampler, blocks, p.Machine.Devices.Info.Unified)
	return b
}

// expect estimates the device memory of activations of these blocks, and of work along edges.
func (p *graphPlan) expect(shapes []sampling.BlockShape, inputs []int64, bytes func(int64, error) int64) (b batchNeed) {
	var blocks []loader.Block
	for _, s := range shapes {
		blocks = append(blocks, loader.Block{Destinations: int(s.Destinations), Sources: int(s.Sources), Parts: s.Parts})
		if p.Machine.Devices.Info.EdgeWork {
			b.work = max(b.work, p.Spec.EdgeWorkBytes(s.Sources, s.Edges))
		}
	}
	b.activations = bytes(p.Spec.BlockBytes(blocks[len(blocks)-1].Destinations, blocks, inputs, p.elements != nil))
	return b
}

// modelRows is the most rows that the model computes at a time on a device.
func (p *graphPlan) modelRows() int {
	rows := 0
	switch {
	case p.all:
		rows = int(p.graph.Manifest.Nodes)
	case p.sampled == nil:
	case sampling.ChoosesSeeds(p.sampled.Sampler):
		rows = min(p.BatchRows*(len(p.sampled.Sampling.Fanouts)+1), len(p.sampled.Seeds))
	default:
		rows = (p.BatchRows + p.devices - 1) / p.devices
	}
	return max(rows, p.evaluating)
}

// workBytes is the device memory of model, batches and activations.
func (p *graphPlan) workBytes() int64 {
	return p.modelBytes + int64(p.batches.OnDevice)*p.batch.Device + p.beyond().Peak(need.FirstDevice)
}

// beyond is what evaluation by batches takes on the first device beyond what training takes.
func (p *graphPlan) beyond() (terms need.Terms) {
	if p.evaluated == nil {
		return nil
	}
	e, t, held, buffers := &p.evaluation, &p.batch, p.batches, min(p.evaluated.Buffers, p.evaluations)
	more := func(name string, place need.Place, bytes int64) {
		terms = append(terms, need.Term{Name: name, Place: place, Bytes: max(0, bytes)})
	}
	// Epochs take the largest buffers first.
	both := min(buffers, held.OnDevice)
	more("batches", need.FirstDevice, int64(both)*max(0, e.Device-t.Device)+int64(buffers-both)*e.Device)
	more("activations", need.FirstDevice, e.activations-t.activations)
	more("work along edges", need.FirstDevice, e.work-t.work)
	more("batches on their way to the device", need.Pinned,
		int64(pipelinedMoves(p.evaluated.Buffers-1))*e.Pinned-int64(held.Pinned)*t.Pinned)
	samples := cmp.Or(p.samples, sampling.MostSamples(p.evaluated.Workers, p.evaluated.Buffers))
	more("samples", need.Heap, int64(min(samples, p.evaluations))*e.Sample-int64(held.Samples)*t.Sample)
	return terms
}

// memory is the memory of the plan, as far as it is known by now.
func (p *graphPlan) memory() need.Memory {
	terms := append(p.beyond(), need.Terms{
		{Name: "batches", Place: need.Device, Bytes: int64(p.batches.OnDevice) * p.batch.Device},
		{Name: "batches on their way to the device", Place: need.Pinned,
			Bytes: int64(p.devices*p.batches.Pinned) * p.batch.Pinned},
		{Name: "samples", Place: need.Heap, Bytes: int64(p.devices*p.batches.Samples) * p.batch.Sample},
	}...)
	if strings.HasPrefix(p.Cache, "optimal") { // it looks ahead by samples of its own
		terms = append(terms, terms[len(terms)-1])
	}
	if p.route {
		terms = append(terms, need.Term{Name: "batch that the device prepares", Place: need.Device, Bytes: p.batch.Route})
	}
	unified := p.Machine.Devices.Info.Unified
	if p.where != placement.Device && p.evaluated == nil {
		memory := cmp.Or(p.chunkMemory, p.chunkBytes)
		terms = append(terms, need.OnHeap("chunk that is sampled", memory), need.Term{Name: "chunk of a layer",
			Place: need.FirstDevice, Bytes: p.layers + memory + p.chunkModel})
		if !unified {
			terms = append(terms, need.Term{Name: "chunk before it is copied", Place: need.Pinned, Bytes: memory})
		}
	}
	return slices.Concat(p.terms, terms.During(need.Profile, "")).Sum(p.devices, unified)
}

// hostBytes is the memory of the plan without that of a device that has its own.
func (p *graphPlan) hostBytes() int64 {
	memory := p.memory()
	if p.Machine.Devices.Info.Unified {
		memory.HostBytes += memory.DeviceBytes
	}
	return memory.HostBytes
}

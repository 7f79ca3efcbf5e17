package training

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
)

// sharing is how many devices share the batches of a typed graph.
func (o *Options) sharing() int {
	if !o.Train {
		return 1
	}
	return o.Machine.Devices.Count
}

// typedPlan is what a typed graph takes.
type typedPlan struct {
	where     string // the features are: placement.Device, Host or Storage
	terms     need.Terms
	evaluated int // rows of a batch whose in-neighbours are all taken
	samples   int // at a time
	rows      int // of the largest batch
	input     int64
	device    int64 // of model, batches and activations
	reasons   []string
}

// typedPlaces are the places for features, the fastest first.
var typedPlaces = []string{placement.Device, placement.Host, placement.Storage}

// leastEvaluated is the fewest rows of a batch in evaluations, if memory is scarce.
const leastEvaluated = 64

// typedShape is what a typed graph, whose target's nodes are in Dir, is planned by.
type typedShape struct {
	*format.Dir
	all  *format.Manifest        // the graph, as sampling.TypedManifest has it
	rows []sampling.ExpectedRows // of each type, as they are stored
}

func newTypedShape(dir *format.Dir) (*typedShape, error) {
	t := dir.Typed
	weighted, err := t.Weighted(dir.FS(), dir.TypedPath)
	if err != nil {
		return nil, err
	}
	s := &typedShape{Dir: dir, all: sampling.TypedManifest(t, weighted)}
	for _, n := range t.Types {
		rows := sampling.ExpectedRows{Features: n.Features, DType: gds.Float32}
		if n.Features > 0 {
			d, err := t.OpenNodes(dir.FS(), dir.TypedPath, n.Name)
			if err != nil {
				return nil, err
			}
			rows.DType = d.Layout().DType
			if err := d.Close(); err != nil {
				return nil, err
			}
		}
		s.rows = append(s.rows, rows)
	}
	return s, nil
}

// cached are the rows of each type, as they are stored.
func (s *typedShape) cached() []cache.Rows {
	rows := make([]cache.Rows, len(s.rows))
	for i, r := range s.rows {
		rows[i] = cache.Rows{Nodes: s.Typed.Types[i].Nodes, Bytes: gds.Bytes(1, r.Features, r.DType)}
	}
	return rows
}

// rowBytes are the sizes of a row of each type, as stored.
func (s *typedShape) rowBytes() (bytes []int64) {
	for _, r := range s.cached() {
		bytes = append(bytes, r.Bytes)
	}
	return bytes
}

// traceRows is how many rows optimal caches look ahead.
func (s *typedShape) traceRows() int64 { return max(s.all.Nodes, cache.TraceRows(optimalTraceBytes)) }

// planTyped finds a place for the features for which there is memory: a device that has its own, the host, storage.
func planTyped(shape *typedShape, o *Options) (*typedPlan, error) {
	o.Placement = cmp.Or(o.Placement, placement.Auto)
	places := []string{o.Placement}
	if o.Placement == placement.Auto {
		if places = typedPlaces; o.Machine.Devices.Info.Unified {
			places = places[1:]
		}
	}
	plans := map[string]*typedPlan{}
	chosen, why := placement.First(places, func(where string) (err error) {
		plans[where], err = planTypedIn(shape, o, where)
		return err
	})
	if chosen < 0 {
		least := len(why) - 1 // storage, unless its buffers take more than few features do in host memory
		if least > 0 && plans[places[least-1]].hostBytes(o) < plans[places[least]].hostBytes(o) {
			least--
		}
		return nil, why[least]
	}
	p := plans[places[chosen]]
	for i, err := range why {
		p.reasons = append(p.reasons, "not from "+places[i]+": "+err.Error())
	}
	if o.Placement != placement.Auto {
		p.reasons = append(p.reasons, "asked for by --placement")
	}
	lists := "in host memory"
	if o.Mapped {
		lists = "mapped from disk"
	}
	p.reasons = append(p.reasons, fmt.Sprintf("features of %d types are read from %s, lists by relation are %s: %s of "+
		"memory", len(shape.Typed.Types), p.where, lists, units.Bytes(p.input)),
		fmt.Sprintf("evaluation takes all in-neighbours of up to %d nodes at a time", p.evaluated))
	return p, nil
}

// planTypedIn finds how many rows and samples there is memory for beside features in a place. What batches take is an
// estimate. If it fails, the plan is the smallest.
func planTypedIn(shape *typedShape, o *Options, where string) (p *typedPlan, err error) {
	what := fmt.Sprintf("%s on %d nodes and %d edges of %d types, with features from %s,", o.Spec.Model,
		shape.all.Nodes, shape.all.Edges, len(shape.Typed.Types), where)
	for rows := InferenceRows; ; rows /= 2 {
		for samples := sampling.MostSamples(o.workers(o.sharing()), o.buffers()); samples > 0; samples /= 2 {
			p = &typedPlan{where: where, evaluated: rows, samples: samples}
			if err = p.count(shape, o); err != nil {
				return p, err
			}
			if err = o.Machine.Fits(what, p.memory(o)); err == nil {
				return p, nil
			}
		}
		if rows == leastEvaluated {
			return p, err
		}
	}
}

func (o *Options) buffers() int { return cmp.Or(o.Sampling.Buffers, placement.Buffers) }

// allFanouts takes all in-neighbours in each layer.
func (o *Options) allFanouts() []int {
	return slices.Repeat([]int{sampling.All}, int(o.Spec.Settings["layers"]))
}

// fanouts says how many in-neighbours training takes of a node, by layer.
func (o *Options) fanouts() []int {
	if o.Sampling.TakesAllEdges() {
		return o.allFanouts()
	}
	return o.Sampling.Fanouts
}

// count lists what the graph, its model and its batches take.
func (p *typedPlan) count(shape *typedShape, o *Options) (failed error) {
	bytes := func(bytes int64, err error) int64 {
		failed = cmp.Or(failed, err)
		return bytes
	}
	t, m, all, unified := shape.Typed, &shape.Manifest, shape.all, o.Machine.Devices.Info.Unified
	devices, share := o.sharing(), (o.BatchRows+o.sharing()-1)/o.sharing()
	workers := min(p.samples, o.workers(devices))
	// each adds terms of which each device has its own.
	each := func(terms need.Terms) {
		for _, t := range terms.During(need.Profile, "") {
			if t.Place != need.Device {
				t.Bytes *= int64(devices)
			}
			p.terms = append(p.terms, t)
		}
	}
	rows, there := slices.Clone(shape.rows), p.where == placement.Device
	var rowBytes, widest int64
	var staging need.Term
	for i, n := range t.Types {
		r := &rows[i]
		stored := gds.Aligned(gds.Bytes(int(n.Nodes), n.Features, r.DType))
		if r.There = there && n.Features > 0; r.There {
			r.DType = gds.Float32
		}
		rowBytes += gds.Aligned(gds.Bytes(int(n.Nodes), n.Features, r.DType))
		widest = max(widest, stored)
		if one := features.UploadNeed(n.Nodes, n.Features); one.Bytes > staging.Bytes {
			staging = one
		}
	}
	copies := bytes(o.Spec.HostBytes(devices))
	topology, evaluated, methods := sampling.TypedTopologyNeed(t, all.Weighted, o.Mapped), int(m.Nodes), int64(1)
	if o.Train {
		evaluated, methods = max(1, len(o.Part.Valid.List), len(o.Part.Test.List)), 2
	}
	seeds := min(p.evaluated, evaluated)
	p.rows = max(share, seeds)
	if p.input = topology.Bytes + sampling.LabelsNeed(m).Bytes; p.where != placement.Storage {
		p.input += rowBytes
	}
	device := bytes(o.Spec.DeviceBytes(p.rows, o.Train))
	p.terms = append(slices.Clone(o.Held), session.Program, topology, sampling.LabelsNeed(m),
		need.OnHeap("lists of nodes", 16*m.Nodes+(methods+1)*all.Nodes/8),
		need.OnHeap(copiesTerm, copies),
		need.Term{Name: "parameters on their way", Place: need.Pinned, Bytes: 4 * bytes(o.Spec.Parameters())},
		need.Term{Name: modelTerm, Place: need.Pinned, Bytes: bytes(o.Spec.PinnedBytes(p.rows, devices, 0, o.Train))},
		need.Term{Name: modelTerm, Place: need.Device, Bytes: device},
		need.Term{Name: "numbers of rows", Place: need.FirstDevice, Bytes: 4*m.Nodes + 3*gds.Align})
	switch p.where {
	case placement.Device:
		p.terms = append(p.terms, staging, need.Term{Name: "features on the device", Place: need.Device, Bytes: rowBytes},
			need.Term{Name: "features while they are read", Place: need.OffHeap, Bytes: widest, From: need.Features,
				Until: need.Features})
	case placement.Host:
		p.terms = append(p.terms, need.Term{Name: "features", Place: need.OffHeap, Bytes: rowBytes})
	default:
		for _, r := range shape.cached() {
			if r.Bytes > 0 {
				p.terms = append(p.terms, features.StorageNeed(r.Nodes, r.Bytes)...)
			}
		}
	}
	// Each is the larger number of training and evaluation. Epochs take the largest buffers first, so buffer k has room
	// for the largest batch of all epochs with more than k batches.
	var activations, work, samples, pinned int64
	buffers, batchRows := make([]int64, o.buffers()), make([]int64, len(rows))
	add := func(sampler string, fanouts []int, seeds, batches int) {
		blocks, parts, inputs := sampling.ExpectedTypedBlocks(t, fanouts, int64(seeds))
		var shapes []loader.Block
		for _, b := range blocks {
			shapes = append(shapes, loader.Block{Destinations: int(b.Destinations), Sources: int(b.Sources), Parts: parts})
			if o.Machine.Devices.Info.EdgeWork {
				work = max(work, o.Spec.EdgeWorkBytes(b.Sources, b.Edges))
			}
		}
		for i, n := range inputs {
			rows[i].Inputs, batchRows[i] = n, max(batchRows[i], n)
			rows[i].Cached = o.Sampling.Cache != "" && !rows[i].There
		}
		one := sampling.ExpectedBatch(m, rows, sampler, blocks, unified)
		for k := range min(len(buffers), batches) {
			buffers[k] = max(buffers[k], one.Device)
		}
		pinned = max(pinned, one.Pinned)
		samples = max(samples, one.Sample*int64(min(p.samples, batches)))
		activations = max(activations, gds.Room(bytes(o.Spec.BlockBytes(seeds, shapes, inputs, false))))
		samplers := workers
		if sampler == o.Sampling.Sampler && o.Train { // whose method devices share, as they do factors
			samplers *= devices
		}
		p.terms = append(p.terms, sampling.SamplersNeed(sampler, sampling.Mean, all, samplers))
	}
	batches := func() need.Terms { // as far as they were added
		held := int64(0)
		for _, bytes := range buffers {
			held += bytes
		}
		p.device = device + activations + work + held
		return need.Terms{need.OnHeap("samples", samples),
			{Name: "activations", Place: need.Device, Bytes: activations},
			{Name: "work along edges", Place: need.Device, Bytes: work},
			{Name: "batches", Place: need.Device, Bytes: held},
			{Name: "batches on their way to the device", Place: need.Pinned,
				Bytes: int64(pipelinedMoves(o.buffers()-1)) * pinned}}
	}
	if o.Train {
		add(o.Sampling.Sampler, o.fanouts(), share, (len(o.Part.Train.List)+o.BatchRows-1)/o.BatchRows)
	}
	trained := batches()
	add(FullSampler, o.allFanouts(), seeds, (evaluated+seeds-1)/seeds)
	if most := batches(); devices == 1 {
		each(most)
	} else { // the first alone evaluates
		each(trained)
		for i, t := range most.During(need.Profile, "") {
			if t.Bytes -= trained[i].Bytes; t.Place == need.Device {
				t.Place = need.FirstDevice
			}
			p.terms = append(p.terms, t)
		}
	}
	if o.Sampling.Cache != "" {
		spec, err := session.CacheSpec(o.Sampling.Cache, shape.cached())
		if err != nil {
			return err
		}
		caches := sampling.CacheNeed(spec, shape.cached(), shape.traceRows())
		if p.where == placement.Storage || p.where == placement.Host && !unified { // else rows elsewhere gain nothing
			caches = append(caches, sampling.RowCacheNeed(spec, shape.cached(), batchRows, unified, false)...)
		}
		if spec.Policy == "optimal" { // it looks ahead by samplers of its own
			caches = append(caches, sampling.SamplersNeed(o.Sampling.Sampler, sampling.Mean, all, workers),
				need.OnHeap("samples", samples))
		}
		each(caches)
	}
	return failed
}

// memory is the memory of the plan.
func (p *typedPlan) memory(o *Options) need.Memory {
	return p.terms.Sum(o.sharing(), o.Machine.Devices.Info.Unified)
}

// hostBytes is the memory of the plan without that of a device that has its own.
func (p *typedPlan) hostBytes(o *Options) int64 {
	memory := p.memory(o)
	if o.Machine.Devices.Info.Unified {
		memory.HostBytes += memory.DeviceBytes
	}
	return memory.HostBytes
}

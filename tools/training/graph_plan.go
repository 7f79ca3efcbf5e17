package training

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
)

// graphPlan is where a graph lies, why, and what that takes.
type graphPlan struct {
	graphJob
	// placement.Device: as a whole on the device; else in chunks, with features in host memory or storage
	where   string
	preload bool // samples are drawn there too, from adjacency lists and features on the device (as DGL preloads them)
	scarce  bool // batches get what memory is left, in the smallest chunks
	route   bool // the device prepares a batch by itself
	spilled bool // what layers put out for all nodes is in scratch files
	reasons []string
	// Of a typed graph: nodes that are evaluated at a time, and the most samples at a time; 0: no limit.
	evaluating, samples int

	terms                  need.Terms // but for batches, and for the chunk of a layer
	batch, evaluation      batchNeed  // of each batch that is trained, or evaluated by samples
	evaluations            int        // batches of an evaluation
	rows                   int        // that the model computes at a time
	inputBytes, modelBytes int64      // the graph in memory; the model's device memory, activations included
	// Device memory of a layer for each node and edge of a chunk, and what does not grow with the chunk.
	nodeBytes, edgeBytes, layers int64
	chunkBytes                   int64 // of device memory for a chunk, where the graph comes in chunks
	// chunkMemory is the memory of the largest chunk, chunkModel what the model keeps of it; 0: not known yet.
	chunkMemory, chunkModel int64
	spillBytes              int64 // of scratch files
	scarceBytes             int64 // what batches are expected to take at most, if there is less
}

// allPlaces are the places for features, the fastest first.
var allPlaces = []string{placement.Device, placement.Host, placement.Storage}

// leastChunkBytes and mostChunkBytes bound the memory of chunks that layers are computed in.
const (
	leastChunkBytes = 2 << 20
	mostChunkBytes  = 128 << 20
)

// candidates are the ways to lay out a graph, the best first. Features that are read from storage are dense.
func (o graphJob) candidates() (all []*graphPlan) {
	places, kinds := []string{o.Placement}, []*features.Elements{o.elements}
	auto := o.Placement == placement.Auto
	if o.all {
		places = []string{placement.Device}
	} else if auto {
		places = allPlaces
	}
	if o.evaluated != nil {
		return o.typedCandidates(places)
	}
	if !o.keepsSparse() {
		kinds[0] = nil
	} else if o.elements != nil && auto && !o.all {
		kinds = append(kinds, nil)
	}
	for _, o.elements = range kinds {
		for i := range 4 {
			scarce, spilled := i >= 2, i%2 > 0
			for _, where := range places {
				if o.elements != nil && where == placement.Storage ||
					scarce && (o.all || auto && where == placement.Device) ||
					spilled && (!o.maySpill || where == placement.Device) {
					continue
				}
				for _, job := range o.choices() {
					if where == placement.Device && !spilled && job.preloads() {
						all = append(all, &graphPlan{graphJob: job, where: where, preload: true, scarce: scarce})
					}
					all = append(all, &graphPlan{graphJob: job, where: where, scarce: scarce, spilled: spilled})
				}
			}
		}
	}
	return all
}

// leastEvaluated is the fewest nodes of a typed graph that are evaluated at a time, if memory is scarce.
const leastEvaluated = 64

// typedCandidates are the ways to lay out a typed graph: with so many nodes that are evaluated at a time, and samples.
func (o graphJob) typedCandidates(places []string) (all []*graphPlan) {
	if len(places) > 1 && o.Machine.Devices.Info.Unified {
		places = places[1:] // the device's memory is the host's
	}
	samples := []int{0}
	if o.Schedule.Name == "" { // whose batches are counted otherwise
		samples = nil
		for n := sampling.MostSamples(o.evaluated.Workers, o.evaluated.Buffers); n > 0; n /= 2 {
			samples = append(samples, n)
		}
	}
	for _, where := range places {
		for rows := InferenceRows; rows >= leastEvaluated; rows /= 2 {
			for _, n := range samples {
				for _, job := range o.choices() {
					if n > 0 {
						job.batches.Samples = min(job.batches.Samples, n)
					}
					all = append(all, &graphPlan{graphJob: job, where: where, evaluating: rows, samples: n})
				}
			}
		}
	}
	return all
}

// choices are the job and, where the schedule decides who prepares batches, the job without a device that does, with
// half of the workers, a quarter, and so on.
func (o graphJob) choices() []graphJob {
	all := []graphJob{o}
	if o.sampled == nil || o.Schedule.Name != scheduler.Auto {
		return all
	}
	if o.sampled.Routed {
		s := *o.sampled
		s.Routed, o.sampled = false, &s
		all = append(all, o)
	}
	for workers := o.sampled.Workers / 2; workers > 0 && o.Sampling.Workers == 0; workers /= 2 {
		s := *o.sampled
		s.Workers, o.sampled = workers, &s
		o.batches = scheduler.LeastHeld(scheduler.Auto, workers, o.Machine.Devices.Info.Unified)
		all = append(all, o)
	}
	return all
}

// planGraph decides where a graph lies: the first candidate that fits. What batches of samples take is an estimate, so
// it decides what is tried first, and refuses nothing: the memory of the device is what bounds them.
func planGraph(job graphJob) (p *graphPlan, err error) {
	if job.all && job.Placement != placement.Auto && job.Placement != placement.Device {
		return nil, session.Refuse("--placement %s: batches of all nodes need the graph on the device (give --batch, or "+
			"another --sampler)", job.Placement)
	}
	all := job.candidates()
	first, why := placement.First(all, (*graphPlan).fit)
	var reasons []string
	var refused error // the last candidate that has room for batches
	for i, c := range all {
		whole := c.sampled == job.sampled
		if c.where == placement.Device && whole {
			reasons = nil
		}
		if i == first {
			break
		}
		if !c.scarce {
			refused = why[i]
		}
		if !c.scarce && whole {
			where := c.where
			if c.spilled {
				where += " with layers in " + c.Scratch
			}
			if where = "not from " + where + ": "; len(reasons) > 0 && strings.HasPrefix(reasons[len(reasons)-1], where) {
				reasons = reasons[:len(reasons)-1] // of a plan for the same place that takes more
			}
			reasons = append(reasons, where+why[i].Error())
		}
	}
	if first < 0 {
		// Storage takes least, unless its buffers take more than few features do in host memory.
		if last := len(all) - 1; job.evaluated != nil {
			before := last
			for before >= 0 && all[before].where == all[last].where {
				before--
			}
			if before >= 0 && all[before].hostBytes() < all[last].hostBytes() {
				refused = why[before]
			}
			return nil, refused
		}
		if !job.maySpill {
			job.maySpill = true
			if _, err := planGraph(job); err == nil {
				refused = fmt.Errorf("%w (or give --scratch, a folder for layers of all nodes)", refused)
			}
		}
		return nil, refused
	}
	p = all[first]
	if last := len(reasons) - 1; !p.scarce && p.sampled != job.sampled {
		// The last reason is of this place with all workers.
		reasons[last] = fmt.Sprintf("%d of %d workers, and no batch by the device itself: %s", p.sampled.Workers,
			job.sampled.Workers, strings.TrimPrefix(reasons[last], "not from "+p.where+": "))
	} else if job.evaluated != nil && last >= 0 && strings.HasPrefix(reasons[last], "not from "+p.where+": ") {
		reasons = reasons[:last] // of a plan for this place that evaluates more nodes at a time
	}
	if job.Placement == placement.Auto {
		p.reasons = append(reasons, p.reasons...)
	} else if !job.all {
		p.reasons = append(p.reasons, "asked for by --placement")
	}
	if e := p.elements; e != nil {
		p.reasons = append(p.reasons, fmt.Sprintf("features are sparse, and kept so: %s instead of %s",
			units.Bytes(e.Bytes()),
			units.Bytes(gds.Bytes(int(job.graph.All.Nodes), job.graph.Types[0].Features, gds.Float32))))
	}
	return p, nil
}

// validationText says what an evaluation by batches of all in-neighbours takes.
func (p *graphPlan) validationText() string {
	nodes := int64(len(p.Part.Valid.List))
	if nodes == 0 {
		return fmt.Sprintf("evaluation takes all in-neighbours of up to %d nodes at a time", p.evaluating)
	}
	rows, bytes := p.validationReads()
	return fmt.Sprintf("each validation takes all in-neighbours of %d nodes, up to %d at a time: it gathers up to %d "+
		"rows of features, %s", nodes, p.evaluating, rows, units.Bytes(bytes))
}

// validationReads are the most rows of features that a validation by batches gathers, as far as they can be estimated,
// and their bytes as stored.
func (p *graphPlan) validationReads() (rows, bytes int64) {
	if p.evaluated == nil {
		return 0, 0
	}
	batches := float64(len(p.Part.Valid.List)) / float64(p.evaluating)
	for i, n := range p.evaluation.inputs {
		if t, all := &p.graph.Types[i], int64(batches*float64(n)); t.Features > 0 {
			rows, bytes = rows+all, bytes+gds.Bytes(int(all), t.Features, t.DType)
		}
	}
	return rows, bytes
}

// fit plans for the candidate, or says why it does not fit.
func (p *graphPlan) fit() error {
	m, all, name := p.Machine, p.graph.All, fmt.Sprintf("%s on %d nodes and %d edges", p.Spec.Model, p.graph.All.Nodes,
		p.graph.All.Edges)
	if err := p.count(); err != nil {
		return err
	}
	var err error
	if p.evaluated != nil {
		lists := "in host memory"
		if p.Mapped {
			lists = "mapped from disk"
		}
		p.reasons = []string{fmt.Sprintf("features of %d types are read from %s, lists by relation are %s: %s of memory",
			len(p.graph.Types), p.where, lists, units.Bytes(p.inputBytes)),
			p.validationText()}
		return m.Fits(fmt.Sprintf("%s of %d types, with features from %s,", name, len(p.graph.Types), p.where), p.memory())
	}
	if p.where == placement.Device {
		if edges := wholegraph.Edges(all, p.aggregation); edges > sampling.MaxBlockEdges {
			err := fmt.Errorf("%w: %s, as a whole on the device, has %d edges, and a block has 2^32-1 at most",
				machine.ErrDoesNotFit, name, edges)
			if p.all {
				err = fmt.Errorf("%w (give --batch, or another --sampler)", err)
			}
			return err
		}
		err = m.Fits(name+", as a whole on the device,", p.memory())
	} else {
		from := map[string]string{placement.Host: "host memory", placement.Storage: "storage"}[p.where]
		p.chunkBytes = leastChunkBytes
		err = m.Fits(fmt.Sprintf("%s, with features in %s and in chunks on the device,", name, from), p.memory())
		for larger := *p; err == nil && !p.scarce && p.chunkBytes < mostChunkBytes; p.chunkBytes *= 2 {
			if larger.chunkBytes = 4 * p.chunkBytes; m.Fits("", larger.memory()) != nil {
				break
			}
		}
		computes := "each validation computes"
		if len(p.Part.Valid.List) == 0 {
			computes = "evaluation computes"
		}
		p.reasons = []string{fmt.Sprintf("%s layers of all nodes, of %s of features, in chunks of up to %s, or of fewer "+
			"nodes where far fewer are needed", computes, units.Bytes(p.source().FeatureBytes()),
			units.Bytes(p.chunkBytes))}
		if p.spilled {
			p.reasons[0] += fmt.Sprintf(", and kept in %s: %s", p.Scratch, units.Bytes(p.spillBytes))
		}
	}
	if p.scarce {
		p.reasons = append(p.reasons, fmt.Sprintf("batches are expected to take up to %s, for which there may be too "+
			"little room", units.Bytes(p.scarceBytes)))
	}
	return err
}

// explain says what to do where there was too little device memory, and what batches were expected to need.
func (p *graphPlan) explain(err error) error {
	if !errors.Is(err, gds.ErrOutOfMemory) {
		return err
	}
	if p.scarceBytes > 0 {
		err = fmt.Errorf("%w; batches and their activations were expected to need up to %s", err, units.Bytes(p.scarceBytes))
	}
	return fmt.Errorf("%w (give more --memory, fewer seed nodes by --batch, or a smaller --fanout)", err)
}

// there tells that the rows of samples are on the device: of a typed graph, or those of the whole graph on the one
// device, which are dense. A cache of rows as they are stored has others.
func (p *graphPlan) there() bool {
	if p.where != placement.Device || p.graph.Typed != nil {
		return p.where == placement.Device
	}
	return p.elements == nil && p.sampled != nil && p.devices == 1 &&
		(p.sampled.Cache == "" || p.Machine.Devices.Info.Unified && p.graph.Types[0].DType == gds.Float32)
}

// source is the graph in its place.
func (p *graphPlan) source() session.Source {
	return session.Source{Shape: p.graph, Mapped: p.Mapped, Place: p.where, Elements: p.elements}
}

// pins tells that topology and features are in pinned memory, for the device to read.
func (p *graphPlan) pins() bool {
	return p.routed() && p.where != placement.Storage && !p.preload && !p.Mapped
}

//go:build cgo && (linux || darwin)

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
)

// sampleOptions are the options of sample.
type sampleOptions struct {
	batchOptions
	Graph string   `json:"graph"`
	Part  string   `json:"part"`
	Split int      `json:"split"`
	Nodes []uint32 `json:"nodes"` // instead of a part
	// SeedType is the type of the seed nodes of a typed graph; "": its target.
	SeedType string `json:"seed_type"`

	Sampler string `json:"sampler"`
	sampling.Options
	Cache  string `json:"cache"`
	Mapped bool   `json:"mapped"`

	NoFeatures bool           `json:"no_features"`
	Links      *linkOptions   `json:"links"` // seeds, instead of nodes
	TimeColumn string         `json:"time_column"`
	Times      numbers[int64] `json:"times"` // [nodes]: each node's limit
	Newest     bool           `json:"newest"`
}

// linkOptions are seeds of link prediction.
type linkOptions struct {
	Sources      numbers[uint32] `json:"sources"`      // [links]
	Destinations numbers[uint32] `json:"destinations"` // [links]
	Times        numbers[int64]  `json:"times"`        // [links], optional
	Negatives    string          `json:"negatives"`    // "", "binary" or "triplet"
	Ratio        float64         `json:"ratio"`        // negative pairs for each link
	Hide         bool            `json:"hide"`         // links are not in their own batch's subgraph
}

// links are the seeds that the options ask for.
func (o *linkOptions) links() (*sampling.Links, error) {
	l := &sampling.Links{Sources: o.Sources, Destinations: o.Destinations, Times: o.Times, Hide: o.Hide}
	switch o.Negatives {
	case "":
	case "binary", "triplet":
		l.Ratio, l.Triplet = o.Ratio, o.Negatives == "triplet"
	default:
		return nil, fmt.Errorf("%w: negatives %q: want binary or triplet", session.ErrOptions, o.Negatives)
	}
	return l, nil
}

// numbers are an array that JSON has in base64, little-endian.
type numbers[T dtype.Number] []T

// UnmarshalJSON decodes them to where they stay.
func (n *numbers[T]) UnmarshalJSON(text []byte) error {
	if text = bytes.Trim(text, `"`); string(text) == "null" {
		return nil
	}
	*n = make([]T, base64.StdEncoding.DecodedLen(len(text))/binary.Size(T(0))+1)
	used, err := base64.StdEncoding.Decode(dtype.BytesOf(*n), text)
	*n = (*n)[:used/binary.Size(T(0))]
	return err
}

func defaultSample() sampleOptions {
	return sampleOptions{Sampler: "neighbor", Options: sampling.Options{Fanouts: []int{15, 10, 5}},
		Part: format.RegionTrain, batchOptions: batchOptions{World: 1}}
}

// plan is the order of the seeds.
func (o *sampleOptions) plan() (p chunk.Plan, err error) {
	p = chunk.Plan{BatchRows: o.BatchRows, ChunkRows: 1, Order: chunk.Shuffled, Seed: o.Seed, Rank: o.Rank,
		World: o.World, DropLast: o.DropLast}
	switch o.Shuffle {
	case placement.RR, "":
	case inOrder:
		p.Order = chunk.Sequential
	default:
		return p, fmt.Errorf("%w: shuffle %q of sampled batches: want %s or %s", session.ErrOptions, o.Shuffle,
			placement.RR, inOrder)
	}
	return p, nil
}

func (o *sampleOptions) run(ctx context.Context, j *job) (any, error) {
	plan, err := o.plan()
	if err != nil {
		return nil, err
	}
	most, err := o.check()
	if err != nil {
		return nil, err
	}
	files, err := o.files(j)
	if err != nil {
		return nil, err
	}
	var typed *format.Typed
	var graph *format.Dir
	if format.IsTyped(files, o.Graph) {
		if typed, err = format.OpenTyped(files, o.Graph); err != nil {
			return nil, err
		}
		o.SeedType = cmp.Or(o.SeedType, typed.Target)
		if _, found := typed.Type(o.SeedType); !found {
			return nil, session.Refuse("%s has no type %s", o.Graph, o.SeedType)
		}
		graph, err = typed.OpenNodes(files, o.Graph, o.SeedType)
	} else {
		graph, err = format.OpenGraph(files, o.Graph)
	}
	if err != nil {
		return nil, err
	}
	j.opens(graph)
	graph.Share(&pool, j.holders(&o.resources))
	seeds := o.Nodes
	var links *sampling.Links
	if o.Links != nil {
		if links, err = o.Links.links(); err != nil {
			return nil, err
		}
	} else if seeds == nil {
		if seeds, err = session.NodesOf(ctx, graph, o.Part, o.Split); err != nil {
			return nil, err
		}
	}
	opening, err := j.machine.Devices.Open(1)
	if err != nil {
		return nil, err
	}
	j.opens(opening[0])
	so := session.SampledOptions{
		Machine: j.machine, Sampler: o.Sampler, Seeds: seeds, Links: links, Plan: plan, Cache: o.Cache, Mapped: o.Mapped,
		Sampling: o.Options, Device: opening[0], Placement: o.Placement, Buffers: o.Buffers, MostBuffers: most, NodeIDs: true,
		NoFeatures: o.NoFeatures, Times: o.TimeColumn, Newest: o.Newest,
	}
	identity, fingerprint := identify(graph), graph.Manifest.Fingerprint
	if typed != nil {
		if err = sampling.CheckSeeds(seeds, graph.Manifest.Nodes); err != nil {
			return nil, err
		}
		identity, fingerprint = identified{typed.Fingerprint}, typed.Fingerprint
		first := sampling.FirstNodes(typed)[o.SeedType]
		for i := range seeds {
			seeds[i] += first
		}
		graph.Typed, graph.TypedPath = typed, o.Graph
	}
	sampled, err := session.OpenSampled(ctx, graph, so)
	if err != nil {
		return nil, err
	}
	j.opens(sampled)
	var set *sampling.Set
	if links != nil {
		set, err = sampled.Loader.LinkSet(links, sampled.Method, plan)
	} else {
		set, err = sampled.Loader.Set(seeds, sampled.Method, plan)
	}
	if err == nil && o.Times != nil {
		err = set.LimitSeeds(o.Times)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrOptions, err)
	}
	j.epochs, j.stats = set, func() any { return sampled.Loader.Stats() }
	if o.Owned {
		j.grow, j.memory = sampled.Loader.Grow, j.machine.Budget
	}
	rows := sampled.Features.Types[0]
	out := &opened{
		planned: planned{
			Placement: sampled.Placement, Shuffle: cmp.Or(o.Shuffle, placement.RR), Reasons: []string{sampled.Reason},
			InputBytes: rows.Rows() * gds.Bytes(1, rows.Columns(), rows.DType()),
			Rows:       set.Rows(), Memory: &sampled.Memory,
		},
		Batches: set.Batches(), Buffers: so.Buffers, ChunkRows: 1, Layers: sampled.Method.Blocks(),
		Matrices: []string{format.Input.String()}, Fingerprint: fingerprint,
		identified: identity,
	}
	j.device = opening[0]
	return out, nil
}

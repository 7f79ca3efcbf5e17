package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
)

// OpenTypedSampled opens relations, sampler and loader of the typed graph dir, as OpenSampled does for a graph. Seeds
// are nodes of the one graph of all types (sampling.FirstNodes). Batches have neither features nor labels, which are
// those of types: the caller reads them by the numbers of the nodes.
func OpenTypedSampled(ctx context.Context, fsys vfs.FS, dir string, t *format.Typed, o SampledOptions) (_ *Sampled,
	err error) {
	o.Machine = o.Machine.orThis(ctx)
	switch {
	case o.Cache != "" || o.Times != "" || o.Links != nil:
		return nil, Refuse("%s is a typed graph, which is sampled around nodes, without times and without a cache", dir)
	case !o.NoFeatures:
		return nil, Refuse("%s is a typed graph, whose features are not those of one matrix", dir)
	}
	o.Workers, o.Buffers = cmp.Or(o.Workers, o.Machine.Threads), cmp.Or(o.Buffers, placement.Buffers)
	if o.Plan = o.Plan.WithRows(len(o.Seeds)); o.Plan.Check() != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, o.Plan.Check())
	}
	weighted, err := t.Weighted(fsys, dir)
	if err != nil {
		return nil, err
	}
	all := sampling.TypedManifest(t, weighted)
	if err := sampling.CheckSeeds(o.Seeds, all.Nodes); err != nil {
		return nil, err
	}
	s := &Sampled{Placement: placement.Host, Reason: "a typed graph is sampled without features"}
	one := sampling.BatchBytes(o.Sampler, o.Sampling, o.batchSeeds(), all.Nodes, all.Edges)
	s.Memory = need.Terms{Program, sampling.TypedTopologyNeed(t, weighted, o.Mapped),
		sampling.SamplersNeed(o.Sampler, sampling.Mean, all, o.Workers),
		need.OnHeap("seed nodes", 4*int64(len(o.Seeds))+12*all.Nodes)}.Sum(1, false)
	what := fmt.Sprintf("sampling a typed graph of %d nodes and %d edges", all.Nodes, all.Edges)
	if err := o.Machine.Fits(what, s.Memory); err != nil {
		return nil, err
	}
	if limit := &o.Machine.Budget; limit.By != "" {
		s.maxBatchBytes = max(1, s.shareOut(&o, int64(limit.Bytes)-s.Memory.HostBytes, one)/int64(o.Buffers))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Topology, err = sampling.OpenTypedTopology(ctx, fsys, dir, t, o.Mapped, o.Machine.Threads); err != nil {
		return nil, err
	}
	s.own, s.Features = append(s.own, s.Topology), features.NewNone(all.Nodes)
	o.Sampling.Threads = o.Machine.Threads
	if s.Method, err = sampling.NewMethod(ctx, o.Sampler, s.Topology, o.Sampling); err != nil {
		return nil, err
	}
	if o.Device == nil {
		return s, nil
	}
	s.Loader, err = sampling.Open(sampling.LoaderOptions{
		Device: o.Device, Types: []sampling.TypeRows{{Features: s.Features}}, Buffers: o.Buffers, MostBuffers: o.MostBuffers,
		MaxBatchBytes: s.maxBatchBytes, Workers: s.workers(&o), Samples: s.samples, NodeIDs: o.NodeIDs,
	})
	return s, err
}

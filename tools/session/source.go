package session

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
)

// Source says where a graph is read from: samplers and trainings plan by its Terms, and open it here.
type Source struct {
	Graph  *format.Dir
	Mapped bool // the topology is mapped from disk, not loaded
	// Place is where the features are: placement.Host, Storage or, as far as others hold them, Device. "": the topology
	// alone is read.
	Place      string
	Elements   *features.Elements // of sparse features in host memory; nil: they are dense
	NoFeatures bool
}

// RowBytes is the size of a dense row of features.
func (s Source) RowBytes() int64 {
	if s.NoFeatures {
		return 0
	}
	l := s.Graph.Layout()
	return gds.Bytes(1, l.Features, l.DType)
}

// FeatureBytes is the memory of all features on the host.
func (s Source) FeatureBytes() int64 {
	if s.Elements != nil {
		return s.Elements.Bytes()
	}
	return s.Graph.Manifest.Nodes * s.RowBytes()
}

// TopologyBytes is the memory of the topology: none where it is mapped, as it is the page cache's.
func (s Source) TopologyBytes() int64 {
	if s.Mapped {
		return 0
	}
	return sampling.TopologyNeed(&s.Graph.Manifest).Bytes
}

// Terms is the memory of the program, the topology, labels, and features as far as they are in host memory or storage.
func (s Source) Terms() need.Terms {
	m := &s.Graph.Manifest
	topology := sampling.TopologyNeed(m)
	topology.Bytes = s.Graph.OwnBytes(format.HeldTopology, s.TopologyBytes())
	terms := need.Terms{Program, topology}
	switch s.Place {
	case "":
		return terms
	case placement.Host:
		terms = append(terms, need.Term{Name: "features", Place: need.OffHeap,
			Bytes: s.Graph.OwnBytes(format.HeldFeatures, s.FeatureBytes())})
	case placement.Storage:
		terms = append(terms, features.StorageNeed(m.Nodes, s.RowBytes())...)
	}
	return append(terms, sampling.LabelsNeed(m))
}

// OpenTopology loads or maps the topology.
func (s Source) OpenTopology(ctx context.Context, threads int) (sampling.Topology, error) {
	if s.Mapped {
		return sampling.MapTopology(ctx, s.Graph)
	}
	return sampling.LoadTopology(ctx, s.Graph, threads)
}

// OpenFeatures opens the features for a device. pin: they are in pinned memory, which devices read by themselves.
func (s Source) OpenFeatures(ctx context.Context, device gds.Device, pin bool, threads int) (opened features.Source,
	err error) {
	switch {
	case s.NoFeatures:
		return features.NewNone(s.Graph.Manifest.Nodes), nil
	case s.Elements != nil:
		opened, err = features.LoadSparse(ctx, s.Graph, s.Elements, threads)
	case s.Place == placement.Storage:
		opened, err = features.OpenStorage(ctx, s.Graph, device, threads)
	case pin:
		opened, err = features.LoadHost(ctx, s.Graph, device, threads)
	default:
		opened, err = features.LoadHost(ctx, s.Graph, nil, threads)
	}
	if err != nil {
		return nil, err // and no nil pointer in opened
	}
	return opened, nil
}

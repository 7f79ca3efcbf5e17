package session

import (
	"context"
	"errors"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
)

// Source says where a graph is read from: samplers and trainings plan by its Terms, and open it here.
type Source struct {
	*sampling.Shape      // of the graph
	Mapped          bool // the topology is mapped from disk, not loaded
	// Place is where the features are: placement.Host, Storage or Device; of a graph of one type, others hold those that
	// are on the device. "": the topology alone is read.
	Place      string
	Elements   *features.Elements // of sparse features in host memory; nil: they are dense
	NoFeatures bool
}

// FeatureBytes is the memory of all features on the host.
func (s Source) FeatureBytes() (bytes int64) {
	switch {
	case s.Elements != nil:
		return s.Elements.Bytes()
	case s.NoFeatures:
		return 0
	}
	for _, t := range s.Rows() {
		bytes += t.Nodes * t.Bytes
	}
	return bytes
}

// TopologyBytes is the memory of the topology: none where it is mapped, as it is the page cache's.
func (s Source) TopologyBytes() int64 {
	if s.Mapped {
		return 0
	}
	return s.Shape.TopologyBytes()
}

// labels tells that labels are read: unless seeds of a typed graph may be of any type.
func (s Source) labels() bool { return s.Typed == nil || !s.NoFeatures }

// Terms is the memory of the program, the topology, labels, and features as far as they are in host memory or storage.
func (s Source) Terms() need.Terms {
	own := s.OwnBytes
	if s.Typed != nil { // processes share files of graphs of one type
		own = func(_ string, bytes int64) int64 { return bytes }
	}
	terms := need.Terms{Program, {Name: "topology", Place: need.OffHeap,
		Bytes: own(format.HeldTopology, s.TopologyBytes())}}
	switch s.Place {
	case "":
		return terms
	case placement.Host:
		terms = append(terms, need.Term{Name: "features", Place: need.OffHeap,
			Bytes: own(format.HeldFeatures, s.FeatureBytes())})
	case placement.Storage:
		for _, t := range s.Rows() {
			if !s.NoFeatures && t.Bytes > 0 {
				terms = append(terms, features.StorageNeed(t.Nodes, t.Bytes)...)
			}
		}
	}
	if s.labels() {
		terms = append(terms, sampling.LabelsNeed(&s.Manifest))
	}
	return terms
}

// OpenTopology loads or maps the topology.
func (s Source) OpenTopology(ctx context.Context, threads int) (sampling.Topology, error) {
	switch {
	case s.Typed != nil:
		return sampling.OpenTypedTopology(ctx, s.FS(), s.TypedPath, s.Typed, s.Mapped, threads)
	case s.Mapped:
		return sampling.MapTopology(ctx, s.Dir)
	}
	return sampling.LoadTopology(ctx, s.Dir, threads)
}

// Features are the open features of a graph, of each type.
type Features struct {
	Types []features.Source
	dirs  []*format.Dir // that they are read from, but for the graph's own
}

// Close closes the features.
func (f *Features) Close() error {
	var errs []error
	for _, t := range f.Types {
		errs = append(errs, t.Close())
	}
	for _, d := range f.dirs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// OpenFeatures opens the features for a device. pin: they are in pinned memory, which devices read by themselves.
func (s Source) OpenFeatures(ctx context.Context, device gds.Device, pin bool, threads int) (_ *Features, err error) {
	f := &Features{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	switch {
	case s.NoFeatures:
		f.Types = []features.Source{features.NewNone(s.All.Nodes)}
		return f, nil
	case s.Typed == nil:
		return f, f.add(s.open(ctx, s.Dir, device, pin, threads))
	}
	for _, n := range s.Typed.Types {
		if n.Features == 0 {
			f.Types = append(f.Types, features.NewNone(n.Nodes))
			continue
		}
		d, err := s.Typed.OpenNodes(s.FS(), s.TypedPath, n.Name)
		if err != nil {
			return nil, err
		}
		err = f.add(s.open(ctx, d, device, pin, threads))
		if s.Place == placement.Storage {
			f.dirs = append(f.dirs, d)
		} else {
			err = errors.Join(err, d.Close())
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add adds the features of a type, unless they could not be opened.
func (f *Features) add(opened features.Source, err error) error {
	if err == nil {
		f.Types = append(f.Types, opened)
	}
	return err
}

// open opens the features of a type.
func (s Source) open(ctx context.Context, graph *format.Dir, device gds.Device, pin bool, threads int) (
	features.Source, error) {
	switch {
	case s.Elements != nil:
		return features.LoadSparse(ctx, graph, s.Elements, threads)
	case s.Place == placement.Storage:
		return features.OpenStorage(ctx, graph, device, threads)
	case s.Place == placement.Device && s.Typed != nil:
		return features.LoadDevice(ctx, graph, device, threads)
	case pin:
		return features.LoadHost(ctx, graph, device, threads)
	}
	return features.LoadHost(ctx, graph, nil, threads)
}

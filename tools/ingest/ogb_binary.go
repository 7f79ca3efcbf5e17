package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

func (s *ogbSource) openBinary(ctx context.Context, o OGBOptions) error {
	path := s.path("data.npz")
	z, err := npy.OpenArchive(s.fsys, path)
	if err != nil {
		return err
	}
	defer z.Close()
	var sizes [2]int64
	for i, name := range []string{"num_nodes_list", "num_edges_list"} {
		if err := withArray(s.fsys, path, name, func(a *npy.Stream) error {
			if err := checkArray(a.Path(), &a.Header, "integers [1]: one, as there must be one graph"); err != nil {
				return err
			}
			return npy.Next(a, sizes[i:i+1])
		}); err != nil {
			return err
		}
	}
	if sizes[0] < 0 || sizes[0] > MaxNodes {
		return invalid(path, "num_nodes_list: %d nodes (want 0 to %d)", sizes[0], int64(MaxNodes))
	}
	if sizes[1] < 0 || sizes[1] > format.MaxEdges {
		return invalid(path, "num_edges_list: %d edges (want 0 to %d)", sizes[1], int64(format.MaxEdges))
	}
	own, err := s.identify(sizes[0], z.Has("node_feat"), o)
	if err != nil {
		return err
	}
	used := []string{"num_nodes_list", "num_edges_list", "edge_index", "node_feat"}
	s.info.noteLeft(path, slices.DeleteFunc(z.Names(), func(name string) bool { return slices.Contains(used, name) }))
	labels, err := s.need("node-label.npz")
	if err == nil {
		err = withArray(s.fsys, labels, "node_label", func(a *npy.Stream) error {
			return s.openArchiveLabels(labels, &a.Header, o.LabelsAs)
		})
	}
	if err != nil {
		return err
	}
	if err := withArray(s.fsys, path, "edge_index", func(a *npy.Stream) error {
		return s.readArrayEdges(ctx, a, sizes[1])
	}); err != nil {
		return err
	}
	if !own {
		return s.openFeatures(ctx)
	}
	return withArray(s.fsys, path, "node_feat", func(a *npy.Stream) error {
		if err := checkArray(a.Path(), &a.Header, ofNodes("numbers [n,F]", s.info.Nodes)); err != nil {
			return err
		}
		if err := s.setFeatures(a.Path(), s.info.Nodes, a.Shape[1]); err != nil {
			return err
		}
		if a.Fortran && s.info.Features > 1 {
			return s.copyColumns(ctx, a)
		}
		s.info.FeatureBytes = sparseBytes
		s.features = func(int) (FeatureReader, error) {
			z, err := npy.OpenArchive(s.fsys, path)
			if err != nil {
				return nil, err
			}
			a, err := z.Stream("node_feat")
			if err != nil {
				return nil, errors.Join(err, z.Close())
			}
			return &streamReader{z, a}, nil
		}
		return nil
	})
}

// openArchiveLabels makes an array in an archive the labels.
func (s *ogbSource) openArchiveLabels(path string, h *npy.Header, as LabelsAs) error {
	place := path + ": node_label"
	if h.Type == npy.Text {
		return invalid(place, "an array of text (want numbers)")
	}
	return s.addLabels(place, h, s.info.Nodes, as, func(ctx context.Context, sink *labelSink) error {
		return withArray(s.fsys, path, "node_label", func(a *npy.Stream) error {
			if !slices.Equal(a.Shape, h.Shape) || a.Type != h.Type {
				return fmt.Errorf("%s: %w", place, errChanged)
			}
			return sink.numbersOf(ctx, place, &a.Header, func(dst []float64) error { return npy.Next(a, dst) }, asNode)
		})
	})
}

// readArrayEdges reads an array [2,E] from front to end: all sources, then all destinations, or, in Fortran order, edge
// by edge.
func (s *ogbSource) readArrayEdges(ctx context.Context, a *npy.Stream, edges int64) (err error) {
	if err := checkArray(a.Path(), &a.Header, fmt.Sprintf("integers [2,%d]", edges)); err != nil {
		return err
	}
	if s.edges, err = s.scratch.newEdges(false, edges); err != nil {
		return err
	}
	s.edges.edges = edges
	err = each(ctx, a.Elements(), func(dst []int64) error { return npy.Next(a, dst) }, func(i, v int64) error {
		column, edge := i/edges, i%edges
		if a.Fortran {
			column, edge = i%2, i/2
		}
		if uint64(v) >= uint64(s.info.Nodes) {
			id := fmt.Sprint(v)
			if a.Type == npy.Uint64 {
				id = fmt.Sprint(uint64(v))
			}
			return errNoNode(a.Path(), edge, column, id, s.info.Nodes)
		}
		return s.edges.columns[column].add(uint32(v))
	})
	if err != nil {
		return err
	}
	return s.edges.finish(ctx)
}

// copyColumns puts features in Fortran order, whose columns come one after another, into a scratch file.
func (s *ogbSource) copyColumns(ctx context.Context, a *npy.Stream) error {
	return s.copyFeatures((&streamReader{nil, a}).Place, func(to vfs.PendingFile) (npy.Header, uint64, error) {
		sum, next, rows := uint64(0), int64(0), a.Shape[0] // next: element in Fortran order
		err := each(ctx, a.Elements(), func(dst []float32) error {
			if err := npy.Next(a, dst); err != nil {
				return err
			}
			for i := range dst {
				sum += sumElements(next%rows*a.Shape[1]+next/rows, 0, dst[i:i+1])
				next++
			}
			_, err := to.Write(dtype.BytesOf(dst))
			return err
		}, func(int64, float32) error { return nil })
		return npy.Header{Fortran: true, Shape: a.Shape}, sum, err
	})
}

// streamReader reads the rows of an array in an archive.
type streamReader struct {
	archive *npy.Archive
	*npy.Stream
}

func (r *streamReader) Read(ctx context.Context, dst []float32) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return npy.Next(r.Stream, dst)
}

func (r *streamReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.Path(), row) }

func (r *streamReader) Close() error { return errors.Join(r.Stream.Close(), r.archive.Close()) }

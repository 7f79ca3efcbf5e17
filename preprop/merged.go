package preprop

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// A mean over several relations to one type is a product like that over one: by the edges of all, from the nodes of
// their sources, one relation's after another's. The edges are written once, as a relation's are; the matrices of the
// sources are read one after another (stacked), with zeros where nothing has come.

// mergedRangeBytes bounds the node ranges in which relations are merged.
const mergedRangeBytes = 1 << 20

// mergedManifest is the sizes of relations together.
func (t *typedJob) mergedManifest(relations []format.Relation) (*format.Manifest, error) {
	g := &format.Manifest{}
	for _, r := range relations {
		one := t.sizes[r]
		if one == nil {
			d, err := t.typed.OpenRelation(t.fsys, t.graphDir, r)
			if err != nil {
				return nil, err
			}
			if err := d.Close(); err != nil {
				return nil, err
			}
			one = &d.Manifest
			t.sizes[r] = one
		}
		source, _ := t.typed.Type(r.Source)
		g.Nodes, g.SourceNodes = one.Nodes, g.SourceNodes+source.Nodes
		g.Edges, g.Weighted = g.Edges+one.Edges, g.Weighted || one.Weighted
	}
	return g, nil
}

// edgesOf is the directory with the edges of relations together, which it makes unless there is one.
func (t *typedJob) edgesOf(ctx context.Context, relations []format.Relation) (string, error) {
	if len(relations) == 1 {
		return format.RelationDir(t.graphDir, relations[0]), nil
	}
	dir := filepath.Join(t.scratch, t.prefix+"edges-"+relationsKey(relations))
	d, err := format.OpenRelation(t.fsys, dir)
	if err == nil {
		return dir, d.Close()
	}
	if !errors.Is(err, format.ErrIncomplete) && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	g, err := t.mergedManifest(relations)
	if err = errors.Join(err, t.reserve.Free()); err != nil {
		return "", err
	}
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: g.Nodes}}, 0, 0, format.Float32)
	layout.SourceNodes = g.SourceNodes
	w, err := format.Create(t.fsys, dir, layout, format.CreateOptions{})
	if err != nil {
		return "", err
	}
	if err := t.merge(ctx, w, relations, g); err != nil {
		return "", errors.Join(err, w.Abort())
	}
	return dir, nil
}

func (t *typedJob) merge(ctx context.Context, w *format.Writer, relations []format.Relation,
	g *format.Manifest) (err error) {
	var files []*format.TopologyFile
	degrees, own := make([]uint32, g.Nodes), make([]uint32, g.Nodes)
	for _, r := range relations {
		d, err := t.typed.OpenRelation(t.fsys, t.graphDir, r)
		if err != nil {
			return err
		}
		defer d.Close()
		f, err := d.OpenUnchecked(ctx, mergedRangeBytes)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := f.Check(ctx, func(_ int, b *format.NodeRange) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				own[v] = uint32(len(b.In(v)))
			}
			return nil
		}); err != nil {
			return err
		}
		for v, degree := range own {
			degrees[v] += degree
		}
		files = append(files, f)
	}
	neighbors, stopNeighbors := streamLists(ctx, files, func(neighbors []uint32, _ []float32) []byte {
		return dtype.BytesOf(neighbors)
	})
	defer stopNeighbors()
	var weights io.Reader
	if g.Weighted {
		var stopWeights func() error
		weights, stopWeights = streamLists(ctx, files, func(_ []uint32, weights []float32) []byte {
			return dtype.BytesOf(weights)
		})
		defer stopWeights()
	}
	if err := w.StreamTopology(degrees, neighbors, weights); err != nil {
		return err
	}
	return errors.Join(w.Rows(&format.RowTable{Rows: g.Nodes}), w.Publish(&format.Manifest{Kind: format.KindGraph,
		Directed: true}))
}

// streamLists is a reader of a part of all lists, and a function that ends it.
func streamLists(ctx context.Context, files []*format.TopologyFile,
	of func(neighbors []uint32, weights []float32) []byte) (io.Reader, func() error) {
	r, w := io.Pipe()
	go func() {
		to := bufio.NewWriterSize(w, mergedRangeBytes)
		err := eachList(ctx, files, func(_ int64, neighbors []uint32, weights []float32) error {
			_, err := to.Write(of(neighbors, weights))
			return err
		})
		w.CloseWithError(errors.Join(err, to.Flush()))
	}()
	return r, r.Close
}

// eachList calls do with the in-neighbours of each node by all relations, numbered as stacked rows, and their weights,
// 1 for edges of a relation without.
func eachList(ctx context.Context, files []*format.TopologyFile,
	do func(v int64, neighbors []uint32, weights []float32) error) error {
	type place struct {
		format.NodeRange
		next   int // node range
		buffer []byte
	}
	places := make([]place, len(files))
	for i, f := range files {
		places[i].buffer = dtype.BytesOf(make([]uint64, (f.RangeBytes()+7)/8))
	}
	var neighbors []uint32
	var weights []float32
	for v := range files[0].Nodes() {
		neighbors, weights = neighbors[:0], weights[:0]
		first := int64(0)
		for i, f := range files {
			at := &places[i]
			for at.Offsets == nil || v >= at.First+at.Rows() {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				var err error
				if at.NodeRange, err = f.ReadRange(at.next, at.buffer); err != nil {
					return err
				}
				at.next++
			}
			for _, u := range at.In(v) {
				neighbors = append(neighbors, uint32(first+int64(u)))
			}
			if weights = append(weights, at.InWeights(v)...); !f.Weighted() {
				weights = append(weights, slices.Repeat([]float32{1}, len(at.In(v)))...)
			}
			first += f.Sources()
		}
		if err := do(v, neighbors, weights); err != nil {
			return err
		}
	}
	return nil
}

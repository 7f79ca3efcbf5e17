//go:build cgo && (linux || darwin)

package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/session"
)

// extentsOptions ask where a matrix lies.
type extentsOptions struct {
	place
	Operator string `json:"operator"`
	Hop      int    `json:"hop"`
	Column   string `json:"column"` // of a graph or relation, instead
}

// place is a graph or store, or a relation of a typed graph.
type place struct {
	Path     string           `json:"path"`
	Relation *format.Relation `json:"relation"`
}

func (p *place) open(ctx context.Context, j *job) (d *format.Dir, id identified, err error) {
	files := plainFiles(ctx)
	if p.Relation == nil {
		if d, err = format.OpenAny(files, p.Path); err != nil {
			return nil, id, err
		}
		id = identify(d)
	} else {
		t, err := format.OpenTyped(files, p.Path)
		if err != nil {
			return nil, id, err
		}
		id.RowsFingerprint = t.Fingerprint
		at := slices.IndexFunc(t.Relations, func(r format.Relation) bool { return r.String() == p.Relation.String() })
		if at < 0 {
			return nil, id, session.Refuse("%s has no relation %s", p.Path, p.Relation)
		}
		if d, err = t.OpenRelation(files, p.Path, t.Relations[at]); err != nil {
			return nil, id, err
		}
	}
	j.opens(d)
	return d, id, nil
}

// extents is where the rows of a matrix lie.
type extents struct {
	Columns int    `json:"columns"`
	DType   string `json:"dtype"`
	Spans   []span `json:"spans"` // in the order of rows
	identified
}

// span is chunks of a file that have equally many rows and lie equally far apart.
type span struct {
	File      string `json:"file"`
	FirstRow  int64  `json:"first_row"`
	Chunks    int64  `json:"chunks"`
	ChunkRows int64  `json:"chunk_rows"`
	Offset    int64  `json:"offset"`
	Stride    int64  `json:"stride"` // in bytes, from chunk to chunk
}

func (o *extentsOptions) run(ctx context.Context, j *job) (any, error) {
	d, id, err := o.place.open(ctx, j)
	if err != nil {
		return nil, err
	}
	var m *format.Matrix
	if o.Column != "" {
		m, _, err = d.Column(o.Column)
	} else {
		m, err = d.Matrix(format.MatrixID{Operator: o.Operator, Hop: o.Hop})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %v", session.ErrOptions, err)
	}
	out := &extents{Columns: m.Layout.Features, DType: m.Layout.DType.String(), Spans: []span{},
		identified: id}
	for k := range m.Chunks() {
		first, rows := m.ChunkRowRange(k)
		e := m.Extent(k)
		if n := len(out.Spans); n > 0 {
			s := &out.Spans[n-1]
			if s.Chunks == 1 {
				s.Stride = e.Offset - s.Offset
			}
			if s.File == e.File && s.ChunkRows == int64(rows) && e.Offset == s.Offset+s.Chunks*s.Stride {
				s.Chunks++
				continue
			}
		}
		out.Spans = append(out.Spans, span{e.File, first, 1, int64(rows), e.Offset, e.Length})
	}
	return out, nil
}

// topologyOptions ask where the edges of a graph or relation lie.
type topologyOptions struct{ place }

// topology is where the numbers of a topology (CSC) lie: nodes+1 offsets (int64), then the in-neighbours (uint32) of
// all nodes, and their weights (float32).
type topology struct {
	Nodes       int64  `json:"nodes"`
	Sources     int64  `json:"sources"` // that in-neighbours are numbered by
	Edges       int64  `json:"edges"`
	Folder      string `json:"folder"` // with the files
	File        string `json:"file"`
	OffsetsAt   int64  `json:"offsets_at"` // bytes
	NeighborsAt int64  `json:"neighbors_at"`
	WeightsFile string `json:"weights_file"` // "": there are no weights
	WeightsAt   int64  `json:"weights_at"`
	// Columns describes the columns that edges have.
	Columns []format.Column `json:"columns"`
	identified
}

func (o *topologyOptions) run(ctx context.Context, j *job) (any, error) {
	d, id, err := o.place.open(ctx, j)
	if err != nil {
		return nil, err
	}
	raw, file, weights, err := d.TopologyPlaces()
	if err != nil {
		return nil, err
	}
	out := &topology{identified: id}
	out.Nodes, out.Sources, out.Edges = raw.Nodes, cmp.Or(raw.Sources, raw.Nodes), raw.Edges
	out.Folder, out.File, out.OffsetsAt, out.NeighborsAt = d.Path(), file, raw.OffsetsAt, raw.NeighborsAt
	out.WeightsFile, out.WeightsAt = weights, raw.WeightsAt
	out.Columns = slices.DeleteFunc(slices.Clone(d.Manifest.Columns), func(c format.Column) bool {
		return c.Of != format.OfEdges
	})
	return out, nil
}

// rowsOptions ask for the table of rows.
type rowsOptions struct {
	Path string `json:"path"`
	IDs  bool   `json:"ids"` // alone
}

// rows is the table of rows, little-endian; JSON has it in base64.
type rows struct {
	Nodes  []byte   `json:"nodes"`  // [rows] uint32; none in a graph
	Labels []byte   `json:"labels"` // [rows] int32, or [rows, columns] int8 or float32
	Splits []byte   `json:"splits"` // [rows, splits] uint8
	IDs    []string `json:"ids"`    // [rows], in the input of an import that has mapped them
	identified
}

func (o *rowsOptions) run(ctx context.Context, j *job) (any, error) {
	d, err := format.OpenAny(plainFiles(ctx), o.Path)
	if err != nil {
		return nil, err
	}
	j.opens(d)
	out := &rows{identified: identify(d)}
	var failed error
	err = d.VisitRows(ctx, func(t *format.RowTable, _ int64) {
		if o.IDs {
			out.IDs = append(out.IDs, t.OrigID...)
			return
		}
		for _, column := range []struct {
			to   *[]byte
			from any
		}{{&out.Nodes, t.NodeID}, {&out.Labels, t.Labels}, {&out.Labels, t.MultiLabels}, {&out.Labels, t.LabelValues},
			{&out.Splits, t.Splits}} {
			var err error
			if *column.to, err = binary.Append(*column.to, binary.LittleEndian, column.from); err != nil {
				failed = err
			}
		}
	})
	if err == nil {
		err = failed
	}
	return out, err
}

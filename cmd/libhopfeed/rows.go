//go:build cgo && (linux || darwin)

package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/session"
)

// extentsOptions ask where a matrix lies.
type extentsOptions struct {
	Path     string `json:"path"`
	Operator string `json:"operator"`
	Hop      int    `json:"hop"`
	Column   string `json:"column"` // of a graph, instead
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
	d, err := format.OpenAny(plainFiles(ctx), o.Path)
	if err != nil {
		return nil, err
	}
	j.opens(d)
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
		identified: identify(d)}
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

// rowsOptions ask for the table of rows.
type rowsOptions struct {
	Path string `json:"path"`
}

// rows is the table of rows, little-endian; JSON has it in base64.
type rows struct {
	Nodes  []byte `json:"nodes"`  // [rows] uint32; none in a graph
	Labels []byte `json:"labels"` // [rows] int32, or [rows, columns] int8 or float32
	Splits []byte `json:"splits"` // [rows, splits] uint8
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

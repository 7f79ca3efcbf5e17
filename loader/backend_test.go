package loader

import (
	"context"
	"errors"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// This is all that a placement takes: the first half of this file. It holds each matrix in pinned
// memory of its own, for all ranks, and copies span by span.

const memoryPlacement Placement = "memory"

func init() { backends[memoryPlacement] = openMemory }

type memorySource struct {
	l        *Loader
	matrices []gds.Buffer // [rows, columns] each
}

func openMemory(_ context.Context, ranks Ranks) error {
	first := &memorySource{l: ranks[0]}
	for _, id := range ranks[0].o.Matrices {
		if err := first.load(id); err != nil {
			return err
		}
	}
	for _, l := range ranks {
		l.source = source{finish: (&memorySource{l, first.matrices}).finish}
	}
	return nil
}

func (s *memorySource) load(id MatrixID) (err error) {
	m, err := s.l.o.Store.Matrix(id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	size := s.l.rowBytes(len(s.matrices))
	b := s.l.memory.Pin("a matrix", s.l.rows*size)
	if s.l.memory.Err != nil {
		return s.l.memory.Err
	}
	s.matrices = append(s.matrices, b)
	for _, r := range s.l.regions {
		for k := r.FirstChunk; k < r.FirstChunk+r.Chunks; k++ {
			first, rows := m.ChunkRowRange(k)
			at := first - r.FirstRow + r.firstRow
			if err := m.ReadChunk(k, b.Bytes()[at*size:][:int64(rows)*size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *memorySource) finish(_ *pipeline.Worker, j *job, stream gds.Stream) error {
	spans := j.spans
	for _, row := range j.numbers {
		spans = chunk.AppendSpan(spans, chunk.Span{First: int64(row), Rows: 1})
	}
	for m, b := range s.matrices {
		matrix, at := gds.NewTensor(b, int(s.l.rows), s.l.width(m), s.l.layout.DType), 0
		for _, span := range spans {
			stream.Copy(s.l.matrix(j.buffer.raw, m).Slice(at, at+span.Rows),
				matrix.Slice(int(span.First), int(span.First)+span.Rows))
			at += span.Rows
		}
	}
	j.buffer.convert(stream)
	return nil
}

func TestAPlacementIsOneFile(t *testing.T) {
	for _, spec := range []storeSpec{{format.Float32, 8, 5, 1, 0}, {format.BFloat16, 20, 3, 1, 0}} {
		store := newStore(t, spec)
		for _, unified := range []bool{true, false} {
			testdevice.Bubble(t, func(t *testing.T) {
				device := newDevice(t, unified, host.Options{Threads: 2})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices,
					Placement: memoryPlacement, BatchRows: 20})
				for n, plan := range plans(memoryPlacement, spec.chunkRows, 20) {
					got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), n, 0)
					if err != nil {
						t.Fatal(err)
					}
					plan.Rows = 53
					compare(t, got, plan, n, 0, spec.features, from(0))
				}
				list := someRows(40)
				plan := chunk.Plan{Order: chunk.Shuffled, BatchRows: 7}
				got, err := collect(t, device, mustSet(t, l, Rows{List: list}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				plan.Rows = 40
				compare(t, got, plan, 0, 0, spec.features, func(p int64) int { return int(list[p]) })
			})
		}
	}
	testdevice.Bubble(t, func(t *testing.T) {
		store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
		devices := newDevices(t, 3)
		ranks := mustOpenRanks(t, Options{Store: store, Matrices: testMatrices, Placement: memoryPlacement,
			BatchRows: 20}, devices)
		plan := chunk.Plan{BatchRows: 20, Order: chunk.Shuffled, ChunkRows: 8}
		sets, err := ranks.Sets(Rows{Region: "train"}, plan)
		if err != nil {
			t.Fatal(err)
		}
		plan.Rows, plan.World = 53, 3
		for plan.Rank = range devices {
			got, err := collect(t, devices[plan.Rank], sets[plan.Rank], 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, plan, 0, 0, 5, from(0))
		}
	})
}

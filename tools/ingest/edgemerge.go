package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// segment is what merging has left of a range of keys: edges in the merged files.
type segment struct{ first, edges int64 }

// segmentsOfThread is how many segments a thread merges, so that threads end
// together though segments differ.
const segmentsOfThread = 4

// noKey is above all keys, since ids are below 2^32 - 1.
const noKey = math.MaxUint64

// merge merges the runs and counts degrees. Segments are cut at samples of the keys, so
// that they have about as many records each.
func (s *edgeSort) merge(ctx context.Context) error {
	task := s.o.Progress.Start("merge edges", s.entries, progress.Items)
	defer task.Done()
	slices.Sort(s.samples)
	bounds := []uint64{0}
	for i, n := 1, s.plan.threads*segmentsOfThread; i < n && len(s.samples) > 0; i++ {
		bounds = append(bounds, s.samples[i*len(s.samples)/n])
	}
	bounds = slices.Compact(append(bounds, noKey))

	mergers := make(chan *merger, s.plan.threads)
	for range s.plan.threads {
		m, err := newMerger(s, task)
		if err != nil {
			return err
		}
		defer m.memory.Free()
		mergers <- m
	}
	s.segments = make([]segment, len(bounds)-1)
	var tooLarge lowestNode
	err := parallel.For(ctx, s.plan.threads, int64(len(s.segments)), 1, func(i, _ int64) error {
		m := <-mergers
		defer func() { mergers <- m }()
		var err error
		s.segments[i], err = m.segment(ctx, bounds[i], bounds[i+1], &tooLarge)
		return err
	})
	if err != nil {
		return err
	}
	return tooLarge.err(s.info.WeightsFrom)
}

// cursor is the part of a run that belongs to a segment.
type cursor struct {
	next, end int64     // records that are not in memory yet
	keys      []uint64  // those that are
	weights   []float32 // nil where there are none
	at        int       // in both
}

// player is a cursor and its present key. Of equal keys the earlier run's comes first.
type player struct {
	key uint64
	run int
}

func (p player) before(q player) bool { return p.key < q.key || p.key == q.key && p.run < q.run }

// merger merges segments, one after another.
type merger struct {
	*edgeSort
	task    progress.Task
	memory  *offheap.Buffer
	keys    []uint64 // buffers of all cursors
	weights []float32
	cursors []cursor

	// A tournament of the cursors by their present keys: matches[0] has the winner,
	// with the lowest, the others who lost at each inner node of the tree.
	matches []player

	neighborsOut []uint32 // edges that are to be written next
	weightsOut   []float32
	out          segment
}

// mergeBlock is how many edges are written at a time, at most.
const mergeBlock = 1 << 17

func newMerger(s *edgeSort, task progress.Task) (*merger, error) {
	runs := int64(len(s.ends))
	memory, err := offheap.Alloc(runs * s.plan.buffer * s.recordBytes())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	m := &merger{
		edgeSort:     s,
		task:         task,
		memory:       memory,
		keys:         dtype.As[uint64](memory.Bytes()[:8*runs*s.plan.buffer]),
		weights:      dtype.Float32s(memory.Bytes()[8*runs*s.plan.buffer:]),
		cursors:      make([]cursor, runs),
		matches:      make([]player, runs),
		neighborsOut: make([]uint32, max(1, min(mergeBlock, s.entries))),
	}
	if s.weighted {
		m.weightsOut = make([]float32, len(m.neighborsOut))
	}
	return m, nil
}

// segment merges the records with keys from lo to below hi.
func (m *merger) segment(ctx context.Context, lo, hi uint64, tooLarge *lowestNode) (segment, error) {
	if len(m.cursors) == 0 {
		return segment{}, nil
	}
	err := m.start(ctx, lo, hi)
	if err != nil {
		return segment{}, err
	}
	var (
		keep, sum    = m.o.Duplicates == KeepDuplicates, m.o.Duplicates == SumDuplicates
		bits         = m.bits
		mask         = uint64(1)<<bits - 1
		last, weight = uint64(noKey), float32(0) // of the edge that may have duplicates yet
		total        = 0.0                       // of its weights
		node, degree = uint64(0), uint32(0)      // whose list is being counted
		out          = 0                         // edges that are not written yet
	)
	for {
		winner := m.matches[0]
		key := winner.key
		duplicate := key == last && key != noKey && !keep
		if last != noKey && !duplicate {
			if at := last >> bits; at != node {
				if err := m.addDegree(node, degree); err != nil {
					return segment{}, err
				}
				node, degree = at, 0
			}
			if degree++; degree == 0 {
				return segment{}, errDegree(node)
			}
			m.neighborsOut[out] = uint32(last & mask)
			if m.weightsOut != nil {
				if sum {
					if weight = float32(total); math.IsInf(float64(weight), 0) {
						tooLarge.add(int64(node))
					}
				}
				m.weightsOut[out] = weight
			}
			if out++; out == len(m.neighborsOut) {
				if err := m.writeOut(ctx, out); err != nil {
					return segment{}, err
				}
				out = 0
			}
		}
		if key == noKey {
			break
		}
		c := &m.cursors[winner.run]
		w := float32(1)
		if c.weights != nil {
			w = c.weights[c.at]
		}
		if c.at++; c.at < len(c.keys) {
			winner.key = c.keys[c.at]
		} else if winner.key, err = m.fill(ctx, winner.run); err != nil {
			return segment{}, err
		}
		// It plays all its matches again.
		for p := (winner.run + len(m.matches)) / 2; p > 0; p /= 2 {
			if loser := m.matches[p]; loser.before(winner) {
				m.matches[p], winner = winner, loser
			}
		}
		m.matches[0] = winner
		if duplicate {
			total += float64(w)
		} else {
			last, weight, total = key, w, float64(w)
		}
	}
	if err := m.addDegree(node, degree); err != nil {
		return segment{}, err
	}
	err = m.writeOut(ctx, out)
	return m.out, err
}

// start finds the segment in each run, and begins the tournament.
func (m *merger) start(ctx context.Context, lo, hi uint64) error {
	m.out = segment{}
	for i := range m.matches {
		m.matches[i].run = -1
	}
	first := int64(0)
	for i, end := range m.ends {
		c := &m.cursors[i]
		var err error
		if c.next, err = m.search(first, end, lo); err != nil {
			return err
		}
		if c.end, err = m.search(c.next, end, hi); err != nil {
			return err
		}
		m.out.first += c.next - first
		first = end
		key, err := m.fill(ctx, i)
		if err != nil {
			return err
		}
		m.enter(player{key, i})
	}
	return nil
}

// search finds the first record of [first, end) with a key not below bound.
func (m *merger) search(first, end int64, bound uint64) (int64, error) {
	switch bound {
	case 0:
		return first, nil
	case noKey:
		return end, nil
	}
	var err error
	key := make([]uint64, 1)
	at := sort.Search(int(end-first), func(i int) bool {
		if err == nil {
			_, err = m.edgeSort.keys.ReadAt(dtype.BytesOf(key), 8*(first+int64(i)))
		}
		return key[0] >= bound
	})
	return first + int64(at), err
}

// fill reads the next records of cursor i, whose buffer is at its end, and returns the
// first key.
func (m *merger) fill(ctx context.Context, i int) (uint64, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	c := &m.cursors[i]
	n, first := c.end-c.next, int64(i)*m.plan.buffer
	if m.plan.runsOnDisk {
		n = min(n, m.plan.buffer)
	}
	c.at = 0
	switch {
	case n == 0:
		return noKey, nil
	case !m.plan.runsOnDisk:
		c.keys = dtype.As[uint64](m.edgeSort.keys.bytes())[c.next : c.next+n]
		if m.info.Weighted {
			c.weights = dtype.Float32s(m.edgeSort.weights.bytes())[c.next : c.next+n]
		}
	default:
		c.keys = m.keys[first : first+n]
		if _, err := m.edgeSort.keys.ReadAt(dtype.BytesOf(c.keys), 8*c.next); err != nil {
			return 0, err
		}
		if m.info.Weighted {
			c.weights = m.weights[first : first+n]
			if _, err := m.edgeSort.weights.ReadAt(dtype.BytesOf(c.weights), 4*c.next); err != nil {
				return 0, err
			}
		}
	}
	c.next += n
	m.task.Add(n)
	return c.keys[0], nil
}

// enter lets a player climb to the first match without an opponent yet.
func (m *merger) enter(winner player) {
	for p := (winner.run + len(m.matches)) / 2; p > 0; p /= 2 {
		if m.matches[p].run < 0 {
			m.matches[p] = winner
			return
		}
		if loser := m.matches[p]; loser.before(winner) {
			m.matches[p], winner = winner, loser
		}
	}
	m.matches[0] = winner
}

// addDegree adds to the degree of a node; other segments may have more of its list.
func (m *merger) addDegree(node uint64, degree uint32) error {
	if node >= uint64(len(m.degrees)) {
		return errChanged
	}
	if degree > 0 && atomic.AddUint32(&m.degrees[node], degree) < degree {
		return errDegree(node)
	}
	return nil
}

// writeOut appends n edges to the segment.
func (m *merger) writeOut(ctx context.Context, n int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	at := 4 * (m.out.first + m.out.edges)
	if _, err := m.neighbors.WriteAt(dtype.BytesOf(m.neighborsOut[:n]), at); err != nil {
		return err
	}
	if m.mergedWeights != nil {
		if _, err := m.mergedWeights.WriteAt(dtype.BytesOf(m.weightsOut[:n]), at); err != nil {
			return err
		}
	}
	m.out.edges += int64(n)
	return nil
}

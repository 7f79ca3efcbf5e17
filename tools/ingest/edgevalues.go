package ingest

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// edgeValues makes the statistics of one column of edges.
type edgeValues struct {
	column     inputColumn
	kind       npy.Type
	width      int
	windows    int
	statistics []string
	deviates   bool // there is a standard deviation
	to         *scratchFile

	walk   nodeWalk
	inTime *scratchFile // nil: all edges count in one window
	edge   int64        // next
	first  []uint8      // windows of some edges
	values []float64    // of some edges

	counts               []float64 // a window each, of the node so far
	sums, max, mean, off []float64 // [windows, width]; off: sum of (x - mean)^2
	out                  []float32
}

func newEdgeValues(c inputColumn, statistics []string, windows int) (*edgeValues, error) {
	kind, err := npy.ParseType(c.DType)
	if err != nil {
		return nil, err
	}
	v := &edgeValues{column: c, kind: kind, width: max(1, c.Columns), windows: windows, statistics: statistics}
	for _, s := range statistics {
		v.deviates = v.deviates || s == statStd
	}
	if n := v.columns(); n > format.MaxFeatures {
		return nil, badOptions("--edge-features: %d features of column %s (at most %d)", n, c.Name, format.MaxFeatures)
	}
	return v, nil
}

func (v *edgeValues) columns() int { return v.windows * v.width * len(v.statistics) }

// blockEdges is how many edges are looked at together.
func (v *edgeValues) blockEdges() int { return max(1, 1<<12/v.width) }

func (v *edgeValues) begin(f *edgeFeatures, degrees []uint32) {
	v.walk, v.inTime = nodeWalk{degrees: degrees}, f.inTime
	n := v.windows * v.width
	v.first, v.values = make([]uint8, v.blockEdges()), make([]float64, v.blockEdges()*v.width)
	v.counts, v.out = make([]float64, v.windows), make([]float32, 0, v.columns())
	for _, to := range []*[]float64{&v.sums, &v.max, &v.mean, &v.off} {
		*to = make([]float64, n)
	}
}

func (v *edgeValues) add(rows []byte) error {
	size := v.width * int(v.kind.Size())
	for done, n := 0, 0; len(rows) > 0; done, rows = done+n, rows[n*size:] {
		n = min(v.blockEdges(), len(rows)/size)
		values := v.values[:n*v.width]
		npy.Convert(values, rows[:n*size], &npy.Header{Type: v.kind})
		for i, x := range values {
			if x-x != 0 {
				return &badRow{done + i/v.width, fmt.Sprintf("%v is not finite, and --edge-features are to be made of it", x)}
			}
		}
		if v.inTime != nil {
			if err := v.inTime.read(v.first[:n], v.edge); err != nil {
				return err
			}
			v.edge += int64(n)
		}
		if err := v.walk.each(n, v.addEdges, v.end); err != nil {
			return err
		}
	}
	return nil
}

// addEdges adds some edges of a node. The mean and the squares follow Welford's recurrence.
func (v *edgeValues) addEdges(_ int64, first, end int) error {
	k := v.width
	for e := first; e < end; e++ {
		values := v.values[e*k:][:k]
		for w := int(v.first[e]); w < v.windows; w++ {
			v.counts[w]++
			sums, most := v.sums[w*k:][:k], v.max[w*k:][:k]
			if v.counts[w] == 1 {
				copy(most, values)
			}
			for i, x := range values {
				sums[i] += x
				most[i] = max(most[i], x)
			}
			if !v.deviates {
				continue
			}
			n, mean, off := v.counts[w], v.mean[w*k:][:k], v.off[w*k:][:k]
			for i, x := range values {
				d := x - mean[i]
				mean[i] += d / n
				off[i] += d * (x - mean[i])
			}
		}
	}
	return nil
}

// end writes the statistics of a node, and begins the next.
func (v *edgeValues) end(int64) error {
	out, k := v.out[:0], v.width
	for w, n := range v.counts {
		for _, s := range v.statistics {
			for i := w * k; i < (w+1)*k; i++ {
				x := 0.0
				switch s {
				case statMean:
					x = v.sums[i] / max(1, n)
				case statSum:
					x = v.sums[i]
				case statMax:
					x = v.max[i]
				case statStd:
					x = math.Sqrt(v.off[i] / max(1, n))
				}
				out = append(out, float32(x))
			}
		}
	}
	for _, of := range [][]float64{v.counts, v.sums, v.max, v.mean, v.off} {
		clear(of)
	}
	return putFloats(v.to, out...)
}

func (v *edgeValues) finish() error {
	if err := v.walk.rest(v.end); err != nil {
		return err
	}
	v.first, v.values = nil, nil
	return v.to.flush()
}

func putFloats(to *scratchFile, values ...float32) error { return to.put(dtype.BytesOf(values)) }

func (m edgeMatrix) read(dst []float32, row int64) error {
	return m.file.read(dtype.BytesOf(dst), 4*row*int64(m.columns))
}

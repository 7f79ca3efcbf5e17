package features

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

// Typed has the rows of nodes of several types, which are numbered type after type. Rows of a type have its own width,
// and are float32. Gather wants nodes in the order of types, and writes rows of different widths one after another.
type Typed struct {
	sources []Source
	firsts  []int64 // the first node of each type and, last, the number of nodes
}

// NewTyped is the rows of types, each of which has its nodes in a source. Close closes them.
func NewTyped(sources []Source) *Typed {
	t := &Typed{sources: sources, firsts: []int64{0}}
	for i, s := range sources {
		t.firsts = append(t.firsts, t.firsts[i]+s.Rows())
	}
	return t
}

// Rows is the number of nodes of all types, and Columns the width of the widest.
func (t *Typed) Rows() int64 { return t.firsts[len(t.sources)] }

func (t *Typed) Columns() (columns int) {
	for _, s := range t.sources {
		columns = max(columns, s.Columns())
	}
	return columns
}

// Width is the width of a type.
func (t *Typed) Width(kind int) int { return t.sources[kind].Columns() }

// DType is what rows are gathered as.
func (t *Typed) DType() gds.DType { return gds.Float32 }

// Elements is the number of values of the rows of nodes whose types begin at these places, the last of which is their
// number.
func (t *Typed) Elements(places []int) (n int) {
	for i := range t.sources {
		n += (places[i+1] - places[i]) * t.Width(i)
	}
	return n
}

// Gather writes the rows of nodes; see Typed and Source.
func (t *Typed) Gather(ctx context.Context, dst []byte, as gds.DType, nodes []uint32) error {
	if as != gds.Float32 {
		return fmt.Errorf("features of several types can be gathered as float32, not as %v", as)
	}
	local := make([]uint32, 0, len(nodes))
	for i, s := range t.sources {
		local = local[:0]
		for len(nodes) > 0 && int64(nodes[0]) >= t.firsts[i] && int64(nodes[0]) < t.firsts[i+1] {
			local = append(local, nodes[0]-uint32(t.firsts[i]))
			nodes = nodes[1:]
		}
		bytes := gds.Bytes(len(local), s.Columns(), as)
		if int64(len(dst)) < bytes {
			return fmt.Errorf("%d bytes for rows of %d", len(dst), bytes)
		}
		if err := s.Gather(ctx, dst[:bytes], as, local); err != nil {
			return err
		}
		dst = dst[bytes:]
	}
	if len(nodes) > 0 {
		return fmt.Errorf("node %d is not in its place by type, or there is no such node", nodes[0])
	}
	return nil
}

// places writes the place of each node within its type. Nodes are in the order of types.
func (t *Typed) places(dst, nodes []uint32) {
	kind := 0
	for i, v := range nodes {
		for int64(v) >= t.firsts[kind+1] {
			kind++
		}
		dst[i] = v - uint32(t.firsts[kind])
	}
}

// Stats adds up what the sources have gathered.
func (t *Typed) Stats() (all Stats) {
	for _, s := range t.sources {
		one := s.Stats()
		all.Rows, all.Bytes, all.Reads, all.ReadBytes = all.Rows+one.Rows, all.Bytes+one.Bytes, all.Reads+one.Reads,
			all.ReadBytes+one.ReadBytes
		if all.Path == "" || one.Reason != "" {
			all.Path, all.Reason = one.Path, one.Reason
		}
	}
	return all
}

// Close closes the sources.
func (t *Typed) Close() error {
	var errs []error
	for _, s := range t.sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

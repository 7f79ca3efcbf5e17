package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// NodeRange is a run of consecutive nodes of a topology: the in-neighbours of node First+i are
// Neighbors[Offsets[i]-Offsets[0] : Offsets[i+1]-Offsets[0]], where offsets count from the first edge of the whole
// topology.
type NodeRange struct {
	First     int64
	Offsets   []int64 // [rows+1]
	Neighbors []uint32
	Weights   []float32 // in the order of Neighbors; nil without weights
}

// Rows is the number of nodes, Edges the number of their in-neighbours.
func (b *NodeRange) Rows() int64  { return int64(len(b.Offsets)) - 1 }
func (b *NodeRange) Edges() int64 { return int64(len(b.Neighbors)) }

// In is the in-neighbours of node v, from First to First+Rows()-1.
func (b *NodeRange) In(v int64) []uint32 {
	i := v - b.First
	return b.Neighbors[b.Offsets[i]-b.Offsets[0] : b.Offsets[i+1]-b.Offsets[0]]
}

// InWeights is the weights of In(v), nil without weights.
func (b *NodeRange) InWeights(v int64) []float32 {
	if b.Weights == nil {
		return nil
	}
	i := v - b.First
	return b.Weights[b.Offsets[i]-b.Offsets[0] : b.Offsets[i+1]-b.Offsets[0]]
}

// Slice is a view of nodes lo to hi-1 of the node range, which shares its memory.
func (b *NodeRange) Slice(lo, hi int64) NodeRange {
	offsets := b.Offsets[lo-b.First : hi-b.First+1]
	first, end := offsets[0]-b.Offsets[0], offsets[len(offsets)-1]-b.Offsets[0]
	part := NodeRange{First: lo, Offsets: offsets, Neighbors: b.Neighbors[first:end]}
	if b.Weights != nil {
		part.Weights = b.Weights[first:end]
	}
	return part
}

// CopyTo copies the node range into memory of at least its size, aligned as memory from make is.
func (b *NodeRange) CopyTo(place []byte) NodeRange {
	take := func(data []byte) []byte {
		n := copy(place, data)
		data, place = place[:n:n], place[n:]
		return data
	}
	c := NodeRange{First: b.First, Offsets: dtype.Int64s(take(dtype.BytesOf(b.Offsets)))}
	c.Neighbors = dtype.Uint32s(take(dtype.BytesOf(b.Neighbors)))
	if c.Weights = dtype.Float32s(take(dtype.BytesOf(b.Weights))); c.Weights == nil && b.Weights != nil {
		c.Weights = []float32{} // weighted, without edges
	}
	return c
}

// checkLists fails unless each list of neighbours ascends below n (a repeated neighbour is a parallel edge). The
// offsets have been checked.
func (b *NodeRange) checkLists(n int64) error {
	for v := b.First; v < b.First+b.Rows(); v++ {
		before := uint32(0)
		for _, u := range b.In(v) {
			if u < before || int64(u) >= n {
				return fmt.Errorf("in-neighbour %d of node %d is smaller than the one before it, or not below the "+
					"%d nodes", u, v, n)
			}
			before = u
		}
	}
	return nil
}

// Range is a view of nodes lo to hi-1.
func (c *CSC) Range(lo, hi int64) NodeRange {
	all := NodeRange{Offsets: c.Offsets, Neighbors: c.Neighbors, Weights: c.Weights}
	return all.Slice(lo, hi)
}

// RawTopology is where the numbers of a topology lie in files: Nodes+1 offsets (int64), as many neighbours (uint32)
// as there are edges, and their weights (float32), little endian.
type RawTopology struct {
	Nodes, Edges int64
	Sources      int64 // that neighbours are numbered by; 0: the nodes

	File                   vfs.File
	OffsetsAt, NeighborsAt int64 // bytes; the neighbours come after the offsets

	Weights   vfs.File // nil: none
	WeightsAt int64

	extents, weightExtents []arrowfile.Extent // that cover them, if there are checksums
}

// Expect sets the checksums (CRC-32C) of all offsets, all neighbours and all weights as they were written, which
// opening the topology then compares.
func (r *RawTopology) Expect(offsets, neighbors, weights uint32) {
	r.extents = []arrowfile.Extent{{CRC32C: offsets, Offset: r.OffsetsAt, Length: offsetBytes * (r.Nodes + 1)}}
	if r.Edges > 0 {
		r.extents = append(r.extents, arrowfile.Extent{CRC32C: neighbors, Offset: r.NeighborsAt,
			Length: edgeBytes * r.Edges})
		r.weightExtents = []arrowfile.Extent{{CRC32C: weights, Offset: r.WeightsAt, Length: edgeBytes * r.Edges}}
	}
}

// TopologyFile reads a topology node range by node range, so that it need not fit in memory. It is safe for
// concurrent use.
type TopologyFile struct {
	raw        RawTopology
	starts     []rangeStart // of each node range, and the end of the last
	sums       []rangeSums  // of all node ranges, once they are checked
	rangeBytes int64
	maxBytes   int64 // of a node range
	// offsets has read the offsets, whose checksum is offsetsCRC.
	offsets    extentStream
	offsetsCRC uint32
	explain    func(error) error // adds what to do about damage; nil: nothing
}

type rangeStart struct{ node, edge int64 }

// rangeSums are the checksums of a node range's numbers.
type rangeSums struct{ offsets, neighbors, weights uint32 }

// OpenTopology opens the topology (and weights) of a graph for reading by node ranges of at most maxRangeBytes,
// unless one node's list is longer, and checks it (TopologyFile.Check); the caller closes it.
func (d *Dir) OpenTopology(ctx context.Context, maxRangeBytes int64) (*TopologyFile, error) {
	t, err := d.OpenUnchecked(ctx, maxRangeBytes)
	if err != nil {
		return nil, err
	}
	return t.orClose(t.Check(ctx, nil))
}

// orClose is t, or an error, with which it closes t.
func (t *TopologyFile) orClose(err error) (*TopologyFile, error) {
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// TopologyPlaces says where the numbers of the topology of a graph lie, and in which files of its directory: File and
// Weights of raw are not open.
func (d *Dir) TopologyPlaces() (raw RawTopology, file, weights string, err error) {
	if d.Manifest.Kind != KindGraph {
		return raw, "", "", fmt.Errorf("%s is a store, which has no topology", d.path)
	}
	table := d.tables[topologyFolder]
	p := &table.parts[0]
	place, _ := arrowfile.Place(table.lengths(d.Manifest.Nodes)...)
	raw = RawTopology{Nodes: d.Manifest.Nodes, Edges: d.Manifest.Edges, Sources: d.Manifest.SourceNodes,
		extents: p.extents}
	raw.OffsetsAt = p.extents[0].Offset
	raw.NeighborsAt = raw.OffsetsAt + place[1]
	if d.Manifest.Weighted {
		p := &d.tables[weightsFolder].parts[0]
		weights = d.Manifest.Files[p.file].Path
		if raw.weightExtents = p.extents; raw.Edges > 0 {
			raw.WeightsAt = p.extents[0].Offset
		}
	}
	return raw, d.Manifest.Files[p.file].Path, weights, nil
}

// OpenUnchecked is OpenTopology, but reads only the offsets: Check must follow before ReadRange.
func (d *Dir) OpenUnchecked(ctx context.Context, maxRangeBytes int64) (_ *TopologyFile, err error) {
	defer func() { err = d.explain(err) }()
	raw, _, weights, err := d.TopologyPlaces()
	if err != nil {
		return nil, err
	}
	if raw.File, err = d.openPart(&d.tables[topologyFolder].parts[0]); err != nil {
		return nil, err
	}
	if weights != "" {
		if raw.Weights, err = d.openPart(&d.tables[weightsFolder].parts[0]); err != nil {
			return nil, errors.Join(err, raw.File.Close())
		}
	}
	t, err := openUnchecked(ctx, raw, maxRangeBytes)
	if err == nil {
		t.explain = d.explain
	}
	return t, err
}

// NewTopologyFile opens a topology that is not part of a graph directory, such as one that a job has derived in
// scratch files, and checks it. TopologyFile.Close closes the files, and so does NewTopologyFile where it fails.
func NewTopologyFile(ctx context.Context, raw RawTopology, maxRangeBytes int64) (*TopologyFile, error) {
	t, err := openUnchecked(ctx, raw, maxRangeBytes)
	if err != nil {
		return nil, err
	}
	return t.orClose(t.Check(ctx, nil))
}

func openUnchecked(ctx context.Context, raw RawTopology, maxRangeBytes int64) (*TopologyFile, error) {
	t := &TopologyFile{raw: raw, maxBytes: max(1, maxRangeBytes)}
	err := t.chooseRanges(ctx)
	if t.again(err) {
		err = t.chooseRanges(ctx)
	}
	return t.orClose(err)
}

// again tells whether to read a topology once more whose damage may be that of a network or a cache.
func (t *TopologyFile) again(err error) bool {
	return errors.Is(err, ErrCorrupt) && t.doubt(rangeStart{}, rangeStart{t.raw.Nodes, t.raw.Edges})
}

// Check reads everything, one node range after another, through the page cache, which may keep it for ReadRange, and
// checks what Dir.Topology checks. It calls visit, unless that is nil, with each node range, which is in order and
// within bounds, and valid until visit returns; whether the bytes are right shows at the end. If they are not, and are
// read once more, visit gets all node ranges again.
func (t *TopologyFile) Check(ctx context.Context, visit func(k int, b *NodeRange) error) error {
	starts := t.starts
	err := t.check(ctx, visit)
	if t.again(err) {
		if err = t.chooseRanges(ctx); err == nil && visit != nil && !slices.Equal(starts, t.starts) {
			err = t.offsets.corrupt(errChanged)
		}
		if err == nil {
			err = t.check(ctx, visit)
		}
	}
	if t.explain != nil {
		err = t.explain(err)
	}
	return err
}

// Checked tells whether Check has found all to be right.
func (t *TopologyFile) Checked() bool { return t.sums != nil }

// doubt is vfs.Doubt of all that a node range, from one place to another, is read from. What a network or a cache has
// damaged is read once more.
func (t *TopologyFile) doubt(from, to rangeStart) bool {
	again := vfs.Doubt(t.raw.File, t.raw.OffsetsAt+offsetBytes*from.node, offsetBytes*(to.node-from.node+1))
	bytes := edgeBytes * (to.edge - from.edge)
	if bytes > 0 && vfs.Doubt(t.raw.File, t.raw.NeighborsAt+edgeBytes*from.edge, bytes) {
		again = true
	}
	if bytes > 0 && t.Weighted() && vfs.Doubt(t.raw.Weights, t.raw.WeightsAt+edgeBytes*from.edge, bytes) {
		again = true
	}
	return again
}

// Sizes in the memory of a node range.
const (
	offsetBytes = 8
	edgeBytes   = 4 // of a neighbour, and of a weight
)

// memoryBytes is the memory in bytes of the node range from one place to another.
func (t *TopologyFile) memoryBytes(from, to rangeStart) int64 {
	perEdge := int64(edgeBytes)
	if t.Weighted() {
		perEdge *= 2
	}
	return offsetBytes*(to.node-from.node+1) + perEdge*(to.edge-from.edge)
}

// chooseRanges reads and checks the offsets, and divides the nodes into node ranges of about equal size.
func (t *TopologyFile) chooseRanges(ctx context.Context) error {
	t.offsets = extentStream{file: t.raw.File, at: t.raw.OffsetsAt, extents: t.raw.extents}
	s, crc := &t.offsets, uint32(0)
	end := rangeStart{t.raw.Nodes, t.raw.Edges}
	if end.node < 0 || end.node > MaxNodes || end.edge < 0 || end.edge > MaxEdges {
		return fmt.Errorf("%s: it has %d nodes and %d edges, more than %d and %d", s.file.Path(), end.node, end.edge,
			int64(MaxNodes), int64(MaxEdges))
	}
	t.starts = []rangeStart{{}}
	total := t.memoryBytes(rangeStart{}, end)
	share := (total + (total-1)/t.maxBytes) / ((total-1)/t.maxBytes + 1)
	buf := make([]byte, min(offsetBytes*(end.node+1), streamBytes))
	before := rangeStart{} // the node whose list ends with the next offset
	for v := int64(0); v <= end.node; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		b := buf[:min(offsetBytes*(end.node+1-v), streamBytes)]
		if err := s.read(b); err != nil {
			return err
		}
		crc = kernel.CRC32C(crc, b)
		for _, offset := range dtype.Int64s(b) {
			if offset < before.edge || offset > end.edge || v == 0 && offset != 0 || v == end.node &&
				offset != end.edge {
				return s.corrupt(fmt.Errorf("the offset of node %d is %d, after %d; offsets ascend from 0 to %d", v,
					offset, before.edge, end.edge))
			}
			here := rangeStart{v, offset}
			start := t.starts[len(t.starts)-1]
			full := t.memoryBytes(start, here) > t.maxBytes ||
				t.memoryBytes(rangeStart{}, before) >= share*int64(len(t.starts))
			if full && before.node > start.node {
				t.starts = append(t.starts, before)
			}
			before = here
			v++
		}
	}
	if end.node > 0 {
		t.starts = append(t.starts, end)
	}
	for k := range t.Ranges() {
		t.rangeBytes = max(t.rangeBytes, t.BufferBytes(k))
	}
	t.offsetsCRC = crc
	return nil
}

// check is one try of Check, after chooseRanges. It reads the offsets again.
func (t *TopologyFile) check(ctx context.Context, visit func(k int, b *NodeRange) error) error {
	s, sums := &t.offsets, make([]rangeSums, 0, t.Ranges())
	buf, err := offheap.Alloc(t.rangeBytes)
	if err != nil {
		return fmt.Errorf("%s: %w", s.file.Path(), err)
	}
	defer buf.Free()
	if gap := t.raw.NeighborsAt - s.at; len(s.extents) > 0 && gap > 0 {
		if err := s.read(make([]byte, gap)); err != nil { // padding, which is checksummed too
			return err
		}
	}
	s.at = t.raw.NeighborsAt
	weights := extentStream{file: t.raw.Weights, at: t.raw.WeightsAt, extents: t.raw.weightExtents}
	crc := uint32(0)
	for k := range t.Ranges() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		b, err := t.read(k, buf.Bytes(), s, &weights)
		if err != nil {
			return err
		}
		if err := b.checkLists(t.Sources()); err != nil {
			return s.corrupt(err)
		}
		if err := checkWeights(t.starts[k].edge, b.Weights); err != nil {
			return weights.corrupt(err)
		}
		if visit != nil {
			if err := visit(k, &b); err != nil {
				return err
			}
		}
		sums = append(sums, b.sums())
		crc = kernel.CRC32C(crc, dtype.BytesOf(b.Offsets[:b.Rows()]))
	}
	if t.Ranges() > 0 {
		if crc = kernel.CRC32C(crc, dtype.BytesOf([]int64{t.raw.Edges})); crc != t.offsetsCRC {
			return s.corrupt(errChanged)
		}
	}
	t.sums = sums
	return nil
}

var errChanged = errors.New("the file has changed since it was opened and checked (run the command again; if this " +
	"repeats, check the disk)")

// read reads node range k into buf, its edges from streams that stand at them.
func (t *TopologyFile) read(k int, buf []byte, neighbors, weights *extentStream) (b NodeRange, err error) {
	from, to := t.starts[k], t.starts[k+1]
	offsets := extentStream{file: t.raw.File, at: t.raw.OffsetsAt + offsetBytes*from.node,
		pages: neighbors.pages}
	data, buf, err := offsets.take(buf, offsetBytes*(to.node-from.node+1))
	if err != nil {
		return b, err
	}
	b = NodeRange{First: from.node, Offsets: dtype.Int64s(data)}
	if b.Offsets[0] != from.edge || b.Offsets[b.Rows()] != to.edge || !slices.IsSorted(b.Offsets) {
		return b, offsets.corrupt(errChanged)
	}
	if data, buf, err = neighbors.take(buf, edgeBytes*(to.edge-from.edge)); err != nil {
		return b, err
	}
	b.Neighbors = dtype.Uint32s(data)
	if t.Weighted() {
		if data, _, err = weights.take(buf, edgeBytes*(to.edge-from.edge)); err != nil {
			return b, err
		}
		if b.Weights = dtype.Float32s(data); b.Weights == nil {
			b.Weights = []float32{} // weighted, without edges
		}
	}
	return b, nil
}

func (b *NodeRange) sums() rangeSums {
	return rangeSums{kernel.CRC32C(0, dtype.BytesOf(b.Offsets)), kernel.CRC32C(0, dtype.BytesOf(b.Neighbors)),
		kernel.CRC32C(0, dtype.BytesOf(b.Weights))}
}

// BytesOf is the memory that node range k takes.
func (t *TopologyFile) BytesOf(k int) int64 { return t.memoryBytes(t.starts[k], t.starts[k+1]) }

// BufferBytes is the memory that ReadRange takes for node range k: whole pages of each of its parts.
func (t *TopologyFile) BufferBytes(k int) int64 {
	from, to := t.starts[k], t.starts[k+1]
	bytes := vfs.PagedBytes(offsetBytes*(to.node-from.node+1)) + vfs.PagedBytes(edgeBytes*(to.edge-from.edge))
	if t.Weighted() {
		bytes += vfs.PagedBytes(edgeBytes * (to.edge - from.edge))
	}
	return bytes
}

// ReadRange reads node range k into buf, which has BufferBytes(k) bytes or more and is aligned as memory from make is,
// and whose memory the node range is then made of. A vfs.PastCache reads it past the page cache if buf is
// page-aligned. If the file has changed since it was opened, the error is ErrCorrupt.
func (t *TopologyFile) ReadRange(k int, buf []byte) (NodeRange, error) {
	if need := t.BufferBytes(k); int64(len(buf)) < need {
		return NodeRange{}, fmt.Errorf("%s: a buffer of %d bytes for a node range of %d", t.raw.File.Path(), len(buf),
			need)
	}
	for again := false; ; again = true {
		b, err := t.readChecked(k, buf)
		if err == nil || again || !errors.Is(err, ErrCorrupt) || !t.doubt(t.starts[k], t.starts[k+1]) {
			return b, err
		}
	}
}

// readChecked is one try of ReadRange.
func (t *TopologyFile) readChecked(k int, buf []byte) (NodeRange, error) {
	edge := t.starts[k].edge
	neighbors := extentStream{file: t.raw.File, at: t.raw.NeighborsAt + edgeBytes*edge, pages: true}
	weights := extentStream{file: t.raw.Weights, at: t.raw.WeightsAt + edgeBytes*edge, pages: true}
	b, err := t.read(k, buf, &neighbors, &weights)
	if err != nil {
		return NodeRange{}, err
	}
	found, want := b.sums(), t.sums[k]
	if found.weights != want.weights {
		return NodeRange{}, weights.corrupt(errChanged)
	}
	if found != want {
		return NodeRange{}, neighbors.corrupt(errChanged)
	}
	return b, nil
}

// Nodes and Edges count the whole topology; Weighted tells whether node ranges have weights.
func (t *TopologyFile) Nodes() int64   { return t.raw.Nodes }
func (t *TopologyFile) Edges() int64   { return t.raw.Edges }
func (t *TopologyFile) Sources() int64 { return cmp.Or(t.raw.Sources, t.raw.Nodes) }
func (t *TopologyFile) Weighted() bool { return t.raw.Weights != nil }

// Ranges is the number of node ranges; without nodes it is 0.
func (t *TopologyFile) Ranges() int { return len(t.starts) - 1 }

// Bounds is the first node and the first edge of node range k. Bounds(Ranges()) is the number of nodes and edges.
func (t *TopologyFile) Bounds(k int) (firstNode, firstEdge int64) {
	return t.starts[k].node, t.starts[k].edge
}

// RangeBytes is the largest BufferBytes.
func (t *TopologyFile) RangeBytes() int64 { return t.rangeBytes }

// Close closes the files. No read may be running.
func (t *TopologyFile) Close() error {
	err := t.raw.File.Close()
	if t.Weighted() {
		err = errors.Join(err, t.raw.Weights.Close())
	}
	return err
}

// take reads the next bytes into buf, and returns them and what is left of buf.
func (s *extentStream) take(buf []byte, bytes int64) (data, rest []byte, err error) {
	if !s.pages {
		data = buf[:bytes:bytes]
		return data, buf[bytes:], s.read(data)
	}
	if data, rest, err = vfs.ReadPages(s.file, buf, s.at, bytes); err != nil {
		return nil, nil, cutOff(s.file.Path(), 0, s.at+int64(len(data)), err)
	}
	s.at += bytes
	return data, rest, nil
}

// extentStream reads a file in order from byte at on, and checks each extent when its last byte is read. The first
// extent begins at byte at; all are of chunk 0.
type extentStream struct {
	file    vfs.File
	at      int64
	extents []arrowfile.Extent
	crc     uint32 // of the bytes read so far of the first extent
	pages   bool   // take reads whole pages, without extents
}

func (s *extentStream) read(dst []byte) error {
	if n, err := s.file.ReadAt(dst, s.at); n < len(dst) {
		return cutOff(s.file.Path(), 0, s.at+int64(n), err)
	}
	for len(dst) > 0 && len(s.extents) > 0 {
		e := &s.extents[0]
		n := min(int64(len(dst)), e.Offset+e.Length-s.at)
		s.crc = kernel.CRC32C(s.crc, dst[:n])
		if dst, s.at = dst[n:], s.at+n; s.at == e.Offset+e.Length {
			if s.crc != e.CRC32C {
				vfs.Doubt(s.file, e.Offset, e.Length)
				return s.corrupt(fmt.Errorf("the %d bytes from byte %d on have checksum %s, want %s", e.Length,
					e.Offset, hex32(s.crc), hex32(e.CRC32C)))
			}
			s.extents, s.crc = s.extents[1:], 0
		}
	}
	s.at += int64(len(dst))
	return nil
}

func (s *extentStream) corrupt(reason error) error {
	return &CorruptError{s.file.Path(), 0, reason.Error()}
}

// Map maps the files of the topology into memory; Close of the CSC, whose mappings outlive t, ends that. The topology
// was checked when it was opened, but the files may change, or be cut off: touch the CSC only in vfs.Guard, and check
// what it holds before it is an index.
func (t *TopologyFile) Map() (*CSC, error) {
	c := &CSC{}
	c.free = func() error { return nil }
	mapped := func(f vfs.File, at, bytes int64) ([]byte, error) {
		m, ok := f.(vfs.Mapper)
		if !ok {
			return nil, fmt.Errorf("%s: this file system cannot map files: load the topology instead", f.Path())
		}
		b, unmap, err := m.Map()
		if err != nil {
			return nil, err
		}
		before := c.free
		c.free = func() error { return errors.Join(before(), unmap()) }
		if at > int64(len(b)) || bytes > int64(len(b))-at {
			return nil, &CorruptError{f.Path(), 0, fmt.Sprintf("%d bytes at byte %d of %d: %v", bytes, at, len(b),
				errChanged)}
		}
		return b[at:][:bytes], nil
	}
	n, m := t.raw.Nodes, t.raw.Edges
	b, err := mapped(t.raw.File, t.raw.OffsetsAt, t.raw.NeighborsAt+edgeBytes*m-t.raw.OffsetsAt)
	if err != nil {
		return c.orClose(err)
	}
	c.Offsets = dtype.Int64s(b[:offsetBytes*(n+1)])
	c.Neighbors = dtype.Uint32s(b[t.raw.NeighborsAt-t.raw.OffsetsAt:])
	if t.Weighted() {
		if b, err = mapped(t.raw.Weights, t.raw.WeightsAt, edgeBytes*m); err != nil {
			return c.orClose(err)
		}
		if c.Weights = dtype.Float32s(b); c.Weights == nil {
			c.Weights = []float32{} // weighted, without edges
		}
	}
	return c, nil
}

// Path is the path of the file with the neighbours.
func (t *TopologyFile) Path() string { return t.raw.File.Path() }

package sampling

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// DeviceLists are adjacency lists in a device's own memory, which the device samples. With the lists of all nodes it
// reads no host memory (DGL's preloading); with the lists of some, it reads a PinnedTopology for the others (DUCATI's
// cache of the topology; Zhang et al. 2023).
type DeviceLists struct {
	memory                    gds.Memory
	slots                     gds.Tensor // by node; the zero Tensor: all nodes, in their order
	offsets, sources, weights gds.Tensor
}

// noSlot is no place in DeviceLists: there are fewer nodes.
const noSlot = math.MaxUint32

// CopyLists copies the lists of nodes, which are distinct, to a device; nil: of all nodes. The caller closes them after
// the loaders that use them.
func CopyLists(ctx context.Context, device gds.Device, t Topology, nodes []uint32) (*DeviceLists, error) {
	c := &listCopier{listReader: listReader{topology: t}, device: device, nodes: nodes, count: len(nodes)}
	if nodes == nil {
		c.count = int(t.Nodes())
	}
	d := &DeviceLists{memory: gds.Memory{Device: device}}
	var err error
	if c.stream, err = device.NewStream(); err != nil {
		return nil, err
	}
	if err = c.copy(ctx, d); err != nil {
		err = fmt.Errorf("copying %d adjacency lists to the device: %w", c.count, err)
	}
	if err = errors.Join(err, c.stream.Close(), c.staging.Free()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close frees the memory, which no work uses any more.
func (d *DeviceLists) Close() error { return d.memory.Free() }

// all tells whether every node has its list here.
func (d *DeviceLists) all() bool { return d != nil && d.slots == gds.Tensor{} }

// listCopier copies lists, some at a time, through pinned memory.
type listCopier struct {
	listReader
	device  gds.Device
	stream  gds.Stream
	staging epoch.Growing
	nodes   []uint32 // nil: all
	some    []uint32 // of all
	count   int      // of nodes
}

// each calls do with the places of some nodes after another, whose lists it has read.
func (c *listCopier) each(ctx context.Context, do func(first int) error) error {
	for first := 0; first < c.count; first += len(c.lists) {
		some := c.nodes
		if some != nil {
			some = some[first:]
		} else {
			c.some = resize(c.some, min(chunkNodes, c.count-first))
			for i := range c.some {
				c.some[i] = uint32(first + i)
			}
			some = c.some
		}
		if _, err := c.next(ctx, some, func(d int64) int64 { return d }); err != nil {
			return err
		}
		if err := do(first); err != nil {
			return err
		}
	}
	return nil
}

func (c *listCopier) copy(ctx context.Context, d *DeviceLists) error {
	edges, weighted := int64(0), c.topology.Weighted()
	if err := c.each(ctx, func(int) error { edges += countEdges(c.lists); return nil }); err != nil {
		return err
	}
	const what = "adjacency lists"
	d.offsets = d.memory.Matrix(what, 1, c.count+1, gds.Int64)
	d.sources = d.memory.Matrix(what, 1, int(edges), gds.Uint32)
	if weighted {
		d.weights = d.memory.Matrix(what, 1, int(edges), gds.Float32)
	}
	if c.nodes != nil {
		d.slots = d.memory.Matrix("the places of "+what, 1, int(c.topology.Nodes()), gds.Uint32)
	}
	if d.memory.Err != nil {
		return d.memory.Err
	}
	offsets, at := make([]int64, 0, chunkNodes+1), int64(0)
	if err := c.each(ctx, func(first int) error {
		err := c.read(weighted)
		offsets, at = append(offsets[:0], at), at+countEdges(c.lists)
		if mapped, ok := c.topology.(*mappedTopology); ok && at > edges { // more than were counted
			return mapped.changed("offset", at)
		}
		for _, l := range c.lists {
			offsets = append(offsets, offsets[len(offsets)-1]+l.Degree())
		}
		if err == nil {
			err = put(ctx, c, d.offsets, int64(first), offsets)
		}
		if err == nil {
			err = put(ctx, c, d.sources, offsets[0], c.sources)
		}
		if err == nil && weighted {
			err = put(ctx, c, d.weights, offsets[0], c.weights)
		}
		return err
	}); err != nil || c.nodes == nil {
		return err
	}
	slots := make([]uint32, c.topology.Nodes())
	for v := range slots {
		slots[v] = noSlot
	}
	for i, v := range c.nodes {
		slots[v] = uint32(i)
	}
	for first := 0; first < len(slots); first += chunkEdges {
		if err := put(ctx, c, d.slots, int64(first), slots[first:min(first+chunkEdges, len(slots))]); err != nil {
			return err
		}
	}
	return nil
}

// put copies values to a vector, from element at on.
func put[T dtype.Number](ctx context.Context, c *listCopier, to gds.Tensor, at int64, values []T) error {
	bytes := dtype.BytesOf(values)
	if len(bytes) == 0 {
		return nil
	}
	if err := c.staging.Grow(int64(len(bytes)), gds.Room(int64(len(bytes))), c.device.AllocPinned); err != nil {
		return err
	}
	copy(c.staging.Bytes(), bytes)
	c.stream.Copy(to.Columns(int(at), int(at)+len(values)), gds.NewTensor(c.staging.Buffer, 1, len(values), to.DType))
	return c.stream.Synchronize(context.WithoutCancel(ctx)) // staging is freed after an error
}

// listsOnTheirWay is the host memory of CopyLists, unless a list has more edges than are copied at a time.
func listsOnTheirWay(m *format.Manifest, slots int64) need.Terms {
	some := 4 * min(chunkEdges, max(m.Edges, slots))
	return need.Terms{{Name: "adjacency lists on their way to the device", Place: need.Pinned, Bytes: some},
		need.OnHeap("adjacency lists on their way to the device", some+4*slots)}
}

// ListBytes is the size of all adjacency lists in a cache.
func ListBytes(m *format.Manifest) int64 {
	perEdge := int64(4)
	if m.Weighted {
		perEdge = 8
	}
	return offsetBytes*m.Nodes + perEdge*m.Edges
}

// AllListsNeed is the memory of CopyLists of all nodes.
func AllListsNeed(m *format.Manifest) need.Terms {
	return append(listsOnTheirWay(m, 0),
		need.Term{Name: "topology on the device", Place: need.Device, Bytes: ListBytes(m) + 4*gds.Align})
}

// CachedListsNeed is the memory of CopyLists for the nodes that a cache chooses. Rows of rowBytes bytes and lists share
// the cache's size.
func CachedListsNeed(spec cache.Spec, m *format.Manifest, rowBytes int64) need.Terms {
	if spec.Policy != "ducati" {
		return nil
	}
	both := min(spec.Bytes, m.Nodes*rowBytes+ListBytes(m)) - spec.Slots(m.Nodes, rowBytes)*rowBytes
	return append(listsOnTheirWay(m, m.Nodes), need.Term{Name: "cached adjacency lists, and where they are",
		Place: need.Device, Bytes: both + 4*m.Nodes + 8 + 4*gds.Align})
}

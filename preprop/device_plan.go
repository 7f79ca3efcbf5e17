package preprop

import (
	"fmt"
	"sort"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// DevicePlan says what computes the products of a job, and why.
type DevicePlan struct {
	Name   string `json:"name"` // "cpu": the processor, of which the rest is zero
	Reason string `json:"reason"`
	// Columns are computed at a time. If they are fewer than a panel has, each product brings them, and
	// the topology if that is not on the device, once for each range of columns.
	Columns          int   `json:"columns,omitempty"`
	MatricesOnDevice bool  `json:"matrices_on_device"` // from one product to the next
	TopologyOnDevice bool  `json:"topology_on_device"` // else it comes in blocks, for each product
	Bytes            int64 `json:"bytes,omitempty"`    // of device memory
	PinnedBytes      int64 `json:"pinned_bytes,omitempty"`
	// SentBytes are those that a product brings to the device, on average, and that come back.
	SentBytes int64 `json:"sent_bytes_per_product,omitempty"`

	slots                         int
	blockRows, blockTerms         int
	inBytes, outBytes, blendBytes int64 // of a slot
	sourceBytes                   int64
}

// CPU is the name of the processor among devices.
const CPU = "cpu"

// Blocks have about so many terms, and results of up to so many bytes, where there is memory for them.
const (
	deviceTerms = 1 << 20
	deviceBytes = 8 << 20
)

// deviceSlots is how many blocks are on their way at once: one that is packed, one that is computed and
// one that is unpacked, and more where threads have time for them.
func deviceSlots(threads int) int { return min(max(3, threads+1), 8) }

// planOn is plan for a device that is chosen, or for the processor.
func (w *work) planOn(choose func(seconds float64) (*Device, error), budget int64, r *rates) (*Plan, error) {
	onProcessor := func(why string) (*Plan, error) {
		w.device, w.cpu = nil, &DevicePlan{Name: CPU, Reason: why}
		return w.plan(budget, r)
	}
	switch {
	case choose == nil:
		return onProcessor("no device was asked for")
	case len(w.sequences) == 0:
		return onProcessor("there are no products to compute")
	}
	w.device = nil
	d, err := choose(w.productSeconds(w.withPanels(Plan{}, w.columns), r))
	if err != nil {
		return nil, err
	}
	if d.Open == nil {
		return onProcessor(d.Reason)
	}
	w.device = d
	p, err := w.plan(budget, r)
	if d.Optional && (err != nil || d.LinkBytesPerSecond > 0 && d.GatherBytesPerSecond > 0) {
		other, wrong := onProcessor("")
		switch {
		case wrong != nil:
		case err != nil:
			other.Device.Reason = err.Error()
			return other, nil
		case other.Seconds < p.Seconds:
			other.Device.Reason = fmt.Sprintf("the job takes about %.2g s on it, and %.2g s on %s", other.Seconds, p.Seconds, d.Name)
			return other, nil
		}
		w.device = d
	}
	return p, err
}

// deviceSeconds is how much time products take on the device of a plan.
func (w *work) deviceSeconds(p *Plan, r *rates) float64 {
	seconds, d := w.productSeconds(p, r), w.device
	if d.GatherBytesPerSecond > 0 {
		seconds = w.productSeconds(p, &rates{byte: 1 / d.GatherBytesPerSecond})
	}
	if d.LinkBytesPerSecond > 0 {
		for _, c := range w.sequences {
			seconds += float64(c.products()*p.Panels) * float64(p.Device.SentBytes) / d.LinkBytesPerSecond
		}
	}
	return seconds
}

// devicePlan plans what the device of a job does within a plan of panels, in the way that brings the
// fewest bytes for a product; nil if its memory is too small.
func (w *work) devicePlan(p *Plan) *DevicePlan {
	var best *DevicePlan
	for _, matrices := range yesNo {
		for _, topology := range yesNo {
			d := &DevicePlan{Name: w.device.Name, Reason: w.device.Reason, MatricesOnDevice: matrices, TopologyOnDevice: topology, slots: deviceSlots(w.threads)}
			d.Columns = p.PanelColumns
			if !w.sizeDevice(d, p) {
				if matrices {
					continue
				}
				d.Columns = sort.Search(p.PanelColumns, func(i int) bool {
					try := *d
					try.Columns = i + 1
					return !w.sizeDevice(&try, p)
				})
				if d.Columns == 0 {
					continue
				}
				d.Columns = rangeColumns(p.PanelColumns, d.Columns)
				w.sizeDevice(d, p)
			}
			if best == nil || d.SentBytes < best.SentBytes {
				best = d
			}
		}
	}
	return best
}

// rangeColumns is how many of a panel's columns are computed at a time, at most most: about as many in each
// range, in a number that devices read as vectors, where that makes no more ranges than need be.
func rangeColumns(columns, most int) int {
	ranges := (columns + most - 1) / most
	even := (columns + ranges - 1) / ranges
	for unit := 16; unit >= 4; unit /= 2 {
		if whole := (even + unit - 1) / unit * unit; whole <= most {
			return whole
		}
	}
	if most >= 4 {
		return most / 4 * 4
	}
	return even
}

// sizeDevice sets what a plan of a device takes, and tells whether its memory is enough for that.
func (w *work) sizeDevice(d *DevicePlan, p *Plan) (fits bool) {
	const page = 4096
	whole := func(bytes int64) int64 { return (bytes + page - 1) / page * page }
	hops, series := panelMatrices(w.sequences, w.stored.DType, p.InputInMemory)
	size, most := int64(w.stored.DType.Size()), int64(w.stored.DType.Size())
	if series > 0 {
		most = int64(format.Float32.Size())
	}
	blended := false
	edges, lists := int64(0), int64(0)
	for _, c := range w.sequences {
		blended = blended || len(c.operator.series().theta) > 0
		edges = max(edges, w.edgesOf(c.operator.Graph))
	}
	free := w.device.FreeBytes
	free -= min(free/16, 256<<20) // for what the device itself takes

	d.Bytes = whole(4 * w.nodes)
	if d.TopologyOnDevice {
		lists = 2*whole(8*w.nodes) + whole(4*(edges+w.nodes))
		if w.weighted {
			lists += whole(4 * (edges + w.nodes))
		}
		d.Bytes += lists
	}
	panel := w.nodes * int64(p.PanelColumns)
	if d.MatricesOnDevice {
		d.Bytes += int64(hops)*whole(panel*size) + int64(series)*whole(panel*4)
	} else {
		d.sourceBytes = w.nodes * int64(d.Columns) * most
		d.Bytes += whole(d.sourceBytes)
	}
	row := int64(d.Columns) * most
	slot := func() int64 {
		terms := int64(4*d.blockTerms) * int64(edgeBytes(w.weighted)/4)
		d.inBytes = aligned(int64(d.blockRows)*(16+4+4)+terms) + 8*headBytes
		d.blendBytes = 0
		if blended && !d.MatricesOnDevice {
			d.inBytes += aligned(int64(d.blockRows) * row)
		} else if blended {
			d.blendBytes = int64(d.blockRows) * row
		}
		d.outBytes = headBytes + int64(d.blockRows)*row
		return whole(d.inBytes) + whole(d.outBytes) + whole(d.blendBytes)
	}
	d.blockRows = int(max(1, min(w.nodes, 1<<16, deviceBytes/row)))
	d.blockTerms = int(max(1, min(edges+w.nodes, deviceTerms)))
	for free > 0 && int64(d.slots)*slot() > free/8 && (d.blockRows > 16 || d.blockTerms > 256) {
		if int64(d.blockTerms)*edgeBytes(w.weighted) > int64(d.blockRows)*row && d.blockTerms > 256 || d.blockRows <= 16 {
			d.blockTerms = max(d.blockTerms/2, 1)
		} else {
			d.blockRows = max(d.blockRows/2, 1)
		}
	}
	d.Bytes += int64(d.slots) * slot()
	d.PinnedBytes = int64(d.slots) * (whole(d.inBytes) + whole(d.outBytes))
	d.SentBytes = panel * size // back
	if !d.MatricesOnDevice {
		d.SentBytes += panel * size
	}
	if !d.TopologyOnDevice {
		d.SentBytes += int64((p.PanelColumns+d.Columns-1)/d.Columns) * (16*w.nodes + edgeBytes(w.weighted)*(edges+w.nodes))
	}
	return free == 0 || d.Bytes <= free
}

// deviceCost is what a device takes of the host: pinned memory, and lengths of lists.
func (w *work) deviceCost(p *Plan) cost {
	if p.Device == nil || p.Device.Name == CPU {
		return cost{}
	}
	bytes := p.Device.PinnedBytes
	if p.Device.TopologyOnDevice {
		bytes += 4 * w.nodes
	}
	return cost{memory: during(computing, writing, bytes)}
}

// errNoRoom is the error of a device whose memory is too small for a job.
func (w *work) errNoRoom() error {
	return fmt.Errorf("propagation %w: %s has %v of memory free, too little for a column of %d rows (--device cpu computes on the processor)",
		machine.ErrDoesNotFit, w.device.Name, units.Bytes(w.device.FreeBytes), w.nodes)
}

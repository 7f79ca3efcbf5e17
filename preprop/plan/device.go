package plan

import (
	"fmt"
	"sort"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// DevicePlan says what computes the products of a job, and why.
type DevicePlan struct {
	Name   string `json:"name"` // "cpu" means the processor; all other fields are then zero
	Reason string `json:"reason"`
	// Columns are computed at a time. If they are fewer than a panel has, each product brings them, and the topology
	// if that is not on the device, once for each range of columns.
	Columns          int   `json:"columns,omitempty"`
	MatricesOnDevice bool  `json:"matrices_on_device"` // from one product to the next
	TopologyOnDevice bool  `json:"topology_on_device"` // else it comes in node ranges
	Bytes            int64 `json:"bytes,omitempty"`    // of device memory
	PinnedBytes      int64 `json:"pinned_bytes,omitempty"`
	// SentBytes go to the device and back for a product.
	SentBytes int64 `json:"sent_bytes_per_product,omitempty"`

	// Transfers hold rows on their way to the device and back; rows and terms at a time follow.
	Transfers     int   `json:"-"`
	TransferRows  int   `json:"-"`
	TransferTerms int   `json:"-"`
	InBytes       int64 `json:"-"` // of a transfer
	OutBytes      int64 `json:"-"`
	BlendBytes    int64 `json:"-"`
	SourceBytes   int64 `json:"-"` // of columns of the matrix that a product reads

	panelBytes, listBytes int64 // that come once a panel, and once a job, and stay
}

// CPU is the name of the processor among devices.
const CPU = "cpu"

// A transfer has about so many terms, and results of up to so many bytes, where there is memory for them.
const (
	deviceTerms = 1 << 20
	deviceBytes = 8 << 20
)

// deviceTransfers is how many transfers there are at once: one that is packed, one that is computed and one that is
// unpacked, and more where threads have time for them.
func deviceTransfers(threads int) int { return min(max(3, threads+1), 8) }

// PlanOn is plan for a device that is chosen, or for the processor.
func (w *Work) PlanOn(choose func(seconds float64) (*Device, error), budget int64, r *Rates) (*Plan, error) {
	onProcessor := func(why string) (*Plan, error) {
		w.Device, w.cpu = nil, &DevicePlan{Name: CPU, Reason: why}
		return w.Plan(budget, r)
	}
	switch {
	case choose == nil:
		return onProcessor("no device was asked for")
	case len(w.Sequences) == 0:
		return onProcessor("there are no products to compute")
	}
	w.Device = nil
	d, err := choose(w.productSeconds(w.WithPanels(Plan{}, w.Columns), r))
	if err != nil {
		return nil, err
	}
	if d.Open == nil {
		return onProcessor(d.Reason)
	}
	w.Device = d
	p, err := w.Plan(budget, r)
	if err != nil && d.IfItFits || d.Optional && (err != nil || d.LinkBytesPerSecond > 0 && d.GatherBytesPerSecond > 0) {
		other, wrong := onProcessor("")
		switch {
		case wrong != nil:
		case err != nil:
			other.Device.Reason = err.Error()
			return other, nil
		case other.Seconds < p.Seconds:
			other.Device.Reason = fmt.Sprintf("the job takes about %.2g s on it, and %.2g s on %s", other.Seconds,
				p.Seconds, d.Name)
			return other, nil
		}
		w.Device = d
	}
	return p, err
}

// deviceSeconds is how much time products take on the device of a plan.
func (w *Work) deviceSeconds(p *Plan, r *Rates) float64 {
	seconds, d := w.productSeconds(p, r), w.Device
	if d.GatherBytesPerSecond > 0 {
		seconds = w.productSeconds(p, &Rates{Byte: 1 / d.GatherBytesPerSecond})
	}
	if d.LinkBytesPerSecond > 0 {
		for _, c := range w.Sequences {
			seconds += float64(c.Products()*p.Panels) * float64(p.Device.SentBytes) / d.LinkBytesPerSecond
			seconds += float64(int64(p.Panels)*p.Device.panelBytes+p.Device.listBytes) / d.LinkBytesPerSecond
		}
	}
	return seconds
}

var yesNo = []bool{true, false}

// devicePlan plans what the device of a job does within a plan of panels, in the way that brings the fewest bytes for
// a product; nil if its memory is too small.
func (w *Work) devicePlan(p *Plan) *DevicePlan {
	var best *DevicePlan
	for _, matrices := range yesNo {
		for _, topology := range yesNo {
			d := &DevicePlan{Name: w.Device.Name, Reason: w.Device.Reason, MatricesOnDevice: matrices,
				TopologyOnDevice: topology, Transfers: deviceTransfers(w.Threads)}
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

// rangeColumns is how many of a panel's columns are computed at a time, at most most: about as many in each range, in
// a number that devices read as vectors, where that makes no more ranges than need be.
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
func (w *Work) sizeDevice(d *DevicePlan, p *Plan) (fits bool) {
	const page = 4096
	whole := func(bytes int64) int64 { return (bytes + page - 1) / page * page }
	hops, series := PanelMatrices(w.Sequences, w.Stored.DType, p.InputInMemory)
	size, most := int64(w.Stored.DType.Size()), int64(w.Stored.DType.Size())
	if series > 0 {
		most = int64(format.Float32.Size())
	}
	blended := false
	edges, lists := int64(0), int64(0)
	for _, c := range w.Sequences {
		blended = blended || len(c.Series().Theta) > 0
		edges = max(edges, w.EdgesOf(c.Operator.Graph))
	}
	free := w.Device.FreeBytes
	free -= min(free/16, 256<<20) // for what the device itself takes

	d.Bytes = whole(4 * w.Sources)
	if d.TopologyOnDevice {
		lists = 2*whole(8*w.Destinations) + whole(4*(edges+w.Destinations))
		if w.Weighted {
			lists += whole(4 * (edges + w.Destinations))
		}
		d.Bytes += lists
	}
	source, panel := w.Sources*int64(p.PanelColumns), w.Destinations*int64(p.PanelColumns)
	if d.panelBytes, d.listBytes = 0, lists; d.MatricesOnDevice {
		d.panelBytes = source * size
		d.Bytes += whole(source*size) + int64(hops-1)*whole(panel*size) + int64(series)*whole(panel*4)
	} else {
		d.SourceBytes = w.Sources * int64(d.Columns) * most
		d.Bytes += whole(d.SourceBytes)
	}
	row := int64(d.Columns) * most
	transfer := func() int64 {
		terms := int64(4*d.TransferTerms) * int64(EdgeBytes(w.Weighted)/4)
		d.InBytes = Aligned(int64(d.TransferRows)*(16+4+4)+terms) + 8*HeadBytes
		d.BlendBytes = 0
		if blended && !d.MatricesOnDevice {
			d.InBytes += Aligned(int64(d.TransferRows) * row)
		} else if blended {
			d.BlendBytes = int64(d.TransferRows) * row
		}
		d.OutBytes = HeadBytes + int64(d.TransferRows)*row
		return whole(d.InBytes) + whole(d.OutBytes) + whole(d.BlendBytes)
	}
	d.TransferRows = int(max(1, min(w.Destinations, 1<<16, deviceBytes/row)))
	d.TransferTerms = int(max(1, min(edges+w.Destinations, deviceTerms)))
	for free > 0 && int64(d.Transfers)*transfer() > free/8 && (d.TransferRows > 16 || d.TransferTerms > 256) {
		if int64(d.TransferTerms)*EdgeBytes(w.Weighted) > int64(d.TransferRows)*row && d.TransferTerms > 256 ||
			d.TransferRows <= 16 {
			d.TransferTerms = max(d.TransferTerms/2, 1)
		} else {
			d.TransferRows = max(d.TransferRows/2, 1)
		}
	}
	d.Bytes += int64(d.Transfers) * transfer()
	d.PinnedBytes = int64(d.Transfers) * (whole(d.InBytes) + whole(d.OutBytes))
	d.SentBytes = panel * size // back
	if !d.MatricesOnDevice {
		d.SentBytes += source * size
	}
	if !d.TopologyOnDevice {
		d.SentBytes += int64((p.PanelColumns+d.Columns-1)/d.Columns) * (16*w.Destinations +
			EdgeBytes(w.Weighted)*(edges+w.Destinations))
	}
	return free == 0 || d.Bytes <= free
}

// errNoRoom is the error of a device whose memory is too small for a job.
func (w *Work) errNoRoom() error {
	return fmt.Errorf("propagation %w: %s has %v of memory free, too little for a column of %d rows (--device cpu "+
		"computes on the processor)",
		machine.ErrDoesNotFit, w.Device.Name, units.Bytes(w.Device.FreeBytes), w.Nodes)
}

// Device is what computes the products of a job instead of the processor. The bytes of the store are the same.
type Device struct {
	Name      string // "cuda:0"
	Reason    string // why it was chosen, in words
	FreeBytes int64  // of its memory; 0: no limit
	// the processor takes the job if it does not fit on the device, or by the rates below takes longer there
	Optional bool
	IfItFits bool // the processor takes the job if it does not fit on the device, however long it takes there
	// How fast bytes come to the device and back, and how fast it adds rows, to predict times. 0 is unknown:
	// transfers then count as free, and rows are added as fast as on the processor.
	LinkBytesPerSecond, GatherBytesPerSecond float64
	// Open opens the device. The job closes it. nil: it is the processor.
	Open func() (gds.Device, error)
}

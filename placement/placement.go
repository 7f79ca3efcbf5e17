// Package placement decides where the input of training lives and how it is shuffled (preprop-gnn section 5), gives the
// reasons in words, and predicts the time of an epoch for every alternative. Choose is a pure function; Measure
// measures the rates that predictions are computed from.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
)

// ErrContradiction is returned when options contradict each other or are unknown.
var ErrContradiction = errors.New("contradictory options")

// Placements, shuffles, and the choice left to Choose.
const (
	Auto = "auto"

	Device  = "device"
	Host    = "host"
	Storage = "storage"

	RR = "rr"
	CR = "chunk"
)

// Buffers is the number of batches on the device: while one is computed on, the next is loaded
// (preprop-gnn section 4.1).
const Buffers = 2

// Facts describe the machine: its devices, memory and rates.
type Facts struct {
	Device     gds.Info
	Devices    int           // like that one, which train together; 0: 1
	DeviceFree units.Bytes   // of each device's memory
	Budget     machine.Limit // of host memory that the run may use, and what set it
	Pinnable   machine.Limit // of host memory, that can be pinned
	Rates      Rates
	// Cache is how much a local disk keeps of what is read from a bucket; CacheDir says where.
	Cache    units.Bytes
	CacheDir string
}

// Kept is the part of the input that the cache keeps, where that is in a bucket.
func (f Facts) Kept(n Needs) float64 { return min(1, float64(f.Cache)/float64(max(n.Input, 1))) }

// FactsOf converts described hardware to Facts. devices and budget limit the number of devices and
// the host memory to use (0: all).
func FactsOf(h machine.Hardware, devices int, budget machine.Limit) (Facts, error) {
	f := Facts{Device: gds.Info{Name: "device"}, Devices: h.Devices.Count, DeviceFree: h.Devices.Memory,
		Budget: machine.Limit{Bytes: h.Memory, By: "the machine's memory"}, Rates: RatesOf(h),
		Cache: h.Bucket.Cache, CacheDir: "the cache"}
	if devices > h.Devices.Count {
		return f, fmt.Errorf("%w: %d devices, but the machine has %d", ErrContradiction, devices, h.Devices.Count)
	}
	if devices > 0 {
		f.Devices = devices
	}
	if budget.Bytes > 0 && budget.Bytes < h.Memory {
		f.Budget = budget
	}
	if h.Pinnable > 0 && h.Pinnable < h.Memory {
		f.Pinnable = machine.Limit{Bytes: h.Pinnable, By: "the machine's limit"}
	}
	if h.Devices.Count == 0 {
		f.Device, f.DeviceFree = gds.Info{Name: "host", Unified: true}, h.Memory
	}
	return f, nil
}

// Needs describe what has to be placed, and what an epoch does with it.
type Needs struct {
	Input units.Bytes // the matrices that the model reads, as stored, over all rows that will be read
	// Shared is the part of Input that other holders of the same memory pay for.
	Shared units.Bytes
	Work   units.Bytes // beside them on a device, wherever they live: batch buffers, model
	// ShareWork is that on each of Facts.Devices, where they share each batch; 0: as much.
	ShareWork units.Bytes
	// Chunks are held in host memory, beside Work, where the input is read from storage.
	Chunks units.Bytes
	// Staging is held in host memory, for all devices, where batches are gathered there
	// for devices with memory of their own.
	Staging units.Bytes
	Common  need.Terms // of host memory, in every placement: program, labels, index of the store, and others
	// ScatteredRows tells that the rows to be read are scattered over the chunks of the store, so
	// that they cannot be read chunk by chunk.
	ScatteredRows bool
	// CutChunks tells that the rows that are reshuffled together are not whole chunks of the store.
	CutChunks bool
	Once      bool // the input is read once

	TrainRows, ValidRows int64
	RowBytes             int64 // of a row in all matrices, as stored
	Convert              bool  // that is not float32
	BatchRows            int   // of the global batch
	Buffers              int   // batches that a device has; 0: Buffers
	ChunkRows            int   // shuffled together by CR
	Compute              Compute
	OrderSeconds         float64 // that all cores take to find the place of a row, where rows are reshuffled
}

// WorkOn is Work on each device.
func (n Needs) WorkOn(devices int) units.Bytes {
	if devices > 1 && n.ShareWork > 0 {
		return n.ShareWork
	}
	return n.Work
}

// ChunksOnDevice tells whether chunks go from storage straight into memory of the device.
func (n Needs) ChunksOnDevice(f Facts) bool {
	return f.Device.DirectStorage && n.Work+n.Chunks <= f.DeviceFree
}

// beside is f with this much less host memory.
func (f Facts) beside(taken units.Bytes) Facts {
	if taken > 0 {
		f.Budget = machine.Limit{Bytes: max(0, f.Budget.Bytes-taken),
			By: fmt.Sprintf("%s of %s, less %s for program, labels and index", f.Budget.By, f.Budget.Bytes, taken)}
	}
	return f
}

// host is what every placement takes of host memory.
func (n Needs) host() units.Bytes {
	return units.Bytes(n.Common.Peak(need.Heap, need.Pinned, need.OffHeap))
}

// terms are what an alternative takes beside Common.
func (n Needs) terms(f Facts, a Alternative) (terms need.Terms) {
	add := func(name string, place need.Place, bytes units.Bytes) {
		terms = append(terms, need.Term{Name: name, Place: place, Bytes: int64(bytes)})
	}
	switch {
	case a.Placement == Device && a.Sharded:
		add("share of the input", need.Device, (n.Input-1)/units.Bytes(a.Devices)+1)
	case a.Placement == Device:
		add("input", need.Device, n.Input-n.Shared)
	case a.Placement == Host:
		if add("input", need.Pinned, n.Input-n.Shared); !a.Mapped {
			add("batches that are gathered", need.Pinned, n.staging(f))
		}
	case a.Placement == Storage:
		add("chunks being read", need.Pinned, n.Chunks)
		if n.ChunksOnDevice(f) { // the pinned ones are for files that cannot be read so
			add("chunks being read", need.Device, n.Chunks)
		}
	}
	add("batches and model", need.Device, n.WorkOn(a.Devices))
	return terms
}

// Memory is the memory of an alternative.
func (n Needs) Memory(f Facts, a Alternative) need.Memory {
	return slices.Concat(n.Common, n.terms(f, a)).Sum(a.Devices, false)
}

// exceeds says which limit some terms exceed together; "" if they fit.
func (f Facts) exceeds(terms need.Terms) string {
	check := func(limit machine.Limit, places ...need.Place) string {
		var names []string
		for _, t := range terms {
			if slices.Contains(places, t.Place) && t.Bytes > 0 {
				names = append(names, fmt.Sprintf("%s (%s)", t.Name, units.Bytes(t.Bytes)))
			}
		}
		if units.Bytes(terms.Peak(places...)) <= limit.Bytes {
			return ""
		}
		return fmt.Sprintf("no room for the %s in the %s that is %s", strings.Join(names, ", "), limit.Bytes, limit.By)
	}
	device := machine.Limit{Bytes: f.DeviceFree, By: fmt.Sprintf("free on device %q", f.Device.Name)}
	host := machine.Limit{Bytes: f.Budget.Bytes, By: "the memory budget, by " + f.Budget.By}
	if !f.Device.Unified {
		return cmp.Or(check(device, need.Device), check(host, need.Pinned))
	}
	if device.Bytes < host.Bytes {
		host = device
	}
	return check(host, need.Device, need.Pinned)
}

// misuse says why an alternative contradicts the rows or the options, however much memory there is; "": it does
// not.
func (n Needs) misuse(o Override, a Alternative) string {
	switch {
	case a.Placement == Storage && o.Shuffle == RR:
		return "storage is read in whole chunks, so single rows cannot be reshuffled (use shuffle chunk, or placement host)"
	case n.ScatteredRows && (a.Placement == Storage || a.Shuffle == CR):
		return "the rows of this split are scattered over the chunks of the store, so they cannot be read or " +
			"reshuffled chunk by chunk (propagate again with that split)"
	case n.CutChunks && a.Placement == Storage:
		return "storage is read in whole chunks, so the chunk rows that are reshuffled together must be a multiple " +
			"of the store's (see inspect)"
	}
	return ""
}

// Least is the least host memory that these needs can be met with, if a device's own memory is enough.
func (n Needs) Least(f Facts, o Override) units.Bytes {
	least := units.Bytes(math.MaxInt64)
	for _, a := range alternatives(f, n, o) {
		asked := a.Placement == o.Placement || o.Placement == Auto && (a.Placement != Device || f.Device.Unified)
		if asked && n.misuse(o, a) == "" {
			bytes := a.HostBytes
			if f.Device.Unified {
				bytes += a.DeviceBytes
			}
			least = min(least, bytes)
		}
	}
	return least
}

func (n Needs) staging(f Facts) units.Bytes {
	if f.Device.Unified {
		return 0
	}
	return n.Staging
}

// Override is what the user asked for; Auto leaves it to Choose.
type Override struct {
	Placement string
	Shuffle   string // "" where nothing is to be shuffled
}

// Alternative is a placement and shuffle, with the memory and the predicted time of an epoch
// (training, and validation after it). Unknown rates count as infinitely fast.
type Alternative struct {
	Placement string `json:"placement"`
	Shuffle   string `json:"shuffle"`
	Obstacle  string `json:"obstacle,omitempty"` // why it is impossible
	Devices   int    `json:"devices"`
	Sharded   bool   `json:"sharded"` // each device holds its share of the input
	// RemoteRows is the share of a batch that moves between devices. It is about 0 if chunks are
	// reshuffled, since consecutive rows are spread evenly over the devices.
	RemoteRows float64 `json:"remote_rows"`
	Mapped     bool    `json:"mapped"` // devices gather rows of host memory

	DeviceBytes    units.Bytes `json:"device_bytes"` // on each device
	HostBytes      units.Bytes `json:"host_bytes"`
	EpochBytes     units.Bytes `json:"epoch_bytes"` // read in an epoch of training
	LoadSeconds    float64     `json:"load_seconds"`
	ComputeSeconds float64     `json:"compute_seconds"`
	EpochSeconds   float64     `json:"predicted_epoch_seconds"`
	Busiest        string      `json:"busiest"` // "storage", "host", "link" or "device", in training
}

// Decision is the chosen alternative, the reasons for it in the order of the decisions, and all
// alternatives, including the chosen one.
type Decision struct {
	Alternative
	Reasons      []string
	Alternatives []Alternative
}

// Choose takes storage for an input that is read once, if that is possible, and else the first of these that is
// (preprop-gnn section 5): device memory with row reshuffling, spread over the devices if one alone is too small; host
// memory with row reshuffling; storage with chunk reshuffling. From host memory, it reshuffles chunks if gathering rows
// would keep a device waiting longer, and the whole input can be pinned (with rows, only batches have to be). What the
// user asked for has precedence. If that does not fit, the error is machine.ErrDoesNotFit; if it contradicts itself,
// ErrContradiction.
func Choose(f Facts, n Needs, o Override) (Decision, error) {
	f.Devices = max(f.Devices, 1)
	f = f.beside(n.host())
	var d Decision
	addReason := func(format string, args ...any) { d.Reasons = append(d.Reasons, fmt.Sprintf(format, args...)) }
	placements, shuffles := []string{Auto, Device, Host, Storage}, []string{Auto, RR, CR}
	if !slices.Contains(placements, o.Placement) || o.Shuffle != "" && !slices.Contains(shuffles, o.Shuffle) {
		return d, fmt.Errorf("%w: placement %q with shuffle %q (want one of %v, and of %v)", ErrContradiction,
			o.Placement, o.Shuffle, placements, shuffles)
	}
	if why := n.misuse(o, Alternative{Placement: o.Placement, Shuffle: o.Shuffle}); why != "" {
		return d, fmt.Errorf("%w: %s", ErrContradiction, why)
	}

	d.Alternatives = alternatives(f, n, o)
	find := func(placement, shuffle string) Alternative {
		return d.Alternatives[slices.IndexFunc(d.Alternatives, func(a Alternative) bool {
			return a.Placement == placement && (a.Shuffle == shuffle || shuffle == "")
		})]
	}
	placement := o.Placement
	if placement != Auto {
		if why := find(placement, "").Obstacle; why != "" {
			err := fmt.Errorf("placement %s %w: %s", placement, machine.ErrDoesNotFit, why)
			if placement != Device || f.Device.Unified || f.Budget.Bytes == 0 { // else more host memory does not help
				err = fmt.Errorf("%w (host memory: %s at least)", err, units.AtLeast(n.Least(f, o)))
			}
			return d, err
		}
		addReason("placement %s was asked for", placement)
	} else {
		order := []string{Device, Host, Storage}
		if n.Once {
			order = []string{Storage, Device, Host}
		}
		first, why := First(order, func(placement string) error {
			if why := find(placement, "").Obstacle; why != "" {
				return fmt.Errorf("not %s: %s", placement, why)
			}
			return nil
		})
		for _, err := range why {
			addReason("%s", err)
		}
		if first < 0 {
			return d, fmt.Errorf("the input of training %w: %s (host memory: %s at least)", machine.ErrDoesNotFit,
				strings.Join(d.Reasons, "; "), units.AtLeast(n.Least(f, o)))
		}
		placement = order[first]
		addReason("%s", fitReason(f, n, find(placement, "")))
	}
	if placement == Device && f.Device.Unified {
		addReason("device and host memory are the same here, so the input is held once")
	}

	whyUnpinned := f.whyUnpinned(n.Input)
	shuffle := o.Shuffle
	switch {
	case shuffle == "":
	case shuffle != Auto:
		addReason("shuffle %s was asked for", shuffle)
	case placement == Storage:
		shuffle = CR
		addReason("chunks are reshuffled, so that storage is read in long runs")
	case placement == Host && !f.Device.Unified && !n.ScatteredRows &&
		find(Host, RR).keepsDeviceWaiting(find(Host, CR)):
		waiting := fmt.Sprintf("gathering rows keeps the device waiting (%.3g s an epoch, with chunks %.3g s)",
			find(Host, RR).EpochSeconds, find(Host, CR).EpochSeconds)
		if whyUnpinned == "" {
			shuffle = CR
			addReason("chunks are reshuffled: %s, and the whole input can be pinned", waiting)
		} else {
			shuffle = RR
			addReason("rows are reshuffled, although %s: chunks would be copied from pinned memory, and %s", waiting,
				whyUnpinned)
		}
	default:
		shuffle = RR
		addReason("rows are reshuffled, as memory allows")
	}
	if placement == Host && shuffle == CR && whyUnpinned != "" {
		addReason("copies of chunks may wait for pages: %s", whyUnpinned)
	}
	d.Alternative = find(placement, shuffle)
	d.Shuffle = shuffle
	if r := f.Rates; placement == Host && !f.Device.Unified && r.MappedGather > 0 &&
		(shuffle == RR || n.ScatteredRows) {
		rates := fmt.Sprintf("from host memory by itself %s, the host %s, and the link carries %s", r.MappedGather,
			r.HostGather, r.Link)
		if d.Mapped {
			addReason("the device gathers rows: it does so %s", rates)
		} else {
			addReason("the host gathers rows: the device would do so %s", rates)
		}
	}
	switch {
	case f.Devices == 1:
	case d.Sharded:
		addReason("each of %d devices holds a part of the input and computes on its rows of a batch; %.2g %% of the "+
			"rows move", d.Devices, 100*d.RemoteRows)
	case placement == Device:
		addReason("each of %d devices holds the whole input, and computes on its share of each batch", d.Devices)
	case placement == Host:
		addReason("%d devices are fed from one memory, each with its share of each batch", d.Devices)
	default:
		addReason("%d of %d devices is used: only one can be fed from storage", d.Devices, f.Devices)
	}
	if o.Shuffle != "" {
		addReason("%d batch buffers: one is filled while another is computed on", cmp.Or(n.Buffers, Buffers))
	}
	return d, nil
}

// First is the index of the first of some candidates that fits, -1 if none does, and why each one before it does not.
func First[C any](candidates []C, fits func(C) error) (first int, why []error) {
	for i, c := range candidates {
		err := fits(c)
		if err == nil {
			return i, why
		}
		why = append(why, err)
	}
	return -1, why
}

// whyUnpinned says why an input cannot all be pinned for devices to copy from; "" where it can, or need not.
func (f Facts) whyUnpinned(input units.Bytes) string {
	if f.Device.Unified || f.Pinnable.By == "" || input <= f.Pinnable.Bytes {
		return ""
	}
	return fmt.Sprintf("the input has %s, and only %s can be pinned, by %s", input, f.Pinnable.Bytes, f.Pinnable.By)
}

// fitReason says why a placement, the first possible one, is possible.
func fitReason(f Facts, n Needs, a Alternative) string {
	switch {
	case a.Sharded:
		return fmt.Sprintf("device: the input (%s) fits the memory of %d devices together", n.Input, a.Devices)
	case a.Placement == Device:
		return fmt.Sprintf("device: the input (%s) fits its memory", n.Input)
	case a.Placement == Host:
		return fmt.Sprintf("host: the input (%s) fits the memory budget of %s", n.Input, f.Budget.Bytes)
	}
	if n.Once {
		return "storage: each row is read once"
	}
	return "storage: chunks are read when they are needed"
}

// keepsDeviceWaiting tells that loading takes more than 1.1 times as long as computing, and as the
// epoch of the other alternative. It is false if the time of computing is unknown.
func (a Alternative) keepsDeviceWaiting(other Alternative) bool {
	return a.ComputeSeconds > 0 && a.EpochSeconds > 1.1*max(a.ComputeSeconds, other.EpochSeconds)
}

// alternatives lists all alternatives in the order of preference, with memory, times and, where impossible, the reason.
func alternatives(f Facts, n Needs, o Override) []Alternative {
	var out []Alternative
	for _, a := range []Alternative{
		{Placement: Device, Shuffle: RR}, {Placement: Device, Shuffle: CR},
		{Placement: Host, Shuffle: RR}, {Placement: Host, Shuffle: CR},
		{Placement: Storage, Shuffle: CR},
	} {
		if a.Devices = max(f.Devices, 1); a.Placement == Storage {
			a.Devices = 1
		}
		a.Sharded = a.Placement == Device && a.Devices > 1 && n.Input+n.WorkOn(a.Devices) > f.DeviceFree
		if a.Sharded && a.Shuffle == RR {
			a.RemoteRows = RemoteRows(a.Devices, n.BatchRows)
		}
		a.Obstacle = cmp.Or(n.misuse(o, a), f.exceeds(n.terms(f, a)))
		a.count(f, n)
		a.EpochBytes = units.Bytes(n.TrainRows * n.RowBytes)
		a.predict(f, n)
		out = append(out, a)
	}
	return out
}

func (a *Alternative) count(f Facts, n Needs) {
	m := n.Memory(f, *a)
	a.DeviceBytes, a.HostBytes = units.Bytes(m.DeviceBytes), units.Bytes(m.HostBytes)
}

// Package placement decides where the input of training lives and how it is
// shuffled (preprop-gnn section 5), says why in words, and predicts what an epoch
// takes there and elsewhere. Choose is a pure function; Measure finds the rates of
// the machine that it predicts by.
package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// ErrContradiction is returned when what the user asked for excludes itself.
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

// Buffers is how many batches are on the device: while one is computed on, the
// next is brought (preprop-gnn section 4.1).
const Buffers = 2

// Facts are what there is to place things on.
type Facts struct {
	Device     gds.Info
	Devices    int           // like that one, which train together; 0: 1
	DeviceFree units.Bytes   // of each device's memory
	Budget     units.Bytes   // host memory that the run may use
	BudgetBy   string        // what set the budget
	Pinnable   machine.Limit // of host memory, that can be pinned
	Rates      Rates
}

// FactsOf is described hardware, of which only so many devices shall be used (0:
// all), and only so much host memory (0: all).
func FactsOf(h machine.Hardware, devices int, budget units.Bytes) (Facts, error) {
	f := Facts{Device: gds.Info{Name: "device"}, Devices: h.Devices.Count, DeviceFree: h.Devices.Memory,
		Budget: h.Memory, BudgetBy: "the machine's memory", Rates: RatesOf(h)}
	if devices > h.Devices.Count {
		return f, fmt.Errorf("%w: %d devices, but the machine has %d", ErrContradiction, devices, h.Devices.Count)
	}
	if devices > 0 {
		f.Devices = devices
	}
	if budget > 0 && budget < h.Memory {
		f.Budget, f.BudgetBy = budget, "--memory"
	}
	if h.Pinnable > 0 && h.Pinnable < h.Memory {
		f.Pinnable = machine.Limit{Bytes: h.Pinnable, By: "the machine's limit"}
	}
	if h.Devices.Count == 0 {
		f.Device, f.DeviceFree = gds.Info{Name: "host", Unified: true}, h.Memory
	}
	return f, nil
}

// Needs are what has to be placed, and what an epoch does with it.
type Needs struct {
	Input units.Bytes // the matrices that the model reads, as stored, over all rows that will be read
	Work  units.Bytes // beside them on a device, wherever they live: batch buffers, model
	// ShareWork is that on each of Facts.Devices, where they share each batch; 0: as much.
	ShareWork units.Bytes
	// Chunks are held in host memory, beside Work, where the input is read from storage.
	Chunks units.Bytes
	// Staging is held in host memory, for all devices, where batches are gathered there
	// for devices with memory of their own.
	Staging units.Bytes
	// ScatteredRows tells that the rows to be read do not lie together, so that
	// reading them chunk by chunk is out of the question.
	ScatteredRows bool
	// CutChunks tells that what is shuffled together is not whole chunks of the store.
	CutChunks bool

	TrainRows, ValidRows int64
	RowBytes             int64 // of a row in all matrices, as stored
	Convert              bool  // that is not float32
	BatchRows            int   // of the global batch
	ChunkRows            int   // shuffled together by CR
	Compute              Compute
	OrderSeconds         float64 // that all cores take to find the place of a row, where rows are reshuffled
}

// WorkOn is Work on each of so many devices.
func (n Needs) WorkOn(devices int) units.Bytes {
	if devices > 1 && n.ShareWork > 0 {
		return n.ShareWork
	}
	return n.Work
}

// staging is Staging where there is any.
func (n Needs) staging(f Facts) units.Bytes {
	if f.Device.Unified {
		return 0
	}
	return n.Staging
}

// Override is what the user asked for: Auto where nothing.
type Override struct {
	Placement string
	Shuffle   string // "" where nothing is to be shuffled
}

// Alternative is a way to train, and what an epoch would take: training, and the
// validation after it. Bytes and seconds that depend on unknown rates lack them.
type Alternative struct {
	Placement string `json:"placement"`
	Shuffle   string `json:"shuffle"`
	Obstacle  string `json:"obstacle,omitempty"` // why it cannot be had
	Devices   int    `json:"devices"`
	// Sharded tells that each device holds a part of the input; RemoteRows is the
	// part of the rows of a batch that another device than its own computes on: next to
	// none where rows that follow one another, which devices hold in turn, stay together.
	Sharded    bool    `json:"sharded"`
	RemoteRows float64 `json:"remote_rows"`

	DeviceBytes    units.Bytes `json:"device_bytes"` // on each device
	HostBytes      units.Bytes `json:"host_bytes"`
	EpochBytes     units.Bytes `json:"epoch_bytes"` // of the input that training reads in an epoch
	LoadSeconds    float64     `json:"load_seconds"`
	ComputeSeconds float64     `json:"compute_seconds"`
	EpochSeconds   float64     `json:"predicted_epoch_seconds"`
	Busiest        string      `json:"busiest"` // "storage", "host", "link" or "device", in training
}

// Decision is the alternative that was chosen, with the reasons in the order in
// which they were found, and all that there are, it included.
type Decision struct {
	Alternative
	Reasons      []string
	Alternatives []Alternative
}

// Choose takes device memory first, spread over the devices where one alone is too
// small, then host memory, both with row reshuffling, then storage with chunk
// reshuffling (preprop-gnn section 5). From host memory, chunks are reshuffled where
// gathering rows would keep a device waiting and chunks would not, or less, and all of
// the input can be pinned; of rows, only batches need be. What the user asked for wins
// where it is possible. A demand that does not fit is machine.ErrDoesNotFit, one that
// excludes itself ErrContradiction.
func Choose(f Facts, n Needs, o Override) (Decision, error) {
	f.Devices = max(f.Devices, 1)
	var d Decision
	because := func(format string, args ...any) { d.Reasons = append(d.Reasons, fmt.Sprintf(format, args...)) }

	if o.Shuffle == RR && o.Placement == Storage {
		return d, fmt.Errorf("%w: storage is read in whole chunks, so rows cannot be shuffled one by one (use --shuffle chunk, or --placement host)", ErrContradiction)
	}
	if n.ScatteredRows && (o.Placement == Storage || o.Shuffle == CR) {
		return d, fmt.Errorf("%w: the rows of this split are scattered over the chunks of the store, so they cannot be read or shuffled by chunk (propagate again with that --split)", ErrContradiction)
	}
	if n.CutChunks && o.Placement == Storage {
		return d, fmt.Errorf("%w: storage is read in whole chunks, so --chunk-rows must be a multiple of the store's (see inspect)", ErrContradiction)
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
			return d, fmt.Errorf("--placement %s %w: %s", placement, machine.ErrDoesNotFit, why)
		}
		because("placement %s was asked for", placement)
	} else {
		for _, placement = range []string{Device, Host, Storage, ""} {
			if placement == "" {
				return d, fmt.Errorf("the input of training %w: %s", machine.ErrDoesNotFit, strings.Join(d.Reasons, "; "))
			}
			why := find(placement, "").Obstacle
			if why == "" {
				break
			}
			because("not %s: %s", placement, why)
		}
		because("%s", fits(f, n, find(placement, "")))
	}
	if placement == Device && f.Device.Unified {
		because("device and host memory are the same here, so the input is held once")
	}

	unpinned := f.unpinned(n.Input)
	shuffle := o.Shuffle
	switch {
	case shuffle == "":
	case shuffle != Auto:
		because("shuffle %s was asked for", shuffle)
	case placement == Storage:
		shuffle = CR
		because("shuffled by chunk, so that storage is read in long runs")
	case placement == Host && !f.Device.Unified && !n.ScatteredRows && find(Host, RR).starves(find(Host, CR)):
		waiting := fmt.Sprintf("gathering rows keeps the device waiting (an epoch of %.3g s instead of %.3g s)", find(Host, RR).EpochSeconds, find(Host, CR).EpochSeconds)
		if unpinned == "" {
			shuffle = CR
			because("shuffled by chunk: %s, and all of the input can be pinned", waiting)
		} else {
			shuffle = RR
			because("shuffled by row, though %s: chunks are copied from where they lie, and %s", waiting, unpinned)
		}
	default:
		shuffle = RR
		because("shuffled by row, which memory allows")
	}
	if placement == Host && shuffle == CR && unpinned != "" {
		because("copies of chunks may wait for pages: %s", unpinned)
	}
	d.Alternative = find(placement, shuffle)
	d.Shuffle = shuffle
	switch {
	case f.Devices == 1:
	case d.Sharded:
		because("each of %d devices holds a part; it computes on what it has of a batch, and %.2g %% of the rows move", d.Devices, 100*d.RemoteRows)
	case placement == Device:
		because("each of %d devices holds all of it, and computes on its share of each batch", d.Devices)
	case placement == Host:
		because("%d devices are fed from one memory, each with its share of each batch", d.Devices)
	default:
		because("%d of %d devices: only one is fed from storage", d.Devices, f.Devices)
	}
	if o.Shuffle != "" {
		because("%d batch buffers: one is filled while another is computed on", Buffers)
	}
	return d, nil
}

// unpinned says why an input cannot all be pinned for devices to copy from; "" where
// it can, or need not.
func (f Facts) unpinned(input units.Bytes) string {
	if f.Device.Unified || f.Pinnable.By == "" || input <= f.Pinnable.Bytes {
		return ""
	}
	return fmt.Sprintf("of the input (%s) only %s can be pinned, by %s", input, f.Pinnable.Bytes, f.Pinnable.By)
}

// fits says why a placement is the first that is possible.
func fits(f Facts, n Needs, a Alternative) string {
	switch {
	case a.Sharded:
		return fmt.Sprintf("device: the input (%s) fits the memory of %d devices together", n.Input, a.Devices)
	case a.Placement == Device:
		return fmt.Sprintf("device: the input (%s) fits its memory", n.Input)
	case a.Placement == Host:
		return fmt.Sprintf("host: the input (%s) fits the memory budget of %s", n.Input, f.Budget)
	}
	return "storage: chunks are read as they are needed"
}

// starves tells that the device would wait, and in another way for a shorter time.
// Where computing takes an unknown time, nothing is known to wait.
func (a Alternative) starves(other Alternative) bool {
	return a.ComputeSeconds > 0 && a.EpochSeconds > 1.1*max(a.ComputeSeconds, other.EpochSeconds)
}

// alternatives are all, with what they take and why they cannot be had, in the
// order in which they are preferred.
func alternatives(f Facts, n Needs, o Override) []Alternative {
	var out []Alternative
	obstacles := obstacles(f, n, o)
	for _, a := range []Alternative{
		{Placement: Device, Shuffle: RR}, {Placement: Device, Shuffle: CR},
		{Placement: Host, Shuffle: RR}, {Placement: Host, Shuffle: CR},
		{Placement: Storage, Shuffle: CR},
	} {
		a.Obstacle = obstacles[a.Placement]
		if a.Obstacle == "" && a.Shuffle == CR && n.ScatteredRows {
			a.Obstacle = "the rows of this split are scattered over the chunks of the store"
		}
		a.Devices, a.DeviceBytes = f.Devices, n.WorkOn(f.Devices)
		switch a.Placement {
		case Device:
			if a.Sharded = f.Devices > 1 && n.Input+a.DeviceBytes > f.DeviceFree; a.Sharded {
				a.DeviceBytes += share(n.Input, f.Devices)
			} else {
				a.DeviceBytes += n.Input
			}
			if a.Sharded && a.Shuffle == RR {
				a.RemoteRows = RemoteRows(f.Devices, n.BatchRows)
			}
		case Host:
			a.HostBytes = n.Input + n.staging(f)
		case Storage:
			a.Devices, a.DeviceBytes, a.HostBytes = 1, n.Work, n.Chunks
		}
		a.EpochBytes = units.Bytes(n.TrainRows * n.RowBytes)
		a.predict(f, n)
		out = append(out, a)
	}
	return out
}

// share is the larger part of bytes in parts that are as equal as can be.
func share(bytes units.Bytes, parts int) units.Bytes {
	return (bytes + units.Bytes(parts) - 1) / units.Bytes(parts)
}

// obstacles says, for each placement that is impossible, why.
func obstacles(f Facts, n Needs, o Override) map[string]string {
	free, by := f.DeviceFree, fmt.Sprintf("is free on device %q", f.Device.Name)
	if f.Device.Unified && f.Budget <= free {
		free, by = f.Budget, "is the memory budget, by "+f.BudgetBy
	}
	out := map[string]string{}
	if work := n.WorkOn(f.Devices); share(n.Input, f.Devices)+work > free {
		out[Device] = fmt.Sprintf("the input (%s) and what works on it (%s) exceed the %s that %s", n.Input, work, free, by)
		if f.Devices > 1 {
			out[Device] = fmt.Sprintf("a part of the input (%s) for each of %d devices and what works on it (%s) exceed the %s that %s",
				share(n.Input, f.Devices), f.Devices, work, free, by)
		}
	}
	tooMuchWork := func(devices int) string {
		if work := n.WorkOn(devices); work > free {
			return fmt.Sprintf("batches and model alone (%s) exceed the %s that %s", work, free, by)
		}
		return ""
	}
	switch {
	case f.Device.Unified && out[Device] != "":
		out[Host] = "host memory is the device's memory here"
	case tooMuchWork(f.Devices) != "":
		out[Host] = tooMuchWork(f.Devices)
	case n.Input > f.Budget:
		out[Host] = fmt.Sprintf("the input (%s) exceeds the memory budget of %s, by %s", n.Input, f.Budget, f.BudgetBy)
	case n.Input+n.staging(f) > f.Budget:
		out[Host] = fmt.Sprintf("the input (%s) and the batches gathered from it (%s) exceed the memory budget of %s, by %s", n.Input, n.Staging, f.Budget, f.BudgetBy)
	}
	switch {
	case o.Shuffle == RR:
		out[Storage] = "rows shall be shuffled one by one, which storage cannot do"
	case n.ScatteredRows:
		out[Storage] = "the rows of this split are scattered over the chunks of the store"
	case n.CutChunks:
		out[Storage] = "what shall be shuffled together is not whole chunks of the store"
	case tooMuchWork(1) != "":
		out[Storage] = tooMuchWork(1)
	case f.Device.Unified && n.Work+n.Chunks > free:
		out[Storage] = fmt.Sprintf("batches and model (%s) and chunks being read (%s) exceed the %s that %s", n.Work, n.Chunks, free, by)
	case n.Chunks > f.Budget:
		out[Storage] = fmt.Sprintf("chunks being read (%s) exceed the memory budget of %s, by %s", n.Chunks, f.Budget, f.BudgetBy)
	}
	return out
}

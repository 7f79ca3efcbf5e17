// Package need adds up the memory of a training. What is allocated is declared as Terms, each beside the code that
// allocates it; Sum is the plan of all.
package need

import "slices"

// Place is where memory is.
type Place string

const (
	Device      Place = "device"       // of each device
	FirstDevice Place = "first device" // which evaluates alone, where devices train by queues
	Pinned      Place = "pinned"       // host memory that devices copy from
	OffHeap     Place = "off-heap"     // other host memory beside Go's heap
	Heap        Place = "heap"
)

// Phase is a part of a training. The first three open its input; while it is saved, all of an epoch is held too.
type Phase string

const (
	Topology Phase = "topology" // edges come to host memory, and to pinned memory
	Features Phase = "features" // all features come to the device
	Edges    Phase = "edges"    // all edges come to the device
	Profile  Phase = "profile"  // some batches are trained on, and measured
	Epoch    Phase = "epoch"
	Saving   Phase = "saving"
)

var phases = []Phase{Topology, Features, Edges, Profile, Epoch, Saving}

// Term is one allocation, or several of a kind.
type Term struct {
	Name  string `json:"name"`
	Place Place  `json:"place"` // device, first device, pinned, off-heap or heap
	Bytes int64  `json:"bytes"`
	// From is the first phase that holds it: topology, features, edges, profile, epoch, saving. "": topology.
	From  Phase `json:"from,omitempty"`
	Until Phase `json:"until,omitempty"` // the last phase; "": saving
}

// OnHeap is a term of Go's heap that is held all the time.
func OnHeap(name string, bytes int64) Term { return Term{Name: name, Place: Heap, Bytes: bytes} }

// Terms are allocations that are held together, as their phases say.
type Terms []Term

// Peak is the most that the terms in some places take in any phase.
func (t Terms) Peak(places ...Place) (most int64) {
	for at := range phases {
		sum := int64(0)
		for _, n := range t {
			from, until := slices.Index(phases, n.From), slices.Index(phases, n.Until)
			if slices.Contains(places, n.Place) && from <= at && (until >= at || n.Until == "") {
				sum += n.Bytes
			}
		}
		most = max(most, sum)
	}
	return most
}

// During are the terms, held from one phase to another.
func (t Terms) During(from, until Phase) Terms {
	t = slices.Clone(t)
	for i := range t {
		t[i].From, t[i].Until = from, until
	}
	return t
}

// Set changes the bytes of the terms with a name and place.
func (t Terms) Set(name string, place Place, bytes int64) {
	for i := range t {
		if t[i].Name == name && t[i].Place == place {
			t[i].Bytes = bytes
		}
	}
}

// Memory is the most that a training or an inference takes, in bytes.
type Memory struct {
	HostBytes   int64 `json:"host_bytes"`                   // the program included
	HeapBytes   int64 `json:"heap_bytes"`                   // the part of host_bytes on Go's heap
	DeviceBytes int64 `json:"device_bytes"`                 // of the device that takes most
	OtherBytes  int64 `json:"other_device_bytes,omitempty"` // of each other device
	Terms       Terms `json:"terms"`                        // that these are sums of
}

// Sum adds up the terms of a program that uses some devices; unified: their memory is the host's. The heap keeps
// what one phase took for the next, so its peak adds to the other memory's peak. Terms of 0 bytes are left out.
func (t Terms) Sum(devices int, unified bool) Memory {
	t = slices.DeleteFunc(slices.Clone(t), func(n Term) bool { return n.Bytes == 0 })
	m := Memory{HeapBytes: t.Peak(Heap), DeviceBytes: t.Peak(Device, FirstDevice), Terms: t}
	if devices > 1 {
		m.OtherBytes = t.Peak(Device)
	}
	if m.HostBytes = m.HeapBytes + t.Peak(Pinned, OffHeap); unified { // the peaks may be of different phases
		m.HostBytes = m.HeapBytes + t.Peak(Pinned, OffHeap, Device, FirstDevice) - m.DeviceBytes
	}
	return m
}

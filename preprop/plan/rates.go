package plan

import "github.com/hopfeed/hopfeed/internal/machine"

// Rates are the speeds of a machine, from which times are predicted.
type Rates struct {
	Read, Write float64 // of the disk, in bytes a second, all threads together
	Touch       float64 // of memory that is used for the first time, in bytes a second
	// Adding a row takes edge seconds, and byte seconds for each byte of the row.
	Edge, Byte float64
}

func (r *Rates) gather(rowBytes int64) float64 { return r.Edge + float64(r.Byte*float64(rowBytes)) }

// RatesOf are the rates of a described machine. A row takes as long as its bytes and one
// cache line.
func RatesOf(h machine.Hardware) *Rates {
	gather := float64(h.GatherBandwidth)
	if gather == 0 {
		gather = float64(h.MemoryBandwidth) / 3
	}
	return &Rates{
		Read: float64(h.Storage.ReadRate()), Write: float64(h.Storage.WriteRate()),
		Touch: float64(h.MemoryBandwidth) / 3,
		Edge:  cacheLine / gather, Byte: 1 / gather,
	}
}

// DefaultRates are used to plan small jobs, for which measuring the machine would take
// longer than the job. They are those of no machine in particular.
var DefaultRates = Rates{Read: 1 << 30, Write: 1 << 29, Touch: 1 << 31, Edge: 4e-9, Byte: 1e-10}

// WorthMeasuring tells whether to measure the machine for a plan by defaultRates: not for short jobs. Rates decide
// nothing of those that the processor does in memory, all columns at once.
func WorthMeasuring(p *Plan, onDevice bool) bool {
	const bytes, seconds = 1 << 30, 20 // of a job; measuring takes up to one
	return p.ReadBytes+p.WrittenBytes >= bytes && (p.Seconds >= seconds || p.Panels > 1 || !p.TopologyInMemory || onDevice)
}

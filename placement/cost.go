package placement

import (
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Rates are how fast rows move, in bytes of rows, as stored, a second, by all
// cores and all disks. 0 is unknown, and taken to cost nothing.
type Rates struct {
	Storage      units.Rate `json:"storage"`       // read, a chunk at a time; of a bucket, from its cache
	Bucket       units.Rate `json:"bucket"`        // the same, from an object store over the network
	Check        units.Rate `json:"check"`         // checksums of read chunks
	HostCopy     units.Rate `json:"host_copy"`     // within host memory, in long runs
	HostGather   units.Rate `json:"host_gather"`   // row by row
	Link         units.Rate `json:"link"`          // to a device from host memory
	MappedGather units.Rate `json:"mapped_gather"` // row by row from host memory, by a device
	Peer         units.Rate `json:"peer"`          // from another device
	DeviceCopy   units.Rate `json:"device_copy"`   // within device memory, in long runs
	DeviceGather units.Rate `json:"device_gather"` // row by row
	Convert      units.Rate `json:"convert"`       // to float32, on the device
}

// NamedRate is one of Rates, in words.
type NamedRate struct {
	Name string
	Rate units.Rate
}

// List lists the known rates.
func (r Rates) List() []NamedRate {
	known := []NamedRate{
		{"storage", r.Storage}, {"bucket", r.Bucket}, {"checksums", r.Check}, {"copying", r.HostCopy},
		{"gathering", r.HostGather}, {"conversion", r.Convert}, {"link", r.Link}, {"gathering over the link", r.MappedGather},
		{"between devices", r.Peer},
	}
	if r.Link > 0 { // else device memory is the host's
		known = append(known, NamedRate{"copying on the device", r.DeviceCopy},
			NamedRate{"gathering on the device", r.DeviceGather})
	}
	return slices.DeleteFunc(known, func(n NamedRate) bool { return n.Rate == 0 })
}

// RatesOf estimates the rates of described hardware.
func RatesOf(h machine.Hardware) Rates {
	r := Rates{
		Storage: h.Storage.ReadRate(), Bucket: h.Bucket.Read, HostCopy: h.MemoryBandwidth, HostGather: h.GatherBandwidth,
		Link: h.Devices.Link, Peer: h.Devices.Peer,
		// Both read and write: a device's memory has no caches to speak of.
		DeviceCopy: h.Devices.Bandwidth / 2, DeviceGather: h.Devices.Bandwidth / 2, Convert: h.Devices.Bandwidth / 3,
	}
	if r.Peer == 0 {
		r.Peer = r.Link
	}
	if h.Devices.Count == 0 {
		r.HostCopy /= 3 // what is written is read first, by processors
		r.DeviceCopy, r.DeviceGather, r.Convert = r.HostCopy, r.HostGather, r.HostCopy
	}
	return r
}

// Compute is the time that one device computes on a row, 0 if unknown.
type Compute struct {
	TrainSeconds, ValidSeconds float64
}

// ComputeOf estimates the time from the number of parameters, as if all were weights of dense layers: for each row and
// weight, a product and a sum forward, and twice that backward, for the gradients of the weight and of the input.
func ComputeOf(parameters int64, d machine.Devices) Compute {
	if d.GFLOPS == 0 {
		return Compute{}
	}
	forward := 2 * float64(parameters) / (float64(d.GFLOPS) * 1e9)
	return Compute{TrainSeconds: 3 * forward, ValidSeconds: forward}
}

// RemoteRows is the expected fraction of the rows of a batch that move between devices, where each of k devices holds
// 1/k of the input and computes on what it holds (locality-aware loading; Yang and Cong 2019). The rows of a batch are
// random, so the number that a device holds is normally distributed, with the standard deviation sqrt(b (1/k) (1-1/k));
// the surplus over equal shares moves. That is sqrt((k-1)/(2 pi b)).
func RemoteRows(devices, batchRows int) float64 {
	k := float64(devices)
	return math.Sqrt((k - 1) / (2 * math.Pi * float64(max(batchRows, 1))))
}

// demand is the time, in seconds, that some rows take of each resource.
type demand struct{ storage, host, link, device float64 }

// pipelineSeconds is the time of a pipeline: the busiest resource's, plus the time in which the first
// batch passes through the others. If the device is the host's processor, the two are one resource.
func (d demand) pipelineSeconds(batches float64, unified bool) (seconds float64, busiest string) {
	if unified {
		d.device += d.host
		d.host = 0
	}
	sum := 0.0
	for _, part := range []struct {
		name    string
		seconds float64
	}{{"device", d.device}, {"storage", d.storage}, {"link", d.link}, {"host", d.host}} {
		sum += part.seconds
		if part.seconds > seconds {
			seconds, busiest = part.seconds, part.name
		}
	}
	return seconds + (sum-seconds)/max(batches, 1), busiest
}

func (a *Alternative) loadDemand(f Facts, n Needs, rows int64, shuffled bool) (d demand) {
	r := f.Rates
	bytes := float64(rows) * float64(n.RowBytes) / float64(a.Devices)
	secondsFor := func(rate units.Rate) float64 {
		if rate == 0 {
			return 0
		}
		return bytes / float64(rate)
	}
	byRow := shuffled && a.Shuffle == RR
	scattered := byRow || n.ScatteredRows
	switch a.Placement {
	case Device:
		switch {
		case scattered:
			d.device = secondsFor(r.DeviceGather)
		case !n.Convert && shuffled && n.ChunkRows%max(n.BatchRows, 1) != 0: // else batches are views
			d.device = secondsFor(r.DeviceCopy)
		}
		if shuffled {
			d.link = secondsFor(r.Peer) * a.RemoteRows
		}
	case Host:
		if a.Mapped && scattered { // its kernels wait for the link
			d.link = secondsFor(r.MappedGather)
			d.device = d.link
			break
		}
		// All devices are fed from one memory.
		if d.host = secondsFor(r.HostCopy) * float64(a.Devices); scattered {
			d.host = secondsFor(r.HostGather) * float64(a.Devices)
		}
		d.link = secondsFor(r.Link)
	case Storage:
		d.storage = secondsFor(r.Storage)
		if r.Bucket > 0 { // in epochs after the first
			kept := f.Kept(n)
			d.storage = kept*d.storage + (1-kept)*secondsFor(r.Bucket)
		}
		d.host = secondsFor(r.Check)
		d.link = secondsFor(r.Link)
		if f.Device.Unified && !n.Convert {
			d.host += secondsFor(r.HostCopy)
		}
	}
	if f.Device.Unified {
		d.link = 0
	}
	if n.Convert {
		d.device += secondsFor(r.Convert)
	}
	if byRow {
		d.host += n.OrderSeconds * float64(rows)
	}
	return d
}

// predict sets the predicted times of an epoch: training, and validation after it. Rows of host memory
// are gathered by the device itself if an epoch then takes less time.
func (a *Alternative) predict(f Facts, n Needs) {
	mapped := *a
	a.predictTimes(f, n)
	if a.Placement == Host && (a.Shuffle == RR || n.ScatteredRows) && !f.Device.Unified && f.Rates.MappedGather > 0 {
		mapped.Mapped = true
		if mapped.predictTimes(f, n); mapped.EpochSeconds < a.EpochSeconds {
			*a = mapped
			a.count(f, n)
		}
	}
}

func (a *Alternative) predictTimes(f Facts, n Needs) {
	for _, phase := range []struct {
		rows     int64
		shuffled bool
		compute  float64
	}{
		{n.TrainRows, true, n.Compute.TrainSeconds},
		{n.ValidRows, false, n.Compute.ValidSeconds},
	} {
		batches := math.Ceil(float64(phase.rows) / float64(max(n.BatchRows, 1)))
		d := a.loadDemand(f, n, phase.rows, phase.shuffled)
		alone, _ := d.pipelineSeconds(batches, f.Device.Unified)
		compute := phase.compute * float64(phase.rows) / float64(a.Devices)
		d.device += compute
		whole, busiest := d.pipelineSeconds(batches, f.Device.Unified)
		a.LoadSeconds += alone
		a.ComputeSeconds += compute
		a.EpochSeconds += whole
		if phase.shuffled {
			a.Busiest = busiest
		}
	}
}

package loader

import (
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// Stats are the statistics of a loader, over all epochs that have ended.
type Stats struct {
	Placement Placement `json:"placement"`
	Memory    gds.Usage `json:"memory"` // of the device, now
	Batches   int64     `json:"batches"`
	Rows      int64     `json:"rows"` // of this rank
	// RemoteRows came from another rank's device.
	RemoteRows     int64 `json:"remote_rows"`
	RemoteBytes    int64 `json:"remote_bytes"`
	BytesRead      int64 `json:"bytes_read"`      // from the store, by Open too
	AssembledBytes int64 `json:"assembled_bytes"` // rows that the host gathered or copied
	CopiedInBytes  int64 `json:"copied_in_bytes"` // from host to device memory
	// Gather is who gathers rows of host memory for a device: "host" or "device".
	Gather            string       `json:"gather,omitempty"`
	Reads             []ReadStats  `json:"reads"`
	Stages            []StageStats `json:"stages"`
	LoopSeconds       float64      `json:"loop_seconds"`        // in the loop over batches
	LoopWaitSeconds   float64      `json:"loop_wait_seconds"`   // the loop waited for the next batch
	LoaderWaitSeconds float64      `json:"loader_wait_seconds"` // the loader waited for a free buffer
}

// ReadStats counts the reads by one path; see gds.Receipt.
type ReadStats struct {
	Path   string `json:"path"`
	Reason string `json:"reason,omitempty"`
	Files  int    `json:"files"`
	Reads  int64  `json:"reads"` // neighbouring chunks may be one
	Bytes  int64  `json:"bytes"` // of chunks
}

// StageStats is the time of a stage of the pipeline, threads that help it included.
type StageStats struct {
	Name           string  `json:"name"`
	WorkSeconds    float64 `json:"work_seconds"`    // it computed, or read rows of a graph
	WaitSeconds    float64 `json:"wait_seconds"`    // it waited for a disk or device
	BlockedSeconds float64 `json:"blocked_seconds"` // it waited for a free buffer
	IdleSeconds    float64 `json:"idle_seconds"`    // it had no batch, or no worker
}

// Stats tells what the loader did so far.
func (l *Loader) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Placement, s.Memory = l.o.Placement, l.o.Device.Usage()
	switch {
	case l.o.Mapped:
		s.Gather = "device"
	case l.o.Placement == Host && !l.unified():
		s.Gather = "host"
	}
	s.AssembledBytes, s.CopiedInBytes = l.assembled.Load(), l.copiedIn.Load()
	s.Stages = append([]StageStats(nil), s.Stages...)
	if l.source.reads != nil {
		s.Reads = l.source.reads()
	}
	for _, r := range s.Reads {
		s.BytesRead += r.Bytes
	}
	return s
}

// countingStream counts the bytes that are copied from host memory to the device.
type countingStream struct {
	gds.Stream
	bytes *atomic.Int64
}

func (s countingStream) Copy(dst, src gds.Tensor) {
	if src.Pinned() && !dst.Pinned() {
		s.bytes.Add(gds.Bytes(src.Rows, src.Cols, src.DType))
	}
	s.Stream.Copy(dst, src)
}

// addEpoch adds the figures of an epoch to the statistics.
func (l *Loader) addEpoch(times []pipeline.Times, batches, rows, remote int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.stats
	s.AddEpoch(times, batches, rows)
	s.RemoteRows += remote
	s.RemoteBytes += remote * l.joinedBytes()
	s.LoaderWaitSeconds = l.buffers.Waited().Seconds()
}

// AddEpoch adds an epoch: batches and rows of this rank. The last entry of times is the loop's.
func (s *Stats) AddEpoch(times []pipeline.Times, batches, rows int64) {
	if len(times) == 0 { // it failed before it had a stage
		return
	}
	loop, stages := times[len(times)-1], times[:len(times)-1]
	for _, t := range stages {
		i := slices.IndexFunc(s.Stages, func(of StageStats) bool { return of.Name == t.Name })
		if i < 0 {
			i, s.Stages = len(s.Stages), append(s.Stages, StageStats{Name: t.Name})
		}
		s.Stages[i].WorkSeconds += t.Work.Seconds()
		s.Stages[i].WaitSeconds += t.Waiting.Seconds()
		s.Stages[i].BlockedSeconds += t.Blocked.Seconds()
		s.Stages[i].IdleSeconds += t.Idle.Seconds()
	}
	s.Batches += batches
	s.Rows += rows
	s.LoopSeconds += loop.Work.Seconds()
	s.LoopWaitSeconds += loop.Idle.Seconds()
}

// Traffic counts the features of batches, by where they came from, and their sampled edges.
type Traffic struct {
	// Rows of features: of all matrices; for a graph, of input nodes.
	Rows       int64 `json:"rows"`
	CachedRows int64 `json:"cached_rows"` // found in a cache
	LoadedRows int64 `json:"loaded_rows"` // brought into a cache before the batches
	Edges      int64 `json:"edges"`       // of all blocks
	// Bytes of Rows and LoadedRows by where they were, as the next fields.
	DeviceBytes  int64 `json:"device_bytes"`
	CacheBytes   int64 `json:"cache_bytes"`
	HostBytes    int64 `json:"host_bytes"`
	StorageBytes int64 `json:"storage_bytes"`
	// of adjacency lists that a device read in host memory
	TopologyBytes int64 `json:"topology_bytes"`
}

// counts are all that a Traffic counts.
func (t *Traffic) counts() [9]*int64 {
	return [...]*int64{&t.Rows, &t.CachedRows, &t.LoadedRows, &t.Edges, &t.DeviceBytes, &t.CacheBytes, &t.HostBytes,
		&t.StorageBytes, &t.TopologyBytes}
}

// Add adds what other batches had.
func (t *Traffic) Add(other Traffic) {
	for i, n := range other.counts() {
		*t.counts()[i] += *n
	}
}

// Per is the mean over n epochs or runs, rounded down.
func (t Traffic) Per(n int) Traffic {
	for _, count := range t.counts() {
		*count /= int64(max(n, 1))
	}
	return t
}

// Bytes is all bytes of features.
func (t Traffic) Bytes() int64 { return t.DeviceBytes + t.CacheBytes + t.HostBytes + t.StorageBytes }

// HitRate is the part of the rows that a cache had.
func (t Traffic) HitRate() float64 { return float64(t.CachedRows) / float64(max(t.Rows, 1)) }

// AddBytes adds bytes that came from a placement.
func (t *Traffic) AddBytes(from Placement, bytes int64) {
	switch from {
	case Device:
		t.DeviceBytes += bytes
	case Host:
		t.HostBytes += bytes
	case Storage:
		t.StorageBytes += bytes
	}
}

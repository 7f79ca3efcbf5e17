package loader

// Traffic counts what batches had of features, by where it came from, and their sampled edges.
type Traffic struct {
	// Rows of features: one of each matrix for each row of a store, one for each input node of a graph.
	Rows       int64 `json:"rows"`
	CachedRows int64 `json:"cached_rows"` // the part of Rows that a cache had
	LoadedRows int64 `json:"loaded_rows"` // brought into a cache before the batches
	Edges      int64 `json:"edges"`       // of all blocks
	// Bytes of Rows and LoadedRows, as stored, by where they were.
	DeviceBytes  int64 `json:"device_bytes"`
	CacheBytes   int64 `json:"cache_bytes"`
	HostBytes    int64 `json:"host_bytes"`
	StorageBytes int64 `json:"storage_bytes"`
}

// counts are all that a Traffic counts.
func (t *Traffic) counts() [8]*int64 {
	return [...]*int64{&t.Rows, &t.CachedRows, &t.LoadedRows, &t.Edges, &t.DeviceBytes, &t.CacheBytes, &t.HostBytes,
		&t.StorageBytes}
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

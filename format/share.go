package format

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/version"
)

// sharing is who holds what is read whole.
type sharing struct {
	pool *offheap.Pool // nil: each reader for itself
	by   offheap.Holders
}

// What Hold is asked for by several packages.
const (
	HeldTopology = topologyFolder
	HeldFeatures = "features"
)

// Share keeps one copy in memory of data that several readers read whole, in this process and in the others that by
// counts. It is called before anything is read.
func (d *Dir) Share(pool *offheap.Pool, by offheap.Holders) { d.shared = sharing{pool, by} }

// Shares tells whether Share was called.
func (d *Dir) Shares() bool { return d.shared.pool != nil }

// Hold returns memory with some of the directory's data, which the caller frees and nobody writes to. Where nobody has
// it yet, fill reads it. what names the data and how they lie there.
func (d *Dir) Hold(ctx context.Context, what string, bytes int64, fill func(*offheap.Buffer) error) (*offheap.Buffer,
	error) {
	return d.shared.pool.Get(ctx, d.contentName(what), bytes, d.shared.by, fill)
}

// OwnBytes is what the caller is charged for memory that Hold returns: all of it, or else nothing, if this process has
// it already, or the process's part.
func (d *Dir) OwnBytes(what string, bytes int64) int64 {
	if !d.shared.by.Whole && d.shared.pool.Has(d.contentName(what)) {
		return 0
	}
	return d.shared.by.Charge(bytes)
}

// contentName names data by the manifest, whose checksums cover all data.
func (d *Dir) contentName(what string) string {
	if !d.Shares() {
		return ""
	}
	text, _ := json.Marshal(&d.Manifest) // which was read as JSON
	return fmt.Sprintf("%x %s %s", sha256.Sum256(text), version.Version, what)
}

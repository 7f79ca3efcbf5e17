package command

import (
	"context"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/internal/vfs/bucket"
)

// openBuckets makes paths that are URLs objects of buckets, for the verb that runs.
func (a *app) openBuckets(ctx context.Context) {
	o := a.cache
	o.Context, o.Note = ctx, a.tell
	if a.given(cacheSizeFlag) {
		o.CacheBytes = bucket.CacheOf(a.cacheSize)
	}
	a.fs = bucket.New(a.fs, o)
}

const cacheSizeFlag = "cache-size"

// uncached is the file system without a cache, for verbs that check what is in a bucket.
func (a *app) uncached() vfs.FS {
	if f, ok := a.fs.(*bucket.FS); ok {
		return f.Uncached()
	}
	return a.fs
}

// bucketTraffic is what a verb has moved from and to buckets; nil if it has moved nothing.
func (a *app) bucketTraffic() *bucket.Traffic {
	f, ok := a.fs.(*bucket.FS)
	if t := (bucket.Traffic{}); ok && f.Traffic() != t {
		t = f.Traffic()
		return &t
	}
	return nil
}

// noteTraffic tells what a verb has moved from and to buckets.
func (a *app) noteTraffic() {
	if t := a.bucketTraffic(); t != nil {
		a.note("buckets: %v fetched, %v from the cache, %v sent, %d requests repeated", units.Bytes(t.FetchedBytes),
			units.Bytes(t.CachedBytes), units.Bytes(t.SentBytes), t.Repeated)
	}
}

package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Retries say how often a request is made before its error counts. The zero value is DefaultRetries.
type Retries struct {
	Most  int           // requests; the pause before the k-th repetition is Pause * 2^k, drawn from its upper half
	Pause time.Duration // the first
	Limit time.Duration // the longest pause
	Stall time.Duration // a request that moves no byte for so long is given up, and counts as failed
}

// DefaultRetries take about half a minute of pauses.
var DefaultRetries = Retries{Most: 10, Pause: 100 * time.Millisecond, Limit: 10 * time.Second, Stall: 30 * time.Second}

// tellFrom is the number of failed requests from which each is told.
const tellFrom = 4

// attempt makes a request until it succeeds, up to the most tries. Each try gets a context that ends when the try calls
// moved too rarely. ctx ends the pauses, after which no more tries are made; but one is made whatever ctx says, so that
// a job that is interrupted can still clean up.
func (f *FS) attempt(ctx context.Context, path string, s store,
	try func(ctx context.Context, moved func()) error) error {
	var err error
	renewed := false
	for tries := 1; ; tries++ {
		if err = f.once(ctx, try); err == nil || final(err) {
			return err
		}
		if errors.Is(err, errExpired) {
			if renewed {
				return err
			}
			renewed = true
			s.renew()
		}
		if tries >= f.o.Retries.Most || ctx.Err() != nil {
			break
		}
		f.repeated.Add(1)
		if tries >= tellFrom {
			f.o.Note(fmt.Sprintf("%s: %v (request %d of %d failed)", path, err, tries, f.o.Retries.Most))
		}
		pause := min(f.o.Retries.Pause<<(tries-1), f.o.Retries.Limit)
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return fmt.Errorf("%w (%d requests failed; run the command again when the server answers)", err, f.o.Retries.Most)
}

var errStalled = errors.New("the server sends and takes nothing")

// once makes one try, and ends it where it stalls.
func (f *FS) once(ctx context.Context, try func(ctx context.Context, moved func()) error) error {
	stall := f.o.Retries.Stall
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	timer := time.AfterFunc(stall, func() { cancel(fmt.Errorf("%w for %v", errStalled, stall)) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { timer.Reset(min(stall, 2*time.Second)) })()
	err := try(inner, func() { timer.Reset(stall) })
	if cause := context.Cause(inner); cause != nil && err != nil {
		return cause
	}
	return err
}

// movingReader calls moved for each read.
type movingReader struct {
	io.Reader
	moved func()
}

func (r movingReader) Read(p []byte) (int, error) {
	r.moved()
	return r.Reader.Read(p)
}

// Traffic counts what has gone to and from buckets so far.
type Traffic struct {
	FetchedBytes int64 `json:"fetched_bytes"` // from buckets
	CachedBytes  int64 `json:"cached_bytes"`  // read from the cache instead
	SentBytes    int64 `json:"sent_bytes"`
	Repeated     int64 `json:"repeated_requests"` // that failed
}

type counters struct{ fetched, cached, sent, repeated atomic.Int64 }

package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// file is a version of an object, open for reading.
type file struct {
	f  *FS
	at place
	object
	pages *pages // in the cache, or nil
}

func (r *file) Path() string         { return r.at.path }
func (r *file) Size() (int64, error) { return r.bytes, nil }
func (r *file) Close() error         { return r.pages.close() }

// requestBytes is the most that one request reads: several are on their way for a longer read.
const (
	requestBytes = 8 << 20
	requests     = 8
)

// ReadAt reads from the cache, and the rest from the bucket.
func (r *file) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, pathError("read", r.at.path, fs.ErrInvalid)
	}
	want := int(max(0, min(int64(len(p)), r.bytes-off)))
	if want > 0 {
		if r.pages != nil {
			err = r.pages.read(p[:want], off, r.fetch)
		} else {
			err = r.fetch(p[:want], off)
		}
	}
	if err != nil {
		return 0, pathError("read", r.at.path, err)
	}
	if want < len(p) {
		err = io.EOF
	}
	return want, err
}

// fetch reads from the bucket.
func (r *file) fetch(p []byte, off int64) error {
	if len(p) <= 2*requestBytes {
		return r.fetchRange(p, off)
	}
	return parallel.For(r.f.o.Context, requests, int64(len(p)), requestBytes, func(lo, hi int64) error {
		return r.fetchRange(p[lo:hi], off+lo)
	})
}

// fetchRange reads by one request, or by more that go on where one has ended early.
func (r *file) fetchRange(p []byte, off int64) error {
	done := 0
	return r.f.attempt(r.f.o.Context, r.at.path, r.at.store, func(ctx context.Context, moved func()) error {
		body, err := r.at.store.read(ctx, r.at.key, r.version, off+int64(done), int64(len(p)-done))
		if err != nil {
			return err
		}
		defer body.Close()
		n, err := io.ReadFull(movingReader{body, moved}, p[done:])
		r.f.fetched.Add(int64(n))
		if done += n; done < len(p) {
			return fmt.Errorf("the answer ends after %d of %d bytes: %w", done, len(p), err)
		}
		return nil
	})
}

// Doubt implements vfs.Doubter.
func (r *file) Doubt(off, bytes int64) bool {
	if r.pages != nil {
		r.pages.drop(off, bytes)
	}
	r.f.repeated.Add(1)
	r.f.o.Note(fmt.Sprintf("%s: bytes %d to %d have another checksum than was written: the cache drops them", r.at.path,
		off, off+bytes))
	return true
}

// Receipt implements vfs.Receipter.
func (r *file) Receipt() (path, reason string) {
	if r.pages == nil {
		return "bucket", "without a cache"
	}
	return "bucket", "kept in the cache " + r.f.cache.dir
}

// pending is an object that is being written, as a local file.
type pending struct {
	vfs.PendingFile
	f    *FS
	at   place
	done bool
}

// partBytes is the least size of a part of an upload, and what is sent by one request.
const (
	partBytes = 32 << 20
	mostParts = 9000 // S3 has 10,000
	senders   = 4    // parts on their way
)

// Commit sends the object.
func (p *pending) Commit() (err error) {
	if p.done {
		return pathError("commit", p.at.path, fs.ErrClosed)
	}
	p.done = true
	defer p.f.prune(p.at)
	defer p.PendingFile.Abort()
	if err := p.f.lost(p.at.path); err != nil {
		return pathError("commit", p.at.path, err)
	}
	from, bytes, err := vfs.OpenSized(p.f.FS, p.at.local+vfs.TempSuffix)
	if err != nil {
		return err
	}
	defer from.Close()
	return pathError("commit", p.at.path, p.f.send(p.at, from, bytes))
}

func (p *pending) Abort() error {
	if p.done {
		return nil
	}
	p.done = true
	defer p.f.prune(p.at)
	return p.PendingFile.Abort()
}

// errUnseen: of two writes at a time, a server may refuse one before the other's object is there, or both (409 of S3).
var errUnseen = errors.New("the server has refused an object as if another were there, and there is none")

// send writes an object. Uploads that a killed process has left of it are aborted, and so is its own if it fails.
func (f *FS) send(at place, from io.ReaderAt, bytes int64) error {
	if bytes <= partBytes {
		return f.attempt(f.o.Context, at.path, at.store, func(ctx context.Context, moved func()) error {
			_, err := at.store.write(ctx, at.key, f.section(from, 0, bytes, moved), condition{none: f.concurrent})
			if f.concurrent && errors.Is(err, errReplaced) { // another process was faster, or an earlier try
				if _, err = at.store.stat(ctx, at.key); errors.Is(err, fs.ErrNotExist) {
					return errUnseen
				}
			}
			return err
		})
	}
	if f.concurrent && f.arrived(at, bytes) {
		return nil
	}
	if !f.concurrent {
		if err := f.abandon(at, at.key); err != nil {
			return err
		}
	}
	var upload string
	err := f.attempt(f.o.Context, at.path, at.store, func(ctx context.Context, _ func()) (err error) {
		upload, err = at.store.begin(ctx, at.key)
		return err
	})
	if err != nil {
		return err
	}
	part := max(partBytes, (bytes/mostParts+partBytes)/partBytes*partBytes)
	tags := make([]string, (bytes+part-1)/part)
	err = parallel.For(f.o.Context, senders, bytes, part, func(lo, hi int64) error {
		return f.attempt(f.o.Context, at.path, at.store, func(ctx context.Context, moved func()) (err error) {
			tags[lo/part], err = at.store.part(ctx, at.key, upload, int(lo/part), f.section(from, lo, hi-lo, moved))
			return err
		})
	})
	if err == nil && f.concurrent && f.arrived(at, bytes) { // another process was faster: its version may be open
		return at.store.abort(clean(), at.key, upload)
	}
	if err == nil {
		err = f.attempt(clean(), at.path, at.store, func(ctx context.Context, moved func()) error {
			return at.store.complete(ctx, at.key, upload, tags, moved)
		})
		if errors.Is(err, fs.ErrNotExist) && f.arrived(at, bytes) {
			err = nil // an earlier try has completed it, and its answer was lost
		}
	}
	if err != nil {
		return errors.Join(err, at.store.abort(clean(), at.key, upload))
	}
	return nil
}

// arrived tells whether there is an object of this size.
func (f *FS) arrived(at place, bytes int64) bool {
	o, err := f.stat(at)
	return err == nil && o.bytes == bytes
}

// section is a part of a file that is sent.
func (f *FS) section(from io.ReaderAt, off, bytes int64, moved func()) *io.SectionReader {
	f.sent.Add(bytes)
	return io.NewSectionReader(movingReaderAt{from, moved}, off, bytes)
}

type movingReaderAt struct {
	io.ReaderAt
	moved func()
}

func (r movingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	r.moved()
	return r.ReaderAt.ReadAt(p, off)
}

// abandon aborts the uploads of keys that start with a prefix.
func (f *FS) abandon(at place, prefix string) error {
	return f.attempt(clean(), at.path, at.store, func(ctx context.Context, _ func()) error {
		all, err := at.store.uploads(ctx, prefix)
		for _, u := range all {
			if err == nil {
				err = at.store.abort(ctx, u.key, u.upload)
			}
		}
		return err
	})
}

// Uploads counts the unfinished uploads of the folder at a path, and what this machine has of its uncommitted files.
func (f *FS) Uploads(path string) (count int, err error) {
	at, err := f.find("list", path)
	if err != nil || at.isLocal() {
		return 0, err
	}
	err = f.attempt(clean(), path, at.store, func(ctx context.Context, _ func()) error {
		all, err := at.store.uploads(ctx, at.key+"/")
		count = len(all)
		return err
	})
	return count, pathError("list", path, err)
}

// token is a random text.
func token() string { return rand.Text() }

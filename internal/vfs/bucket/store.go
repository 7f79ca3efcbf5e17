package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// store is one bucket. Its methods make one request, and do not repeat it; keys have no slash in front.
type store interface {
	// stat is fs.ErrNotExist where there is no object of this key.
	stat(ctx context.Context, key string) (object, error)
	// list lists what starts with a prefix: objects, and prefixes up to the next slash. At most most of them, or all if
	// most is 0.
	list(ctx context.Context, prefix string, most int) ([]object, error)
	// read reads so many bytes of a version, which is errReplaced if another one has its place.
	read(ctx context.Context, key, version string, off, bytes int64) (io.ReadCloser, error)
	// write writes an object whole, if the condition holds; else it is errReplaced.
	write(ctx context.Context, key string, body *io.SectionReader, c condition) (version string, err error)
	remove(ctx context.Context, key string) error
	// begin starts an upload in parts; the object appears by complete. part numbers count from 0.
	begin(ctx context.Context, key string) (upload string, err error)
	part(ctx context.Context, key, upload string, number int, body *io.SectionReader) (tag string, err error)
	// complete calls moved where it has got on, so that a long one is no stall.
	complete(ctx context.Context, key, upload string, tags []string, moved func()) error
	abort(ctx context.Context, key, upload string) error
	// uploads lists uploads that are not complete, of keys that start with a prefix.
	uploads(ctx context.Context, prefix string) ([]unfinished, error)
	// renew gets new credentials, if it can.
	renew()
}

// openers open buckets, by scheme.
var openers = map[string]func(ctx context.Context, at location) (store, error){"s3": openS3,
	"az": openAZ, "gs": openGS}

// object is an object, or a prefix of keys that ends with a slash.
type object struct {
	key     string
	bytes   int64
	version string
	changed time.Time
}

// unfinished is an upload that is not complete.
type unfinished struct{ key, upload string }

// condition is what must be there for an object to be written.
type condition struct {
	none    bool   // nothing
	version string // this version; "": no matter what
}

// Errors of stores are fs.ErrNotExist, fs.ErrPermission, one of these, or errors of the network and others that another
// try may not have.
var (
	errReplaced = vfs.ErrOtherVersion
	errExpired  = errors.New("the credentials have expired (renew them, and run the command again)")
	errRefused  = errors.New("the server refuses the request") // in a way that another try would not change
)

// explainStatus gives an answer of a server its kind. damaged: what was sent has changed on its way.
func explainStatus(status int, text string, damaged bool) error {
	kind := errRefused
	switch {
	case status == http.StatusNotFound:
		kind = fs.ErrNotExist
	case status == http.StatusPreconditionFailed, status == http.StatusConflict, status == http.StatusNotModified:
		return errReplaced
	case status == http.StatusUnauthorized:
		kind = errExpired
	case status == http.StatusForbidden:
		kind = fs.ErrPermission
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500, status < 400, damaged:
		return fmt.Errorf("%d %s", status, text)
	}
	return fmt.Errorf("%w: %d %s", kind, status, text)
}

// final tells whether another try is of no use.
func final(err error) bool {
	for _, kind := range []error{fs.ErrNotExist, fs.ErrPermission, errReplaced, errRefused, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

package machine

import "errors"

// ErrDoesNotFit is returned when a job needs more memory or disk than it may
// use; the text says what it would need and what there is.
var ErrDoesNotFit = errors.New("does not fit")

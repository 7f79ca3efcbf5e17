// Package exit tells what kind of failure an error is, for all programs alike: the command exits
// with it, and the library returns it.
package exit

import (
	"errors"
	"slices"
	"syscall"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// What a program returns.
const (
	Done        = 0
	Failed      = 1
	Options     = 2 // contradictory options, output that exists
	Corrupt     = 3
	DoesNotFit  = 4
	Interrupted = 130
)

// Of returns the status of an error that is not nil. Only the caller knows whether it was interrupted.
func Of(err error) int {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	switch {
	case is(format.ErrExists, format.ErrKind, folder.ErrForeign, vfs.ErrNotLock, vfs.ErrLink, checkpoint.ErrExists,
		placement.ErrContradiction, ingest.ErrOptions, preprop.ErrOptions, sampling.ErrOptions, session.ErrOptions,
		trainer.ErrOptions):
		return Options
	case is(format.ErrCorrupt, folder.ErrDamaged, format.ErrVersion, format.ErrIncomplete, ingest.ErrInvalid,
		preprop.ErrInvalid, machine.ErrHardware, checkpoint.ErrInvalid, syscall.EISDIR):
		return Corrupt
	case is(machine.ErrDoesNotFit, gds.ErrOutOfMemory, syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM, syscall.EMFILE,
		syscall.ENFILE):
		return DoesNotFit
	}
	return Failed
}

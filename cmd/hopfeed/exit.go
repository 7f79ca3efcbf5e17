package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitCorrupt     = 3
	exitDoesNotFit  = 4
	exitInterrupted = 130
)

const exitHelp = `Exit status:
  0    done
  1    failed
  2    usage: bad flags, unknown commands, contradictory options, output that exists
  3    corrupt or invalid data
  4    does not fit into memory or on disk
  130  interrupted`

// errUsage is returned when the command line is wrong.
var errUsage = errors.New("usage")

// usageError is errUsage with a text of its own.
type usageError string

func (e usageError) Error() string        { return string(e) }
func (e usageError) Is(target error) bool { return target == errUsage }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// exitStatus is the status for err. What fails before the verb is running is
// the command line's fault.
func exitStatus(ctx context.Context, err error, running bool) int {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case !running, is(errUsage, format.ErrExists, folder.ErrForeign, vfs.ErrNotLock, trainer.ErrRunExists, placement.ErrContradiction, ingest.ErrOptions, preprop.ErrOptions, session.ErrOptions, trainer.ErrOptions):
		return exitUsage
	case is(preprop.ErrMaxTime), ctx.Err() != nil && is(context.Canceled, context.Cause(ctx)):
		return exitInterrupted
	case is(format.ErrCorrupt, folder.ErrDamaged, format.ErrVersion, format.ErrIncomplete, ingest.ErrInvalid, preprop.ErrInvalid, machine.ErrHardware, trainer.ErrCheckpoint, syscall.EISDIR):
		return exitCorrupt
	case is(machine.ErrDoesNotFit, gds.ErrOutOfMemory, syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM):
		return exitDoesNotFit
	}
	return exitFailed
}

// errorLine is what the user reads of err.
func errorLine(command *cobra.Command, err error, code int, running bool) string {
	var training *trainingError // says what is left
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	switch {
	case code == exitInterrupted && !errors.Is(err, preprop.ErrUnfinished) && !errors.Is(err, preprop.ErrTooShort) && !errors.As(err, &training):
		text = "interrupted: no incomplete output is left; run the same command again"
	case !running:
		text += " (see " + command.CommandPath() + " --help)"
	}
	return "hopfeed: " + units.Printable(text) + "\n"
}

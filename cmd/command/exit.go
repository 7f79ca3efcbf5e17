package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/cmd/exit"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
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

// exitStatus is the status for err. What fails before the verb is running is the command line's fault.
func exitStatus(ctx context.Context, err error, running bool) int {
	code := exit.Of(err)
	switch {
	case !running, errors.Is(err, errUsage), code == exit.Options:
		return exit.Options
	case errors.Is(err, preprop.ErrMaxTime), ctx.Err() != nil && (errors.Is(err, context.Canceled) ||
		errors.Is(err, context.Cause(ctx))):
		return exit.Interrupted
	}
	return code
}

// errorText is the message of err for the user.
func errorText(err error, code int) string {
	var training *checkpoint.TrainingError // says what is left
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	text = strings.ReplaceAll(text, session.ErrOptions.Error()+": ", "") // which the rest says better
	switch {
	case code == exit.Interrupted && !errors.Is(err, preprop.ErrUnfinished) && !errors.Is(err,
		preprop.ErrTooShort) && !errors.As(err, &training):
		text = "interrupted: no incomplete output is left; run the same command again"
	case errors.Is(err, syscall.EMFILE):
		text += " (ulimit -n allows no more: raise it)"
	}
	return units.Printable(text)
}

// errorLine is the line that the command prints for err.
func errorLine(command *cobra.Command, err error, code int, running bool) string {
	text := errorText(err, code)
	if !running {
		text += " (see " + command.CommandPath() + " --help)"
	}
	return "hopfeed: " + text + "\n"
}

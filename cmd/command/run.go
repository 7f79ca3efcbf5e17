// Package command is the command line of Hopfeed, one file a verb. Run serves a process that is the command; Call runs
// verbs within another program, at the same time as others.
package command

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/hopfeed/hopfeed/cmd/exit"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Run runs one command line, prints to stdout and stderr, and returns the exit status. terminal: stderr is one.
func Run(ctx context.Context, stdout, stderr io.Writer, terminal bool, args []string) int {
	return execute(ctx, &app{fs: vfs.OS(), stdout: stdout, stderr: stderr, terminal: terminal}, args)
}

// execute runs one command line and returns the exit status.
func execute(ctx context.Context, a *app, args []string) int {
	command, err := a.run(ctx, args)
	if err == nil {
		return exit.Done
	}
	code := exitStatus(ctx, err, a.running)
	io.WriteString(a.stderr, errorLine(command, err, code, a.running))
	return code
}

// run runs one command line and returns its command.
func (a *app) run(ctx context.Context, args []string) (*cobra.Command, error) {
	root := newRoot(a, slices.Concat(args, []string{""})[0])
	all := func(arg string) bool { return arg == "--"+helpAllFlag || arg == "--"+helpAllFlag+"=true" }
	if at := slices.IndexFunc(args, all); at >= 0 {
		args, a.helpAll = slices.Clone(args), true
		args[at] = "--help"
	}
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	return root.ExecuteContextC(ctx)
}

// Call is how a program runs verbs within itself.
type Call struct {
	Progress progress.Reporter
	Note     func(text string)
	// Limit limits the memory of the process while the verb runs; whole: to what the machine has. 0 bytes end the limit.
	Limit func(bytes int64, whole bool)
}

// Error is why a verb failed, in the words of the command, with its exit status.
type Error struct {
	Status int
	text   string
	cause  error
}

func (e *Error) Error() string { return e.text }
func (e *Error) Unwrap() error { return e.cause }

// Run runs one command line, and returns what --json would print. That comes with an error where a verb found
// something that is wrong, and reports it.
func (c *Call) Run(ctx context.Context, args []string) (value any, err error) {
	defer parallel.SetThreads(parallel.Threads())
	a := &app{fs: vfs.OS(), stdout: io.Discard, stderr: io.Discard, call: c, keep: func(r result) { value = r }}
	if _, err := a.run(ctx, args); err != nil {
		code := exitStatus(ctx, err, a.running)
		return value, &Error{code, errorText(err, code), err}
	}
	return value, nil
}

// Main runs the command with the streams of the process, and returns its exit status. SIGINT and SIGTERM interrupt it.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)                     // the second signal kills
	width, _, _ := term.GetSize(int(os.Stderr.Fd())) // 0 if it is no terminal
	return Run(ctx, os.Stdout, os.Stderr, width > 0, args)
}

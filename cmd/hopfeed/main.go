// Command hopfeed computes hop-wise propagated node features once, stores them
// as chunked Arrow files, and trains from wherever they fit.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/term"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                     // the second signal kills
	width, _, _ := term.GetSize(int(os.Stderr.Fd())) // 0 if it is no terminal
	a := &app{fs: vfs.OS(), stdout: os.Stdout, stderr: os.Stderr, terminal: width > 0}
	os.Exit(execute(ctx, a, os.Args[1:]))
}

// execute runs one command line and returns the exit status.
func execute(ctx context.Context, a *app, args []string) int {
	root := newRoot(a, slices.Concat(args, []string{""})[0])
	all := func(arg string) bool { return arg == "--"+helpAllFlag || arg == "--"+helpAllFlag+"=true" }
	if at := slices.IndexFunc(args, all); at >= 0 {
		args, a.helpAll = slices.Clone(args), true
		args[at] = "--help"
	}
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	code := exitStatus(ctx, err, a.running)
	io.WriteString(a.stderr, errorLine(command, err, code, a.running))
	return code
}

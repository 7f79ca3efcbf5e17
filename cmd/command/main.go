package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Main runs the command with the streams of the process, and returns its exit status. SIGINT and SIGTERM interrupt it.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)                     // the second signal kills
	width, _, _ := term.GetSize(int(os.Stderr.Fd())) // 0 if it is no terminal
	return Run(ctx, os.Stdout, os.Stderr, width > 0, args)
}

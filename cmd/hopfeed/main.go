// Command hopfeed computes hop-wise propagated node features once, stores them
// as chunked Arrow files, and trains from wherever they fit.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/hopfeed/hopfeed/cmd/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                     // the second signal kills
	width, _, _ := term.GetSize(int(os.Stderr.Fd())) // 0 if it is no terminal
	os.Exit(command.Run(ctx, os.Stdout, os.Stderr, width > 0, os.Args[1:]))
}

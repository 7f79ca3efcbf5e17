// Command hopfeed computes hop-wise propagated node features once, stores them
// as chunked Arrow files, and trains from wherever they fit.
package main

import (
	"os"

	"github.com/hopfeed/hopfeed/cmd/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }

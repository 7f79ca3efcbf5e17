package ingest

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Format is a way in which others write graphs. A new one is a file of this
// package that declares a Format, and a word in Formats.
type Format struct {
	Name string
	Help string // what SRC is, as paragraphs
	// Declare adds the format's own flags, and returns how to open a source by
	// what they then say. Errors in what they say are ErrOptions.
	Declare func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error)
}

// Input is what is imported, and what every format may need to know for that.
type Input struct {
	FS        vfs.FS
	Path      string
	Direction Direction // that was asked for
	Workspace Workspace
}

// Formats are those that there are.
func Formats() []Format {
	return []Format{npyFormat, csvFormat, mtxFormat, ogbFormat, igbFormat, parquetFormat}
}

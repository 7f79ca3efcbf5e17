package ingest

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Format is a layout of graph data that can be imported. To add one, declare a Format in a file of this package and
// list it in Formats.
type Format struct {
	Name  string
	Short string // what SRC is, in a few words
	Help  string // the same, in paragraphs
	// Declare adds the flags of the format, and returns the function that opens a source with their values. Values that
	// are wrong are ErrOptions.
	Declare func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error)
}

// Input is what to import, and the options that all formats share.
type Input struct {
	FS        vfs.FS
	Path      string
	Direction Direction // that was asked for
	Scratch   ScratchOptions
}

// Formats returns all formats that can be imported.
func Formats() []Format {
	return []Format{npyFormat, csvFormat, mtxFormat, ogbFormat, igbFormat, parquetFormat}
}

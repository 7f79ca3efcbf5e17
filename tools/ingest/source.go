// Package ingest makes graph directories out of anything that is a Source: an importer of a file format or a generator.
// A Source hands over streams; the pipeline (Run) does the rest: directions, self-loops, duplicates, the topology by
// destination, the checks of the features, and the writing.
//
// A new import format is one file with one Source.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// ErrInvalid is returned when the input is not what its format asks for: missing or truncated arrays, shapes that
// disagree, values out of range. The text names file and place.
var ErrInvalid = npy.ErrInvalid

// ErrOptions is returned when options are out of range, or contradict each other or what the input says of itself.
var ErrOptions = errors.New("bad options")

// invalid is ErrInvalid about a file, or a position in one.
func invalid(where any, format string, args ...any) error {
	return fmt.Errorf("%w: %v: %w", ErrInvalid, where, fmt.Errorf(format, args...))
}

func badOptions(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrOptions, fmt.Errorf(format, args...))
}

// MaxNodes is the largest number of nodes: ids are uint32.
const MaxNodes = 1<<32 - 1

// MaxClasses bounds single labels.
const MaxClasses = 1 << 20

// Direction says whether the edges of a source are directed.
type Direction uint8

const (
	UnknownDirection Direction = iota
	Directed
	Undirected // each edge is there once; its reverse is to be added
	Symmetric  // undirected, and the reverses are there already
)

// Info describes a source before anything is streamed.
type Info struct {
	Name          string // of the data set
	Nodes         int64
	Features      int
	SourceNodes   int64 // of another type, that edges come from; 0: edges come from the nodes
	Edges         int64 // that Edges streams
	Direction     Direction
	DirectionFrom string // what tells the direction, for errors
	Weighted      bool
	WeightsFrom   string            // the file of the weights, for errors
	RowBytes      int64             // of the row table in memory, for one node
	RowReadBytes  int64             // that reading the row table takes in memory, beside it
	HeldBytes     int64             // that the source takes in memory all the time
	FeatureBytes  int64             // that reading features takes in memory, beside the caller's
	Input         map[string]string // what the content depends on, for the manifest: no paths
	Notes         []string          // what was taken as what, and assumed, a line each; complete after Source.Rows
	ClassNames    []string          // of labels that are text; known after Source.Rows
	EdgeFeatures  string            // EdgeFeatures.Statistics, unless others are asked for
}

func (i *Info) note(text string) { i.Notes = append(i.Notes, text) }

// noteLeft says which files or arrays of an input are not imported.
func (i *Info) noteLeft(where string, names []string) {
	if len(names) > 0 {
		i.note(fmt.Sprintf("%s: left out: %s", where, header{names: names, named: true}.all()))
	}
}

// printable tells whether a manifest can hold s, a text of the input.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0
}

// Edges is a block of edges Src[i] -> Dst[i], node ids below Info.Nodes; sources are below Info.SourceNodes, if that is
// given. Weights, if the source is weighted, are finite and not negative.
type Edges struct {
	Src, Dst []uint32
	Weights  []float32
}

// Source is a graph that can be streamed. Its methods are not called concurrently, but features are read while edges
// are streamed.
type Source interface {
	Info() Info
	// Edges calls emit with all edges, block by block, from up to threads goroutines at a time (with one: in input
	// order). It may be called again and gives the same edges then. A block belongs to the source again when emit
	// returns; an error of emit ends the stream and is returned.
	Edges(ctx context.Context, threads int, emit func(Edges) error) error
	// Features starts to read the feature matrix.
	Features(threads int) (FeatureReader, error)
	// Rows are labels, splits and ids of the nodes.
	Rows(ctx context.Context) (*format.RowTable, error)
	Close() error
}

// FeatureReader reads feature rows in node order, once.
type FeatureReader interface {
	// Read fills dst, [rows, Features] row-major, with the next rows. What cannot be held in float32 becomes infinite,
	// which the pipeline then refuses.
	Read(ctx context.Context, dst []float32) error
	// Place names file and row, for errors.
	Place(row int64) string
	Close() error
}

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
	// EdgeFeatures tells whether nodes get some, for layouts that may then lack others
	EdgeFeatures bool
}

// Formats returns all formats that can be imported.
func Formats() []Format {
	return []Format{npyFormat, csvFormat, mtxFormat, ogbFormat, igbFormat, graphSAINTFormat, parquetFormat}
}

// unnamed is the name of a data set that is at the root of a file system.
const unnamed = "graph"

// nameOf names the data set at path if it has no name of its own: by its folder, or by its file without endings. A file
// that has the name of a part of a layout, such as edges.csv, is named by its folder. The directory that the path leads
// to does not count, but for its last name.
func nameOf(fsys vfs.FS, path string) string {
	for {
		name := filepath.Base(path)
		if name == "." || name == ".." {
			resolved, err := fsys.Resolve(path)
			if err != nil {
				return unnamed
			}
			path, name = resolved, filepath.Base(resolved)
		}
		if name == string(filepath.Separator) {
			return unnamed
		}
		for _, ending := range []string{".gz", ".zst", ".csv", ".tsv", ".txt", ".mtx", ".parquet"} {
			if stem := strings.TrimSuffix(name, ending); stem != "" {
				name = stem
			}
		}
		if !slices.Contains([]string{"edges", "edge"}, name) {
			return units.Printable(name)
		}
		path = filepath.Dir(path)
	}
}

// stat says of a path that is not there that it cannot be opened.
func stat(fsys vfs.FS, path string) (fs.FileInfo, error) {
	info, err := fsys.Stat(path)
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = &fs.PathError{Op: "open", Path: e.Path, Err: e.Err}
	}
	return info, err
}

func exists(fsys vfs.FS, path string) (bool, error) {
	_, err := stat(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

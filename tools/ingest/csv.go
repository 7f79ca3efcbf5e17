package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/pflag"
)

// CSVOptions say what an edge list does not say itself.
type CSVOptions struct {
	NodeFiles
	MapIDs bool // number the ids, which may be any text, in the order in which they are first seen
	// Header says whether the first line names the columns: "yes", "no" or, if
	// empty, as it looks: a name of an end of an edge, or where ids are numbers no
	// number, begins a header.
	Header string
	// WeightColumn is the column of weights, from 1; 0: there are none; -1: the one
	// that the header calls weight, or without a header the third of three.
	WeightColumn int
	Nodes        int64 // how many there are, if more than edges or features tell; 0: as many as these
}

// What a header calls the columns of an edge list.
var (
	sourceNames      = []string{"source", "src", "from"}
	destinationNames = []string{"destination", "dest", "dst", "target", "to"}
	weightNames      = []string{"weight", "w"}
)

// csvColumns are where the fields of an edge are, from 0; weight is -1 if edges
// have none.
type csvColumns struct {
	sep              byte
	src, dst, weight int
	count            int // at least
}

// OpenCSV reads an edge list: lines of a source, a destination and maybe a weight,
// separated by commas, semicolons, tabs or spaces, as text or packed by gzip or
// zstd. Blank lines and lines that begin with # or % are comments. The first
// comment of the Koblenz network collection (% sym, % asym) tells the direction.
func OpenCSV(ctx context.Context, fsys vfs.FS, path string, w Workspace, o CSVOptions) (_ Source, err error) {
	if !slices.Contains([]string{"", "yes", "no"}, o.Header) {
		return nil, fmt.Errorf("%w: header %q (want yes or no)", ErrOptions, o.Header)
	}
	switch {
	case o.WeightColumn < -1:
		return nil, fmt.Errorf("%w: weight column %d (want 1 or more, or 0 for none)", ErrOptions, o.WeightColumn)
	case o.Nodes < 0 || o.Nodes > MaxNodes:
		return nil, fmt.Errorf("%w: %d nodes (want 0 to %d)", ErrOptions, o.Nodes, int64(MaxNodes))
	case o.MapIDs && o.Nodes > 0:
		return nil, fmt.Errorf("%w: %d nodes, where mapped ids count the nodes themselves", ErrOptions, o.Nodes)
	}
	l, err := newEdgeList(fsys, "csv", w, o.NodeFiles)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	l.ids.nodes, l.ids.fixed, l.ids.flag = o.Nodes, o.Nodes > 0, true
	if o.MapIDs {
		l.ids.ids = newIDMap(l.scratch.MemoryBytes)
	}
	if err := l.readCSV(ctx, path, o); err != nil {
		return nil, err
	}
	if err := l.openFeatures(ctx); err != nil {
		return nil, err
	}
	return l, l.openRows()
}

func (l *edgeList) readCSV(ctx context.Context, path string, o CSVOptions) error {
	t, err := openText(l.fsys, path, "")
	if err != nil {
		return err
	}
	defer t.Close()
	line, err := l.readComments(t)
	if err != nil {
		return err
	}
	t.comments = "#%"
	columns, header, err := l.csvColumns(t, line, o)
	if err != nil {
		return err
	}
	l.info.Weighted, l.info.WeightsFrom = columns.weight >= 0, path
	if l.edges, err = l.scratch.newEdges(l.info.Weighted, 0); err != nil {
		return err
	}
	var fields [][]byte
	greatest := int64(0) // line of the greatest node
	for ; err != io.EOF; line, err = t.next() {
		if err != nil {
			return err
		}
		if line == nil || header { // an empty file, or names
			header = false
			continue
		}
		fields = split(fields[:0], line, columns.sep)
		if len(fields) < columns.count {
			return t.errorf("%d fields (want %d)", len(fields), columns.count)
		}
		before := l.ids.nodes
		src, err := l.ids.node(fields[columns.src])
		if err != nil {
			return t.at(err)
		}
		dst, err := l.ids.node(fields[columns.dst])
		if err != nil {
			return t.at(err)
		}
		if l.ids.nodes > before {
			greatest = t.number
		}
		weight := float32(0)
		if columns.weight >= 0 {
			if weight, err = parseWeight(fields[columns.weight]); err != nil {
				return t.at(err)
			}
		}
		if err := l.edges.add(ctx, src, dst, weight); err != nil {
			return err
		}
	}
	l.greatest = fmt.Sprintf("%s: line %d", path, greatest)
	return l.edges.finish(ctx)
}

// readComments reads the comments in front of the edges, and the line after them,
// or nil at the end of the file.
func (l *edgeList) readComments(t *textFile) ([]byte, error) {
	for {
		line, err := t.next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		words := bytes.Fields(line)
		if len(words) > 0 && words[0][0] != '#' && words[0][0] != '%' {
			return line, nil
		}
		if t.number > 1 || len(words) < 2 || string(words[0]) != "%" {
			continue
		}
		switch string(words[1]) {
		case "sym":
			l.info.Direction, l.info.DirectionFrom = Undirected, t.path+": line 1"
		case "asym":
			l.info.Direction, l.info.DirectionFrom = Directed, t.path+": line 1"
		case "bip":
			return nil, t.errorf("a bipartite graph, whose two sides are numbered each on its own: it has no one set of nodes")
		}
	}
}

// csvColumns decides by the first line where sources, destinations and weights
// are, and whether the line names them.
func (l *edgeList) csvColumns(t *textFile, line []byte, o CSVOptions) (c csvColumns, header bool, err error) {
	c = csvColumns{sep: separator(line, o.MapIDs), dst: 1, weight: o.WeightColumn - 1}
	if line == nil {
		return c, false, nil
	}
	fields := split(nil, line, c.sep)
	if len(fields) < 2 {
		return c, false, t.errorf("%.100q is no edge (want a source and a destination)", line)
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = strings.ToLower(string(f))
	}
	named := func(names, of []string) int {
		return slices.IndexFunc(names, func(s string) bool { return slices.Contains(of, s) })
	}
	src, dst := named(names, sourceNames), named(names, destinationNames)
	header = o.Header == "yes" || o.Header == "" && (src >= 0 && dst >= 0 || !o.MapIDs && !startsNumber(fields[0]) && !startsNumber(fields[1]))
	if header && src >= 0 && dst >= 0 {
		c.src, c.dst = src, dst
	}
	if o.WeightColumn < 0 {
		c.weight = -1
		if header {
			c.weight = named(names, weightNames)
		} else if len(fields) == 3 {
			c.weight = 2
			l.info.Notes = append(l.info.Notes, "the third column is taken for weights (--weight-column 0 leaves it out)")
		}
		if c.weight < 0 && len(fields) > 2 {
			l.info.Notes = append(l.info.Notes, fmt.Sprintf("%d columns are left out (--weight-column N takes one for weights)", len(fields)-2))
		}
	}
	if c.weight >= 0 && (c.weight == c.src || c.weight == c.dst || c.weight >= len(fields)) {
		if o.WeightColumn < 0 {
			return c, false, t.errorf("column %d is called %.100q, where an end of an edge should be", c.weight+1, fields[c.weight])
		}
		return c, false, fmt.Errorf("%w: weight column %d of %d, of which two are the ends of edges", ErrOptions, c.weight+1, len(fields))
	}
	c.count = max(c.src, c.dst, c.weight) + 1
	l.info.Input["columns"] = fmt.Sprint(c.src+1, c.dst+1)
	if c.weight >= 0 {
		l.info.Input["weight_column"] = strconv.Itoa(c.weight + 1)
	}
	return c, header, nil
}

// startsNumber tells whether a field begins as a number does, if perhaps a wrong one.
func startsNumber(b []byte) bool {
	return len(b) > 0 && bytes.IndexByte([]byte("+-.0123456789"), b[0]) >= 0
}

var csvFormat = Format{
	Name: "csv",
	Help: `SRC is a text file, maybe packed by gzip or zstd, with an edge a line: source, destination and
maybe a weight, separated by commas, semicolons, tabs or spaces. Lines that begin with # or % are comments.` + nodeFilesHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o CSVOptions
		o.NodeFiles.declare(flags)
		mapIDs := declareIDs(flags)
		flags.StringVar(&o.Header, "header", "", "yes or no, where it does not show whether the first line names the columns")
		flags.IntVar(&o.WeightColumn, "weight-column", -1, "column of weights, from 1; 0: none (default: the one named weight, or the third of three)")
		flags.Lookup("weight-column").DefValue = "0" // which is not shown
		flags.Int64Var(&o.Nodes, "nodes", 0, "number of nodes, where edges and features do not tell")
		return func(ctx context.Context, in Input) (_ Source, err error) {
			if o.MapIDs, err = mapIDs(); err != nil {
				return nil, err
			}
			return OpenCSV(ctx, in.FS, in.Path, in.Workspace, o)
		}
	},
}

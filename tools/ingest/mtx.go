package ingest

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/pflag"
)

// mtxBanner is the first line of a MatrixMarket file (https://math.nist.gov/MatrixMarket/formats.html).
type mtxBanner struct {
	array     bool // the file has every value, column by column; else it lists entries
	pattern   bool // no values
	symmetric bool // the lower triangle alone is there
}

// OpenMTX reads a square MatrixMarket matrix as a graph: the entry in row i and column j is an edge from node i to node
// j, both counted from 1 in the file, and its value the weight. The zeros of an array are no edges. A symmetric matrix
// is an undirected graph.
func OpenMTX(ctx context.Context, fsys vfs.FS, path string, w ScratchOptions, files NodeFiles) (Source, error) {
	return openEdgeList(ctx, fsys, "mtx", path, w, files, func(l *edgeList) error { return l.readMTX(ctx, path) })
}

func (l *edgeList) readMTX(ctx context.Context, path string) error {
	t, err := openText(l.fsys, path, "")
	if err != nil {
		return err
	}
	defer t.Close()
	banner, err := readBanner(t)
	if err != nil {
		return err
	}
	if banner.symmetric {
		l.info.Direction, l.info.DirectionFrom = Undirected, path+": line 1"
	}
	l.info.Weighted, l.info.WeightsFrom = !banner.pattern, path
	n, entries, size, err := banner.readSize(t)
	if err != nil {
		return err
	}
	l.ids.nodes, l.ids.fixed = n, true
	if banner.array {
		return l.readMTXArray(ctx, t, banner)
	}
	edges := &textTable{header: numbered(3), fsys: l.fsys, path: path, comments: "%", line: size, sep: ' ', id: -1}
	columns := edgeColumns{destination: 1, weight: 2, lower: banner.symmetric}
	if banner.pattern {
		edges.header, columns.weight = numbered(2), -1
	}
	l.ids.first = 1
	defer func() { l.ids.first = 0 }()
	return l.readEdges(ctx, edges, path, columns, entries)
}

func readBanner(t *textFile) (b mtxBanner, err error) {
	line, err := t.next()
	if err != nil && err != io.EOF {
		return b, err
	}
	words := strings.Fields(strings.ToLower(string(line[:min(len(line), 1<<10)])))
	if len(words) != 5 || words[0] != "%%matrixmarket" || words[1] != "matrix" {
		return b, invalid(t.path,
			"line 1: no MatrixMarket banner (%%%%MatrixMarket matrix coordinate real general, or the like)")
	}
	layout, field, symmetry := words[2], words[3], words[4]
	switch {
	case layout != "coordinate" && layout != "array":
		return b, t.errorf("layout %.100q (want coordinate or array)", layout)
	case field != "real" && field != "integer" && field != "pattern":
		return b, t.errorf("%s values (want real, integer or pattern)", field)
	case symmetry != "general" && symmetry != "symmetric":
		return b, t.errorf("a %s matrix (want general or symmetric)", symmetry)
	case layout == "array" && field == "pattern":
		return b, t.errorf("an array without values")
	}
	t.comments = "%"
	return mtxBanner{layout == "array", field == "pattern", symmetry == "symmetric"}, nil
}

// readSize reads how many nodes there are and, unless the matrix is an array, how many entries.
func (b mtxBanner) readSize(t *textFile) (n, entries int64, line []byte, err error) {
	if line, err = t.next(); err == io.EOF {
		err = invalid(t.path, "no size line")
	}
	if err != nil {
		return 0, 0, nil, err
	}
	fields := bytes.Fields(line)
	want := 3
	if b.array {
		want = 2
	}
	var sizes [3]uint64
	ok := len(fields) == want
	for i := 0; ok && i < want; i++ {
		sizes[i], ok = parseUint(fields[i])
	}
	switch {
	case !ok:
		err = t.errorf("%.100q is no size line (want %d whole numbers)", line, want)
	case sizes[0] != sizes[1]:
		err = t.errorf("a matrix of %d rows and %d columns (want a square one)", sizes[0], sizes[1])
	case sizes[0] > MaxNodes:
		err = t.errorf("%d nodes (at most %d fit node ids of 32 bits)", sizes[0], int64(MaxNodes))
	case sizes[2] > sizes[0]*sizes[0]: // at most (2^32-1)^2
		err = t.errorf("%d entries in a matrix of %d rows", sizes[2], sizes[0])
	case sizes[2] > 1<<48:
		err = t.errorf("%d entries (at most 2^48)", sizes[2])
	}
	return int64(sizes[0]), int64(sizes[2]), bytes.Clone(line), err
}

func (l *edgeList) readMTXArray(ctx context.Context, t *textFile, b mtxBanner) (err error) {
	if l.edges, err = l.scratch.newEdges(true, 0); err != nil {
		return err
	}
	for column := range l.ids.nodes {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		first := int64(0)
		if b.symmetric {
			first = column
		}
		for row := first; row < l.ids.nodes; row++ {
			line, err := t.next()
			if err == io.EOF {
				return invalid(t.path, "ends before row %d, column %d", row+1, column+1)
			} else if err != nil {
				return err
			}
			weight, err := parseWeight(bytes.TrimSpace(line))
			if err != nil {
				return atPlace(t.position(), err)
			}
			if weight == 0 {
				continue
			}
			if err := l.edges.add(ctx, uint32(row), uint32(column), weight); err != nil {
				return err
			}
		}
	}
	if _, err := t.next(); err == nil {
		return t.errorf("more entries than the size line says")
	} else if err != io.EOF {
		return err
	}
	return l.edges.finish(ctx)
}

var mtxFormat = Format{
	Name:  "mtx",
	Short: "a MatrixMarket file",
	Help: `SRC is a square MatrixMarket file. Rows are sources and columns destinations; a symmetric matrix is
an undirected graph.` + nodeFilesHelp + columnsHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var files NodeFiles
		files.Columns.declareNodes(flags)
		files.declare(flags)
		return func(ctx context.Context, in Input) (Source, error) {
			return OpenMTX(ctx, in.FS, in.Path, in.Scratch, files)
		}
	},
}

package ingest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/pflag"
)

// CSVOptions say what an edge list does not say itself.
type CSVOptions struct {
	NodeFiles
	MapIDs    bool // number the ids, which may be any text, in the order in which they are first seen
	Bipartite bool // as MapIDs, with sources and destinations numbered apart: the name of its column is put before an id
	// Header says whether the first line names the columns: "yes", "no" or, if
	// empty, as it looks (see isHeader).
	Header string
	Nodes  int64 // how many there are, if more than edges or features tell; 0: as many as these
}

// csvColumns are where the fields of an edge are, in lines of so many fields.
type csvColumns struct {
	edgeColumns
	sep byte
}

// OpenCSV reads an edge list: lines of a source, a destination and maybe a weight,
// separated by commas, semicolons, tabs or spaces, as text or packed by gzip or
// zstd; or a folder of such files, part-*, as Spark writes them; or a folder with
// edges.csv and maybe nodes.csv, each of these. Blank lines and lines that begin with # or % are comments. The first
// comment of the Koblenz network collection (% sym, % asym) tells the direction.
func OpenCSV(ctx context.Context, fsys vfs.FS, path string, w ScratchOptions, o CSVOptions) (_ Source, err error) {
	if !slices.Contains([]string{"", "yes", "no"}, o.Header) {
		return nil, fmt.Errorf("%w: --header %q (want yes or no)", ErrOptions, o.Header)
	}
	o.MapIDs = o.MapIDs || o.Bipartite
	switch {
	case o.Nodes < 0 || o.Nodes > MaxNodes:
		return nil, fmt.Errorf("%w: --nodes %d (want 0 to %d)", ErrOptions, o.Nodes, int64(MaxNodes))
	case o.MapIDs && o.Nodes > 0:
		return nil, fmt.Errorf("%w: --nodes %d: with --ids map or bipartite the ids tell how many nodes there are: leave it out", ErrOptions, o.Nodes)
	}
	path, nodes, err := csvTables(fsys, path)
	if err != nil {
		return nil, err
	}
	o.Table = cmp.Or(o.Table, nodes)
	l, err := newEdgeList(fsys, "csv", path, w, o.NodeFiles)
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

// csvTables finds the tables of edges and nodes, if SRC is a folder of these.
func csvTables(fsys vfs.FS, path string) (edges, nodes string, err error) {
	info, err := fsys.Stat(path)
	if err != nil || !info.IsDir() {
		return path, "", err
	}
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return "", "", err
	}
	for _, e := range entries {
		base, ending, _ := strings.Cut(e.Name(), ".")
		table := map[string]*string{"edges": &edges, "nodes": &nodes}[base]
		if table == nil || !slices.Contains(textEndings, ending) {
			continue
		}
		if *table != "" {
			return "", "", fmt.Errorf("%w: %s and %s: both are named like the table of %s: remove one", ErrInvalid, *table, filepath.Join(path, e.Name()), base)
		}
		*table = filepath.Join(path, e.Name())
	}
	if edges != "" {
		return edges, nodes, nil
	}
	if parts, err := partFiles(fsys, path); len(parts) == 0 || err != nil {
		return "", "", cmp.Or(err, fmt.Errorf("%w: %s: a folder without edges.csv and without files part-*, as Spark writes them", ErrInvalid, path))
	}
	return path, "", nil
}

func (l *edgeList) readCSV(ctx context.Context, path string, o CSVOptions) error {
	t, err := openTextParts(l.fsys, path, "")
	if err != nil {
		return err
	}
	defer t.Close()
	line, err := l.readComments(t, o)
	if err != nil {
		return err
	}
	t.comments = "#%"
	var columns csvColumns
	if line == nil && o.Nodes == 0 {
		return fmt.Errorf("%w: %s: no edges (--nodes N makes a graph without edges)", ErrInvalid, path)
	}
	if line != nil {
		line = append([]byte{}, line...) // as the reader looks ahead
		if columns, err = l.csvColumns(t, path, line, o); err != nil {
			return err
		}
	}
	l.info.Weighted, l.info.WeightsFrom = columns.weight >= 0 && line != nil, path
	if l.edges, err = l.scratch.newEdges(l.info.Weighted, 0); err != nil {
		return err
	}
	if columns.named {
		line, err = t.next()
	} else if line == nil {
		err = io.EOF
	}
	last := max(columns.source, columns.destination, columns.weight)
	ends := endReader{ids: &l.ids}
	if o.Bipartite {
		ends.setPrefixes(columns.edgeColumns)
	}
	var fields [][]byte
	greatest := "" // the line of the greatest node
	for ; err != io.EOF; line, err = t.next() {
		if err != nil {
			return err
		}
		fields = split(fields[:0], line, columns.sep)
		if len(fields) <= last || columns.named && len(fields) != len(columns.names) {
			return t.fieldsError("%d fields (want %d)", len(fields), len(columns.names))
		}
		before := l.ids.nodes
		src, dst, err := ends.read(fields[columns.source], fields[columns.destination])
		if err != nil {
			return t.atLine(err)
		}
		if l.ids.nodes > before {
			greatest = fmt.Sprintf("%s: line %d", t.path, t.number)
		}
		weight := float32(0)
		if columns.weight >= 0 {
			if weight, err = parseWeight(fields[columns.weight]); err != nil {
				return t.atLine(err)
			}
		}
		if err := l.edges.add(ctx, src, dst, weight); err != nil {
			return err
		}
	}
	if l.edges.edges == 0 && o.Nodes == 0 {
		return fmt.Errorf("%w: %s: a header, but no edges (--nodes N makes a graph without edges)", ErrInvalid, path)
	}
	l.greatest = greatest
	return l.edges.finish(ctx)
}

// readComments reads the comments in front of the edges, and the line after them,
// or nil at the end of the file.
func (l *edgeList) readComments(t *textFile, o CSVOptions) ([]byte, error) {
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
			if !o.Bipartite {
				return nil, t.errorf("a bipartite graph, in which sources and destinations have ids of their own: give --ids bipartite")
			}
			l.info.Direction, l.info.DirectionFrom = Undirected, t.path+": line 1"
		}
	}
}

// csvColumns decides by the first line where sources, destinations and weights
// are, and whether the line names them.
func (l *edgeList) csvColumns(t *textFile, path string, line []byte, o CSVOptions) (c csvColumns, err error) {
	place := fmt.Sprintf("%s: line %d", t.path, t.number)
	c.sep = separator(line, true)
	fields := split(nil, line, c.sep)
	h := headerOf(fields)
	if o.Header == "yes" || o.Header == "" && o.isHeader(h, fields, split(nil, t.glance(), c.sep)) {
		t.setHeader(line)
	} else {
		c.sep = separator(line, o.MapIDs)
		h = numbered(len(split(nil, line, c.sep)))
	}
	if len(h.names) < 2 {
		return c, t.errorf("%.100q is not an edge (want a source and a destination)", line)
	}
	if c.edgeColumns, err = h.edgeColumns(o.Columns); err != nil {
		hint := ""
		if h.named && o.Header == "" {
			hint = "; if the line is an edge, give --header no"
		}
		return c, fmt.Errorf("%w: %s: %w%s", ErrOptions, place, err, hint)
	}
	if err := c.checkItems(o.Bipartite); err != nil {
		return c, fmt.Errorf("%w: %s: %w", ErrOptions, place, err)
	}
	l.noteEdges(path, c.edgeColumns)
	return c, nil
}

// noteEdges says which column is what.
func (l *edgeList) noteEdges(path string, c edgeColumns) {
	note := c.note(path, c.taken(), c.left())
	if !c.named {
		note += " (by place, as there is no header)"
	}
	l.info.Notes = append(l.info.Notes, note)
	l.info.Input["columns"] = c.taken()
}

// isHeader tells whether the first line of an edge list names the columns: where a
// flag calls a column by name, both ends have customary names, or the first field
// is that of an index; where neither of the first two fields begins as a number, and
// ids are numbers; where ids may be any text, if a field is none, but is one in the
// next line.
func (o CSVOptions) isHeader(h header, fields, next [][]byte) bool {
	if len(fields) < 2 {
		return false
	}
	if slices.ContainsFunc([]string{o.Columns.Source, o.Columns.Destination, o.Columns.Weight}, byName) || isIndex(h.names[0]) {
		return true
	}
	if len(h.withRoles(sourceRole)) > 0 && len(h.withRoles(destinationRole, itemRole)) > 0 {
		return true
	}
	if !o.MapIDs {
		return !startsNumber(fields[0]) && !startsNumber(fields[1])
	}
	for i := range min(len(fields), len(next)) {
		if isFloat(next[i]) && !isFloat(fields[i]) {
			return true
		}
	}
	return false
}

// startsNumber tells whether a field begins as a number does, if perhaps a wrong one.
func startsNumber(b []byte) bool {
	return len(b) > 0 && bytes.IndexByte([]byte("+-.0123456789"), b[0]) >= 0
}

// endReader turns the ids of edges into nodes.
type endReader struct {
	ids         *numbering
	source, dst []byte // before the ids of each, if they are numbered apart
	id          []byte
}

// setPrefixes keeps the ids of sources and destinations apart.
func (r *endReader) setPrefixes(c edgeColumns) {
	r.source, r.dst = []byte("source:"), []byte("destination:")
	if c.named {
		r.source, r.dst = []byte(c.names[c.source]+":"), []byte(c.names[c.destination]+":")
	}
}

func (r *endReader) read(source, destination []byte) (src, dst uint32, err error) {
	if src, err = r.node(r.source, source); err == nil {
		dst, err = r.node(r.dst, destination)
	}
	return src, dst, err
}

func (r *endReader) node(prefix, id []byte) (uint32, error) {
	if prefix == nil || len(id) == 0 {
		return r.ids.node(id)
	}
	r.id = append(append(r.id[:0], prefix...), id...)
	return r.ids.node(r.id)
}

var csvFormat = Format{
	Name: "csv",
	Help: `SRC is a text file, plain or compressed by gzip or zstd, with one edge a line: source, destination and
perhaps a weight, separated by commas, semicolons, tabs or spaces. Lines that begin with # or % are comments.
SRC may also be a folder of such files part-*, as Spark writes them, or a folder with edges.csv and perhaps
nodes.csv.

Columns are found by the names in the first line. Without such names, column 1 is the source, column 2 the
destination and, if there are exactly three, column 3 the weight.` + edgeColumnsHelp + nodeFilesHelp + nodeColumnsHelp,
	Declare: func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o CSVOptions
		o.Columns.declare(flags)
		o.NodeFiles.declare(flags)
		ids := declareIDs(flags)
		flags.StringVar(&o.Header, "header", "", "whether the first line of the edges names the columns: yes or no (default: by its content)")
		flags.Int64Var(&o.Nodes, "nodes", 0, "number of nodes, if it is larger than what edges and features tell")
		return func(ctx context.Context, in Input) (_ Source, err error) {
			if o.MapIDs, o.Bipartite, err = ids(); err != nil {
				return nil, err
			}
			return OpenCSV(ctx, in.FS, in.Path, in.Scratch, o)
		}
	},
}

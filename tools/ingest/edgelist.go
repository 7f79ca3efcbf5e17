package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/pflag"
)

// TableOptions say what a table of edges does not say itself.
type TableOptions struct {
	NodeFiles
	// number the ids, which may be any text, in the order of a Parquet table of nodes, or as they are first seen
	MapIDs    bool
	Bipartite bool // as MapIDs, with the name of its column before each id, so that sources and destinations differ
	// Header says whether the first line of text names the columns: "yes", "no" or, if empty, as it looks (see
	// namesEdges).
	Header string
	Nodes  int64 // number of nodes, if more than edges or features tell; 0: as many as these
}

// OpenCSV reads an edge list: lines of a source, a destination and maybe a weight, separated by commas, semicolons,
// tabs or spaces, as text or compressed by gzip or zstd; or a folder of such files, part-*, as Spark writes them; or a
// folder with edges.csv and maybe nodes.csv. Blank lines and lines that begin with # or % are comments. The first
// comment of the Koblenz network collection (% sym, % asym) tells the direction.
func OpenCSV(ctx context.Context, fsys vfs.FS, path string, w ScratchOptions, o TableOptions) (Source, error) {
	switch {
	case !slices.Contains([]string{"", "yes", "no"}, o.Header):
		return nil, badOptions("--header %q (want yes or no)", o.Header)
	case o.Nodes < 0 || o.Nodes > MaxNodes:
		return nil, badOptions("--nodes %d (want 0 to %d)", o.Nodes, int64(MaxNodes))
	case (o.MapIDs || o.Bipartite) && o.Nodes > 0:
		return nil, badOptions("--nodes %d: with --ids map or bipartite the ids tell how many nodes there are: "+
			"leave it out", o.Nodes)
	}
	edges, nodes, err := tablesIn(fsys, path, textEndings...)
	if err != nil {
		return nil, err
	}
	o.Table = cmp.Or(o.Table, nodes)
	return openTables(ctx, fsys, "csv", edges, w, o)
}

// OpenParquet reads a table of edges, each a file or a folder of files, or a folder with
//
//	edges.parquet    source, destination, and maybe weight
//	nodes.parquet    optional, a row a node: id, which is the row's number unless ids
//	                 are mapped; labels, of one column or a list; splits; features
//
// Columns are chosen as in text tables. o.Table replaces nodes.parquet.
func OpenParquet(ctx context.Context, fsys vfs.FS, path string, w ScratchOptions, o TableOptions) (Source, error) {
	edges, nodes, err := tablesIn(fsys, path, "parquet")
	if err != nil {
		return nil, err
	}
	if edges == path && nodes != "" {
		edges = filepath.Join(path, "edges.parquet") // which is not there
	}
	if o.Table = cmp.Or(o.Table, nodes); o.Bipartite && o.Table != "" {
		return nil, badOptions("--ids bipartite cannot be used with a table of nodes (%s)", o.Table)
	}
	return openTables(ctx, fsys, "parquet", edges, w, o)
}

func openTables(ctx context.Context, fsys vfs.FS, layout, path string, w ScratchOptions,
	o TableOptions) (Source, error) {
	o.MapIDs = o.MapIDs || o.Bipartite
	return openEdgeList(ctx, fsys, layout, path, w, o.NodeFiles, func(l *edgeList) error {
		l.ids = numbering{nodes: o.Nodes, fixed: o.Nodes > 0, flag: true}
		if o.MapIDs {
			l.ids.ids = newIDMap(l.scratch.MemoryBytes)
		}
		return l.readTable(ctx, path, layout == "parquet", o)
	})
}

// readTable reads a table of edges to scratch files.
func (l *edgeList) readTable(ctx context.Context, path string, isParquet bool, o TableOptions) error {
	open := l.openTextEdges
	if isParquet {
		open = l.openParquetEdges
	}
	t, c, err := open(ctx, path, o)
	if t == nil || err != nil {
		return err
	}
	if err := l.chooseColumns(t, c.header, path, format.OfEdges, o.Columns); err != nil {
		return err
	}
	for _, column := range l.columns {
		column.rowAt = func(row int64) string { return placeOf(t, path, c.source, row) }
	}
	l.noteEdges(path, c, o)
	if ids, most := l.ids.ids, l.scratch.MemoryBytes; ids != nil && most > 0 { // they have what the tables leave
		ids.limit = max(1, most-l.info.HeldBytes-t.readBytes(l.read(c)))
	}
	return l.readEdges(ctx, t, path, c, t.rowCount())
}

func (l *edgeList) noteEdges(path string, c edgeColumns, o TableOptions) {
	note := c.note(path, c.taken(), c.except(l.read(c)))
	if !c.named {
		note += " (by place, as there is no header)"
	}
	l.info.note(note)
	l.info.Input["columns"] = c.taken()
	if o.Bipartite {
		l.prefixes = [2]string{"source:", "destination:"}
		if c.named {
			l.prefixes = [2]string{c.names[c.source] + ":", c.names[c.destination] + ":"}
		}
	}
}

// read are the columns of a table of edges that are read: those of edges, and those that the graph keeps.
func (l *edgeList) read(c edgeColumns) []int { return append(c.columns(), places(l.columns)...) }

// placeOf finds the place of a row of a table by reading the table again up to that row.
func placeOf(t table, path string, column int, row int64) string {
	if r, err := t.read([]int{column}); err == nil {
		defer r.Close()
		for i := int64(0); r.next() == nil; i++ {
			if i == row {
				return r.position().String()
			}
		}
	}
	return fmt.Sprintf("%s: row %d", path, row)
}

// readEdges copies the edges of a table to scratch, and columns that the graph keeps. want is the number of edges;
// negative: any.
func (l *edgeList) readEdges(ctx context.Context, t table, path string, c edgeColumns, want int64) error {
	own, columns := len(c.columns()), l.read(c)
	for k, i := range columns[:own] {
		as := asID
		if k == 2 {
			as = asWeight
		}
		if err := t.check(i, as); err != nil {
			return err
		}
	}
	l.info.Weighted, l.info.WeightsFrom = c.weight >= 0, path
	var err error
	if l.edges, err = l.scratch.newEdges(l.info.Weighted, max(0, want)); err != nil {
		return err
	}
	if err := l.createFiles(max(0, want), l.columns...); err != nil {
		return err
	}
	r, err := t.read(columns)
	if err != nil {
		return err
	}
	defer r.Close()
	for weight := float32(0); ; {
		switch err := r.next(); {
		case err == io.EOF && l.edges.edges < want:
			return invalid(path, "ends after %d of %d edges", l.edges.edges, want)
		case err == io.EOF:
			return errors.Join(flushColumns(l.columns), l.edges.finish(ctx))
		case err != nil:
			return err
		case l.edges.edges == want:
			return atRow(r, fmt.Errorf("more than %d edges", want))
		}
		before := l.ids.nodes
		var ends [2]uint32
		for k := range columns {
			switch cell := r.cell(k); {
			case k < 2:
				ends[k], err = l.ends[k].ofCell(cell, l.prefixes[k])
			case k < own:
				weight, err = cell.weight()
			default:
				err = l.columns[k-own].add(cell)
			}
			if err != nil {
				return atRow(r, fmt.Errorf("%s: %w", r.place(k), err))
			}
		}
		if c.lower && ends[0] < ends[1] {
			return atRow(r, fmt.Errorf("row %d, column %d is above the diagonal (a symmetric matrix lists its lower "+
				"triangle)", ends[0]+1, ends[1]+1))
		}
		if l.ids.nodes > before {
			l.greatest = r.position()
		}
		if err := l.edges.add(ctx, ends[0], ends[1], weight); err != nil {
			return err
		}
	}
}

// tablesIn finds the tables edges.ENDING and nodes.ENDING in a folder. A file, or a folder without these, is itself the
// table of edges.
func tablesIn(fsys vfs.FS, path string, endings ...string) (edges, nodes string, err error) {
	info, err := stat(fsys, path)
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
		if table == nil || !slices.Contains(endings, ending) {
			continue
		}
		if *table != "" {
			return "", "", fmt.Errorf("%w: %s and %s: both are named like the table of %s: remove one", ErrInvalid,
				*table, filepath.Join(path, e.Name()), base)
		}
		*table = filepath.Join(path, e.Name())
	}
	return cmp.Or(edges, path), nodes, nil
}

var csvFormat = Format{
	Name:  "csv",
	Short: "text tables of edges and nodes",
	Help: `SRC is a text file, plain or compressed by gzip or zstd, with one edge a line: source, destination and
perhaps a weight, separated by commas, semicolons, tabs or spaces. Lines that begin with # or % are comments.
SRC may also be a folder of such files part-*, as Spark writes them, or a folder with edges.csv and perhaps
nodes.csv.

Columns are found by the names in the first line. Without such names, column 1 is the source, column 2 the
destination and, if there are exactly three, column 3 the weight.` + columnsHelp + typedTablesHelp + nodeFilesHelp,
	Declare: declareTables("csv", OpenCSV, func(o *TableOptions, flags *pflag.FlagSet) {
		flags.StringVar(&o.Header, "header", "",
			"whether the first line of the edges names the columns: yes or no (default: by its content)")
		flags.Int64Var(&o.Nodes, "nodes", 0, "number of nodes, if edges and features show fewer")
	}),
}

var parquetFormat = Format{
	Name:  "parquet",
	Short: "Parquet tables of edges and nodes",
	Help: `SRC is a table of edges, or a folder with edges.parquet and perhaps nodes.parquet, which has a row for each
node: its id (the number of the row, unless --ids map), labels, splits and features. A table is a file or a
folder of .parquet files, which are read in the order of their names. Columns are found by their names.` +
		columnsHelp + typedTablesHelp + nodeFilesHelp,
	Declare: declareTables("parquet", OpenParquet, func(*TableOptions, *pflag.FlagSet) {}),
}

const typedTablesHelp = `

With several types of nodes, SRC holds nodes/<type>.csv, a table for each type (id and, as far as there are,
label, split and features), and edges/<source>__<destination>.csv or edges/<source>__<relation>__<destination>.csv,
a table for each relation (source and destination, or columns named as the types; weight). Instead of .csv, a table
may have another ending of text, .parquet, or be a folder. Ids are any text, and those of each type their own; a
type without a table has the nodes that its edges name. The reverse of each relation is added, unless one goes back
already, or --directed is given. --target says which type is classified, whose columns the flags name; but
--edge-columns and --node-columns are those of the tables that have them.`

// declareTables declares the flags that both formats of tables have, and then the own flags of one.
func declareTables(layout string,
	open func(context.Context, vfs.FS, string, ScratchOptions, TableOptions) (Source, error),
	own func(*TableOptions, *pflag.FlagSet)) func(*pflag.FlagSet) func(context.Context, Input) (Source, error) {
	return func(flags *pflag.FlagSet) func(context.Context, Input) (Source, error) {
		var o TableOptions
		o.Columns.declare(flags)
		o.NodeFiles.declare(flags)
		var typed TypedOptions
		typed.declare(flags)
		ids := flags.String("ids", "keep",
			"keep: ids are node numbers; map: number any ids in the order of their first occurrence; bipartite: "+
				"as map, with COLUMN: before each id, so that sources and destinations are different nodes")
		own(&o, flags)
		return func(ctx context.Context, in Input) (Source, error) {
			if !slices.Contains([]string{"keep", "map", "bipartite"}, *ids) {
				return nil, badOptions("--ids %s: want keep, map or bipartite", *ids)
			}
			o.MapIDs, o.Bipartite = *ids != "keep", *ids == "bipartite"
			if isTypedTables(in.FS, in.Path) {
				return openTypedTables(ctx, in, layout, o, typed)
			}
			if err := typed.refuse(); err != nil {
				return nil, err
			}
			return open(ctx, in.FS, in.Path, in.Scratch, o)
		}
	}
}

package ingest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// isTypedTables tells whether a folder has a table for each relation.
func isTypedTables(fsys vfs.FS, dir string) bool {
	info, err := fsys.Stat(filepath.Join(dir, "edges"))
	return err == nil && info.IsDir()
}

// typedTables is a typed graph that is being read from tables.
type typedTables struct {
	*typedSource
	fsys    vfs.FS
	layout  string
	o       TableOptions
	byType  map[string]*edgeList
	edgesOf []*edgeList
}

// openTypedTables opens a folder of text or Parquet tables:
//
//	nodes/<type>.csv                               a row a node: id, and maybe label, split and features
//	edges/<source>__<destination>.csv              a row an edge: source, destination and maybe weight
//	edges/<source>__<relation>__<destination>.csv
//
// The nodes of a type without a table are the ids in its tables of edges.
func openTypedTables(ctx context.Context, in Input, layout string, o TableOptions, typed TypedOptions) (_ Source,
	err error) {
	if err := o.checkTyped(typed); err != nil {
		return nil, err
	}
	scratch, err := openScratch(in.FS, in.Scratch)
	if err != nil {
		return nil, err
	}
	s := &typedSource{name: nameOf(in.FS, in.Path), scratch: scratch}
	defer closeOnError(&err, s)
	o.MapIDs, o.Columns.seen = o.Columns.ID != None, map[string]bool{}
	t := &typedTables{s, in.FS, layout, o, map[string]*edgeList{}, nil}
	if err := t.readNodes(ctx, filepath.Join(in.Path, "nodes"), typed); err != nil {
		return nil, err
	}
	if err := t.readEdges(ctx, filepath.Join(in.Path, "edges")); err != nil {
		return nil, err
	}
	if err := o.Columns.checkSeen(); err != nil {
		return nil, err
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	return s, s.complete(in.Path, in.Direction, typed)
}

// checkSeen fails if no table has had a column that a flag asks for.
func (c *Columns) checkSeen() error {
	for flag, asked := range map[string][]string{edgeColumnsFlag: c.Edge, nodeColumnsFlag: c.Node} {
		for _, column := range asked {
			if !c.seen[flag+" "+column] {
				return badOptions("--%s %s: no table has such a column", flag, column)
			}
		}
	}
	return nil
}

// checkTyped refuses flags that tables of one type have only.
func (o *TableOptions) checkTyped(typed TypedOptions) error {
	c, n := o.Columns, o.NodeFiles
	if n.Table+n.Features+n.Labels+n.Splits != "" || o.Nodes > 0 || o.Bipartite {
		return badOptions("SRC has a table for each relation: leave out --node-table, --features, --labels, --splits, " +
			"--nodes and --ids (nodes/<type> has ids, labels, splits and features)")
	}
	if typed.Target == "" && len(c.Label)+len(c.Split)+len(c.Features) > 0 {
		return badOptions("--label-column, --split-column and --feature-columns name columns of one type: say which with " +
			"--target")
	}
	return nil
}

// tablesByName lists the tables of a folder, by their names without ending; what has another ending than these is none.
func tablesByName(fsys vfs.FS, dir string, endings []string) (names []string, paths map[string]string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	paths = map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		name, ending, _ := strings.Cut(e.Name(), ".")
		switch {
		case name == "" || e.Name()[0] == '_': // hidden, or a mark of Spark
			continue
		case !slices.Contains(endings, ending) && (!e.IsDir() || ending != ""):
			return nil, nil, invalid(path, "it is no table: want NAME.%s, or a folder NAME", strings.Join(endings, ", NAME."))
		case paths[name] != "":
			return nil, nil, invalid(path, "%s has the same name: remove one", paths[name])
		}
		names, paths[name] = append(names, name), path
	}
	return names, paths, nil
}

// tables lists the tables of a folder, which need not be there.
func (t *typedTables) tables(dir string) (names []string, paths map[string]string, err error) {
	there, err := exists(t.fsys, dir)
	if err != nil || !there {
		return nil, nil, err
	}
	endings := textEndings
	if t.layout == "parquet" {
		endings = []string{"parquet"}
	}
	return tablesByName(t.fsys, dir, endings)
}

// addType begins a type, whose nodes are numbered as their ids are seen.
func (t *typedTables) addType(name string, files NodeFiles) *edgeList {
	l := newEdgeListIn(t.fsys, t.layout, t.scratch, files)
	l.edges = new(scratchEdges)
	l.info.Direction = Directed
	if t.o.MapIDs {
		l.ids.ids = newIDMap(0)
	}
	t.byType[name] = l
	t.types = append(t.types, typedPart[string]{id: name, source: l})
	return l
}

// limitIDs bounds maps of ids that grow at a time by the memory that those of all types leave.
func limitIDs(memory int64, all map[string]*edgeList, growing ...*edgeList) {
	left := memory
	for _, l := range all {
		left -= l.info.HeldBytes
		if l.ids.ids != nil {
			left -= l.ids.ids.bytes()
		}
	}
	for _, l := range growing {
		if l.ids.ids != nil && memory > 0 {
			l.ids.ids.limit = max(1, l.ids.ids.bytes()+left/int64(len(growing)))
		}
	}
}

func (t *typedTables) readNodes(ctx context.Context, dir string, typed TypedOptions) error {
	names, paths, err := t.tables(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := format.CheckTypeName(name); err != nil {
			return invalid(paths[name], "%w: rename it, and in the names of relations", err)
		}
		files := NodeFiles{Table: paths[name], LabelsAs: t.o.LabelsAs, Columns: Columns{ID: t.o.Columns.ID, ofType: name,
			Node: t.o.Columns.Node, seen: t.o.Columns.seen}}
		if name == typed.Target {
			files.Columns.Label, files.Columns.Split = t.o.Columns.Label, t.o.Columns.Split
			files.Columns.Features = t.o.Columns.Features
		} else if typed.Target != "" {
			files.LabelsAs = LabelsAs("")
		}
		l := t.addType(name, files)
		limitIDs(t.scratch.MemoryBytes, t.byType, l)
		if err := l.openTypeTable(ctx, t.o); err != nil {
			return err
		}
		if l.labels != nil {
			t.labelled = append(t.labelled, name)
		}
	}
	return nil
}

// openTypeTable numbers the nodes of a type in the order of its table, and opens what else the table has.
func (l *edgeList) openTypeTable(ctx context.Context, o TableOptions) error {
	path := l.files.Table
	if l.info.Input["source"] == "parquet" {
		o.Columns = l.files.Columns
		if err := l.openParquetNodes(ctx, path, o); err != nil {
			return err
		}
	}
	of, err := l.tableOf(features)
	switch t := l.tables[path]; {
	case err != nil:
		return err
	case of != nil:
		err = l.openTableFeatures(ctx, of)
	case !l.ids.fixed:
		err = t.each(ctx, []int{max(t.id, 0)}, -1, func(int64, rows) error { return nil })
	}
	if err != nil {
		return err
	}
	l.info.Nodes, l.ids.fixed, l.ids.from = l.ids.nodes, true, path
	if of, _ = l.tableOf(labels); of != nil {
		if err := l.openTableLabels(of); err != nil {
			return err
		}
	}
	if of, _ = l.tableOf(splits); of != nil {
		if err := l.openSplits(); err != nil {
			return err
		}
	}
	return l.openColumns(ctx)
}

func (t *typedTables) readEdges(ctx context.Context, dir string) error {
	names, paths, err := t.tables(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		r, err := parseRelation(paths[name], name)
		if err != nil {
			return err
		}
		var ends [2]*edgeList
		for k, end := range [2]string{r.Source, r.Destination} {
			if ends[k] = t.byType[end]; ends[k] == nil {
				ends[k] = t.addType(end, NodeFiles{})
				t.notes = append(t.notes, fmt.Sprintf("type %s has no table: its nodes are the ids in tables of edges",
					end))
			}
		}
		limitIDs(t.scratch.MemoryBytes, t.byType, ends[:]...)
		l := newEdgeListIn(t.fsys, t.layout, t.scratch, NodeFiles{})
		l.info.Direction, l.ends = Directed, [2]*numbering{&ends[0].ids, &ends[1].ids}
		t.relations = append(t.relations, typedPart[format.Relation]{id: r, source: l})
		t.edgesOf = append(t.edgesOf, l)
		o := t.o
		o.Columns.Label, o.Columns.Split, o.Columns.Features, o.Columns.ID = nil, nil, nil, ""
		o.Columns.Node = nil
		o.Nodes = 1 // a relation may have no edges
		if r.Source != r.Destination {
			o.Columns.endTypes = [2]string{r.Source, r.Destination}
		}
		if err := l.readTable(ctx, paths[name], t.layout == "parquet", o); err != nil {
			return err
		}
		l.info.Direction = Directed // whatever a comment says
	}
	if len(names) == 0 {
		return invalid(dir, "no relation: want tables such as author__paper.csv or author__writes__paper.csv")
	}
	return nil
}

// finish says how many nodes there are, which all edges tell, and what memory their ids take.
func (t *typedTables) finish() error {
	var held int64
	for _, part := range t.types {
		l := t.byType[part.id]
		if l.info.Nodes = l.ids.nodes; l.info.Nodes == 0 {
			return invalid(filepath.Join("nodes", part.id), "the type has no nodes: remove it and its relations, or add a table")
		}
		if l.keepIDs(); t.o.MapIDs {
			held += l.ids.ids.bytes()
		}
	}
	for _, l := range t.byType {
		if l.info.HeldBytes += held; t.o.MapIDs {
			l.info.HeldBytes -= l.ids.ids.bytes()
		}
	}
	for i, l := range t.edgesOf {
		r := t.relations[i].id
		l.info.HeldBytes += held
		if l.info.Nodes = t.byType[r.Destination].info.Nodes; r.Source != r.Destination {
			l.info.SourceNodes = t.byType[r.Source].info.Nodes
		}
	}
	return nil
}

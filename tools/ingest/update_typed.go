package ingest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// typedUpdate is a typed graph that is another one with changes, while it is opened: an Update for each type and each
// relation.
type typedUpdate struct {
	*typedSource
	graph  *format.Typed
	dir    string
	fsys   vfs.FS
	o      UpdateOptions
	byType map[string]*Update
	counts UpdateCounts
}

// OpenTypedUpdate opens the changes of a typed graph, as OpenUpdate does. Nodes names a folder of tables by types, such
// as author.csv; Edges and Remove name folders of tables by relations, such as author__writes__paper.csv. A relation
// that import has made by turning another one round changes with that. Flags of labels, splits and features are those
// of the target.
func OpenTypedUpdate(ctx context.Context, fsys vfs.FS, dir string, w ScratchOptions, o UpdateOptions) (_ Source,
	_ UpdateCounts, err error) {
	t, err := format.OpenTyped(fsys, dir)
	if err != nil {
		return nil, UpdateCounts{}, err
	}
	if o.Bipartite {
		return nil, UpdateCounts{}, badOptions("--bipartite is for graphs of one type (leave it out)")
	}
	if err := o.check(); err != nil {
		return nil, UpdateCounts{}, err
	}
	scratch, err := openScratch(fsys, w)
	if err != nil {
		return nil, UpdateCounts{}, err
	}
	u := &typedUpdate{&typedSource{name: t.Name, target: t.Target, scratch: scratch}, t, dir, fsys, o,
		map[string]*Update{}, UpdateCounts{}}
	defer closeOnError(&err, u)
	u.o.Columns.seen = map[string]bool{}
	for _, step := range []func(context.Context) error{u.readNodes, u.readEdges, u.finish} {
		if err := step(ctx); err != nil {
			return nil, UpdateCounts{}, err
		}
	}
	if err := u.o.Columns.checkSeen(); err != nil {
		return nil, UpdateCounts{}, err
	}
	u.Source = u.byType[t.Target]
	return u.typedSource, u.counts, nil
}

// open begins the update of a part of the graph.
func (u *typedUpdate) open(d *format.Dir, err error) (*Update, error) {
	if err != nil {
		return nil, err
	}
	u.graphs = append(u.graphs, d)
	in := d.Manifest.Input
	if of := in[format.EdgeFeatures]; of != "" || in[format.MissingFeatures] == string(DegreeFor) {
		return nil, badOptions("%s has features that come from edges, which update cannot make anew: import the changed "+
			"tables", d.Path())
	}
	one := newUpdate(newEdgeListIn(u.fsys, "update", u.scratch, NodeFiles{}), d, UpdateOptions{Header: u.o.Header,
		IgnoreMissing: u.o.IgnoreMissing})
	one.edges = new(scratchEdges)
	one.options.Columns.seen = u.o.Columns.seen
	return one, nil
}

// tables lists the tables of a folder that a flag names.
func (u *typedUpdate) tables(flag, dir string) (names []string, paths map[string]string, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	if info, err := stat(u.fsys, dir); err != nil {
		return nil, nil, err
	} else if !info.IsDir() {
		return nil, nil, badOptions("--%s %s: of a typed graph, want a folder with a table for each type or relation that "+
			"changes", flag, dir)
	}
	names, paths, err = tablesByName(u.fsys, dir, append(slices.Clone(textEndings), "parquet"))
	for _, name := range []string{"edges", "nodes"} { // as in what import reads
		at := filepath.Join(dir, name)
		if _, isType := u.graph.Type(name); paths[name] == at && !isType {
			return nil, nil, badOptions("--%s %s: it has the folder %s (--edges, --remove-edges and --nodes each want a folder "+
				"of their own, with nothing but tables, such as %s and %s)", flag, dir, name, filepath.Join(dir, "edges"),
				filepath.Join(dir, "nodes"))
		}
	}
	return names, paths, err
}

// readNodes opens the tables of nodes, and numbers new ones.
func (u *typedUpdate) readNodes(ctx context.Context) error {
	names, paths, err := u.tables("nodes", u.o.Nodes)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, found := u.graph.Type(name); !found {
			return badOptions("%s: the graph has no type %s", paths[name], name)
		}
	}
	if c := &u.o.Columns; !slices.Contains(names, u.target) && len(c.Label)+len(c.Split)+len(c.Features) > 0 {
		return badOptions("--label-column, --split-column and --feature-columns are for the table of %s, and --nodes %s has "+
			"none", u.target, u.o.Nodes)
	}
	for _, n := range u.graph.Types {
		one, err := u.open(u.graph.OpenNodes(u.fsys, u.dir, n.Name))
		if err != nil {
			return err
		}
		u.byType[n.Name] = one
		u.types = append(u.types, typedPart[string]{id: n.Name, source: one, was: &one.graph.Manifest})
		if err := one.openIDs(ctx); err != nil {
			return err
		}
		one.ids.of = "type " + n.Name
	}
	for _, name := range names {
		one, c := u.byType[name], &u.o.Columns
		one.options.Nodes, one.options.Columns.ID, one.options.Columns.ofType = paths[name], c.ID, name
		if one.options.Columns.Node = c.Node; name == u.target {
			one.options.Columns.Label, one.options.Columns.Split = c.Label, c.Split
			one.options.Columns.Features = c.Features
		}
		u.limitIDs(name)
		if err := one.openNodes(ctx); err != nil {
			return err
		}
	}
	return nil
}

// limitIDs bounds the ids of types that grow at a time.
func (u *typedUpdate) limitIDs(growing ...string) {
	all, lists := map[string]*edgeList{}, []*edgeList{}
	for name, one := range u.byType {
		all[name] = one.edgeList
	}
	for _, name := range growing {
		lists = append(lists, all[name])
	}
	limitIDs(u.scratch.MemoryBytes, all, lists...)
}

// readEdges reads the tables of edges, in the order of the names of relations.
func (u *typedUpdate) readEdges(ctx context.Context) error {
	changes := map[string][2]string{} // tables of edges to remove, and to add, by relation
	for k, flag := range []struct{ name, dir string }{{"remove-edges", u.o.Remove}, {"edges", u.o.Edges}} {
		names, paths, err := u.tables(flag.name, flag.dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			r, err := parseRelation(paths[name], name)
			if err != nil {
				return err
			}
			isNamed := func(other format.Relation) bool { return other.String() == r.String() }
			if !slices.ContainsFunc(u.graph.Relations, isNamed) {
				return badOptions("%s: the graph has no relation %s", paths[name], r)
			}
			both := changes[r.String()]
			if both[k] != "" {
				return badOptions("%s and %s are of one relation: remove one", both[k], paths[name])
			}
			both[k] = paths[name]
			changes[r.String()] = both
		}
	}
	byName := map[string]*Update{}
	for _, r := range u.graph.Relations {
		one, err := u.open(u.graph.OpenRelation(u.fsys, u.dir, r))
		if err != nil {
			return err
		}
		byName[r.String()] = one
		u.relations = append(u.relations, typedPart[format.Relation]{id: r, source: one, was: &one.graph.Manifest})
		one.ends = [2]*numbering{&u.byType[r.Source].ids, &u.byType[r.Destination].ids}
		tables := changes[r.String()]
		if tables == [2]string{} {
			continue
		}
		if of := one.graph.Manifest.Input[format.ReverseOf]; of != "" {
			return badOptions("relation %s is %s turned round, and changes with it: give a table of that one", r, of)
		}
		c := &one.options.Columns
		c.Source, c.Destination, c.Weight, c.Edge = u.o.Columns.Source, u.o.Columns.Destination, u.o.Columns.Weight,
			u.o.Columns.Edge
		if r.Source != r.Destination {
			c.endTypes = [2]string{r.Source, r.Destination}
		}
		one.options.Remove, one.options.Edges = tables[0], tables[1]
		u.limitIDs(r.Source, r.Destination)
		if err := one.openRemoved(ctx); err != nil {
			return err
		}
		if tables[1] == "" {
			continue
		}
		if err := one.openAdded(ctx); err != nil {
			return err
		}
	}
	return u.turn(byName)
}

// turn makes the relations that others were turned round to make, where these change.
func (u *typedUpdate) turn(byName map[string]*Update) error {
	changes := func(name string) bool { return byName[name] != nil && byName[name].changesEdges() }
	for i := range u.relations {
		part := &u.relations[i]
		of := part.was.Input[format.ReverseOf]
		if changes(of) {
			r, err := parseRelation(part.id.String(), of)
			if err != nil {
				return err
			}
			part.source, part.added = turnedSource{byName[of], r}, true
		}
		for _, other := range u.relations {
			back := other.id.Source == part.id.Destination && other.id.Destination == part.id.Source
			if changes(part.id.String()) && back && !changes(other.id.String()) &&
				other.was.Input[format.ReverseOf] != part.id.String() {
				u.notes = append(u.notes, fmt.Sprintf("relation %s changes, and %s, which goes back, does not", part.id, other.id))
			}
		}
	}
	return nil
}

// changesEdges tells whether edges are added or removed.
func (u *Update) changesEdges() bool { return u.EdgesRemoved+u.edges.edges > 0 }

// finish opens features and columns, now that it is known how many nodes there are, and adds up what changes.
func (u *typedUpdate) finish(ctx context.Context) error {
	held := int64(0)
	for _, one := range u.byType {
		if one.ids.ids != nil {
			held += one.ids.ids.bytes()
		}
	}
	for _, part := range u.types {
		one := u.byType[part.id]
		for _, step := range []func(context.Context) error{one.openFeatures, one.openNodeColumns, one.finishInfo} {
			if err := step(ctx); err != nil {
				return fmt.Errorf("type %s: %w", part.id, err)
			}
		}
		if one.info.HeldBytes += held; one.ids.ids != nil {
			one.info.HeldBytes -= one.ids.ids.bytes() // which finishInfo has counted
		}
		u.counts.NodesAdded += one.NodesAdded
		u.counts.NodesChanged += one.NodesChanged
	}
	for _, part := range u.relations {
		one, isUpdate := part.source.(*Update)
		if !isUpdate {
			continue
		}
		if err := one.finishInfo(ctx); err != nil {
			return err
		}
		one.info.HeldBytes += held
		u.counts.EdgesAdded += one.EdgesAdded
		u.counts.EdgesRemoved += one.EdgesRemoved
		u.counts.EdgesMissing += one.EdgesMissing
		u.counts.EdgesRepeated += one.EdgesRepeated
	}
	return nil
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// ogbMagPapers is the number of papers of ogbn-mag.
const ogbMagPapers = 736_389

// typedOGB is a data set of the Open Graph Benchmark with several types of nodes that is being read. Each file is as
// that of the same name in ogbSource, but lies in a folder of its type or relation:
//
//	raw/num-node-dict.csv.gz             a line of types, and one of the number of nodes of each
//	raw/triplet-type-list.csv.gz         a line a relation: source type, relation, destination type
//	raw/relations/<source>___<relation>___<destination>/
//	                                     edge.csv.gz, num-edge-list.csv.gz, edge_reltype.csv.gz (a number a relation)
//	raw/node-feat/<type>/                node-feat.csv.gz, node_year.csv.gz, of types that have them
//	raw/node-label/<type>/               node-label.csv.gz
//	split/<name>/<type>/                 {train,valid,test}.csv.gz
//	raw/nodetype-has-feat.csv.gz         a line of types, and one of True and False; also nodetype-has-label.csv.gz,
//	                                     and split/<name>/nodetype-has-split.csv.gz
//
// Or the files in raw are arrays (see ogbArrays).
type typedOGB struct {
	*typedSource
	fsys   vfs.FS
	dir    string
	raw    ogbFolder
	o      OGBOptions
	byName map[string]*edgeList // by the name that the data set has for the type
	idOf   map[string]string    // and ours
	read   map[string]bool      // folders
}

func openTypedOGB(ctx context.Context, fsys vfs.FS, dir string, raw ogbFolder, w ScratchOptions,
	o OGBOptions) (_ Source, err error) {
	if o.Features != "" {
		return nil, badOptions("--features is for graphs with one type of nodes (--missing-features is for several)")
	}
	if err := o.LabelsAs.check(); err != nil {
		return nil, err
	}
	scratch, err := openScratch(fsys, w)
	if err != nil {
		return nil, err
	}
	s := &typedSource{name: nameOf(fsys, dir), scratch: scratch}
	defer closeOnError(&err, s)
	t := &typedOGB{s, fsys, dir, raw, o, map[string]*edgeList{}, map[string]string{}, map[string]bool{}}
	readTypes, readRelations, noteLeft := t.readTypes, t.readRelations, t.noteLeft
	if raw.find(ogbArrays) != "" {
		readTypes, readRelations, noteLeft = t.readArrayTypes, t.readArrayRelations, t.noteLeftArrays
	}
	for _, read := range []func(context.Context) error{readTypes, t.openSplits, readRelations} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(t.relations, func(a, b typedPart[format.Relation]) int {
		return strings.Compare(a.id.String(), b.id.String())
	})
	if err := noteLeft(); err != nil {
		return nil, err
	}
	return s, s.complete(raw.dir, o.Direction, o.TypedOptions)
}

// allowedName is our name of a type or a relation: in small letters, with _ for other characters.
func (t *typedOGB) allowedName(at any, name string) (string, error) {
	id := strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "_")
	if strings.ContainsAny(name, `/\`) {
		return "", invalid(at, "%.100q names a folder, and cannot have / or \\: rename it", name)
	}
	if err := format.CheckTypeName(id); err != nil {
		return "", invalid(at, "%.100q: %w: rename it", name, err)
	}
	if note := fmt.Sprintf("%q is called %s", name, id); id != name && !slices.Contains(t.notes, note) {
		t.notes = append(t.notes, note)
	}
	return id, nil
}

// folder lists a folder of a type or a relation; it may not be there.
func (t *typedOGB) folder(path ...string) (ogbFolder, error) {
	f, err := openOGBFolder(t.fsys, path...)
	if t.read[f.dir] = true; errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return f, err
}

func (t *typedOGB) readTypes(ctx context.Context) error {
	path, err := t.raw.need("num-node-dict")
	if err != nil {
		return err
	}
	names, counts, err := readOGBDict(t.fsys, path)
	if err != nil {
		return err
	}
	var withFeatures, withLabels []string
	for i, name := range names {
		nodes, ok := parseUint([]byte(counts[i]))
		if !ok || nodes < 1 || nodes > MaxNodes {
			return invalid(path, "line 2: found %.100q for %.100s (want 1 to %d nodes)", counts[i], name, int64(MaxNodes))
		}
		l, err := t.addType(path+": line 1", name, int64(nodes))
		if err != nil {
			return err
		}
		if err := t.openNodes(ctx, name, l); err != nil {
			return err
		}
		if l.info.Features > 0 {
			withFeatures = append(withFeatures, name)
		}
		if l.labels != nil {
			withLabels, t.labelled = append(withLabels, name), append(t.labelled, t.idOf[name])
		}
	}
	if err := t.checkHas(t.raw, "nodetype-has-feat", "node-feat.csv.gz", withFeatures); err != nil {
		return err
	}
	return t.checkHas(t.raw, "nodetype-has-label", "node-label.csv.gz", withLabels)
}

// addType adds a type with this many nodes.
func (t *typedOGB) addType(at, name string, nodes int64) (*edgeList, error) {
	id, err := t.allowedName(at, name)
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(t.types, func(other typedPart[string]) bool { return other.id == id }):
		return nil, invalid(at, "two types are called %s: rename one", id)
	case id == "paper" && nodes == ogbMagPapers:
		t.name = "ogbn-mag"
	}
	l := newEdgeListIn(t.fsys, "ogb", t.scratch, NodeFiles{LabelsAs: t.o.LabelsAs})
	l.edges, l.info.Nodes, l.info.Direction = new(scratchEdges), nodes, Directed
	l.ids = numbering{nodes: nodes, fixed: true, of: "type " + id}
	t.types = append(t.types, typedPart[string]{id: id, source: l})
	slices.SortFunc(t.types, func(a, b typedPart[string]) int { return strings.Compare(a.id, b.id) })
	t.byName[name], t.idOf[name] = l, id
	return l, nil
}

// openNodes opens what there is of the nodes of a type.
func (t *typedOGB) openNodes(ctx context.Context, name string, l *edgeList) error {
	folder, err := t.folder(t.raw.dir, "node-feat", name)
	if err != nil {
		return err
	}
	if path := folder.find("node-feat"); path != "" {
		if err := l.openPlainFeatures(path); err != nil {
			return err
		}
	}
	if err := l.readPlainColumns(ctx, folder); err != nil {
		return err
	}
	l.info.noteLeft(folder.dir, folder.left(append([]string{"node-feat"}, ogbNodeColumns...)...))
	if folder, err = t.folder(t.raw.dir, "node-label", name); err != nil {
		return err
	}
	if path := folder.find("node-label"); path != "" {
		return l.openPlainLabels(path)
	}
	return nil
}

// checkHas compares what a folder says of the types that have a file, if it does, with those whose file there is.
func (t *typedOGB) checkHas(folder ogbFolder, name, file string, there []string) error {
	path := folder.find(name)
	if path == "" {
		return nil
	}
	names, values, err := readOGBDict(t.fsys, path)
	if err != nil {
		return err
	}
	for i, name := range names {
		has, err := parseTruth([]byte(values[i]))
		switch {
		case t.byName[name] == nil:
			return invalid(path, "line 1: raw/num-node-dict has no type %.100q", name)
		case err != nil:
			return invalid(path, "line 2: found %.100q for %s (want True or False)", values[i], t.idOf[name])
		case has && !slices.Contains(there, name):
			return invalid(path, "line 2: True for %s, which has no %s", t.idOf[name], file)
		case !has && slices.Contains(there, name):
			return invalid(path, "line 2: False for %s, which has %s", t.idOf[name], file)
		}
	}
	return nil
}

func (t *typedOGB) openSplits(context.Context) error {
	splits, err := ogbSplits(t.fsys, t.dir)
	if err != nil {
		return err
	}
	folders, found := map[string][]string{}, map[string][]string{} // of each type, and the names of its splits
	for _, split := range splits.names {
		folder, err := openOGBFolder(t.fsys, splits.dir, split)
		if err != nil {
			return err
		}
		var there []string
		for name := range t.byName {
			if slices.Contains(folder.names, name) {
				there, found[name] = append(there, name), append(found[name], split)
				folders[name] = append(folders[name], filepath.Join(folder.dir, name))
			}
		}
		if err := t.checkHas(folder, "nodetype-has-split", "train.csv.gz", there); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		l := t.byName[name]
		l.info.Input["splits"] = strings.Join(found[name], " ")
		if err := l.addSplitFolders(folders[name]...); err != nil {
			return err
		}
	}
	if len(folders) == 0 {
		for _, split := range splits.names {
			if err := refusePickled(t.fsys, filepath.Join(splits.dir, split, pickledSplits), "for part, of in split.items(): "+
				"for kind, ids in of.items(): os.makedirs(kind, exist_ok=True), "+
				"numpy.save(f\"{kind}/{part}_idx.npy\", ids)"); err != nil {
				return err
			}
		}
		t.notes = append(t.notes, "the graph has no splits: there is no split/<name>/<type>/train.csv.gz")
	}
	return nil
}

func (t *typedOGB) readRelations(ctx context.Context) error {
	list, err := openText(t.fsys, t.raw.find("triplet-type-list"), "")
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		line, err := list.next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		var names []string
		for _, field := range split(nil, line, ',') {
			names = append(names, string(field))
		}
		if len(names) != 3 {
			return list.errorf("found %.100q (want a source type, a relation and a destination type)", line)
		}
		if err := t.readRelation(ctx, list, names); err != nil {
			return err
		}
	}
	if len(t.relations) == 0 {
		return invalid(list.path, "no relation")
	}
	return nil
}

// readRelation reads the edges of a relation that a list names: source, relation and destination.
func (t *typedOGB) readRelation(ctx context.Context, list *textFile, names []string) error {
	l, err := t.addRelation(list.position(), names)
	if err != nil {
		return err
	}
	folder, err := t.folder(t.raw.dir, "relations", strings.Join(names, "___"))
	if err != nil {
		return err
	}
	path, err := folder.need("num-edge-list")
	if err != nil {
		return err
	}
	count, err := readCount(t.fsys, path, format.MaxEdges)
	if err != nil {
		return err
	}
	if path, err = folder.need("edge"); err != nil {
		return err
	}
	l.info.noteLeft(folder.dir, folder.left("edge", "num-edge-list", "edge_reltype"))
	return l.readPlainEdges(ctx, path, count)
}

// addRelation adds a relation, whose edges are still to be read, between types that are known.
func (t *typedOGB) addRelation(at any, names []string) (*edgeList, error) {
	from, to := t.byName[names[0]], t.byName[names[2]]
	for _, end := range []string{names[0], names[2]} {
		if t.byName[end] == nil {
			return nil, invalid(at, "among the types whose nodes are counted there is no type %.100q", end)
		}
	}
	name, err := t.allowedName(at, names[1])
	if err != nil {
		return nil, err
	}
	r := format.Relation{Source: t.idOf[names[0]], Name: name, Destination: t.idOf[names[2]]}
	if slices.ContainsFunc(t.relations, func(other typedPart[format.Relation]) bool { return other.id == r }) {
		return nil, invalid(at, "the relation %s is listed twice: rename or remove one", r)
	}
	l := newEdgeListIn(t.fsys, "ogb", t.scratch, NodeFiles{})
	l.ends = [2]*numbering{&from.ids, &to.ids}
	if l.info.Direction, l.info.Nodes = Directed, to.info.Nodes; from != to {
		l.info.SourceNodes = from.info.Nodes
	}
	t.relations = append(t.relations, typedPart[format.Relation]{id: r, source: l})
	return l, nil
}

// noteLeft says what is not read of the folders that all types and relations have.
func (t *typedOGB) noteLeft() error {
	var info Info
	info.noteLeft(t.raw.dir, t.raw.left("num-node-dict", "triplet-type-list", "nodetype-has-feat", "nodetype-has-label"))
	for _, name := range []string{"node-feat", "node-label", "relations"} {
		folder, err := t.folder(t.raw.dir, name)
		if err != nil {
			return err
		}
		info.noteLeft(folder.dir, slices.DeleteFunc(folder.names, func(name string) bool {
			return t.read[filepath.Join(folder.dir, name)]
		}))
	}
	t.notes = append(t.notes, info.Notes...)
	return nil
}

// readOGBDict reads a line of types, and a line with a value for each.
func readOGBDict(fsys vfs.FS, path string) (names, values []string, err error) {
	file, err := openText(fsys, path, "")
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	var lines [2][]string
	for i := range lines {
		line, err := file.next()
		if err == io.EOF {
			err = invalid(path, "ends after %d lines (want a line of types, and one with a value for each)", i)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, field := range split(nil, line, ',') {
			lines[i] = append(lines[i], string(field))
		}
	}
	if names, values = lines[0], lines[1]; len(names) != len(values) {
		return nil, nil, file.errorf("%d values (want one for each of the %d types in line 1)", len(values), len(names))
	}
	return names, values, file.end()
}

// Data sets with several types of nodes that OGB's DatasetSaver has written hold archives in raw, of arrays by type or,
// of edges, by <source>___<relation>___<destination>:
//
//	num_nodes_dict.npz, num_edges_dict.npz   [1]
//	edge_index_dict.npz                      [2,E]
//	node_feat_dict.npz                       [n,F]; also node_year.npz, [n,1]
//	node-label.npz                           [n,L]
//
// and splits in split/<name>/split_dict.pt, which Python has to unpack.
const (
	ogbArrays        = "edge_index_dict.npz"
	ogbArrayFeatures = "node_feat_dict.npz"
	ogbArrayLabels   = "node-label.npz"
)

// arrays lists the arrays of an archive in raw; there are none if it is missing.
func (t *typedOGB) arrays(name string) (path string, names []string, err error) {
	t.read[name] = true
	if path = t.raw.find(name); path != "" {
		names, err = npy.Members(t.fsys, path)
	}
	return path, names, err
}

func (t *typedOGB) readArrayTypes(ctx context.Context) error {
	path, err := t.raw.need("num_nodes_dict.npz")
	if err != nil {
		return err
	}
	_, names, err := t.arrays("num_nodes_dict.npz")
	if err != nil {
		return err
	}
	for _, name := range names {
		nodes, err := t.readArrayCount(path, name, MaxNodes)
		if err == nil && nodes == 0 {
			err = invalid(path, "%.100s: the type has no nodes", name)
		}
		var l *edgeList
		if err == nil {
			l, err = t.addType(path, name, nodes)
		}
		if err == nil {
			err = t.openArrays(ctx, name, l)
		}
		if err != nil {
			return err
		}
		if l.labels != nil {
			t.labelled = append(t.labelled, t.idOf[name])
		}
	}
	return nil
}

func (t *typedOGB) readArrayCount(path, name string, most int64) (int64, error) {
	in := newSource(t.fsys, "ogb")
	return in.readArrayCount(path, name, most)
}

// openArrays opens what there is of the nodes of a type.
func (t *typedOGB) openArrays(ctx context.Context, name string, l *edgeList) error {
	open := func(archive string, open func(path string) error) error {
		path, names, err := t.arrays(archive)
		if err != nil || !slices.Contains(names, name) {
			return err
		}
		return open(path)
	}
	err := open(ogbArrayFeatures, func(path string) error { return l.openArrayFeatures(ctx, path, name) })
	for _, column := range ogbNodeColumns {
		if err == nil {
			err = open(column+".npz", func(path string) error { return l.copyNodeColumn(ctx, path, name, column) })
		}
	}
	if err != nil {
		return err
	}
	return open(ogbArrayLabels, func(path string) error {
		array := func() (*npy.Stream, error) { return npy.OpenStream(t.fsys, path, name) }
		return l.addLabels(array, l.info.Nodes, t.o.LabelsAs, asNode)
	})
}

func (t *typedOGB) readArrayRelations(ctx context.Context) error {
	path, names, err := t.arrays(ogbArrays)
	if err != nil {
		return err
	}
	counts, err := t.raw.need("num_edges_dict.npz")
	if err != nil {
		return err
	}
	t.read["num_edges_dict.npz"] = true
	for _, name := range names {
		parts := strings.Split(name, "___")
		if len(parts) != 3 {
			return invalid(path, "an array %.100q (want names <source>___<relation>___<destination>)", name)
		}
		edges, err := t.readArrayCount(counts, name, format.MaxEdges)
		if err != nil {
			return err
		}
		l, err := t.addRelation(path, parts)
		if err != nil {
			return err
		}
		if err := l.readArrayEdges(ctx, path, name, edges); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return invalid(path, "no relation")
	}
	return nil
}

// noteLeftArrays says which archives are not read.
func (t *typedOGB) noteLeftArrays() error {
	var info Info
	info.noteLeft(t.raw.dir, slices.DeleteFunc(slices.Clone(t.raw.names), func(name string) bool {
		return t.read[name] || !strings.HasSuffix(name, ".npz")
	}))
	t.notes = append(t.notes, info.Notes...)
	return nil
}

const pickledSplits = "split_dict.pt"

// refusePickled fails if path is there: Python has pickled the splits, and no lists were found. It says how Python
// makes the lists.
func refusePickled(fsys vfs.FS, path, lists string) error {
	there, err := exists(fsys, path)
	if there && err == nil {
		err = invalid(path, "pickles are not read, since they may run programs: let Python write the lists, by split = "+
			"torch.load(%q, weights_only=False), and %s", filepath.Base(path), lists)
	}
	return err
}

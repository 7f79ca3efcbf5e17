package ingest

import (
	"context"
	"fmt"
	"io"
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

// typedOGB is a data set with several types of nodes that is being read. Its splits are
//
//	split/<name>/<type>/                      {train,valid,test}.csv.gz, or {train,valid,test}_idx.npy
//	split/<name>/nodetype-has-split.csv.gz    optional: a line of types, and one of True and False
//	split/<name>/split_dict.pt                which Python has to unpack to the above
type typedOGB struct {
	*typedSource
	*ogbData
	o      OGBOptions
	byName map[string]*edgeList // by the name that the data set has for the type
	idOf   map[string]string    // and ours
}

func openTypedOGB(ctx context.Context, d *ogbData, w ScratchOptions, o OGBOptions) (_ Source, err error) {
	if o.Features != "" {
		return nil, badOptions("--features is for graphs with one type of nodes (--missing-features is for several)")
	}
	if err := o.LabelsAs.check(); err != nil {
		return nil, err
	}
	scratch, err := openScratch(d.fsys, w)
	if err != nil {
		return nil, err
	}
	s := &typedSource{name: nameOf(d.fsys, d.dir), scratch: scratch}
	defer closeOnError(&err, s)
	t := &typedOGB{s, d, o, map[string]*edgeList{}, map[string]string{}}
	for _, read := range []func(context.Context) error{t.readTypes, t.openSplits, t.readRelations} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(t.relations, func(a, b typedPart[format.Relation]) int {
		return strings.Compare(a.id.String(), b.id.String())
	})
	var left Info
	d.noteLeft(&left)
	t.notes = append(t.notes, left.Notes...)
	return s, s.complete(d.raw, o.Direction, o.TypedOptions)
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

func (t *typedOGB) readTypes(ctx context.Context) error {
	names, counts, at, err := t.countTypes()
	if err != nil {
		return err
	}
	var withFeatures, withLabels []string
	for i, name := range names {
		l, err := t.addType(at, name, counts[i])
		if err != nil {
			return err
		}
		if err := t.open(ctx, l, name, ogbFeatures, ogbSpecies, ogbYears, ogbLabels); err != nil {
			return err
		}
		if l.info.Features > 0 {
			withFeatures = append(withFeatures, name)
		}
		if l.labels != nil {
			withLabels, t.labelled = append(withLabels, name), append(t.labelled, t.idOf[name])
		}
	}
	features, err := t.find(ogbHasFeatures, "")
	if err == nil {
		err = t.checkHas(features.path, "node-feat.csv.gz", withFeatures)
	}
	if err != nil {
		return err
	}
	labels, err := t.find(ogbHasLabels, "")
	if err == nil {
		err = t.checkHas(labels.path, "node-label.csv.gz", withLabels)
	}
	return err
}

// countTypes returns the names of the types, how many nodes there are of each, and where the names stand.
func (t *typedOGB) countTypes() (names []string, counts []int64, at string, err error) {
	list, err := t.need(ogbTypes, "")
	if err != nil {
		return nil, nil, "", err
	}
	var values []string
	if t.layout == ogbTypedArrays {
		names, err = t.list(list.path, npy.Members)
	} else {
		names, values, err = readOGBDict(t.fsys, list.path)
		at = ": line 1"
	}
	for i, name := range names {
		n := int64(0)
		if t.layout == ogbTypedArrays {
			if n, err = t.count(ogbNodeCount, name, MaxNodes); err == nil && n == 0 {
				err = invalid(list, "%.100s: the type has no nodes", name)
			}
		} else if v, ok := parseUint([]byte(values[i])); ok && v > 0 && v <= MaxNodes {
			n = int64(v)
		} else {
			err = invalid(list, "line 2: found %.100q for %.100s (want 1 to %d nodes)", values[i], name, int64(MaxNodes))
		}
		if err != nil {
			break
		}
		counts = append(counts, n)
	}
	return names, counts, list.path + at, err
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

// checkHas compares what a list, if there is one, says of the types that have a file with those whose file there is.
func (t *typedOGB) checkHas(path, file string, there []string) error {
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
	splits, err := t.splitFolders()
	if err != nil {
		return err
	}
	folders, found := map[string][]string{}, map[string][]string{} // of each type, and the names of its splits
	for _, split := range splits {
		dir := filepath.Join(t.dir, "split", split)
		names, err := namesIn(t.fsys, dir)
		if err != nil {
			return err
		}
		var there []string
		for name := range t.byName {
			if slices.Contains(names, name) {
				there, found[name] = append(there, name), append(found[name], split)
				folders[name] = append(folders[name], filepath.Join(dir, name))
			}
		}
		if list := findFile(names, "nodetype-has-split"); list != "" {
			if err := t.checkHas(filepath.Join(dir, list), "train.csv.gz", there); err != nil {
				return err
			}
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
		for _, split := range splits {
			path := filepath.Join(t.dir, "split", split, pickledSplits)
			if err := refusePickled(t.fsys, path, "for part, of in split.items(): for kind, ids in of.items(): "+
				"os.makedirs(kind, exist_ok=True), numpy.save(f\"{kind}/{part}_idx.npy\", ids)"); err != nil {
				return err
			}
		}
		t.notes = append(t.notes, "the graph has no splits: there is no split/<name>/<type>/train.csv.gz")
	}
	return nil
}

func (t *typedOGB) readRelations(ctx context.Context) error {
	list, err := t.need(ogbRelations, "")
	if err != nil {
		return err
	}
	names, places, err := t.listRelations(list.path)
	for i, ends := range names {
		if err == nil {
			err = t.readRelation(ctx, places[i], ends)
		}
	}
	if err == nil && len(names) == 0 {
		err = invalid(list, "no relation")
	}
	return err
}

// listRelations returns the names of each relation (source type, relation, destination type), and where they stand.
func (t *typedOGB) listRelations(path string) (names [][]string, places []any, err error) {
	if t.layout == ogbTypedArrays {
		arrays, err := t.list(path, npy.Members)
		for _, name := range arrays {
			ends := strings.Split(name, "___")
			if len(ends) != 3 {
				return nil, nil, invalid(path, "an array %.100q (want names <source>___<relation>___<destination>)", name)
			}
			names, places = append(names, ends), append(places, any(path))
		}
		return names, places, err
	}
	list, err := openText(t.fsys, path, "")
	if err != nil {
		return nil, nil, err
	}
	defer list.Close()
	for {
		line, err := list.next()
		if err == io.EOF {
			return names, places, nil
		} else if err != nil {
			return nil, nil, err
		}
		var ends []string
		for _, field := range split(nil, line, ',') {
			ends = append(ends, string(field))
		}
		if len(ends) != 3 {
			return nil, nil, list.errorf("found %.100q (want a source type, a relation and a destination type)", line)
		}
		names, places = append(names, ends), append(places, any(list.position()))
	}
}

// readRelation reads the edges of a relation that is named at a place: source, relation and destination.
func (t *typedOGB) readRelation(ctx context.Context, at any, names []string) error {
	l, err := t.addRelation(at, names)
	if err != nil {
		return err
	}
	name := strings.Join(names, "___")
	if l.info.Edges, err = t.count(ogbEdgeCount, name, format.MaxEdges); err != nil {
		return err
	}
	if _, err := t.need(ogbEdges, name); err != nil {
		return err
	}
	if _, err := t.find(ogbRelationNumber, name); err != nil { // which is not left out: the name says it
		return err
	}
	return t.open(ctx, l, name, ogbEdges)
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

package ingest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// ogbLayout is a layout of the folder raw of a data set for predicting properties of nodes: text (.csv, maybe packed)
// without header and ids, or arrays, which are usually deflated; each for all nodes and edges, or by types of nodes and
// by relations. OGB's DatasetSaver writes arrays by types.
type ogbLayout int

const (
	ogbText ogbLayout = iota
	ogbArrays
	ogbTypedText
	ogbTypedArrays
	ogbLayouts
)

// ogbPiece is one kind of data, such as the labels of the nodes. A typed data set has a piece for each type or
// relation. places says, by layout, where the piece lies below raw: in a text file, whose ending is left out, or in
// FILE.npz:ARRAY. NAME stands for the name of a type, or of a relation: <source>___<relation>___<destination>. "": the
// layout has no such piece.
type ogbPiece struct {
	places [ogbLayouts]string
	open   func(*edgeList, context.Context, ogbPlace) error // nil: another function reads it
}

var (
	// a line of types, and a line of the number of nodes of each; or an array for each type
	ogbTypes = ogbPiece{places: [...]string{ogbTypedText: "num-node-dict", ogbTypedArrays: "num_nodes_dict.npz"}}
	// a line for each relation: source type, relation, destination type; or an array for each
	ogbRelations = ogbPiece{places: [...]string{ogbTypedText: "triplet-type-list", ogbTypedArrays: "edge_index_dict.npz"}}
	// a line of types, and a line of True and False: which types have features, and which have labels
	ogbHasFeatures = ogbPiece{places: [...]string{ogbTypedText: "nodetype-has-feat", ogbTypedArrays: ""}}
	ogbHasLabels   = ogbPiece{places: [...]string{ogbTypedText: "nodetype-has-label", ogbTypedArrays: ""}}

	// n and E
	ogbNodeCount = ogbPiece{places: [...]string{"num-node-list", "data.npz:num_nodes_list", "", "num_nodes_dict.npz:NAME"}}
	ogbEdgeCount = ogbPiece{places: [...]string{"num-edge-list", "data.npz:num_edges_list",
		"relations/NAME/num-edge-list", "num_edges_dict.npz:NAME"}}
	// text: a line of source and destination for each edge; array: [2,E]
	ogbEdges = ogbPiece{[...]string{"edge", "data.npz:edge_index", "relations/NAME/edge", "edge_index_dict.npz:NAME"},
		(*edgeList).readOGBEdges}
	// [E,F] numbers
	ogbEdgeFeatures = ogbPiece{[...]string{"edge-feat", "data.npz:edge_feat", "", ""}, (*edgeList).readOGBEdgeFeatures}
	// E times the number of the relation, which its name says too
	ogbRelationNumber = ogbPiece{places: [...]string{ogbTypedText: "relations/NAME/edge_reltype", ogbTypedArrays: ""}}
	// [n,F] numbers
	ogbFeatures = ogbPiece{[...]string{"node-feat", "data.npz:node_feat", "node-feat/NAME/node-feat",
		"node_feat_dict.npz:NAME"}, (*edgeList).openOGBFeatures}
	// [n,1] integers, columns of the graph
	ogbSpecies = ogbPiece{[...]string{"node_species", "data.npz:node_species", "node-feat/NAME/node_species",
		"node_species.npz:NAME"}, readOGBColumn("node_species")}
	ogbYears = ogbPiece{[...]string{"node_year", "data.npz:node_year", "node-feat/NAME/node_year",
		"node_year.npz:NAME"}, readOGBColumn("node_year")}
	// [n,L]; nothing and NaN are unlabelled
	ogbLabels = ogbPiece{[...]string{"node-label", "node-label.npz:node_label", "node-label/NAME/node-label",
		"node-label.npz:NAME"}, (*edgeList).openOGBLabels}
)

// ogbPlace is where a piece was found.
type ogbPlace struct {
	path  string // "": nowhere
	array string // of an archive; "": the file is text
}

func (p ogbPlace) String() string { return strings.TrimSuffix(p.path+": "+p.array, ": ") }

// ogbData finds the pieces of a data set.
type ogbData struct {
	fsys     vfs.FS
	dir, raw string // the root folder, and the folder raw in it
	layout   ogbLayout
	names    map[string][]string // in the folders and archives that were looked into, by path
	asked    map[string]bool     // paths of these names that were looked for: stems
}

// openOGBData opens a root folder. Of several layouts the last counts.
func openOGBData(fsys vfs.FS, dir string) (*ogbData, error) {
	d := &ogbData{fsys: fsys, dir: dir, raw: filepath.Join(dir, "raw"), names: map[string][]string{},
		asked: map[string]bool{}}
	names, err := d.list(d.raw, namesIn)
	for layout, file := range [...]string{ogbArrays: "data.npz", ogbTypedText: "triplet-type-list",
		ogbTypedArrays: "edge_index_dict.npz"} {
		if findFile(names, file) != "" {
			d.layout = ogbLayout(layout)
		}
	}
	return d, err
}

func (d *ogbData) typed() bool { return d.layout == ogbTypedText || d.layout == ogbTypedArrays }

// find says where a piece is, of the type or relation of that name if there are types.
func (d *ogbData) find(p ogbPiece, name string) (ogbPlace, error) {
	at, missing, err := d.look(p, name)
	if missing != nil {
		at = ogbPlace{}
	}
	return at, err
}

// need is find for a piece that must be there.
func (d *ogbData) need(p ogbPiece, name string) (ogbPlace, error) {
	at, missing, err := d.look(p, name)
	if err == nil {
		err = missing
	}
	return at, err
}

// look says where a piece should be, and what is missing of that.
func (d *ogbData) look(p ogbPiece, name string) (at ogbPlace, missing, err error) {
	file, array, _ := strings.Cut(p.places[d.layout], ":")
	if file == "" {
		return at, fs.ErrNotExist, nil
	}
	at.path = filepath.Join(d.raw, strings.ReplaceAll(file, "NAME", name))
	at.array = strings.ReplaceAll(array, "NAME", name)
	dir, base := filepath.Dir(at.path), filepath.Base(at.path)
	names, err := d.folder(dir)
	if err != nil {
		return at, nil, err
	}
	d.asked[stem(at.path)] = true
	found := findFile(names, base)
	if found == "" {
		if !strings.HasSuffix(base, ".npz") {
			base += ".csv.gz"
		}
		if !d.typed() {
			base += " " + wantOGBRoot
		}
		return at, invalid(dir, "no %s", base), nil
	}
	if at.path = filepath.Join(dir, found); at.array == "" {
		return at, nil, nil
	}
	d.asked[stem(filepath.Join(at.path, at.array))] = true
	if names, err = d.list(at.path, npy.Members); err == nil && !slices.Contains(names, at.array) {
		missing = invalid(at, "the archive has no such array")
	}
	return at, missing, err
}

// folder lists a folder in raw; there is nothing in one that is not there.
func (d *ogbData) folder(dir string) ([]string, error) {
	if dir != d.raw {
		d.asked[stem(dir)] = true
		beside, err := d.folder(filepath.Dir(dir))
		if err != nil || !slices.Contains(beside, filepath.Base(dir)) {
			return nil, err
		}
	}
	return d.list(dir, namesIn)
}

// list lists a folder or an archive, once.
func (d *ogbData) list(path string, list func(vfs.FS, string) ([]string, error)) (names []string, err error) {
	names, listed := d.names[path]
	if !listed {
		names, err = list(d.fsys, path)
		d.names[path] = names
	}
	return names, err
}

// open opens the pieces that the data set has, and passes over the others.
func (d *ogbData) open(ctx context.Context, l *edgeList, name string, pieces ...ogbPiece) error {
	for _, p := range pieces {
		at, err := d.find(p, name)
		if err == nil && at.path != "" {
			err = p.open(l, ctx, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteLeft says what is in the folders and archives that was not looked for.
func (d *ogbData) noteLeft(info *Info) {
	for _, path := range slices.Sorted(maps.Keys(d.names)) {
		info.noteLeft(path, slices.DeleteFunc(slices.Clone(d.names[path]), func(name string) bool {
			return d.asked[stem(filepath.Join(path, name))]
		}))
	}
}

func namesIn(fsys vfs.FS, dir string) (names []string, err error) {
	entries, err := fsys.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// findFile finds a file by its name, or by its name without the ending of a text file; "": it is not there.
func findFile(names []string, name string) string {
	for _, ending := range append([]string{""}, textEndings...) {
		if full := strings.TrimSuffix(name+"."+ending, "."); name != "" && slices.Contains(names, full) {
			return full
		}
	}
	return ""
}

// stem is a path without the ending of a text file.
func stem(path string) string {
	dir, name := filepath.Split(path)
	if base, ending, _ := strings.Cut(name, "."); slices.Contains(textEndings, ending) {
		return dir + base
	}
	return path
}

// splitFolders are the names of the folders of splits.
func (d *ogbData) splitFolders() (names []string, err error) {
	dir := filepath.Join(d.dir, "split")
	if there, err := exists(d.fsys, dir); err != nil || !there {
		return nil, err
	}
	names, err = foldersIn(d.fsys, dir)
	for _, name := range names {
		if !printable(name) {
			return names, fmt.Errorf("%w: %q: the file name has a character that cannot be printed: rename the file",
				ErrInvalid, filepath.Join(dir, name))
		}
	}
	return names, err
}

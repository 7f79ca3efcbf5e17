package ingest

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// typedMeta is what meta.json says of a typed graph.
type typedMeta struct {
	Name      string              `json:"name"`
	Types     map[string]int64    `json:"node_types"`
	Relations [][]json.RawMessage `json:"edge_types"`
	Target    string              `json:"target"`
	Directed  bool                `json:"directed"` // relations get no reverses
}

// isTypedNPY tells whether a folder is in the typed npy layout.
func isTypedNPY(fsys vfs.FS, dir string) bool {
	_, edges := fsys.Stat(filepath.Join(dir, "edge_index.npy"))
	_, nodes := fsys.Stat(filepath.Join(dir, "nodes"))
	return edges != nil && nodes == nil
}

// OpenTypedNPY opens a directory in the npy layout of graphs with several types of nodes, and compares its shapes:
//
//	meta.json                       node_types (type: number of nodes), target (default the only type with labels),
//	                                edge_types (optional: [source, destination, edges], or with the relation between)
//	                                directed (true: as if the direction were Directed)
//	nodes/<type>/                   node_feat, node_label, splits and the like, as in the npy layout; all optional
//	edges/<source>__<destination>/  edge_index.npy [2,E] unless the edge layout is Ex2, and perhaps edge_weight.npy
//	edges/<source>__<relation>__<destination>/
//
// Unless the direction is Directed, the reverse of each relation is added where no relation goes back.
func OpenTypedNPY(fsys vfs.FS, dir string, direction Direction, o NPYOptions) (_ Source, err error) {
	s := &typedSource{}
	defer closeOnError(&err, s)
	path := filepath.Join(dir, "meta.json")
	text, err := vfs.ReadFile(fsys, path, maxMeta)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid(dir, "no meta.json, which gives the number of nodes of each type (node_types)")
	}
	var meta typedMeta
	if err == nil {
		err = parseJSON(text, &meta)
	}
	if err != nil {
		return nil, invalid(path, "%w", err)
	}
	if s.name = meta.Name; s.name == "" {
		s.name = nameOf(fsys, dir)
	}
	if !printable(s.name) || len(meta.Types) == 0 {
		return nil, invalid(path, "want a name of characters that can be printed, and node_types")
	}
	nodes, edges := filepath.Join(dir, "nodes"), filepath.Join(dir, "edges")
	types, err := foldersIn(fsys, nodes)
	if err != nil {
		return nil, err
	}
	for _, name := range types {
		if meta.Types[name] == 0 {
			return nil, invalid(filepath.Join(nodes, name), "meta.json has no such type in node_types, or no node of it")
		}
	}
	if err := s.openTypes(fsys, "npy", nodes, meta.Types, o); err != nil {
		return nil, err
	}
	relations, err := foldersIn(fsys, edges)
	if err != nil {
		return nil, err
	}
	if len(relations) == 0 {
		return nil, invalid(edges, "no relation: want folders such as author__paper, with edge_index.npy")
	}
	if err := s.openRelations(fsys, "npy", edges, relations, meta.Types, cmp.Or(o.EdgeLayout, "2xE")); err != nil {
		return nil, err
	}
	for _, r := range s.relations {
		if err := meta.checkEdges(path, r.id, r.source.Info().Edges); err != nil {
			return nil, err
		}
	}
	if direction == UnknownDirection && meta.Directed {
		direction = Directed
	}
	return s, s.complete(path, direction, TypedOptions{cmp.Or(o.Target, meta.Target), o.Missing})
}

// foldersIn lists the folders in a folder.
func foldersIn(fsys vfs.FS, dir string) (names []string, err error) {
	entries, err := fsys.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// openTypes opens the nodes of each type of a layout, from its folder in dir, if there is one. nodes has their numbers.
func (s *typedSource) openTypes(fsys vfs.FS, layout, dir string, nodes map[string]int64, o NPYOptions) error {
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		at := filepath.Join(dir, name)
		if err := format.CheckTypeName(name); err != nil {
			return invalid(at, "%w", err)
		}
		if n := nodes[name]; n < 1 || n > MaxNodes {
			return invalid(at, "%d nodes (want 1 to %d)", n, int64(MaxNodes))
		}
		one := newArraySource(fsys, layout, at)
		s.types = append(s.types, typedPart[string]{id: name, source: one})
		if there, err := exists(fsys, at); err != nil {
			return err
		} else if !there {
			one.info.Nodes, one.info.Direction = nodes[name], Directed
		} else if err := one.openNodes(nodes[name], o); err != nil {
			return err
		}
		if one.labels != nil {
			s.labelled = append(s.labelled, name)
		}
	}
	return nil
}

// openNodes opens the arrays of this many nodes of one type.
func (s *arraySource) openNodes(nodes int64, o NPYOptions) error {
	if err := s.list(); err != nil {
		return err
	}
	meta, err := s.readMeta(&o)
	if err != nil {
		return err
	}
	for name := range s.names {
		if !strings.HasPrefix(name, "node_feat") {
			continue
		}
		if err := s.openFeatures(o, meta); err != nil {
			return err
		}
		if s.info.Nodes != nodes {
			return invalid(s.dir, "the features have %d rows, but meta.json says %d nodes", s.info.Nodes, nodes)
		}
		break
	}
	s.info.Nodes, s.info.Direction = nodes, Directed
	defer s.noteLeft()
	return s.openNodeFiles(o, meta)
}

// list lists the files of the folder.
func (s *arraySource) list() error {
	entries, err := s.fsys.ReadDir(s.dir)
	for _, e := range entries {
		s.names[e.Name()] = true // opening a folder by one of these names fails by name
	}
	return err
}

// openRelations opens the edges of each of these folders of dir, between types with so many nodes.
func (s *typedSource) openRelations(fsys vfs.FS, layout, dir string, names []string, nodes map[string]int64,
	edgeLayout string) error {
	for _, name := range names {
		at := filepath.Join(dir, name)
		r, err := parseRelation(at, name)
		if err != nil {
			return err
		}
		for _, end := range []string{r.Source, r.Destination} {
			if nodes[end] == 0 {
				return invalid(at, "there is no type %q", end)
			}
		}
		one := newArraySource(fsys, layout, at)
		s.relations = append(s.relations, typedPart[format.Relation]{id: r, source: one})
		if err := one.openRelation(nodes[r.Source], nodes[r.Destination], r.Source == r.Destination,
			edgeLayout); err != nil {
			return err
		}
	}
	return nil
}

// openRelation opens the edges between nodes of two types, or within one.
func (s *arraySource) openRelation(sources, destinations int64, same bool, layout string) error {
	if err := s.list(); err != nil {
		return err
	}
	if !s.has("edge_index.npy") {
		return invalid(s.dir, "no edge_index.npy%s", arrayHint(s.names, "edge_index.npy"))
	}
	if s.info.Direction, s.info.Nodes = Directed, destinations; !same {
		s.info.SourceNodes = sources
	}
	defer s.noteLeft()
	return s.openEdgeFiles(layout)
}

// checkEdges fails if edge_types gives a relation another number of edges.
func (m *typedMeta) checkEdges(path string, r format.Relation, edges int64) error {
	for i, entry := range m.Relations {
		var names []string
		var count int64
		for k, field := range entry {
			var name string
			into := any(&name)
			if k == len(entry)-1 {
				into = &count
			}
			if err := json.Unmarshal(field, into); err != nil || len(entry) < 3 || len(entry) > 4 {
				return invalid(path, "edge_types, entry %d: want [source, destination, edges] or [source, relation, "+
					"destination, edges]", i)
			}
			names = append(names, name)
		}
		if strings.Join(names[:len(names)-1], "__") == r.String() && count != edges {
			return invalid(path, "edge_types says %d edges of %s, but edge_index.npy has %d", count, r, edges)
		}
	}
	return nil
}

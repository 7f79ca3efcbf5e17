package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// typedSource is a graph with several types of nodes: a source without edges for each type, and a source without rows
// and features for each relation. Its own methods are those of the target type.
type typedSource struct {
	Source
	name, target string
	types        []typedPart[string]
	relations    []typedPart[format.Relation]
	notes        []string
}

type typedPart[ID any] struct {
	id      ID
	source  *arraySource
	standIn StandIn // of the features
}

// typedMeta is what meta.json says of a typed graph.
type typedMeta struct {
	Name      string              `json:"name"`
	Types     map[string]int64    `json:"node_types"`
	Relations [][]json.RawMessage `json:"edge_types"`
	Target    string              `json:"target"`
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
//	nodes/<type>/                   node_feat, node_label, splits and the like, as in the npy layout; all optional
//	edges/<source>__<destination>/  edge_index.npy [2,E] unless the edge layout is Ex2, and perhaps edge_weight.npy
//	edges/<source>__<relation>__<destination>/
//
// Unless the direction is Directed, the reverse of each relation is added where no relation goes back.
func OpenTypedNPY(fsys vfs.FS, dir string, direction Direction, o NPYOptions) (_ Source, err error) {
	s := &typedSource{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	path := filepath.Join(dir, "meta.json")
	text, err := vfs.ReadFile(fsys, path, maxMeta)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid(dir, "no meta.json, which gives the number of nodes of each type (node_types)")
	}
	var meta typedMeta
	if err == nil {
		err = json.Unmarshal(text, &meta)
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
	if err := s.openTypes(fsys, dir, meta, o); err != nil {
		return nil, err
	}
	if err := s.openRelations(fsys, dir, meta, direction, o); err != nil {
		return nil, err
	}
	return s, s.chooseTarget(path, meta.Target)
}

// openTypes opens the nodes of each type that meta.json names.
func (s *typedSource) openTypes(fsys vfs.FS, dir string, meta typedMeta, o NPYOptions) error {
	nodes := filepath.Join(dir, "nodes")
	entries, err := fsys.ReadDir(nodes)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if there[e.Name()] = true; e.IsDir() && meta.Types[e.Name()] == 0 {
			return invalid(filepath.Join(nodes, e.Name()), "meta.json has no such type in node_types, or no node of it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(meta.Types)) {
		if err := format.CheckTypeName(name); err != nil {
			return invalid(filepath.Join(dir, "meta.json"), "%w", err)
		}
		if n := meta.Types[name]; n < 1 || n > MaxNodes {
			return invalid(filepath.Join(dir, "meta.json"), "%d nodes of type %s (want 1 to %d)", n, name, int64(MaxNodes))
		}
		at := filepath.Join(nodes, name)
		one := newArraySource(fsys, "npy", at)
		s.types = append(s.types, typedPart[string]{id: name, source: one})
		if !there[name] {
			one.info.Nodes, one.info.Direction = meta.Types[name], Directed
		} else if err := one.openNodes(meta.Types[name], o); err != nil {
			return err
		}
		if one.info.Features == 0 {
			if one.info.Features, err = o.Missing.columns(name, one.info.Nodes); err != nil {
				return err
			}
			s.types[len(s.types)-1].standIn = o.Missing
			so := "so no metapath starts from them (--missing-features gives them some)"
			if o.Missing != NoStandIn {
				so = fmt.Sprintf("and get %s: %d columns", o.Missing, one.info.Features)
			}
			s.notes = append(s.notes, fmt.Sprintf("nodes of type %s have no features, %s", name, so))
		}
	}
	return nil
}

// openNodes opens the arrays of this many nodes of one type.
func (s *arraySource) openNodes(nodes int64, o NPYOptions) error {
	if err := s.list(); err != nil {
		return err
	}
	for name := range s.names {
		if !strings.HasPrefix(name, "node_feat") {
			continue
		}
		if err := s.openFeatures(o, npyMeta{}); err != nil {
			return err
		}
		if s.info.Nodes != nodes {
			return invalid(s.dir, "the features have %d rows, but meta.json says %d nodes", s.info.Nodes, nodes)
		}
		break
	}
	s.info.Nodes, s.info.Direction = nodes, Directed
	if s.has("node_label.npy") {
		if err := s.openLabels(o.LabelsAs, nil); err != nil {
			return err
		}
	}
	before := s.info.Notes
	err := s.openSplits()
	if len(s.splits) == 0 {
		s.info.Notes = before
	}
	if err == nil {
		err = s.openOrigIDs()
	}
	s.noteLeft()
	return err
}

// list lists the files of the folder.
func (s *arraySource) list() error {
	entries, err := s.fsys.ReadDir(s.dir)
	for _, e := range entries {
		s.names[e.Name()] = true // opening a folder by one of these names fails by name
	}
	return err
}

// openRelations opens the edges of each folder, and the same arrays again for the relation that goes back.
func (s *typedSource) openRelations(fsys vfs.FS, dir string, meta typedMeta, direction Direction, o NPYOptions) error {
	edges := filepath.Join(dir, "edges")
	entries, err := fsys.ReadDir(edges)
	if err != nil {
		return err
	}
	var all []format.Relation
	folders := map[format.Relation]string{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		at := filepath.Join(edges, e.Name())
		var r format.Relation
		switch parts := strings.Split(e.Name(), "__"); len(parts) {
		case 2:
			r = format.Relation{Source: parts[0], Destination: parts[1]}
		case 3:
			r = format.Relation{Source: parts[0], Name: parts[1], Destination: parts[2]}
			if err := format.CheckTypeName(r.Name); err != nil {
				return invalid(at, "%w", err)
			}
		default:
			return invalid(at, "want a name such as author__paper or author__writes__paper")
		}
		for _, end := range []string{r.Source, r.Destination} {
			if meta.Types[end] == 0 {
				return invalid(at, "meta.json has no type %q in node_types", end)
			}
		}
		all, folders[r] = append(all, r), at
	}
	if len(all) == 0 {
		return invalid(edges, "no relation: want folders such as author__paper, with edge_index.npy")
	}
	for _, r := range slices.Clone(all) {
		back := format.Relation{Source: r.Destination, Name: r.Name, Destination: r.Source}
		switch {
		case r.Name != "":
			back.Name = "rev_" + r.Name
		case r.Source == r.Destination:
			back.Name = "rev"
		}
		goesBack := func(other format.Relation) bool {
			return other != r && other.Source == back.Source && other.Destination == back.Destination
		}
		given := all[:len(folders)]
		if direction == Directed || r.Source != r.Destination && slices.ContainsFunc(given, goesBack) ||
			slices.Contains(given, back) {
			continue
		}
		if err := format.CheckTypeName(back.Name); back.Name != "" && err != nil {
			return invalid(folders[r], "its reverse: %w", err)
		}
		s.notes = append(s.notes, fmt.Sprintf("relation %s is added, the reverse of %s (--directed leaves it out)", back, r))
		all = append(all, back)
		if err := s.openRelation(fsys, folders[r], back, meta, true, o); err != nil {
			return err
		}
	}
	for _, r := range all[:len(folders)] {
		if err := s.openRelation(fsys, folders[r], r, meta, false, o); err != nil {
			return err
		}
		edges := s.relations[len(s.relations)-1].source.info.Edges
		if err := meta.checkEdges(filepath.Join(dir, "meta.json"), r, edges); err != nil {
			return err
		}
	}
	return nil
}

// openRelation opens the edges of one relation; turned: each edge of the folder is turned round.
func (s *typedSource) openRelation(fsys vfs.FS, dir string, r format.Relation, meta typedMeta, turned bool,
	o NPYOptions) error {
	one := newArraySource(fsys, "npy", dir)
	s.relations = append(s.relations, typedPart[format.Relation]{id: r, source: one})
	if err := one.list(); err != nil {
		return err
	}
	if !one.has("edge_index.npy") {
		return invalid(dir, "no edge_index.npy%s", arrayHint(one.names, "edge_index.npy"))
	}
	one.turned, one.info.Direction, one.info.Nodes = turned, Directed, meta.Types[r.Destination]
	if r.Source != r.Destination {
		one.info.SourceNodes = meta.Types[r.Source]
	}
	if err := one.openEdges(one.path("edge_index.npy"), cmp.Or(o.EdgeLayout, "2xE")); err != nil {
		return err
	}
	if !turned {
		one.noteLeft()
	}
	return one.openWeights()
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

// chooseTarget sets the target type: the one that is named, or the only one with labels.
func (s *typedSource) chooseTarget(path, name string) error {
	var labelled []string
	for _, t := range s.types {
		if t.source.labels != nil {
			labelled = append(labelled, t.id)
		}
	}
	if s.target = name; name == "" && len(labelled) == 1 {
		s.target = labelled[0]
	}
	at := slices.IndexFunc(s.types, func(t typedPart[string]) bool { return t.id == s.target })
	if at < 0 {
		return invalid(path, "the target is %q: want a type of node_types; types with labels: %v", name, labelled)
	}
	s.Source = s.types[at].source
	return nil
}

func (s *typedSource) Close() error {
	var errs []error
	for _, t := range s.types {
		errs = append(errs, t.source.Close())
	}
	for _, r := range s.relations {
		errs = append(errs, r.source.Close())
	}
	return errors.Join(errs...)
}

// run is Run for a typed graph: a graph directory for each type and each relation.
func (s *typedSource) run(ctx context.Context, fsys vfs.FS, dir string, o Options) (*Result, error) {
	start := time.Now()
	if o.EdgeFeatures.Statistics != "" {
		return nil, badOptions("--edge-features is for graphs of one type of nodes (leave it out)")
	}
	w, err := format.CreateTyped(fsys, dir, o.Force)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	t := &format.Typed{Name: s.name, Target: s.target}
	if o.Name != "" {
		t.Name = o.Name
	}
	res := &Result{Target: s.target, Notes: slices.Clone(s.notes)}
	part := func(source Source, at string, o Options) (*Result, error) {
		o.Direction, o.Force, o.ofATyped = UnknownDirection, false, true
		return Run(ctx, fsys, source, at, o)
	}
	for _, one := range s.types {
		options := o
		options.Name = one.id
		source := Source(one.source)
		if one.standIn != NoStandIn {
			source = standInSource{one.source, one.standIn}
		}
		if one.source.info.Features == 0 || one.standIn != NoStandIn {
			options.FeaturesInPlace = false
		}
		r, err := part(source, format.NodesDir(w.Dir(), one.id), options)
		if err != nil {
			return nil, fmt.Errorf("type %s: %w", one.id, err)
		}
		t.Types = append(t.Types, format.NodeType{Name: one.id, Nodes: r.Nodes, Features: r.Features,
			Fingerprint: r.fingerprint})
		res.Nodes += r.Nodes
		if res.Notes = append(res.Notes, r.Notes...); one.id == s.target {
			res.Features, res.Classes, res.LabelColumns, res.LabelValues = r.Features, r.Classes, r.LabelColumns, r.LabelValues
			res.Train, res.Valid, res.Test = r.Train, r.Valid, r.Test
		}
	}
	for _, one := range s.relations {
		options := o
		options.Name, options.NormalizeFeatures, options.FeaturesInPlace = one.id.String(), false, false
		if one.id.Source != one.id.Destination {
			options.SelfLoops = KeepLoops // equal numbers are not the same node
		}
		r, err := part(one.source, format.RelationDir(w.Dir(), one.id), options)
		if err != nil {
			return nil, fmt.Errorf("relation %s: %w", one.id, err)
		}
		relation := one.id
		relation.Edges, relation.Fingerprint = r.Edges, r.fingerprint
		t.Relations = append(t.Relations, relation)
		res.Edges += r.Edges
		for _, note := range r.Notes {
			res.Notes = append(res.Notes, relation.String()+": "+note)
		}
	}
	if err := w.Publish(t); err != nil {
		return nil, err
	}
	res.Types, res.Relations, res.Output, res.Seconds = t.Types, t.Relations, dir, time.Since(start).Seconds()
	return res, nil
}

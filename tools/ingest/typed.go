package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/spf13/pflag"
)

// typedSource is a graph with several types of nodes: a source without edges for each type, and a source without rows
// and features for each relation. Its own methods are those of the target type.
type typedSource struct {
	Source
	name, target string
	types        []typedPart[string]
	relations    []typedPart[format.Relation]
	notes        []string
	labelled     []string      // types with labels
	scratch      *scratch      // nil: none
	graphs       []*format.Dir // of an update
}

type typedPart[ID any] struct {
	id     ID
	source Source
	added  bool             // of a relation: the reverse of another, which owns the source
	was    *format.Manifest // in an update, that of the same part; nil: none
}

// options are those that make a part of a typed graph: in an update, those that the part was made by.
func (p *typedPart[ID]) options(o Options, name string) Options {
	if o.Name = name; p.was != nil {
		same := OptionsOf(p.was)
		o.DType, o.SelfLoops, o.Duplicates = same.DType, same.SelfLoops, same.Duplicates
	}
	return o
}

// TypedOptions are those of all layouts with several types of nodes.
type TypedOptions struct {
	Target  string  // type whose nodes are classified; "": as the input says, or the only one with labels
	Missing StandIn // features of types that have none
}

func (o *TypedOptions) declare(flags *pflag.FlagSet) {
	flags.StringVar(&o.Target, "target", "",
		"with several types of nodes, the one to classify (default: the only one with labels)")
	flags.StringVar((*string)(&o.Missing), "missing-features", "",
		"with several types of nodes, features of types that have none: ones (a column of them), one-hot (the number of\n"+
			"the node, for up to 4096 nodes) or degree (log(1 + edges) of each relation, in and out)")
}

func (o *TypedOptions) refuse() error {
	if *o != (TypedOptions{}) {
		return badOptions("--target and --missing-features are for graphs with several types of nodes (leave them out)")
	}
	return nil
}

// parseRelation reads the name of a relation's folder or table: source, name (optional) and destination between "__",
// or OGB's "___".
func parseRelation(at, name string) (r format.Relation, err error) {
	parts := strings.Split(strings.ReplaceAll(name, "___", "__"), "__")
	switch len(parts) {
	case 2:
		r = format.Relation{Source: parts[0], Destination: parts[1]}
	case 3:
		r = format.Relation{Source: parts[0], Name: parts[1], Destination: parts[2]}
	default:
		return r, invalid(at, "want a name such as author__paper or author__writes__paper")
	}
	for _, part := range parts {
		if err := format.CheckTypeName(part); err != nil {
			return r, invalid(at, "%w: rename it", err)
		}
	}
	return r, nil
}

// addReverses adds the reverse of each relation where no relation goes back, unless the direction is Directed.
func (s *typedSource) addReverses(direction Direction) error {
	given := slices.Clone(s.relations)
	for _, one := range given {
		r := one.id
		back := format.Relation{Source: r.Destination, Name: r.Name, Destination: r.Source}
		switch {
		case r.Name != "":
			back.Name = "rev_" + r.Name
		case r.Source == r.Destination:
			back.Name = "rev"
		}
		if direction == Directed || slices.ContainsFunc(given, func(other typedPart[format.Relation]) bool {
			return other.id == back || r.Source != r.Destination && other.id != r && other.id.Source == back.Source &&
				other.id.Destination == back.Destination
		}) {
			continue
		}
		if err := format.CheckTypeName(back.Name); back.Name != "" && err != nil {
			return badOptions("the reverse of relation %s: %w (rename the relation, or give --directed)", r, err)
		}
		s.notes = append(s.notes, fmt.Sprintf("relation %s is added, the reverse of %s (--directed leaves it out)", back, r))
		s.relations = append(s.relations, typedPart[format.Relation]{id: back, source: turnedSource{one.source, r},
			added: true})
	}
	return nil
}

// turnedSource is a relation with each edge turned round.
type turnedSource struct {
	Source
	of format.Relation
}

func (s turnedSource) Info() Info {
	info := s.Source.Info()
	info.Input = maps.Clone(info.Input)
	info.Input[format.ReverseOf] = s.of.String()
	if info.Notes = nil; info.SourceNodes > 0 {
		info.SourceNodes, info.Nodes = info.Nodes, info.SourceNodes
	}
	return info
}

func (s turnedSource) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	return s.Source.Edges(ctx, threads, func(e Edges) error {
		e.Src, e.Dst = e.Dst, e.Src
		return emit(e)
	})
}

func (s turnedSource) Columns() []inputColumn { return columnsOf(s.Source, format.OfEdges) }

func (s turnedSource) Rows(context.Context) (*format.RowTable, error) {
	return &format.RowTable{Rows: s.Info().Nodes}, nil
}

// fillFeatures gives types without features a stand-in.
func (s *typedSource) fillFeatures(kind StandIn) error {
	if err := kind.check(); err != nil {
		return err
	}
	for i, t := range s.types {
		if t.source.Info().Features > 0 {
			continue
		}
		in := standInSource{Source: t.source, kind: kind, of: s, name: t.id}
		var err error
		if in.columns, err = in.width(); err != nil {
			return err
		}
		if in.columns > 0 {
			s.types[i].source = in
			s.notes = append(s.notes, fmt.Sprintf("nodes of type %s have no features, and get %s: %s", t.id, kind,
				units.Count(int64(in.columns), "column")))
		}
	}
	return nil
}

// complete adds what the input at path does not give: reverses, stand-ins, and which type is the target.
func (s *typedSource) complete(path string, direction Direction, o TypedOptions) error {
	if err := s.addReverses(direction); err != nil {
		return err
	}
	if err := s.fillFeatures(o.Missing); err != nil {
		return err
	}
	return s.chooseTarget(path, o.Target)
}

// chooseTarget sets the target type: the one that is named, or the only one of labelled.
func (s *typedSource) chooseTarget(path, name string) error {
	labelled := s.labelled
	if s.target = name; name == "" && len(labelled) == 1 {
		s.target = labelled[0]
	}
	var names []string
	for _, t := range s.types {
		if names = append(names, t.id); t.id == s.target {
			s.Source = t.source
		}
	}
	if s.Source == nil && name == "" {
		return invalid(path, "no target: name one of the types %s (with labels: %s) by --target or, for arrays, in "+
			"meta.json", listed(names), cmp.Or(listed(labelled), "none"))
	}
	if s.Source == nil {
		return invalid(path, "the target is %q: want one of the types %s (with labels: %s)", name, listed(names),
			cmp.Or(listed(labelled), "none"))
	}
	return nil
}

func (s *typedSource) Close() error {
	var errs []error
	for _, t := range s.types {
		errs = append(errs, t.source.Close())
	}
	for _, r := range s.relations {
		if !r.added {
			errs = append(errs, r.source.Close())
		}
	}
	if s.scratch != nil {
		errs = append(errs, s.scratch.Close())
	}
	for _, d := range s.graphs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// run is Run for a typed graph: a graph directory for each type and each relation.
func (s *typedSource) run(ctx context.Context, fsys vfs.FS, dir string, o Options) (*Result, error) {
	start := time.Now()
	into, notes, err := s.inEdges(o)
	if err != nil {
		return nil, err
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
	res := &Result{Target: s.target, Notes: append(slices.Clone(s.notes), notes...)}
	o.EdgeFeatures = EdgeFeatures{}
	part := func(source Source, at string, o Options) (*Result, error) {
		o.Direction, o.Force, o.ofATyped = UnknownDirection, false, true
		return Run(ctx, fsys, source, at, o)
	}
	for _, one := range s.types {
		options := one.options(o, one.id)
		options.into = into[one.id]
		if _, standIn := one.source.(standInSource); standIn || one.source.Info().Features == 0 {
			options.FeaturesInPlace = false
		}
		r, err := part(one.source, format.NodesDir(w.Dir(), one.id), options)
		if err != nil {
			return nil, fmt.Errorf("type %s: %w", one.id, err)
		}
		t.Types = append(t.Types, format.NodeType{Name: one.id, Nodes: r.Nodes, Features: r.Features,
			Fingerprint: r.fingerprint})
		if r.Features == 0 {
			res.Notes = append(res.Notes, fmt.Sprintf("nodes of type %s have no features, so no metapath starts from them "+
				"(--missing-features gives them some)", one.id))
		}
		res.Nodes += r.Nodes
		if res.Notes = append(res.Notes, r.Notes...); one.id == s.target {
			res.Features, res.Classes, res.LabelColumns, res.LabelValues = r.Features, r.Classes, r.LabelColumns, r.LabelValues
			res.Train, res.Valid, res.Test = r.Train, r.Valid, r.Test
		}
	}
	for _, one := range s.relations {
		options := one.options(o, one.id.String())
		options.NormalizeFeatures, options.FeaturesInPlace = false, false
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

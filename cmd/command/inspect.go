package command

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
)

func newInspectCommand(a *app) *cobra.Command {
	return a.verb("inspect GRAPH|STORE", "Say what is in a graph or hop store", "", runInspect)
}

// inspected is the result of inspect: the manifest, and sizes on disk.
type inspected struct {
	format.Manifest
	Matrices []string `json:"matrices"`
	Chunks   int      `json:"chunks"` // of each matrix
	Bytes    int64    `json:"bytes"`  // of all files, features left in place included
	// of rows and input; the same after matrices are added
	RowsFingerprint string `json:"rows_fingerprint"`
}

func (i *inspected) Text(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, units.Printable(fmt.Sprintf(format, args...)))
	}
	line("kind", "%s (format %d, written by hopfeed %s)", i.Kind, i.Format, i.Tool)
	line("name", "%s", i.Name)
	line("nodes", "%d", i.Nodes)
	line("edges", "%d (%s, %s)", i.Edges, either(i.Directed, "directed", "both directions stored"),
		either(i.Weighted, "weighted", "unweighted"))
	if labels := i.LabelColumns(); labels > 0 {
		line("features", "%d, %s; the last %d are labels of training nodes, propagated over up to %s", i.Features, i.DType,
			labels, units.Count(int64(i.LabelHops), "hop"))
	} else {
		line("features", "%d, %s", i.Features, i.DType)
	}
	switch {
	case i.LabelValues:
		line("labels", "%s a node to predict (regression)", units.Count(int64(i.Labels), "value"))
	case i.Labels > 1:
		line("labels", "%d a node", i.Labels)
	case i.Labels == 1:
		line("classes", "%d%s", i.Classes, classNames(i.ClassNames))
	}
	line("splits", "%d", i.Splits)
	if i.Kind == format.KindStore {
		line("rows", "%d (%s), ordered for split %d with seed %d", i.Rows, i.RowSet, i.Split, i.Seed)
	}
	for _, m := range i.Matrices {
		line("matrix", "%s", m)
	}
	for _, c := range i.Columns {
		line("column", "%s of %s: %s, %s", c.Name, c.Of, units.Count(int64(max(1, c.Columns)), "number"), c.DType)
	}
	for _, r := range i.Regions {
		line("region", "%s: %s in %s", r.Name, units.Count(r.Rows, "row"), units.Count(int64(r.Chunks), "chunk"))
	}
	line("chunks", "%d of up to %s, for each matrix", i.Chunks, units.Count(int64(i.ChunkRows), "row"))
	line("on disk", "%s in %d files", units.Bytes(i.Bytes), len(i.Files)+2)
	for _, f := range i.Files {
		if f.Source != "" {
			line("in place", "%s (from the graph)", f.Source)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(i.Input)) {
		line("made from", "%s: %s", k, i.Input[k])
	}
	line("fingerprint", "%s", i.Fingerprint)
}

// inspectedTyped is the result of inspect for a typed graph: types.json, and what the manifests of its types say.
type inspectedTyped struct {
	format.Typed
	EdgeFeatures map[string]string `json:"edge_features,omitempty"` // by type: its last features, which in-edges gave
}

func inspectTyped(fsys vfs.FS, dir string) (result, error) {
	t, err := format.OpenTyped(fsys, dir)
	if err != nil {
		return nil, err
	}
	said, err := t.EdgeFeatures(fsys, dir)
	if err != nil {
		return nil, err
	}
	return &inspectedTyped{*t, said}, nil
}

func (i *inspectedTyped) Text(w io.Writer) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("kind", "typed graph (format %d, written by hopfeed %s)", i.Format, i.Tool)
	line("name", "%s", units.Printable(i.Name))
	line("target", "%s", i.Target)
	for _, t := range i.Types {
		line("type", "%s: %s of %s", t.Name, units.Count(t.Nodes, "node"), units.Count(int64(t.Features), "feature"))
		if said := i.EdgeFeatures[t.Name]; said != "" {
			line("from edges", "the last features of %s: %s", t.Name, units.Printable(said))
		}
	}
	for _, r := range i.Relations {
		line("relation", "%s: %s", format.Relation(r), units.Count(r.Edges, "edge"))
	}
	line("fingerprint", "%s", i.Fingerprint)
}

// classNames lists the names of classes, or the first of many, behind their number.
func classNames(names []string) string {
	const most = 50
	switch {
	case len(names) > most:
		return fmt.Sprintf(": %s, ... (--json lists all)", strings.Join(names[:most], ", "))
	case len(names) > 0:
		return ": " + strings.Join(names, ", ")
	}
	return ""
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// refuseModel says what to do with a trained model where a graph or store is wanted.
func (a *app) refuseModel(dir string) error {
	if _, err := a.fs.Stat(filepath.Join(dir, checkpoint.File)); err != nil {
		return nil // it is none, or what is wrong shows when it is opened
	}
	return usagef("%s is a trained model, no graph or store: see hopfeed evaluate --checkpoint %s STORE", dir, dir)
}

func runInspect(_ context.Context, a *app, args []string) (result, error) {
	dir := args[0]
	if err := a.refuseModel(dir); err != nil {
		return nil, err
	}
	if format.IsTyped(a.fs, dir) {
		return inspectTyped(a.fs, dir)
	}
	d, err := format.OpenAny(a.fs, dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	r := &inspected{Manifest: d.Manifest, Bytes: d.Manifest.Bytes(), RowsFingerprint: d.Manifest.RowsFingerprint()}
	for _, m := range d.Matrices() {
		name := m.String()
		if l := d.Layout(); l.Of(m).Features != l.Features {
			name += ": " + units.Count(int64(l.Of(m).Features), "column")
		}
		r.Matrices = append(r.Matrices, name)
	}
	for _, region := range d.Layout().Regions {
		r.Chunks += region.Chunks
	}
	return r, nil
}

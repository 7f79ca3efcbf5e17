package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/ingest"
)

// graphOptions are the options that import and generate share.
type graphOptions struct {
	ingest.Options
	output string
	dtype  string
}

func (o *graphOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "graph directory to write")
	f.StringVar(&o.Name, "name", "",
		"name of the data set, for people (default: its own, else that of SRC)")
	f.StringVar((*string)(&o.SelfLoops), "self-loops", string(ingest.KeepLoops),
		"keep or drop edges from a node to itself")
	f.StringVar((*string)(&o.Duplicates), "duplicates", string(ingest.MergeDuplicates),
		"merge: one edge of several is left; sum: one, with the sum of weights; keep")
	f.StringVar(&o.dtype, "dtype", "float32", dtypeUsage)
	f.StringVar(&o.Scratch, "scratch", "", scratchUsage+" (default: GRAPH/.job and GRAPH.scratch)")
	f.BoolVar(&o.Force, "force", false, forceUsage)
	c.MarkFlagRequired("output")
}

func newImportCommand(a *app) *cobra.Command {
	var names []string
	var listNames bool
	c := a.verb("import", "Make a graph directory from data in another format", "",
		func(_ context.Context, _ *app, args []string) (result, error) {
			switch {
			case listNames:
				return columnNames{ingest.ColumnNames()}, nil
			case len(args) == 0:
				return nil, usagef("import needs a layout: want one of %s", strings.Join(names, ", "))
			}
			return nil, usagef("there is no import layout %q%s (want one of %s)", args[0], didYouMean(args[0], "", names),
				strings.Join(names, ", "))
		})
	c.Args, c.FParseErrWhitelist.UnknownFlags = cobra.ArbitraryArgs, true // an unknown format is the error, not its flags
	for _, f := range ingest.Formats() {
		names = append(names, f.Name)
		c.AddCommand(newImportFormatCommand(a, f))
	}
	c.Flags().BoolVar(&listNames, "names", false, "list the names by which columns of tables are found")
	c.Use = "import " + strings.Join(names, "|") + " SRC -o GRAPH"
	return c
}

func newImportFormatCommand(a *app, format ingest.Format) *cobra.Command {
	var o graphOptions
	var undirected, directed bool
	var open func(context.Context, ingest.Input) (ingest.Source, error)
	c := a.verb(format.Name+" SRC -o GRAPH", "Import "+format.Short, format.Help+ingest.EdgeFeaturesHelp,
		func(ctx context.Context, a *app, args []string) (result, error) {
			switch {
			case undirected && directed:
				return nil, usagef("--undirected and --directed exclude each other: give one of them")
			case undirected:
				o.Direction = ingest.Undirected
			case directed:
				o.Direction = ingest.Directed
			}
			if err := a.refuseWithin(o.output); err != nil {
				return nil, err
			}
			if err := a.refuseInside(o.output, args[0]); err != nil {
				return nil, err
			}
			return a.ingest(ctx, func() (ingest.Source, error) {
				return open(ctx, ingest.Input{FS: a.fs, Path: args[0], Direction: o.Direction,
					EdgeFeatures: o.EdgeFeatures.Statistics != "",
					Scratch: ingest.ScratchOptions{Output: o.output, Scratch: o.Scratch, Force: o.Force,
						MemoryBytes: int64(a.budget.Bytes), Progress: a.progress()}})
			}, o)
		})
	o.flags(c)
	f := c.Flags()
	f.BoolVar(&undirected, "undirected", false,
		"add the reverse of every edge, also if SRC says that its edges are directed")
	f.BoolVar(&directed, "directed", false,
		"take edges as they are; an error if SRC says that its edges are undirected")
	f.BoolVar(&o.NormalizeFeatures, "normalize-features", false,
		"divide each row of features by its sum, where that is positive")
	f.BoolVar(&o.FeaturesInPlace, "features-in-place", false, "refer to the array of the features instead of copying it")
	o.EdgeFeatures.Declare(f)
	open = format.Declare(f)
	return c
}

// columnNames is the result of import --names.
type columnNames struct {
	Names string `json:"names"`
}

func (n columnNames) Text(w io.Writer) { fmt.Fprint(w, n.Names) }

// imported is the result of import and generate.
type imported struct{ *ingest.Result }

func (i imported) Text(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s, %s, %s", i.Output, units.Count(i.Nodes, "node"), units.Count(i.Edges, "edge"),
		units.Count(int64(i.Features), "feature"))
	switch {
	case i.LabelValues:
		fmt.Fprintf(w, ", %s a node to predict (regression)", units.Count(int64(i.LabelColumns), "value"))
	case i.LabelColumns > 1:
		fmt.Fprintf(w, ", %d labels a node (multi-label)", i.LabelColumns)
	case i.Classes > 0:
		fmt.Fprintf(w, ", %s", units.Count(int64(i.Classes), "class"))
	}
	if i.Target != "" {
		fmt.Fprintf(w, " (features, classes and splits of %s; %s, %s)", i.Target,
			units.Count(int64(len(i.Types)), "type"), units.Count(int64(len(i.Relations)), "relation"))
	}
	if i.Train+i.Valid+i.Test > 0 {
		fmt.Fprintf(w, "\n\tsplit 0: %d train, %d valid, %d test", i.Train, i.Valid, i.Test)
	}
	fmt.Fprintf(w, "\n\tin %.1f s\n", i.Seconds)
}

// ingest writes a graph directory from a source, which it opens and closes.
func (a *app) ingest(ctx context.Context, open func() (ingest.Source, error), o graphOptions) (_ result, err error) {
	start := time.Now()
	if o.DType, err = parseDType(o.dtype); err != nil {
		return nil, err
	}
	o.Threads, o.MemoryBytes, o.Progress = a.threads, int64(a.budget.Bytes), a.progress()
	if err := o.Options.Check(); err != nil {
		return nil, err
	}
	source, err := open()
	if err != nil {
		return nil, err
	}
	r, err := ingest.Run(ctx, a.fs, source, o.output, o.Options)
	if err := errors.Join(err, source.Close()); err != nil { // closing removes scratch files
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds() // what opening reads counts too
	for _, n := range r.Notes {
		a.note("note: %s", n)
	}
	return imported{r}, nil
}

// parseDType reads a type that features can be stored in; "" is none.
func parseDType(name string) (format.DType, error) {
	if name == "" {
		return 0, nil
	}
	t, err := dtype.Parse(name)
	if err != nil || !t.IsFloat() {
		return 0, usagef("--dtype %s: want float32, float16 or bfloat16", name)
	}
	return t, nil
}

package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/tools/ingest"
)

type generateOptions struct {
	kind string
	ingest.GenerateOptions
	graphOptions
	quadrants             []float64 // of R-MAT
	undirected            bool      // of R-MAT
	homophily, separation float64   // of SBM
}

func newGenerateCommand(a *app) *cobra.Command {
	var o generateOptions
	c := a.verb("generate rmat|sbm -o GRAPH --nodes N --edges M --features F --classes C",
		"Make a random graph with features, labels and a split",
		"Generate draws a graph that is a function of the options and --seed alone.\n\n"+
			"rmat: skewed degrees; features and labels are noise. For measuring speed.\n"+
			"sbm: communities that are the classes; features are Gaussian around a mean of each class. For learning.", o.do)
	o.flags(c)
	f := c.Flags()
	f.Int64Var(&o.Nodes, "nodes", 10000, "number of nodes")
	f.Int64Var(&o.Edges, "edges", 100000, "number of edges to draw")
	f.IntVar(&o.Features, "features", 64, "features of a node")
	f.IntVar(&o.Classes, "classes", 8, "number of classes")
	f.Float64Var(&o.Labeled, "labeled", 0.1,
		"share of the nodes that have a label; of these 60 % train, 20 % validate, 20 % test")
	f.Float64SliceVar(&o.quadrants, "quadrants", []float64{0.57, 0.19, 0.19, 0.05}, "rmat: `probabilities` a,b,c,d of the quadrants of the adjacency matrix")
	f.BoolVar(&o.undirected, "undirected", false, "rmat: add the reverse of every edge (sbm always does)")
	f.Float64Var(&o.homophily, "homophily", 0.8, "sbm: expected share of edges within a class")
	f.Float64Var(&o.separation, "separation", 2,
		"sbm: distance between the means of two classes, in standard deviations")
	return c
}

func (o *generateOptions) do(ctx context.Context, a *app, args []string) (result, error) {
	o.kind, o.Seed = args[0], a.seed
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	return a.ingest(ctx, o.source, o.graphOptions)
}

func (o *generateOptions) source() (ingest.Source, error) {
	switch o.kind {
	case "rmat":
		if len(o.quadrants) != 4 {
			return nil, usagef("--quadrants: want four probabilities, got %d", len(o.quadrants))
		}
		q := o.quadrants
		return ingest.RMAT(ingest.RMATOptions{GenerateOptions: o.GenerateOptions,
			A: q[0], B: q[1], C: q[2], D: q[3], Undirected: o.undirected})
	case "sbm":
		return ingest.SBM(ingest.SBMOptions{GenerateOptions: o.GenerateOptions,
			Homophily: o.homophily, Separation: o.separation})
	}
	return nil, usagef("there is no generator %q%s (there are: rmat, sbm)", o.kind,
		didYouMean(o.kind, "", []string{"rmat", "sbm"}))
}

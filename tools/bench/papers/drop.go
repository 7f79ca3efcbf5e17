package papers

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Drop is a3gnn Eq. 1, the accuracy that a training loses by sampling towards cached nodes and by partitions,
// fitted to trials. The paper leaves f1 open. Here it is
//
//	drop = ln(bias) * (a + b * cached + c * ln(density / mean density)) + d * (1 - eta)
//
// with the cached share of nodes, the geometric mean density over trials and eta, the nodes of a partition / all nodes:
// there is no drop with a bias of 1 and one partition.
type Drop struct {
	Trials int        `json:"trials"`
	Terms  []DropTerm `json:"terms"`
	R2     *float64   `json:"r2"`         // nil: the drop does not vary
	Error  float64    `json:"mean_error"` // of the drop, without sign
	Runs   []DropRun  `json:"runs"`
}

// DropTerm is a fitted factor. Terms that are 0 in all trials are left out.
type DropTerm struct {
	Name   string  `json:"name"`
	Factor float64 `json:"factor"`
}

// DropRun is a trial beside one with the same settings, no bias and one partition.
type DropRun struct {
	Graph     string  `json:"graph"`
	Trial     int     `json:"trial"`
	Bias      float64 `json:"bias"`
	Cached    float64 `json:"cached"` // share of the nodes
	Eta       float64 `json:"eta"`
	Measured  float64 `json:"drop"`
	Predicted float64 `json:"predicted_drop"`

	terms []float64
}

var dropTerms = []string{"ln(bias)", "ln(bias) * cached", "ln(bias) * ln(density / mean)", "1 - eta"}

// dropped are the settings of Equation 1; indifferent ones do not change which model is trained.
var (
	dropped     = []string{"sampler", "bias", "cache", "partitions"}
	indifferent = []string{"schedule", "workers", "buffers", "placement"} // but for schedule multi-queue
)

// FitDrop fits by least squares. It fails where no trial has another with the same settings to be compared with.
func FitDrop(trials []tune.Trial) (*Drop, error) {
	base := map[string][]float64{}
	key := func(t tune.Trial) string {
		s := tune.Settings{}.With(t.Settings)
		for _, name := range append(slices.Clone(dropped), indifferent...) {
			if name != "schedule" || s[name] != "multi-queue" {
				delete(s, name)
			}
		}
		return fmt.Sprint(*t.Graph, s.Text())
	}
	number := func(t tune.Trial, name string) float64 {
		v, err := strconv.ParseFloat(t.Settings[name], 64)
		if err != nil {
			return 1
		}
		return v
	}
	var density []float64 // logarithms
	trials = slices.DeleteFunc(slices.Clone(trials), func(t tune.Trial) bool {
		sampler := t.Settings["sampler"]
		return t.Valid == nil || t.Lower || t.Graph == nil || t.Graph.Edges == 0 || // nothing is sampled
			sampler != "" && sampler != "neighbor" && sampler != "locality"
	})
	for _, t := range trials {
		density = append(density, math.Log(float64(t.Graph.Edges)/float64(t.Graph.Nodes)/float64(t.Graph.Nodes)))
		if number(t, "bias") == 1 && number(t, "partitions") == 1 {
			base[key(t)] = append(base[key(t)], *t.Valid)
		}
	}
	d := &Drop{}
	for i, t := range trials {
		bias, partitions, same := number(t, "bias"), number(t, "partitions"), base[key(t)]
		if bias == 1 && partitions == 1 || same == nil {
			continue
		}
		r := DropRun{Graph: t.Graph.Name, Trial: t.Number, Bias: bias, Eta: 1 / partitions,
			Measured: stat.Mean(same, nil) - *t.Valid}
		if spec, err := cache.Parse(t.Settings["cache"]); err == nil {
			row := int64(4 * t.Graph.Features)
			r.Cached = float64(spec.Slots(t.Graph.Nodes, max(row, 1))) / float64(t.Graph.Nodes)
		}
		log := math.Log(bias)
		r.terms = []float64{log, log * r.Cached, log * (density[i] - stat.Mean(density, nil)), 1 - r.Eta}
		d.Runs = append(d.Runs, r)
	}
	if len(d.Runs) == 0 {
		return nil, fmt.Errorf("no trial with --bias or --partitions has another without, and with the same other settings")
	}
	d.fit()
	return d, nil
}

// fit minimises the squared differences of measured and predicted drops, and of tiny factors from 0.
func (d *Drop) fit() {
	var used []int
	for k := range dropTerms {
		if slices.ContainsFunc(d.Runs, func(r DropRun) bool { return math.Abs(r.terms[k]) > 1e-12 }) {
			used = append(used, k)
		}
	}
	const ridge = 1e-6 // so that terms that tell the same share a factor
	n, p := len(d.Runs), len(used)
	x, y := mat.NewDense(n+p, p, nil), mat.NewVecDense(n+p, nil)
	for i, r := range d.Runs {
		y.SetVec(i, r.Measured)
		for c, k := range used {
			x.Set(i, c, r.terms[k])
		}
	}
	for c := range used {
		x.Set(n+c, c, ridge)
	}
	var factors mat.VecDense
	_ = factors.SolveVec(x, y) // the rows of ridge make it solvable
	var measured, predicted []float64
	for c, k := range used {
		d.Terms = append(d.Terms, DropTerm{dropTerms[k], factors.AtVec(c)})
	}
	for i := range d.Runs {
		r := &d.Runs[i]
		for c, k := range used {
			r.Predicted += factors.AtVec(c) * r.terms[k]
		}
		d.Error += math.Abs(r.Predicted-r.Measured) / float64(n)
		measured, predicted = append(measured, r.Measured), append(predicted, r.Predicted)
	}
	d.Trials = n
	if slices.Min(measured) < slices.Max(measured) {
		r2 := stat.RSquaredFrom(predicted, measured, nil)
		d.R2 = &r2
	}
}

// Text prints the equation.
func (d *Drop) Text(w io.Writer) {
	fmt.Fprintf(w, "accuracy drop (Equation 1)\t%d trials", d.Trials)
	for _, t := range d.Terms {
		fmt.Fprintf(w, ", %+.4f * %s", t.Factor, t.Name)
	}
	if d.R2 != nil {
		fmt.Fprintf(w, "; R2 %.3f", *d.R2)
	}
	fmt.Fprintf(w, "; off by %.4f on average\n", d.Error)
}

package tune

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/internal/jsontext"
)

// Graph holds the facts of a graph that trials depend on beside their settings.
type Graph struct {
	Name     string `json:"name"`
	Nodes    int64  `json:"nodes"`
	Edges    int64  `json:"edges"`
	Features int    `json:"features"` // columns
}

// title tells graphs apart: generated ones have the same name.
func (g *Graph) title() string {
	return fmt.Sprintf("%s of %d nodes and %d edges", g.Name, g.Nodes, g.Edges)
}

// graphPrefix begins the names of facts of a trial's graph, which are no settings.
const graphPrefix = "graph."

// describe adds to settings what the graph is like: d(G), degree and size (a3gnn §III-C), and the cached share of its
// nodes.
func (g *Graph) describe(s Settings) Settings {
	number := func(v float64) string { return strconv.FormatFloat(v, 'e', 6, 64) }
	n := math.Max(1, float64(g.Nodes))
	all := s.With(Settings{
		graphPrefix + "nodes": number(n), graphPrefix + "degree": number(float64(g.Edges) / n),
		graphPrefix + "density":  number(float64(g.Edges) / n / n),
		graphPrefix + "features": number(float64(g.Features)),
	})
	if numbers, word := partsOf(s["cache"]); len(numbers) == 1 && strings.HasSuffix(word, ":rows") {
		all[graphPrefix+"cached"] = number(numbers[0] / n)
	}
	return all
}

// floats estimates the device memory of a training on a graph (a3gnn Equations 3 and 5): the graph, its layers in
// validation, the cache, and the batches there with their activations. Surrogates learn by which factor memory differs
// from this, so that they hold for graphs that are larger than those that they have seen.
func (g *Graph) floats(s Settings) float64 {
	first := func(name string, otherwise float64) float64 {
		if numbers, _ := partsOf(s[name]); len(numbers) > 0 {
			return math.Max(1, numbers[0])
		}
		return otherwise
	}
	const allEdges = "1e9" // as a fanout
	n, columns, hidden := math.Max(1, float64(g.Nodes)), math.Max(1, float64(g.Features)), first("hidden", 256)
	rows := first("batch", 1)
	fanout := strings.ReplaceAll(s["fanout"], "-1", allEdges)
	if s["sampler"] == "full" {
		fanout = strings.Repeat(allEdges+",", int(first("layers", 2)))
	}
	fanouts, _ := partsOf(fanout)
	for _, f := range fanouts {
		rows = math.Min(n, rows*(1+math.Min(f, float64(g.Edges)/n)))
	}
	held := 2.0 // batches on the device
	switch s["schedule"] {
	case "sequential", "mode-2":
		held = 1
	case "mode-1", "gpu":
		held = 4
	}
	cached := 0.0
	if numbers, word := partsOf(s["cache"]); len(numbers) == 1 && strings.HasSuffix(word, ":rows") {
		cached = numbers[0]
	}
	const layers = 8 // vectors of a node beside its features
	return n*(columns+layers*hidden) + 2*float64(g.Edges) + cached*columns + held*rows*columns + layers*rows*hidden
}

// Surrogate predicts throughput, memory and metric of trainings on a graph from settings and graph. It is made offline,
// of the trials of several graphs (a3gnn §III-C), and keeps what a regression learns from.
type Surrogate struct {
	Regressions   [3]string   `json:"regressions"`    // of throughput, memory and metric
	ProcessorTime bool        `json:"processor_time"` // throughput and memory are as Goals say
	DeviceMemory  bool        `json:"device_memory"`
	Graphs        []string    `json:"graphs"`
	Columns       columns     `json:"columns"`
	X             [][]float64 `json:"x"`
	Scores        []Score     `json:"scores"` // of trials; memory as a factor of Graph.floats

	models [3]Model
}

// errFewGraphs is returned where trials name fewer graphs than wanted.
var errFewGraphs = errors.New("too few graphs")

// notLearned are settings that say on what data and machine trials ran, which the graph describes.
func notLearned(name string) bool {
	return name == "store" || name == "seed" || name == "fingerprint" || strings.HasPrefix(name, "prepared.")
}

// NewSurrogate learns throughput, memory and metric, each in a way of its own, from the measured trials that say what
// their graph is like.
func NewSurrogate(trials []Trial, g Goals, ways [3]Regression) (*Surrogate, error) {
	s := &Surrogate{ProcessorTime: g.ProcessorTime, DeviceMemory: g.DeviceMemory}
	var described []Settings
	names := map[string]bool{}
	for _, t := range trials {
		if t.Graph == nil || !g.Measured(t.Outcome) {
			continue
		}
		d := t.Graph.describe(t.Settings)
		for name := range d {
			names[name] = names[name] || !notLearned(name)
		}
		if name := t.Graph.title(); !slices.Contains(s.Graphs, name) {
			s.Graphs = append(s.Graphs, name)
		}
		score := g.Score(t.Outcome)
		score[1] += math.Log(t.Graph.floats(t.Settings))
		described, s.Scores = append(described, d), append(s.Scores, score)
	}
	if len(described) == 0 {
		return nil, fmt.Errorf("%w: no measured trial says what graph it is of", errFewGraphs)
	}
	maps.DeleteFunc(names, func(_ string, learned bool) bool { return !learned })
	s.Columns = columnsOf(slices.Sorted(maps.Keys(names)), described)
	s.X = s.Columns.rows(described)
	s.fit(ways)
	return s, nil
}

func (s *Surrogate) fit(ways [3]Regression) {
	for k, way := range ways {
		s.Regressions[k], s.models[k] = way.Name, way.Fit(s.X, column(s.Scores, k), 0)
	}
}

// DecodeSurrogate reads a surrogate that was saved as JSON.
func DecodeSurrogate(text []byte) (*Surrogate, error) {
	var s Surrogate
	if err := jsontext.Decode(text, &s); err != nil {
		return nil, err
	}
	var ways [3]Regression
	known := true
	for k, name := range s.Regressions {
		at := slices.IndexFunc(Regressions, func(r Regression) bool { return r.Name == name })
		if known = known && at >= 0; known {
			ways[k] = Regressions[at]
		}
	}
	if !known || len(s.X) == 0 || len(s.X) != len(s.Scores) ||
		slices.ContainsFunc(s.X, func(row []float64) bool { return len(row) != len(s.Columns) }) ||
		slices.ContainsFunc(s.Columns, func(c Column) bool { return !(c.Low < c.High) }) {
		return nil, fmt.Errorf("it is no surrogate: regressions %q, %d rows for %d scores", s.Regressions, len(s.X),
			len(s.Scores))
	}
	s.fit(ways)
	return &s, nil
}

// Predict is the score that trials with these settings have on a graph.
func (s *Surrogate) Predict(g *Graph, settings []Settings) []Score {
	described := make([]Settings, len(settings))
	for i, of := range settings {
		described[i] = g.describe(of)
	}
	scores := make([]Score, len(settings))
	for i, x := range s.Columns.rows(described) {
		for k, m := range s.models {
			scores[i][k] = m(x)
		}
		scores[i][1] -= math.Log(g.floats(settings[i]))
	}
	return scores
}

// Unseen is how well a regression predicts the trials of a graph from those of other graphs.
type Unseen struct {
	Graph      string      `json:"graph"`
	Trials     int         `json:"trials"`
	Regression string      `json:"regression"`
	R2         [3]*float64 `json:"r2"` // of throughput, memory and metric; nil: it does not vary
	// Follow is the correlation of predicted and measured figures, which does not count a level that is wrong for all
	// trials of the graph.
	Follow [3]*float64 `json:"correlation"`
}

// TestUnseen predicts the trials of each graph from those of all others, by each of some regressions.
func TestUnseen(trials []Trial, g Goals, ways ...Regression) (all []Unseen, err error) {
	of := map[string][]Trial{}
	for _, t := range trials {
		if t.Graph != nil && g.Measured(t.Outcome) {
			of[t.Graph.title()] = append(of[t.Graph.title()], t)
		}
	}
	if len(of) < 2 {
		return nil, fmt.Errorf("%w: trials say that they are of %d; one is predicted from the others", errFewGraphs, len(of))
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		others := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool {
			return t.Graph == nil || t.Graph.title() == name
		})
		for _, way := range ways {
			s, err := NewSurrogate(others, g, [3]Regression{way, way, way})
			if err != nil {
				return nil, err
			}
			all = append(all, s.test(name, way.Name, of[name], g))
		}
	}
	return all, nil
}

func (s *Surrogate) test(name, way string, trials []Trial, g Goals) Unseen {
	var settings []Settings
	var measured []Score
	for _, t := range trials {
		settings, measured = append(settings, t.Settings), append(measured, g.Score(t.Outcome))
	}
	predicted := s.Predict(trials[0].Graph, settings)
	u := Unseen{Graph: name, Trials: len(trials), Regression: way}
	for k := range u.R2 {
		y, p := column(measured, k), column(predicted, k)
		if k < 2 { // logarithms
			for i := range y {
				y[i], p[i] = math.Exp(y[i]), math.Exp(p[i])
			}
		}
		if slices.Min(y) == slices.Max(y) {
			continue
		}
		r2, follow := stat.RSquaredFrom(p, y, nil), stat.Correlation(p, y, nil)
		if u.R2[k] = &r2; !math.IsNaN(follow) {
			u.Follow[k] = &follow
		}
	}
	return u
}

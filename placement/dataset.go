package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Dataset describes a graph with features, as far as plans need it.
type Dataset struct {
	Name     string
	Nodes    int64
	Labeled  float64    // part of the nodes that has a label
	Split    [3]float64 // parts of the labelled nodes that train, validate, test
	Features int
	Classes  int
	Hops     int // the most that preprop-gnn trains it with (Appendix G)
}

// datasets are the data sets of preprop-gnn, Table 2.
var datasets = []Dataset{
	{"products", 2_449_029, 1, [3]float64{0.08, 0.02, 0.9}, 100, 47, 6},
	{"pokec", 1_632_803, 1, [3]float64{0.5, 0.25, 0.25}, 65, 2, 6},
	{"wiki", 1_925_342, 1, [3]float64{0.5, 0.25, 0.25}, 600, 5, 6},
	{"igb-medium", 10_000_000, 1, [3]float64{0.6, 0.2, 0.2}, 1024, 19, 3},
	{"papers100M", 111_059_956, 0.014, [3]float64{0.78, 0.08, 0.14}, 128, 172, 4},
	{"igb-large", 100_000_000, 1, [3]float64{0.6, 0.2, 0.2}, 1024, 19, 3},
}

// DatasetNames lists the data sets that FindDataset knows.
func DatasetNames() string {
	names := make([]string, len(datasets))
	for i, d := range datasets {
		names[i] = d.Name
	}
	return strings.Join(names, ", ")
}

// FindDataset is a data set of preprop-gnn, Table 2, by its name.
func FindDataset(name string) (Dataset, error) {
	i := slices.IndexFunc(datasets, func(d Dataset) bool { return d.Name == name })
	if i < 0 {
		return Dataset{}, fmt.Errorf("no data set %q is known (there are %s)", name, DatasetNames())
	}
	return datasets[i], nil
}

// Check returns an error for the first number of a data set that is impossible.
func (d Dataset) Check() error {
	sum := 0.0
	for _, part := range d.Split {
		if !(part >= 0 && part <= 1) {
			return fmt.Errorf("%v of the labelled nodes in a split (want fractions of 1)", part)
		}
		sum += part
	}
	switch {
	case d.Nodes < 1 || d.Nodes > math.MaxUint32:
		return fmt.Errorf("%d nodes (want 1 to %d)", d.Nodes, uint32(math.MaxUint32))
	case d.Features < 1 || d.Features > 1<<20:
		return fmt.Errorf("%d features (want 1 to %d)", d.Features, 1<<20)
	case d.Classes < 1 || d.Classes > 1<<20:
		return fmt.Errorf("%d classes (want 1 to %d)", d.Classes, 1<<20)
	case d.Hops < 0 || d.Hops > 1000:
		return fmt.Errorf("%d hops (want 0 to 1000)", d.Hops)
	case !(d.Labeled > 0 && d.Labeled <= 1):
		return fmt.Errorf("%v of the nodes labelled (want a fraction of 1)", d.Labeled)
	case !(d.Split[0] > 0) || sum > 1.0001:
		return fmt.Errorf("splits of %v, %v and %v (want fractions whose sum is at most 1, the first above 0)",
			d.Split[0], d.Split[1], d.Split[2])
	}
	return nil
}

// Rows is how many rows train, validate and test.
func (d Dataset) Rows() (train, valid, test int64) {
	labeled := float64(d.Nodes) * d.Labeled
	part := func(i int) int64 { return int64(math.Round(labeled * d.Split[i])) }
	return part(0), part(1), part(2)
}

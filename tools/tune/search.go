package tune

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// searches are the ways to choose what is tried next. Each is a function of the trials so far and of the seed, so that
// a search that was stopped goes on.
var searches = map[string]func(p *Points, g Goals, seed uint64) Proposer{
	"grid":     func(p *Points, _ Goals, _ uint64) Proposer { return p.Grid() },
	"random":   func(p *Points, _ Goals, seed uint64) Proposer { return p.Random(seed) },
	"gaussian": func(p *Points, g Goals, seed uint64) Proposer { return learning(p, g, seed, byGaussianProcesses) },
	"ppo":      func(p *Points, g Goals, seed uint64) Proposer { return learning(p, g, seed, byPolicy) },
}

// DefaultSearch is the search that came nearest to the front with a tenth of the runs (docs/benchmarks.md).
const DefaultSearch = "gaussian"

// Searches lists the names of all searches.
func Searches() []string { return slices.Sorted(maps.Keys(searches)) }

// NewSearch is the search of a name among points, for goals. It ends when all points have been tried.
func NewSearch(name string, p *Points, g Goals, seed uint64) (Proposer, error) {
	search, ok := searches[name]
	if !ok {
		return nil, fmt.Errorf("there is no search %q: want one of %s", name, strings.Join(Searches(), ", "))
	}
	return search(p, g, seed), nil
}

package preprop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Subsets of relations, as NARS has them (Yu et al. 2020, section 3): hop h of a subset is, for each node, the mean of
// hop h-1 over its in-neighbours by all relations of the subset, which count alike. A relation and its reverse are in a
// subset together, as in the authors' program. That brings all features to one width; here each type keeps its own, and
// a subset has a matrix for each hop and each type whose features come to the target in so many hops. Side by side
// these are hop h of features that are zero in the columns of other types.

// subset is relations, each with its reverse if the graph has it.
type subset [][]format.Relation

// reverses tells whether two relations are the same edges in the two directions, as imports name them.
func reverses(a, b format.Relation) bool {
	return a != b && a.Source == b.Destination && a.Destination == b.Source &&
		(a.Name == b.Name && a.Name == "" || a.Name == "rev_"+b.Name || b.Name == "rev_"+a.Name)
}

// pairs are all relations, with the one that leads to the target first.
func (m *typedMatrices) pairs() (pairs subset) {
	paired := map[format.Relation]bool{}
	for i, r := range m.typed.Relations {
		if paired[r] {
			continue
		}
		pair := []format.Relation{r}
		for _, other := range m.typed.Relations[i+1:] {
			if reverses(r, other) && !paired[other] {
				pair, paired[other] = append(pair, other), true
				if other.Destination == m.typed.Target && r.Destination != m.typed.Target {
					pair[0], pair[1] = other, r
				}
				break
			}
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// spell names a subset in operators, such as paper<author-paper<venue.
func (m *typedMatrices) spell(s subset) string {
	names := make([]string, len(s))
	for i, pair := range s {
		names[i] = stepName(m.typed, pair[0]) + pair[0].Source
	}
	return strings.Join(names, "-")
}

// into lists the relations of a subset to a type, in the order of the graph.
func (m *typedMatrices) into(s subset, head string) (relations []format.Relation) {
	for _, r := range m.typed.Relations {
		for _, pair := range s {
			for _, one := range pair {
				if one == r && r.Destination == head {
					relations = append(relations, r)
				}
			}
		}
	}
	return relations
}

// addSubsets draws count different subsets of relations and adds their matrices. A bit of a random number chooses each
// relation; a subset counts if it brings features to the target within these hops. It returns how many it found.
func (m *typedMatrices) addSubsets(count, hops int, seed uint64) (found int, err error) {
	const mostDraws, mostMatrices = 100_000, 1000
	if hops < 1 || hops > format.MaxHops {
		return 0, fmt.Errorf("%d hops of subsets of relations: there can be 1 to %d", hops, format.MaxHops)
	}
	pairs, seen, matrices := m.pairs(), map[string]bool{}, 0
	stream := rng.Derive(seed, "relations")
	for draw := uint64(0); draw < mostDraws && found < count; draw++ {
		if n := len(pairs); n < 16 && len(seen) == 1<<n {
			break // all are drawn
		}
		var s subset
		for i, pair := range pairs {
			if rng.Hash(rng.Hash(stream, draw), uint64(i))&1 == 1 {
				s = append(s, pair)
			}
		}
		name := m.spell(s)
		if seen[name] {
			continue
		}
		seen[name] = true
		before := matrices
		for hop := 1; hop <= hops; hop++ {
			for _, source := range m.typed.Types {
				if source.Features == 0 {
					continue
				}
				some, err := m.storeHop(s, source.Name, hop)
				if err != nil {
					return 0, err
				}
				if some {
					matrices++
				}
			}
		}
		if matrices > before {
			found++
		}
		if matrices > mostMatrices {
			return 0, fmt.Errorf("the subsets of relations have more than %d matrices (ask for fewer, or fewer --hops)",
				mostMatrices)
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("no subset of relations brings features to %s within %s", m.typed.Target,
			units.Count(int64(hops), "hop"))
	}
	return found, nil
}

// haveHops tells whether the store shall have hops of subsets.
func (m *typedMatrices) haveHops() bool {
	for name := range m.stored() {
		if isHop(name) {
			return true
		}
	}
	return false
}

// isHop tells the name of a hop of a subset from that of a metapath.
func isHop(name string) bool { return strings.Contains(name, "=") }

// storeHop adds a hop of a subset at the target, and tells whether it brings features of the type source.
func (m *typedMatrices) storeHop(s subset, source string, hop int) (bool, error) {
	one, err := m.hopOf(s, m.typed.Target, source, hop, map[string]*typedMatrix{})
	if err != nil || one == nil {
		return false, err
	}
	return true, m.store(one, fmt.Sprintf("%s=%d<%s", m.spell(s), hop, source))
}

// addHop adds the hop of a subset that text spells, such as paper<author-paper<venue=2<paper.
func (m *typedMatrices) addHop(text string) (hop int, err error) {
	spelled, rest, _ := strings.Cut(text, "=")
	number, source, _ := strings.Cut(rest, "<")
	if hop, err = strconv.Atoi(number); err != nil || hop < 1 || hop > format.MaxHops {
		return 0, fmt.Errorf("%q: want SUBSET=HOP<TYPE, with a hop from 1 to %d", text, format.MaxHops)
	}
	if n, known := m.typed.Type(source); !known || n.Features == 0 {
		return 0, fmt.Errorf("%q: there are no features of type %q", text, source)
	}
	names, pairs := strings.Split(spelled, "-"), m.pairs()
	s := slices.DeleteFunc(slices.Clone(pairs), func(pair []format.Relation) bool {
		return !slices.Contains(names, m.spell(subset{pair}))
	})
	if m.spell(s) != spelled {
		return 0, fmt.Errorf("%q: want relations of %s, in this order, each once", text, m.spell(pairs))
	}
	some, err := m.storeHop(s, source, hop)
	if err == nil && !some {
		err = fmt.Errorf("%q: no features of %s come to %s by so many relations", text, source, m.typed.Target)
	}
	return hop, err
}

// hopOf is a hop of a subset: at the nodes of the type head, of the features of the type source; nil: none come there.
func (m *typedMatrices) hopOf(s subset, head, source string, hop int, known map[string]*typedMatrix) (*typedMatrix,
	error) {
	if hop == 0 {
		if head != source {
			return nil, nil
		}
		return m.features(source)
	}
	name := fmt.Sprintf("%s<%s=%d", head, source, hop)
	if one, done := known[name]; done {
		return one, nil
	}
	relations, come := m.into(s, head), false
	inputs := make([]*typedMatrix, len(relations))
	for i, r := range relations {
		var err error
		if inputs[i], err = m.hopOf(s, r.Source, source, hop-1, known); err != nil {
			return nil, err
		}
		come = come || inputs[i] != nil
	}
	known[name] = nil
	if come {
		known[name] = m.mean(name, relations, inputs)
	}
	return known[name], nil
}

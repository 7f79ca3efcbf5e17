package cache

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Spec is a policy and a size, as --cache has them: POLICY:SIZE.
type Spec struct {
	Policy string
	Bytes  int64 // the size; 0: it is Rows
	Rows   int64
}

// ErrNoRoom is returned for a cache that has no room for a row.
var ErrNoRoom = errors.New("no room for a row")

// Inputs are the facts that policies choose by. A policy calls only the functions that it needs.
type Inputs struct {
	Nodes    int64
	RowBytes int64
	Seed     uint64
	// OutDegrees counts the lists of in-neighbours that each node is in.
	OutDegrees func() ([]uint32, error)
	// Visits counts, over one epoch of sampling, the batches that need the row of each node.
	Visits func() ([]uint32, error)
	// ListVisits counts, over the same epoch, the bytes that sampling reads of the adjacency list of
	// each node, and ListBytes is the size of that list.
	ListVisits func() ([]float64, error)
	ListBytes  func(node uint32) int64
	// TraceRows is how many rows of batches the optimal policy looks ahead; 0: MostTraceRows.
	TraceRows int64
	// Reach is proportional to the probability that a batch reaches each node (mq-gnn Eq. 14-16).
	Reach func() ([]float32, error)
}

// Opened is a cache, and what else its policy chose.
type Opened struct {
	*Cache
	// Lists are the nodes whose adjacency lists belong in fast memory too (ducati), and ListBytes is the size of these
	// lists; nil: none.
	Lists     []uint32
	ListBytes int64
}

// kind is a policy that a Spec can name.
type kind struct {
	name, help string
	// Bytes of the policy's tables and inputs, beside the tables that every Cache has.
	perNode, perSlot int64
	choose           func(s Spec, slots int, in Inputs) (chosen, error)
}

// chosen is a policy, and the nodes that it has chosen already.
type chosen struct {
	policy policy
	slots  int      // that it uses
	lists  []uint32 // see Opened
}

// policies has a line for each policy.
var policies = []kind{
	{"degree", "nodes of the highest out-degree", 4, 4, func(_ Spec, slots int, in Inputs) (chosen, error) {
		return byScore(slots, in.OutDegrees)
	}},
	{"presampled", "nodes that an epoch of sampling visits most", 12, 4,
		func(_ Spec, slots int, in Inputs) (chosen, error) { return byScore(slots, in.Visits) }},
	{"fifo", "rows that were missed last", 0, 0, func(_ Spec, slots int, in Inputs) (chosen, error) {
		return chosen{policy: &fifo{}, slots: slots}, nil
	}},
	{"lru", "rows that were used last", 0, 8, func(_ Spec, slots int, in Inputs) (chosen, error) {
		return chosen{policy: newLRU(slots), slots: slots}, nil
	}},
	{"gns", "nodes drawn for each epoch", 12, 6, func(_ Spec, slots int, in Inputs) (chosen, error) {
		weights, err := in.Reach()
		if err != nil {
			return chosen{}, err
		}
		p, err := newGNS(slots, weights, in.Seed)
		return chosen{policy: p, slots: slots}, err
	}},
	{"optimal", "rows that are used again soonest", 4, 25, func(_ Spec, slots int, in Inputs) (chosen, error) {
		return chosen{policy: newOptimal(slots, cmp.Or(in.TraceRows, MostTraceRows)), slots: slots}, nil
	}},
	// Visits of rows and lists, their values, a list of all items, and the chosen ones.
	{"ducati", "rows and adjacency lists of the highest value a byte", 28 + 2*jointItemBytes, 0, chooseJointly},
}

// MostTraceRows is how many rows of batches the optimal cache looks ahead at most: 1 GiB.
const MostTraceRows = 1 << 28

// traceRowBits is what each of these rows takes, in bits: a number, and whether it stays.
const traceRowBits = 8*4 + 1

// TraceRows is how many rows the optimal cache can look ahead with this memory, and TraceBytes the
// memory for these rows.
func TraceRows(bytes int64) int64 { return min(MostTraceRows, bytes/traceRowBits*8) }
func TraceBytes(rows int64) int64 { return rows * traceRowBits / 8 }

// TableBytes is the host memory of the cache's tables and its policy's inputs, at most at a
// time, without the rows, and without what the optimal policy traces.
func (s Spec) TableBytes(nodes, rowBytes int64) int64 {
	k, _ := s.kind()
	return (4+k.perNode)*nodes + (4+k.perSlot)*s.Slots(nodes, rowBytes)
}

// byScore caches the nodes of the highest scores, the lowest ids among equal ones.
func byScore(slots int, scores func() ([]uint32, error)) (chosen, error) {
	s, err := scores()
	return chosen{policy: fixed(highest(s, min(slots, len(s)))), slots: slots}, err
}

// chooseJointly divides the size between rows and adjacency lists.
func chooseJointly(s Spec, _ int, in Inputs) (chosen, error) {
	visits, err := in.Visits()
	if err != nil {
		return chosen{}, err
	}
	lists, err := in.ListVisits()
	if err != nil {
		return chosen{}, err
	}
	values := make([]float64, len(visits))
	for node, count := range visits {
		values[node] = float64(count) * float64(in.RowBytes)
	}
	rows, listNodes := Joint(s.Bytes, Items{values, func(uint32) int64 { return in.RowBytes }},
		Items{lists, in.ListBytes})
	return chosen{fixed(rows), len(rows), listNodes}, nil
}

// Policies lists all policies.
func Policies() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// Help says what each policy caches, a line each.
func Help() string {
	var b strings.Builder
	for _, p := range policies {
		fmt.Fprintf(&b, "  %-10s  %s\n", p.name, p.help)
	}
	return b.String()
}

// Parse reads "POLICY:SIZE". The size is in bytes (1GiB), or in rows (20000rows).
func Parse(text string) (Spec, error) {
	name, size, found := strings.Cut(text, ":")
	s := Spec{Policy: name}
	_, known := s.kind()
	switch {
	case !known:
		return s, fmt.Errorf("%q is no cache: its policy %q is none of %v (write POLICY:SIZE, such as degree:1GiB)",
			text, name, Policies())
	case !found || size == "":
		return s, fmt.Errorf("%q is no cache: it has no size (write %s:1GiB or %s:20000rows)", text, name, name)
	}
	if rows, ok := strings.CutSuffix(size, "rows"); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(rows), 10, 64)
		if err != nil || n < 1 {
			return s, fmt.Errorf("%q is no cache: %q is no number of rows (want 1rows or more)", text, size)
		}
		if name == "ducati" {
			return s, fmt.Errorf("%q is no cache: ducati shares bytes between rows and adjacency lists, so its size "+
				"is in bytes", text)
		}
		s.Rows = n
		return s, nil
	}
	b, err := units.ParseBytes(size)
	if err != nil {
		return s, fmt.Errorf("%q is no cache: %w, or 20000rows", text, err)
	}
	if b < 1 {
		return s, fmt.Errorf("%q is no cache: want a size of 1 byte or more", text)
	}
	s.Bytes = int64(b)
	return s, nil
}

// String is the text that Parse reads.
func (s Spec) String() string {
	if s.Bytes == 0 {
		return fmt.Sprintf("%s:%drows", s.Policy, s.Rows)
	}
	return fmt.Sprintf("%s:%d", s.Policy, s.Bytes)
}

// Slots is the number of rows that the cache has room for: at most one for each node.
func (s Spec) Slots(nodes, rowBytes int64) int64 {
	rows := s.Rows
	if s.Bytes > 0 {
		rows = s.Bytes / max(rowBytes, 1)
	}
	return min(rows, nodes)
}

// Rows are the rows of the nodes of a type: how many, and the size of each.
type Rows struct{ Nodes, Bytes int64 }

// Divide divides the size among types, so that each has the same part of its rows in the cache.
func (s Spec) Divide(types []Rows) []Spec {
	var rows, bytes int64
	for _, t := range types {
		if t.Bytes > 0 {
			rows, bytes = rows+t.Nodes, bytes+t.Nodes*t.Bytes
		}
	}
	all := make([]Spec, len(types))
	for i, t := range types {
		if all[i].Policy = s.Policy; t.Bytes > 0 && t.Nodes > 0 {
			all[i].Rows, all[i].Bytes = Part(s.Rows, t.Nodes, rows), Part(s.Bytes, t.Nodes*t.Bytes, bytes)
		}
	}
	return all
}

// Part is n * a / all, rounded down, for a up to all.
func Part(n, a, all int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	quotient, _ := bits.Div64(hi, lo, uint64(max(all, 1)))
	return int64(quotient)
}

// CheckRoom is ErrNoRoom if the cache, divided among types, has no room for a row of any. It names the least size.
func (s Spec) CheckRoom(types []Rows) error {
	var bytes, nodes int64 // of all types with features; of the largest
	for i, one := range s.Divide(types) {
		t := types[i]
		if one.Slots(t.Nodes, t.Bytes) > 0 || len(types) == 1 && t.Nodes == 0 {
			return nil
		}
		if t.Bytes > 0 {
			bytes, nodes = bytes+t.Nodes*t.Bytes, max(nodes, t.Nodes)
		}
	}
	if bytes == 0 {
		return fmt.Errorf("cache %s has %w: no node has features (leave the cache out)", s, ErrNoRoom)
	}
	row := fmt.Sprintf(", of %d bytes", types[0].Bytes)
	if len(types) > 1 {
		row = fmt.Sprintf(" of any of %d types, among which it is divided", len(types))
	}
	return fmt.Errorf("cache %s has %w%s: give %s:%d or more", s, ErrNoRoom, row, s.Policy, (bytes+nodes-1)/nodes)
}

// kind is the line of the policy in policies; false: there is none.
func (s Spec) kind() (kind, bool) {
	if i := slices.IndexFunc(policies, func(k kind) bool { return k.name == s.Policy }); i >= 0 {
		return policies[i], true
	}
	return kind{}, false
}

// Open makes the cache.
func (s Spec) Open(in Inputs) (Opened, error) {
	k, ok := s.kind()
	if !ok {
		return Opened{}, fmt.Errorf("unknown cache policy %q (want one of %v)", s.Policy, Policies())
	}
	if in.Nodes < 0 || in.Nodes >= none {
		return Opened{}, fmt.Errorf("cache of the rows of %d nodes (want 0 to %d)", in.Nodes, int64(none)-1)
	}
	slots := s.Slots(in.Nodes, in.RowBytes)
	if err := s.CheckRoom([]Rows{{in.Nodes, in.RowBytes}}); err != nil {
		return Opened{}, err
	}
	c, err := k.choose(s, int(min(slots, math.MaxInt32)), in)
	if err != nil {
		return Opened{}, fmt.Errorf("cache %s: %w", s, err)
	}
	o := Opened{Cache: newCache(s.Policy, in.Nodes, c.slots, c.policy), Lists: c.lists}
	for _, node := range o.Lists {
		o.ListBytes += in.ListBytes(node)
	}
	return o, nil
}

package preprop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// target is all that the bytes of a store depend on. Two jobs with the same target make the
// same store, and one can go on where the other ended.
type target struct {
	Graph     string            `json:"graph"` // fingerprint
	Operators []format.Operator `json:"operators"`
	Rows      string            `json:"row_set"`
	Nodes     string            `json:"nodes,omitempty"` // digest of the chosen ones
	Split     int               `json:"split"`
	Seed      uint64            `json:"seed"`
	DType     string            `json:"dtype"`
	ChunkRows int               `json:"chunk_rows"`
	LabelHops int               `json:"label_hops,omitempty"`
	// These follow from the fields above; JobStatus reads them.
	Features   int   `json:"features"`
	StoredRows int64 `json:"rows"`
	NoInput    bool  `json:"no_input,omitempty"` // the store has no hop 0
}

// targetOf is the target of an existing store.
func targetOf(m *format.Manifest) target {
	return target{
		Graph: m.Input["graph"], Operators: m.Operators, Rows: m.RowSet, Split: m.Split, Seed: m.Seed,
		DType: m.DType, ChunkRows: m.ChunkRows, LabelHops: m.LabelHops, Features: m.Features, StoredRows: m.Rows,
	}
}

func (t target) String() string {
	text, _ := json.Marshal(t) // of such fields it cannot fail
	return string(text)
}

func parseTarget(text string) (t target, err error) {
	err = json.Unmarshal([]byte(text), &t)
	return t, err
}

// matrices lists the matrices of the store, as format.Dir does.
func (t target) matrices() []format.MatrixID {
	var out []format.MatrixID
	if !t.NoInput {
		out = append(out, format.Input)
	}
	for _, o := range t.Operators {
		for hop := 1; hop <= o.Hops; hop++ {
			out = append(out, format.MatrixID{Operator: o.Name, Hop: hop})
		}
	}
	return out
}

// widths lists how many columns the matrices of the store have.
func (t target) widths() (out []int) {
	for _, id := range t.matrices() {
		out = append(out, t.width(id))
	}
	return out
}

// width is how many columns a matrix of the store has.
func (t target) width(id format.MatrixID) int {
	at := slices.IndexFunc(t.Operators, hasName(id.Operator))
	if at < 0 {
		return t.Features
	}
	return cmp.Or(t.Operators[at].Features, t.Features)
}

// operators lists the operators and their hops in words.
func (t target) operators() string {
	var list []string
	for _, o := range t.Operators {
		list = append(list, fmt.Sprintf("%s to hop %d", o.Name, o.Hops))
	}
	if list == nil {
		return "hop 0 alone"
	}
	return strings.Join(list, ", ")
}

// differences lists in what there differs from asked; "" if in nothing.
func (there target) differences(asked target) string {
	var out []string
	add := func(what string, there, asked any) {
		if there, asked := fmt.Sprint(there), fmt.Sprint(asked); there != asked {
			out = append(out, fmt.Sprintf("%s: %s there, %s asked for", what, there, asked))
		}
	}
	if there.Graph != asked.Graph {
		add("it was made of another graph, or the graph has changed: fingerprint", shortFingerprint(there.Graph),
			shortFingerprint(asked.Graph))
	}
	add("operators", there.operators(), asked.operators())
	add("--rows", there.Rows, asked.Rows)
	add("chosen nodes: digest", shortFingerprint(there.Nodes), shortFingerprint(asked.Nodes))
	add("--split", there.Split, asked.Split)
	add("--seed", there.Seed, asked.Seed)
	add("--dtype", there.DType, asked.DType)
	add("--chunk-rows", there.ChunkRows, asked.ChunkRows)
	add("--label-hops", there.LabelHops, asked.LabelHops)
	return strings.Join(out, "; ")
}

// shortFingerprint is the beginning of a fingerprint.
func shortFingerprint(fingerprint string) string { return fingerprint[:min(16, len(fingerprint))] }

// errStoreChanged is returned when another process has published the store since this one looked at it.
var errStoreChanged = errors.New("the store has changed meanwhile")

// openExisting opens the store as s.existing, if there is a complete one.
func (s *jobContext) openExisting() error {
	d, err := format.OpenAny(s.fsys, s.storeDir)
	if errors.Is(err, format.ErrIncomplete) || errors.Is(err, fs.ErrNotExist) {
		return nil // creating the store fails if there is anything else
	}
	if err != nil {
		return fmt.Errorf("%w: %w", format.ErrExists, err)
	}
	s.existing = d
	return nil
}

// checkUnchanged fails if the store is not the version that openExisting opened.
func (s *jobContext) checkUnchanged() error { return checkUnchanged(s.fsys, s.storeDir, s.existing) }

func checkUnchanged(fsys vfs.FS, storeDir string, existing *format.Dir) error {
	d, err := format.OpenAny(fsys, storeDir)
	if errors.Is(err, format.ErrIncomplete) || errors.Is(err, fs.ErrNotExist) {
		return nil // there is none, and none was removed: complete stores stay
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if existing == nil || d.Manifest.CRC32C != existing.Manifest.CRC32C {
		return errStoreChanged
	}
	return nil
}

// grow sets the target of s to all that the existing store has, and the hops and operators that o asks for. All else
// that o asks for must be as in the store.
func (s *jobContext) grow(o Options) error {
	m := &s.existing.Manifest
	s.layout = s.existing.Layout()
	there := targetOf(m)
	o.Rows, o.DType = cmp.Or(o.Rows, m.RowSet), cmp.Or(o.DType, s.layout.DType)
	o.takeDefaulted(m)
	if o.Nodes != nil {
		return fmt.Errorf("%s: %w: nodes can be chosen for a new store only (give another directory)", s.storeDir,
			format.ErrExists)
	}
	asked, err := askedOperators(m.Operators, o)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", s.storeDir, ErrOptions, err)
	}
	s.target = there
	s.target.Operators = slices.Clone(m.Operators)
	for _, a := range asked {
		if at := slices.IndexFunc(s.target.Operators, hasName(a.Name)); at < 0 {
			s.target.Operators = append(s.target.Operators, a)
		} else if have := &s.target.Operators[at]; a.Hops > have.Hops {
			have.Hops = a.Hops
		}
	}
	if err := s.askFor(&o, s.target.Operators); err != nil {
		return err
	}
	if s.options, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		return fmt.Errorf("%s: %w: %w", s.storeDir, ErrOptions, err)
	}
	slices.SortFunc(s.target.Operators, func(a, b format.Operator) int { // as s.o.Operators are
		return slices.IndexFunc(s.options.Operators, hasSpelling(a.Name)) - slices.IndexFunc(s.options.Operators,
			hasSpelling(b.Name))
	})
	other := there
	other.Graph, other.Rows, other.Split, other.Seed, other.DType = s.graph.Manifest.Fingerprint, s.options.Rows,
		s.options.Split, s.options.Seed, s.options.DType.String()
	other.LabelHops = s.options.LabelHops
	if o.ChunkRows > 0 {
		other.ChunkRows = format.NewLayout(regionSizes(s.layout), o.ChunkRows, s.layout.Features,
			s.options.DType).ChunkRows
	}
	s.options.ChunkRows = m.ChunkRows
	s.beyond = beyond(s.target.Operators, asked)
	return s.checkGrows(there, other)
}

// checkGrows fails if an existing store differs from what is asked for in more than its operators.
func (s *jobContext) checkGrows(there, asked target) error {
	if difference := there.differences(asked); difference != "" {
		return fmt.Errorf("%s: %w, with other options: %s (give another directory, or --force to replace it)",
			s.storeDir, format.ErrExists, difference)
	}
	return nil
}

// askFor makes o ask for the operators and hops of a store.
func (s *jobContext) askFor(o *Options, all []format.Operator) error {
	o.Operators, o.Hops = nil, 0
	for _, one := range all {
		parsed, err := operator.Parse(one.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", s.storeDir, err)
		}
		o.Operators, o.Hops = append(o.Operators, parsed), max(o.Hops, one.Hops)
	}
	return nil
}

func hasName(name string) func(format.Operator) bool {
	return func(o format.Operator) bool { return o.Name == name }
}

func hasSpelling(name string) func(operator.Operator) bool {
	return func(o operator.Operator) bool { return o.String() == name }
}

// askedOperators returns the operators and hops that o asks for. there lists what the store has. Where o.Hops is left
// to the default, an operator gets as many hops as it has, and a new one as many as any other has.
func askedOperators(there []format.Operator, o Options) ([]format.Operator, error) {
	if o.Hops < 0 || o.Hops > format.MaxHops {
		return nil, fmt.Errorf("%d hops: there can be 0 to %d", o.Hops, format.MaxHops)
	}
	if o.Hops == 0 && !o.Defaulted.Hops {
		return nil, nil
	}
	most := 0
	for _, t := range there {
		most = max(most, t.Hops)
	}
	most = cmp.Or(most, o.Hops)
	var asked []format.Operator
	if o.Defaulted.Operators && len(there) > 0 {
		asked = slices.Clone(there)
	} else {
		for _, operator := range o.Operators {
			a := format.Operator{Name: operator.String(), Hops: most}
			if slices.ContainsFunc(asked, hasName(a.Name)) {
				return nil, fmt.Errorf("operator %q is listed twice", operator)
			}
			if at := slices.IndexFunc(there, hasName(a.Name)); at >= 0 {
				a.Hops = there[at].Hops
			}
			asked = append(asked, a)
		}
	}
	if !o.Defaulted.Hops {
		for i := range asked {
			asked[i].Hops = o.Hops
		}
	}
	if len(asked) == 0 && o.Hops > 0 && !o.Defaulted.Hops {
		return nil, fmt.Errorf("%s, but no operator to propagate by (give --operator)", units.Count(int64(o.Hops), "hop"))
	}
	return asked, nil
}

// beyond lists the hops in all that are not in asked.
func beyond(all, asked []format.Operator) []string {
	out := []string{}
	for _, o := range all {
		from := 1
		if at := slices.IndexFunc(asked, hasName(o.Name)); at >= 0 {
			from = asked[at].Hops + 1
		}
		switch {
		case from < o.Hops:
			out = append(out, fmt.Sprintf("%s hops %d to %d", o.Name, from, o.Hops))
		case from == o.Hops:
			out = append(out, fmt.Sprintf("%s hop %d", o.Name, from))
		}
	}
	return out
}

// addsHops tells whether the target has hops that the existing store lacks.
func (s *jobContext) addsHops() bool {
	return slices.ContainsFunc(s.target.Operators, func(o format.Operator) bool {
		return !slices.Contains(s.existing.Manifest.Operators, o)
	})
}

// startFromStore lets a sequence start from the last hop that the existing store has, if that store has all rows, with
// all labels.
func (s *jobContext) startFromStore(c *engine.HopSequence) error {
	m := &s.existing.Manifest
	at := slices.IndexFunc(m.Operators, hasName(c.Operator.String()))
	if m.Rows < m.Nodes || m.LabelHops > 0 || at < 0 || m.Operators[at].Hops == 0 {
		return nil
	}
	stored, err := s.existing.Matrix(c.ID(m.Operators[at].Hops))
	c.From = m.Operators[at].Hops
	c.Input = engine.NewInput(stored, s.nodes, s.options.DType)
	return err
}

// loadNodes reads the node of each row of the existing store.
func (s *jobContext) loadNodes(ctx context.Context) error {
	s.nodes = make([]uint32, s.existing.Manifest.Rows)
	return s.existing.VisitRows(ctx, func(t *format.RowTable, first int64) { copy(s.nodes[first:], t.NodeID) })
}

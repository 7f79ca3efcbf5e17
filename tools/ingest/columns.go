package ingest

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// Columns says what the columns of a table hold where customary names do not tell. A column is given by its name
// or, where no column has that name, by its number, from 1.
type Columns struct {
	Source, Destination string
	Weight              string   // None: edges have no weights
	Edge, Node          []string // further columns of edges and of nodes, NAME or NAME:TYPE
	ID                  string   // None: the rows of a table are the nodes, in order
	Label, Split        []string
	Features            []string // names and globs

	// In a typed graph: the type of nodes, or the types at the two ends of edges. They are customary names of ids too.
	ofType   string
	endTypes [2]string
	// In a typed graph: the columns of Edge and Node that any table has had so far, after their flag; nil: the only table
	// has all.
	seen map[string]bool
}

// byName tells whether a flag asks for a column by its name, which calls for a header.
func byName(wanted string) bool {
	if wanted == "" || wanted == None {
		return false
	}
	_, isNumber := parseUint([]byte(wanted))
	return !isNumber
}

// None stands for no column.
const None = "none"

// columnKey writes a name of a column as the customary names are written: in lower case, without spaces, "_", "-" and
// ".".
func columnKey(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '_' || r == '-' || r == '.' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// has tells whether the role has the name. A name of Neo4j has a type behind a colon (:START_ID(Person), paper:ID,
// weight:float): the types START_ID, END_ID, ID and LABEL decide; else the name before the colon does.
func (r role) has(name string) bool {
	if slices.Contains(r.names, columnKey(name)) {
		return true
	}
	before, kind, typed := strings.Cut(name, ":")
	if !typed {
		return false
	}
	kind, _, _ = strings.Cut(kind, "(")
	switch kind {
	case "START_ID", "END_ID", "ID", "LABEL":
		return slices.Contains(r.names, columnKey(kind))
	}
	return slices.Contains(r.names, columnKey(before))
}

// isIndex tells whether a column is the row index that pandas writes.
func isIndex(name string) bool {
	return name == "" || name == "index" || strings.HasPrefix(name, "Unnamed:") ||
		strings.HasPrefix(name, "__index_level_")
}

// givesAway tells whether a name is one of labels, splits or ids.
func givesAway(name string) bool {
	bare := strings.TrimRight(name, "0123456789")
	for _, r := range append(maskRoles[:], idRole, labelRole, splitRole) {
		if r.has(name) || r.has(bare) {
			return true
		}
	}
	return isIndex(name) ||
		slices.ContainsFunc(words(name), func(w string) bool { return slices.Contains(answerWords, w) })
}

// words are the words of a name, in lower case: trainMask2 and train_mask.2 have two.
func words(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if !unicode.IsLetter(r) {
			b.WriteByte(' ')
		} else {
			if unicode.IsUpper(r) && lower {
				b.WriteByte(' ')
			}
			b.WriteRune(unicode.ToLower(r))
		}
		lower = unicode.IsLower(r)
	}
	return strings.Fields(b.String())
}

// header is the names of the columns of a table; without them, a column has its number.
type header struct {
	names []string
	named bool
}

// numbered is the header of n columns without names.
func numbered(n int) header {
	h := header{names: make([]string, n)}
	for i := range h.names {
		h.names[i] = strconv.Itoa(i + 1)
	}
	return h
}

// name is the name of a column as messages and manifests have it.
func (h header) name(i int) string {
	if !h.named {
		return "column " + h.names[i]
	}
	return printedName(h.names[i])
}

// place names a column in an error.
func (h header) place(i int) string {
	if !h.named {
		return h.name(i)
	}
	return "column " + h.name(i)
}

// printedName quotes a name unless it reads well without quotes.
func printedName(name string) string {
	if name == "" || len(name) > 100 || !printable(name) || strings.ContainsAny(name, " ,;=\"") {
		return fmt.Sprintf("%.100q", name)
	}
	return name
}

func (h header) printed(columns []int) (names []string) {
	for _, i := range columns {
		names = append(names, h.name(i))
	}
	return names
}

func (h header) list(columns []int) string { return listed(h.printed(columns)) }

const mostListed = 20

// listed is a list of names, or of the first of many.
func listed(names []string) string {
	if n := len(names) - mostListed; n > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:mostListed], ", "), n)
	}
	return strings.Join(names, ", ")
}

func (h header) all() string { return h.list(h.except(nil)) }

// find is the column that a flag names, or numbers from 1.
func (h header) find(flag, wanted string) (int, error) {
	same := func(name string) bool { return name == wanted }
	for range 2 {
		found := slices.DeleteFunc(h.except(nil), func(i int) bool { return !h.named || !same(h.names[i]) })
		if len(found) > 1 {
			return 0, fmt.Errorf("--%s %s: %d columns have that name (the columns are %s)",
				flag, wanted, len(found), h.all())
		} else if len(found) == 1 {
			return found[0], nil
		}
		same = func(name string) bool { return columnKey(name) == columnKey(wanted) }
	}
	if n, err := strconv.Atoi(wanted); err == nil && n >= 1 && n <= len(h.names) {
		return n - 1, nil
	}
	if !h.named {
		return 0, fmt.Errorf("--%s %s: without a header, want the number of a column, 1 to %d",
			flag, wanted, len(h.names))
	}
	return 0, fmt.Errorf("--%s %s: there is no such column (the columns are %s)", flag, wanted, h.all())
}

// pattern is the column that a flag asks for, or all columns that a glob matches.
func (h header) pattern(flag, wanted string) (columns []int, glob bool, err error) {
	one, err := h.find(flag, wanted)
	if err == nil {
		return []int{one}, false, nil
	}
	if !h.named || !strings.ContainsAny(wanted, "*?[") {
		return nil, false, err
	}
	for i, name := range h.names {
		match, err := path.Match(strings.ToLower(wanted), strings.ToLower(name))
		if err != nil {
			return nil, true, fmt.Errorf("--%s %s: the pattern is not complete", flag, wanted)
		}
		if match {
			columns = append(columns, i)
		}
	}
	if columns == nil {
		return nil, true, fmt.Errorf("--%s %s: no column matches (the columns are %s)", flag, wanted, h.all())
	}
	return columns, true, nil
}

// withRoles are the columns that are customarily what a role says.
func (h header) withRoles(roles ...role) []int {
	return slices.DeleteFunc(h.except(nil), func(i int) bool {
		return !h.named || !slices.ContainsFunc(roles, func(r role) bool { return r.has(h.names[i]) })
	})
}

// one is the column of a role, and not one of taken: as a flag says, by name or, without names, at its place. -1: none.
func (h header) one(asked string, place int, taken []int, roles ...role) (int, error) {
	found := slices.DeleteFunc(h.withRoles(roles...), func(i int) bool { return slices.Contains(taken, i) })
	switch {
	case asked == None:
		return -1, nil
	case asked != "":
		return h.find(roles[0].flag, asked)
	case !h.named:
		return place, nil
	case len(found) > 1:
		return -1, h.errAmbiguous(roles[0], found)
	case len(found) == 1:
		return found[0], nil
	}
	return -1, nil
}

func (h header) errAmbiguous(r role, columns []int) error {
	return fmt.Errorf("columns %s are all named like %s: say which with --%s NAME", h.list(columns), r.what, r.flag)
}

func (h header) errNone(r role) error {
	return fmt.Errorf("no column is named like %s: say which is with --%s NAME (the columns are %s)",
		r.what, r.flag, h.all())
}

// idOf is the first of these names that is one column's; "": none.
func (h header) idOf(names ...string) string {
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(h.names), func(n string) bool { return columnKey(n) != columnKey(name) })
		if h.named && len(found) == 1 {
			return found[0]
		}
	}
	return ""
}

// edgeColumns are the columns of a table of edges, from 0.
type edgeColumns struct {
	header
	source, destination int
	weight              int  // -1: none
	items               bool // the destinations are numbered apart from the sources
	lower               bool // no destination is greater than its source: the lower triangle of a symmetric matrix
}

// edgeColumns finds the columns of a table of edges: as the flags say, by name, or, without names, by place:
// source, destination and, if there are three, weight.
func (h header) edgeColumns(o Columns) (c edgeColumns, err error) {
	c = edgeColumns{header: h, weight: -1}
	if len(h.names) < 2 {
		return c, fmt.Errorf("one column, %s (want a source and a destination)", h.all())
	}
	ends := [2]string{o.Source, o.Destination}
	for k, name := range o.endTypes {
		if name == "" {
			continue
		}
		ends[k] = cmp.Or(ends[k], h.idOf(name+"_id", name))
	}
	if c.source, err = h.one(ends[0], 0, nil, sourceRole); err != nil {
		return c, err
	}
	if c.destination, err = h.one(ends[1], 1, nil, destinationRole, itemRole); err != nil {
		return c, err
	}
	if c.source < 0 {
		return c, h.errNone(sourceRole)
	} else if c.destination < 0 {
		return c, h.errNone(destinationRole)
	}
	c.items = ends[1] == "" && o.endTypes[1] == "" && h.named && itemRole.has(h.names[c.destination])
	place := -1 // of the weight, without names
	if len(h.names) == 3 {
		place = 3 - c.source - c.destination
	}
	c.weight, err = h.one(o.Weight, place, []int{c.source, c.destination}, weightRole)
	if err == nil && (c.source == c.destination || c.weight == c.source || c.weight == c.destination) {
		err = fmt.Errorf("source = %s, destination = %s, weight = %s: a column is taken twice; "+
			"--source-column, --destination-column and --weight-column say which is what",
			h.name(c.source), h.name(c.destination), h.name(max(c.weight, 0)))
	}
	return c, err
}

// checkItems refuses to take two numberings for one.
func (c edgeColumns) checkItems(bipartite bool) error {
	if !c.items || bipartite {
		return nil
	}
	src, dst := c.names[c.source], c.names[c.destination]
	return fmt.Errorf("%s and %s look like ids of different things: id 1 of both would become one node. --ids "+
		"bipartite makes two nodes, %q and %q; if both are ids of the same nodes, give --destination-column %s",
		printedName(src), printedName(dst), src+":1", dst+":1", printedName(dst))
}

func (c edgeColumns) taken() string {
	s := fmt.Sprintf("source = %s, destination = %s", c.name(c.source), c.name(c.destination))
	if c.weight >= 0 {
		s += ", weight = " + c.name(c.weight)
	}
	return s
}

// columns are the source, the destination and, if edges have weights, the weight.
func (c edgeColumns) columns() []int {
	return slices.DeleteFunc([]int{c.source, c.destination, c.weight}, func(i int) bool { return i < 0 })
}

func (h header) except(taken []int) (left []int) {
	for i := range h.names {
		if !slices.Contains(taken, i) {
			left = append(left, i)
		}
	}
	return left
}

func (h header) note(path, taken string, left []int) string {
	if len(left) == 0 {
		return path + ": " + taken
	}
	var said []string
	for _, i := range left {
		name := h.name(i)
		if h.named && isIndex(h.names[i]) {
			name += " (the row index)"
		}
		said = append(said, name)
	}
	return fmt.Sprintf("%s: %s; left out: %s", path, taken, listed(said))
}

func (o *Columns) declare(flags *pflag.FlagSet) {
	flags.StringVar(&o.Source, sourceRole.flag, "", "column of edges: source")
	flags.StringVar(&o.Destination, destinationRole.flag, "", "column of edges: destination")
	flags.StringVar(&o.Weight, weightRole.flag, "", "column of edges: weight; none: edges have no weights")
	const columns = "that the graph keeps, as NAME or NAME:TYPE, separated by commas, such as time:int64 (default: " +
		"Parquet's own type, else float32)"
	flags.StringSliceVar(&o.Edge, edgeColumnsFlag, nil, "further columns of edges "+columns)
	flags.StringSliceVar(&o.Node, nodeColumnsFlag, nil,
		"further columns of nodes, of numbers or lists of numbers, "+columns)
	o.declareNodes(flags)
}

func (o *Columns) declareNodes(flags *pflag.FlagSet) {
	flags.StringVar(&o.ID, idRole.flag, "", "column of nodes: id; none: row i is node i")
	flags.StringSliceVar(&o.Label, labelRole.flag, nil,
		"columns of nodes: label; several (names and globs, separated by commas) are several labels a node")
	flags.StringSliceVar(&o.Split, splitRole.flag, nil,
		"columns of nodes: split; several are several splits, or the train, valid and test masks of one")
	flags.StringSliceVar(&o.Features, "feature-columns", nil,
		"columns of nodes: features, as names and globs, separated by commas")
}

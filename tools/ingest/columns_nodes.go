package ingest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
)

// columnValues says what the values of a column can be, as its type or its first value tells.
type columnValues struct {
	id     bool // ids
	number bool // features
	list   bool // of numbers
	what   string
	width  int // values of the list in the first row of text
}

// parts are the contents of a table of nodes that exist, or are read.
type parts uint8

const (
	features parts = 1 << iota
	labels
	splits
	kept     // as columns of the graph
	allParts = features | labels | splits | kept
)

func (p parts) has(part parts) bool { return p&part != 0 }

// eachPart has the flags of each part: the one for its columns, and the one for its file.
var eachPart = []struct {
	part         parts
	column, file string
}{{features, "feature-columns", "features"}, {labels, labelRole.flag, "labels"}, {splits, splitRole.flag, "splits"},
	{kept, nodeColumnsFlag, ""}}

// nodeColumns are the columns of a table of nodes, from 0. Labels and features are each one column of lists, or any
// number of columns of single values.
type nodeColumns struct {
	header
	id       int // -1: the rows are the nodes, in order
	labels   []int
	splits   []int
	masks    []uint8 // part of the one split that each of splits tells; nil: each is a split
	features []int
	kept     []int
}

// nodeColumns finds the columns of a table of nodes: as the flags say, by name, or, without names, by place:
// the id and then the values that are wanted. What is named like an id, a label or a split is no feature unless a flag
// says so.
func (h header) nodeColumns(values []columnValues, o Columns, want parts) (c nodeColumns, err error) {
	c = nodeColumns{header: h}
	if o.ofType != "" {
		o.ID = cmp.Or(o.ID, h.idOf("id", o.ofType+"_id", o.ofType))
	}
	c.id, err = h.one(o.ID, 0, nil, idRole)
	if err == nil && want.has(labels) {
		c.labels, err = c.choose(labelRole, o.Label, want == labels)
	}
	if err == nil && want.has(splits) {
		err = c.chooseSplits(o.Split, want == splits)
	}
	if err == nil && want.has(kept) {
		for _, name := range columnNames(o.Node) {
			i, err := c.find(nodeColumnsFlag, name)
			if err == nil {
				c.kept = append(c.kept, i)
			} else if o.seen == nil {
				return c, err
			}
		}
	}
	if err == nil && want.has(features) {
		err = c.chooseFeatures(values, o, want == features)
	}
	if err == nil && c.id < 0 && o.ID == "" {
		err = c.checkRowOrder(values, o)
	}
	return c, err
}

func (c *nodeColumns) ofPart(part parts) []int {
	return map[parts][]int{features: c.features, labels: c.labels, splits: c.splits, kept: c.kept}[part]
}

// checkRowOrder refuses to take rows as nodes where a column may be the id, under a name that says nothing.
func (c *nodeColumns) checkRowOrder(values []columnValues, o Columns) error {
	known := slices.Concat(c.labels, c.splits, c.kept)
	known = append(known, c.withRoles(append(maskRoles[:], labelRole, splitRole)...)...)
	if len(o.Features) > 0 {
		known = append(known, c.features...)
	}
	for _, i := range c.except(known) {
		if values[i].id {
			return fmt.Errorf("no column is named like %s: say which is with --%s NAME, or --%s %s where the rows "+
				"are the nodes in order (the columns are %s)",
				idRole.what, idRole.flag, idRole.flag, None, c.all())
		}
	}
	return nil
}

// patterns are the columns that a flag with a list asks for, in the order of the table. A glob matches no column for
// which hidden is true.
func (c *nodeColumns) patterns(flag string, list []string, hidden func(int) bool) (out []int, err error) {
	for _, p := range list {
		columns, glob, err := c.pattern(flag, p)
		if err != nil {
			return nil, err
		}
		if glob {
			if columns = slices.DeleteFunc(columns, hidden); len(columns) == 0 {
				return nil, fmt.Errorf("--%s %s: matches only columns that are named like ids, labels or splits; "+
					"name them in full", flag, p)
			}
		}
		out = append(out, columns...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (c *nodeColumns) isID(i int) bool { return i == c.id }

// others are the columns that are neither the id nor an index.
func (c *nodeColumns) others() []int {
	return slices.DeleteFunc(c.except([]int{c.id}), func(i int) bool { return c.named && isIndex(c.names[i]) })
}

// choose finds the columns of labels or splits. alone: the table is read for them only.
func (c *nodeColumns) choose(r role, asked []string, alone bool) ([]int, error) {
	if len(asked) > 0 {
		return c.patterns(r.flag, asked, c.isID)
	}
	others := c.others()
	if !c.named {
		if alone {
			return others, nil
		}
		return nil, nil
	}
	found := slices.DeleteFunc(c.withRoles(r), c.isID)
	switch {
	case len(found) > 1:
		return nil, c.errAmbiguous(r, found)
	case len(found) == 0 && alone && len(others) == 1:
		return others, nil
	case len(found) == 0 && alone:
		return nil, c.errNone(r)
	}
	return found, nil
}

func (c *nodeColumns) chooseSplits(asked []string, alone bool) (err error) {
	masks := c.withRoles(maskRoles[:]...)
	if len(asked) == 0 && len(masks) > 0 {
		if found := c.withRoles(splitRole); len(found) > 0 {
			return c.errAmbiguous(splitRole, append(found, masks...))
		}
		return c.chooseMasks(masks)
	}
	c.splits, err = c.choose(splitRole, asked, alone)
	isOther := func(i int) bool { return !slices.Contains(masks, i) }
	if len(asked) > 0 && len(c.splits) > 0 && !slices.ContainsFunc(c.splits, isOther) {
		return c.chooseMasks(c.splits)
	}
	return err
}

func (c *nodeColumns) chooseMasks(columns []int) error {
	c.splits = nil
	for part, r := range maskRoles {
		found := slices.DeleteFunc(slices.Clone(columns), func(i int) bool { return !r.has(c.names[i]) })
		if len(found) > 1 {
			return c.errAmbiguous(r, found)
		} else if len(found) == 1 {
			c.splits, c.masks = append(c.splits, found[0]), append(c.masks, format.SplitTrain+uint8(part))
		}
	}
	return nil
}

func (c *nodeColumns) numSplits() int {
	if c.masks != nil {
		return 1
	}
	return len(c.splits)
}

func (c *nodeColumns) chooseFeatures(values []columnValues, o Columns, alone bool) (err error) {
	const flag = "feature-columns"
	var answers []int // in another file, under these names
	for _, p := range slices.Concat(o.Label, o.Split) {
		columns, _, _ := c.pattern("", p)
		answers = append(answers, columns...)
	}
	known := slices.Concat(answers, c.labels, c.splits, c.kept)
	taken := func(i int) bool {
		return i == c.id || slices.Contains(known, i) || c.named && givesAway(c.names[i])
	}
	isList := func(i int) bool { return values[i].list }
	if len(o.Features) > 0 {
		if c.features, err = c.patterns(flag, o.Features, taken); err != nil {
			return err
		}
		if lists := slices.DeleteFunc(slices.Clone(c.features),
			func(i int) bool { return !isList(i) }); len(lists) > 0 && len(c.features) > 1 {
			return fmt.Errorf("--%s: column %s is a list, which is all of the features; name it alone, or columns "+
				"of numbers", flag, c.name(lists[0]))
		}
		for _, i := range c.features {
			if !values[i].list && !values[i].number {
				return fmt.Errorf("--%s: column %s is %s (want numbers, or a list of them)",
					flag, c.name(i), values[i].what)
			}
		}
		return nil
	}
	if !c.named {
		if alone {
			c.features = c.others()
		}
		return nil
	}
	var lists []int
	for _, i := range c.others() {
		switch {
		case taken(i):
		case values[i].list:
			lists = append(lists, i)
		case values[i].number:
			c.features = append(c.features, i)
		}
	}
	switch {
	case len(lists) > 1:
		return fmt.Errorf("columns %s are lists, and one list can be the features: say which with --%s NAME",
			c.list(lists), flag)
	case len(lists) == 1:
		c.features = lists
	case len(c.features) == 0 && alone:
		return fmt.Errorf("no column can be features, as none is of numbers and not named like an id, a label or "+
			"a split: --%s says which are (the columns are %s)", flag, c.all())
	}
	return nil
}

func (c *nodeColumns) taken() string {
	said := []string{"id = the number of the row"}
	if c.id >= 0 {
		said[0] = "id = " + c.name(c.id)
	}
	say := func(what string, columns []int) {
		switch n := len(columns); {
		case n == 0:
		case n <= 3:
			said = append(said, what+" = "+c.list(columns))
		default:
			said = append(said, fmt.Sprintf("%s = %d columns from %s to %s", what, n, c.name(columns[0]),
				c.name(columns[n-1])))
		}
	}
	say("label", c.labels)
	say("split", c.splits)
	say("features", c.features)
	say("columns", c.kept)
	return strings.Join(said, ", ")
}

// labelHint names columns that may be the label, if there is none. Columns that ask a question, as is_fraud, come
// first; then the columns that are left out.
func (c *nodeColumns) labelHint() string {
	if len(c.labels) > 0 || !c.named {
		return ""
	}
	asks := func(i int) bool {
		first := words(c.names[i])
		return len(first) > 1 && (first[0] == "is" || first[0] == "has")
	}
	likely := slices.DeleteFunc(slices.Concat(c.left(), c.features), func(i int) bool { return !asks(i) })
	likely = append(likely, slices.DeleteFunc(c.left(), func(i int) bool { return asks(i) || isIndex(c.names[i]) })...)
	if len(likely) == 0 {
		return ""
	}
	return fmt.Sprintf("; no column is named like a label (--%s %s takes a column as the label)", labelRole.flag,
		strings.Join(c.printed(likely[:min(3, len(likely))]), " or "))
}

func (c *nodeColumns) left() []int {
	return c.except(slices.Concat([]int{c.id}, c.labels, c.splits, c.features, c.kept))
}

var errTwoParts = errors.New("the node is in more than one of the train, valid and test masks")

// recordFeatures adds to what a graph was made from which columns its features are, if they have names: a model reads
// them in this order.
func (c *nodeColumns) recordFeatures(input map[string]string) {
	if !c.named || len(c.features) < 2 { // one column is a list, whatever its name
		return
	}
	text := c.list(c.features)
	if len(c.features) > mostListed {
		digest := sha256.New()
		for _, i := range c.features {
			fmt.Fprintf(digest, "%q", c.names[i])
		}
		text += fmt.Sprintf(" (SHA-256 %.16x)", digest.Sum(nil))
	}
	input[format.FeatureColumns] = text
}

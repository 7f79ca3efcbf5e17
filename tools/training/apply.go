package training

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// AllRows is the name of all labelled rows.
const AllRows = "all"

// RowChoices are the rows that a model is evaluated on.
var RowChoices = []string{format.RegionTest, format.RegionValid, format.RegionTrain, AllRows}

// Evaluated says which labelled rows a model is evaluated on.
type Evaluated struct {
	Rows       string // one of RowChoices
	Split      int    // < 0: the split of the training, or else of the store
	SplitsFile string // "": the splits of the store
}

// Evaluation is the rows that a model is evaluated on.
type Evaluation struct {
	Parts       []session.Part
	Rows        int64
	About       string // which they are
	SameNodes   bool   // as in training
	TrainedRows int64  // that the model was trained on
}

// PlanEvaluation finds the rows to evaluate on. It refuses rows that the model was trained on, unless they are asked
// for: an Evaluated of AllRows or of the training rows.
func PlanEvaluation(ctx context.Context, store *format.Dir, c *checkpoint.Checkpoint, o Evaluated,
	budget machine.Limit) (e Evaluation, err error) {
	m, labelled := &store.Manifest, int64(0)
	stored, err := checkpoint.ReadRows(ctx, store)
	if err != nil {
		return e, err
	}
	trainedParts, grown := stored.Compare(store, c)
	e.SameNodes = trainedParts != nil
	var p session.Partition
	var split string
	if e.SameNodes && o.Split < 0 && o.SplitsFile == "" {
		p, split = session.PartitionOf(store, trainedParts),
			splitText(c.Data.Split, c.Data.SplitsFile)+", as in training"
		if !c.Data.SameRows(checkpoint.DataSetOf(m)) {
			split += " (from another store of the same nodes)"
		}
	} else {
		if p, err = session.OpenPartition(ctx, store, o.Split, o.SplitsFile, budget); err != nil {
			return e, err
		}
		number := o.Split
		if number < 0 && o.SplitsFile == "" {
			number = m.Split
		}
		split = splitText(max(number, 0), o.SplitsFile != "")
	}
	for _, part := range p.Parts() {
		if o.Rows != AllRows && o.Rows != part.Name {
			continue
		}
		before := e.Rows
		part.Each(store, func(row int64) {
			e.Rows++
			if stored.Labels[row] >= 0 {
				labelled++
			}
			if e.SameNodes && trainedParts[row] == format.SplitTrain {
				e.TrainedRows++
			}
		})
		if e.Rows > before {
			e.Parts = append(e.Parts, part)
		}
	}
	switch {
	case e.Rows == 0:
		return e, session.Refuse("%s has no %s rows in %s: choose others by --rows %s, or another split by --split or "+
			"--splits", store.Path(), o.Rows, split, strings.Join(RowChoices, "|"))
	case labelled == 0:
		return e, session.Refuse("0 of the %s of %s in %s have a label to evaluate by: "+
			"choose others by --rows %s, or another split by --split or --splits", units.Count(e.Rows,
			"row"), store.Path(), split, strings.Join(RowChoices, "|"))
	case e.TrainedRows > 0 && o.Rows != format.RegionTrain && o.Rows != AllRows:
		return e, session.Refuse("the model was trained on %d of the %d %s rows of %s (it was trained by %s): "+
			"leave out --split and --splits, or give --rows all, which prints each part by itself", e.TrainedRows,
			e.Rows, o.Rows, split, splitText(c.Data.Split, c.Data.SplitsFile))
	}
	e.About = o.Rows + " rows of " + split
	if o.Rows == AllRows {
		e.About = "all rows, by " + split
	}
	if !e.SameNodes {
		e.About += fmt.Sprintf("; the model was trained on other data (%s, %s)", units.Printable(c.Data.Name),
			units.Count(c.Data.Nodes, "node"))
		if grown {
			e.About += "; where both have labels, they agree: if the nodes are the same, it may have been trained on " +
				"some of these rows"
		}
	}
	return e, nil
}

// splitText names a split in messages.
func splitText(number int, file bool) string {
	text := fmt.Sprintf("split %d", number)
	if file {
		text += " of a file of splits"
	}
	return text
}

// OpenToApply opens a store, or a graph, for a model that is applied to parts of its rows, one after another. It sets
// the matrices, the model and the rows of the options. mapped and scratch are of a graph, as in Options.
func OpenToApply(ctx context.Context, dir *format.Dir, c *checkpoint.Checkpoint, so session.Options,
	parts []session.Part, mapped bool, scratch string) (in Input, sections []trainer.NamedRows, err error) {
	for _, part := range parts {
		so.Rows = append(so.Rows, part.Rows)
	}
	so.Matrices, so.Model = c.Spec.Matrices, c.Spec
	if dir.Manifest.Kind == format.KindGraph {
		o := Options{Machine: so.Machine, Spec: c.Spec, Held: so.Held, Mapped: mapped, Scratch: scratch}
		o.Placement = so.Placement
		in, err = openGraph(ctx, dir, o)
	} else {
		var s *session.Session
		s, err = session.Open(ctx, dir, so)
		in = Store{Session: s}
	}
	if err != nil {
		return nil, nil, err
	}
	for _, part := range parts {
		sets, err := in.InOrder(part.Rows)
		if err != nil {
			return nil, nil, errors.Join(err, in.Close())
		}
		section := trainer.NamedRows{Name: part.Name}
		for _, set := range sets {
			section.Rows = append(section.Rows, set)
		}
		sections = append(sections, section)
	}
	return in, sections, nil
}
